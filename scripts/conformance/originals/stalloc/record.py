#!/usr/bin/env python3
"""Records plans and answers of STAlloc for allocator/tests/plans/stalloc.

    record.py DIR OUT --random N [--seed S]     invented programs
    record.py DIR OUT TRACE.csv.gz...           recorded programs

DIR is what setup.sh printed. For each program and algorithm STAlloc's Synthesizer makes a plan of
its first three iterations, and STAlloc's allocator executes it for the whole program.
OUT/NAME.ALGORITHM.txt gets the place of each request in the arena, or that it lies elsewhere.
Programs on which the original fails are reported and left out.

The unchanged planner runs within this process, so that its imports are loaded once.
"""

import argparse
import contextlib
import gzip
import io
import os
import random
import runpy
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent
RUN = subprocess.run
ALGORITHMS = ["group", "split-and-fuse"]
# The original has separate slots for requests up to this size.
SLOT = 512
ITERATIONS = 3
# An operation: ("m", tag), ("a", bytes), ("f", number of the request).
Op = tuple[str, object]


def recorded(path: Path, last: int | None) -> list[Op]:
    """The program of a trace; after its `last` iteration, only frees."""
    ops: list[Op] = []
    live: dict[str, int] = {}
    requests = steps = 0
    ended = False
    with gzip.open(path, "rt") as lines:
        for line in lines:
            if line.startswith(("#", "op,")):
                continue
            kind, name, size, _, tag = line.rstrip("\n").split(",")
            if kind == "mark" and name == "-1" and not ended:
                steps += tag.startswith("step ")
                ended = tag == "end" or (last is not None and steps > last)
                ops.append(("m", "end" if ended else tag))
            elif kind == "alloc" and int(size) > 0 and not ended:
                live[name] = requests
                requests += 1
                ops.append(("a", int(size)))
            elif kind == "free" and name in live:
                ops.append(("f", live.pop(name)))
    return ops


class Program:
    """An invented program: a repeated iteration, and states that the first one leaves."""

    def __init__(self, rng: random.Random):
        self.rng = rng
        self.ops: list[Op] = []
        self.requests = 0
        # Few sizes, as in a model; some small, some huge.
        palette = rng.randrange(3, 16)
        self.sizes = [self.size() for _ in range(palette)]
        self.own_sizes = rng.choice([0.0, 0.1, 0.5])

    def size(self) -> int:
        size = int(2 ** self.rng.uniform(7, 26))
        return size - size % self.rng.choice([1, 256, 512])

    def alloc(self, size: int) -> int:
        self.ops.append(("a", max(1, size)))
        self.requests += 1
        return self.requests - 1

    def free(self, request: int) -> None:
        self.ops.append(("f", request))

    def mark(self, tag: str) -> None:
        self.ops.append(("m", tag))

    def draw(self) -> int:
        return self.size() if self.rng.random() < self.own_sizes else self.rng.choice(self.sizes)

    def phase(self, length: int) -> list[tuple[str, int]]:
        """The operations of a phase: sizes to request, and frees (counted from the end)."""
        script = []
        for _ in range(length):
            if self.rng.random() < 0.45:
                script.append(("free", self.rng.randrange(1 << 30)))
            else:
                script.append(("alloc", self.draw()))
        return script

    def run(self) -> list[Op]:
        rng = self.rng
        weights = [self.alloc(SLOT + 1 + self.draw()) for _ in range(rng.randrange(1, 8))]
        early = []
        for kind, number in self.phase(rng.randrange(12)):
            if kind == "alloc":
                early.append(self.alloc(number))
            elif early:
                self.free(early.pop(number % len(early)))
        if early and rng.random() < 0.5:
            for request in early:
                self.free(request)
            early = []
        states = rng.randrange(6)
        micro_batches = rng.randrange(1, 4)
        longest = rng.choice([6, 20, 60, 200])
        phases = [self.phase(rng.randrange(2, longest)) for _ in range(2 * micro_batches)]
        begin, after = self.phase(rng.randrange(6)), self.phase(rng.randrange(8))
        warm_up = rng.choice([False, True])
        recent_first = rng.random()
        survivors: list[int] = []
        # The original requires the third iteration to equal the second; the last one may end early.
        iterations = rng.choice([2, 3, 5])
        goes_astray = rng.random() < 0.5
        for iteration in range(iterations):
            live, survivors = survivors, []
            # Iterations that are not profiled may differ.
            unlike = iteration >= ITERATIONS and goes_astray
            self.mark(f"step {iteration}")
            while iterations > 2 and live:
                self.free(live.pop())
            for number, script in enumerate([begin, *phases, after]):
                if 0 < number <= len(phases):
                    self.mark("forward" if number % 2 else "backward")
                elif number > len(phases):
                    self.mark("optimizer")
                for kind, value in script:
                    if kind == "alloc":
                        astray = unlike and rng.random() < 0.1
                        live.append(self.alloc(self.draw() if astray else value))
                    elif live:
                        last = value % 1000 < 1000 * recent_first
                        request = live.pop(-1 if last else value % len(live))
                        if unlike and rng.random() < 0.1:
                            weights.append(request)
                        else:
                            self.free(request)
                if unlike and rng.random() < 0.2:
                    live.append(self.alloc(self.draw()))
            if iteration == 0:
                weights += [self.alloc(self.draw()) for _ in range(states)]
                if warm_up:
                    self.free(self.alloc(self.draw()))
            # Only gradients outlive the iteration.
            keep = len(live) // 3
            survivors = live[:keep]
            for request in live[keep:]:
                self.free(request)
        self.mark("end")
        for request in early + survivors + weights:
            self.free(request)
        return self.ops


def log(ops: list[Op]) -> str:
    """The program in the format of STAlloc's tracer: three iterations."""
    lines = []
    sizes: list[int] = []
    live: dict[int, int] = {}
    steps = 0
    ended = False
    for kind, value in ops:
        if kind == "a":
            live[len(sizes)] = value
            sizes.append(value)
            lines.append(f"1 {len(sizes)} {value} 0")
        elif kind == "f":
            lines.append(f"0 {value + 1} {live.pop(value)} 0")
        elif value.startswith("step ") and steps < ITERATIONS and not ended:
            lines.append(f"Iteration Index : {steps}")
            steps += 1
        elif (value.startswith("step ") or value == "end") and not ended:
            lines.append("Iteration Index : end")
            ended = True
        elif value in ("forward", "backward") and steps > 0 and not ended:
            lines.append(f"micro-batch : {value[0].upper()}")
    if not ended:
        lines.append("Iteration Index : end")
    lines += [f"0 {request + 1} {size} 0" for request, size in live.items()]
    return "\n".join(lines) + "\n"


def run_planner(command: str, **_) -> SimpleNamespace:
    """Replaces subprocess.run: runs the planner's command line in this process."""
    _, script, *args = command.split()
    saved, sys.argv = sys.argv, [script, *args]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        sys.argv = saved
    return SimpleNamespace(returncode=0, stdout="", stderr="")


def plan(ops: list[Op], algorithm: str, work: Path) -> int:
    """Runs the original planner on a program and returns the height of the plan."""
    from plan_generator import generate_memory_plan
    from trace_parser import load_trace, parse_trace

    (work / "trace").mkdir(parents=True)
    (work / "trace" / "mem_log_dev0.txt").write_text(log(ops))
    args = SimpleNamespace(
        model_memory_dir=str(work),
        dynamic_model=False,
        autotune=False,
        static_algo=algorithm,
        dynamic_algo="static-reuse",
        validation=False,
        debug=False,
        draw=False,
        allocator_exec_path="./allocator.py",
        assume_dynamic_allocator_utilization=70,
        assume_bestfit_allocator_utilization=90,
    )
    tensors = load_trace(0, args)
    parse_trace(tensors)
    generate_memory_plan(tensors)
    text = (work / "output" / "plan" / "dev_0.txt").read_text().splitlines()
    return int(text[1].split()[1])


def carry_out(ops: list[Op], height: int, work: Path, directory: Path) -> list[str]:
    """Runs the original allocator with its plan: the place of each request."""
    operations = "".join(f"{kind} {value}\n" for kind, value in ops if kind != "m")
    command = [sys.executable, str(HERE / "replay.py"), str(directory / "alloc.so"), str(height)]
    environment = {**os.environ, "STALLOC_MODEL_INFO_PATH": str(work)}
    run = RUN(command, input=operations, capture_output=True, text=True, env=environment)
    if run.returncode != 0:
        raise RuntimeError(run.stderr)
    return run.stderr.split()


def vector(ops: list[Op], algorithm: str, height: int, answers: list[str]) -> str:
    lines = ["# original: STAlloc 3a9f97f", f"# algorithm: {algorithm}", f"# height: {height}"]
    answer = iter(answers)
    for kind, value in ops:
        lines.append(f"a {value} {next(answer)}" if kind == "a" else f"{kind} {value}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("traces", type=Path, nargs="*")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--last", type=int, metavar="N", help="traces end with their N-th iteration"
    )
    args = parser.parse_intermixed_args()
    out = args.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    programs = []
    for path in args.traces:
        programs.append((path.name.split(".")[0], recorded(path, args.last)))
    for seed in range(args.seed, args.seed + args.random):
        programs.append((f"random_{seed}", Program(random.Random(seed)).run()))

    os.environ["MPLBACKEND"] = "Agg"
    directory = args.dir.resolve()
    sys.path.insert(0, str(directory / "STAlloc" / "Synthesizer"))
    os.chdir(directory / "STAlloc" / "Synthesizer")
    subprocess.run = run_planner
    failed = 0
    for name, ops in programs:
        for algorithm in ALGORITHMS:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    with contextlib.redirect_stdout(io.StringIO()):
                        height = plan(ops, algorithm, Path(folder))
                    answers = carry_out(ops, height, Path(folder), directory)
                except Exception as error:
                    failed += 1
                    where = traceback.extract_tb(error.__traceback__)[-1]
                    what = f"{type(error).__name__} in {where.name}, line {where.lineno}"
                    print(f"{name}, {algorithm}: the original fails: {what}")
                    continue
            text = vector(ops, algorithm, height, answers)
            (out / f"{name}.{algorithm}.txt").write_text(text)
    print(f"{2 * len(programs) - failed} plans, {failed} failures of the original")
    return 0


if __name__ == "__main__":
    sys.exit(main())
