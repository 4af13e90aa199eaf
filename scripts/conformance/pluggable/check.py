#!/usr/bin/env python3
"""Compares PyTorch on our allocator with PyTorch on its own: full torch on the simulated device.
     PY=$(../setup-torch.sh [--torch 2.15]); $PY check.py --library .../libcoalesce_torch.so

A program of the folder programs/ that ends with `report()` runs under both allocators with the same
settings. Each entry of the history (operation, address, order), all statistics, the printed
summary, the segments and the error messages must be equal. The other programs check themselves and
run under ours alone. Each run is a new process. A program can also be run by itself:
     COALESCE_TORCH_LIB=.../libcoalesce_torch.so $PY programs/pools.py"""

import argparse
import ast
import os
import pickle
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from compare import Difference, equal, without_addresses

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROGRAMS = HERE / "programs"
sys.path.insert(0, str(PROGRAMS))
from conditions import cases

OTHER_POLICIES = ["bfc", "cuda_async", "gmlake", "quilt"]
TRAINING = {
    "by default": [],
    "expandable segments": ["--conf", "expandable_segments:True"],
    "in bfloat16, batches of different lengths": ["--amp", "--vary"],
    "batches of different lengths, other settings": [
        *["--vary", "--conf"],
        "max_split_size_mb:200,roundup_power2_divisions:4,garbage_collection_threshold:0.8",
    ],
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", required=True, help="libcoalesce_torch.so")
    parser.add_argument("--only", default="", help="checks whose names contain this")
    parser.add_argument(
        "--gpu", action="store_true", help="on a GPU: only the checks that need no simulated device"
    )
    parser.add_argument("--jobs", type=int, default=2, help="checks at a time (2)")
    args = parser.parse_args()
    checks = {
        **{f"GPT-2, 5 steps, {name}": partial(gpt2, options) for name, options in TRAINING.items()},
        **dict(checks_of_programs(args.gpu)),
        **{f"GPT-2 on {policy}": partial(other_policy, policy) for policy in OTHER_POLICIES},
    }
    chosen = {name: check for name, check in checks.items() if args.only in name}
    common = {k: v for k, v in os.environ.items() if not k.startswith(("FAKE_", "PYTORCH_"))}
    common.update(
        COALESCE_TORCH_LIB=os.path.abspath(args.library),
        UNDER_CONDITIONS="1",
        # A fixed hash seed: PyTorch frees some objects in hash order.
        PYTHONHASHSEED="0",
        # PyTorch's threads warn about this where its own allocator makes no runtime call.
        PYTHONWARNINGS="ignore:Attempting to run cuBLAS",
    )

    build(common)

    def verdict(check):
        with tempfile.TemporaryDirectory() as folder:
            try:
                return check(Run(common, Path(folder), args.gpu))
            except Difference as difference:
                return difference

    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for name, said in zip(chosen, pool.map(verdict, chosen.values()), strict=True):
            if isinstance(said, Difference):
                failed += 1
                print("FAIL", name, "\n    ", str(said).replace("\n", "\n     "), flush=True)
            else:
                print("ok  ", name + ":", said, flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(failed > 0 or not chosen)


def checks_of_programs(is_on_gpu):
    """A check for each program and each case of its conditions, with its name."""
    for program in sorted(PROGRAMS.glob("*.py")):
        if program.stem in ("conditions", "harness"):
            continue
        code = program.read_text()
        check = under_both if re.search(r"^ *report\(\)$", code, re.MULTILINE) else under_ours
        environments = cases(ast.get_docstring(ast.parse(code)))
        for env in environments:
            if is_on_gpu and any(name.startswith("FAKE_") for name in env):
                continue
            differs = [v for n, v in env.items() if any(e.get(n) != v for e in environments)]
            name = " ".join([program.stem, *differs])
            yield name, partial(check, program, env)


def build(common):
    """Compiles what enable() compiles once."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import coalesce_torch as c; c.enable()"
    command = [sys.executable, "-c", program, str(ROOT / "python")]
    subprocess.run(command, env=common, check=True)


# PyTorch's own allocator and its settings print these, the former what it also raises.
# enable() says that it compiles.
WARNING = re.compile(
    r"\[W.* (CUDACachingAllocator|AllocatorConfig|CudaIPCTypes)\.cpp:\d+\] "
    r"|coalesce: compiling |W\d+ .*triton not found"
)


class Run:
    """The folder and environment of a check's programs."""

    def __init__(self, common, folder, is_on_gpu):
        self.common, self.folder, self.is_on_gpu = common, folder, is_on_gpu

    def program(self, command, env):
        for _ in range(8):
            # Fixed heap addresses: PyTorch orders some objects by them.
            done = subprocess.run(
                ["setarch", "-R", sys.executable, *command],
                env={**self.common, **env},
                capture_output=True,
                text=True,
            )
            if "terminate called without an active exception" not in done.stderr:
                break
            # From 2.12 on PyTorch ends like this now and then, with its own allocator too: its
            # autograd thread outlives the interpreter.
        status, said = int(env.get("STATUS", 0)), env.get("STDERR", "")
        errors = [line for line in done.stderr.splitlines() if not WARNING.match(line)]
        if done.returncode != status or (said not in done.stderr if said else errors):
            raise Difference(f"exit status {done.returncode}\n{done.stderr[-3000:]}")

    def compare(self, reports):
        """Compares two files that name the allocator they are from."""
        reports = {name: pickle.loads(path.read_bytes()) for name, path in reports.items()}
        if self.is_on_gpu:
            without_addresses(reports)
        return equal(reports)


def under_both(program, env, run):
    reports = {allocator: run.folder / allocator for allocator in ("native", "coalesce")}
    for allocator, path in reports.items():
        run.program([program], {**env, "ALLOCATOR": allocator, "REPORT": str(path)})
    return run.compare(reports)


def under_ours(program, env, run):
    run.program([program], {**env, "ALLOCATOR": "coalesce"})
    return "as expected"


TRAIN = [ROOT / "scripts/gpu/train.py", "--runs", "1", "--warm-up", "1", "--pairs", "1000"]


def gpt2(options, run):
    path = run.folder / "trace"
    run.program([*TRAIN, "--steps", "5", *options, "--trace", path], {})
    return run.compare({name: Path(f"{path}.{name}") for name in ("native", "coalesce")})


def other_policy(policy, run):
    run.program([*TRAIN, "--steps", "3", "--layers", "4", "--policy", policy, "--vary"], {})
    return "ran to its end"


if __name__ == "__main__":
    main()
