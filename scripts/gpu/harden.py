#!/usr/bin/env python3
"""What the mode `harden` of coalesce_torch costs: trains GPT-2 with and without it on a GPU.

    cargo build --release -p coalesce-torch
    scripts/gpu/harden.py --library target/release/libcoalesce_torch.so

Prints the median time of a step, the peaks of memory and what was reported for each mode, and
writes the same as JSON to --out. Each run is a new process; the modes take turns. Of a training
that uses its memory rightly nothing is reported: the status is 1 if it is, or if losses differ.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

TRAIN = Path(__file__).resolve().parent / "train.py"
MODES = {"off": "", "poison": "harden=poison", "guard": "harden=guard"}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", required=True, help="libcoalesce_torch.so")
    parser.add_argument("--runs", type=int, default=2, help="runs of each mode (2)")
    parser.add_argument("--steps", type=int, default=20, help="steps of a run (20)")
    parser.add_argument("--warm-up", type=int, default=5, help="untimed steps (5)")
    parser.add_argument("--modes", default="off,poison,guard")
    parser.add_argument("--out", help="a file for the figures")
    args, more = parser.parse_known_args()  # further options are those of train.py
    figures = {mode: [] for mode in args.modes.split(",")}
    for _ in range(args.runs):
        for mode, runs in figures.items():
            runs.append(run(mode, args, more))
    losses = {json.dumps(run["losses"]) for runs in figures.values() for run in runs}
    reports = sum(run["reports"] for runs in figures.values() for run in runs)
    table = {mode: summary(runs, args.warm_up) for mode, runs in figures.items()}
    for mode, row in table.items():
        print(f"{mode:8}", *(f"{name} {value:,.1f}" for name, value in row.items()), sep="  ")
    print(f"losses {'equal' if len(losses) == 1 else 'differ'}, {reports} reports")
    if args.out:
        some = figures[next(iter(figures))][0]
        where = {name: some[name] for name in ("device", "torch", "cuda")}
        Path(args.out).write_text(json.dumps({**where, "modes": table}, indent=2) + "\n")
    sys.exit(len(losses) > 1 or reports > 0)


def run(mode, args, more):
    env = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "COALESCE_TORCH_ALLOC": MODES[mode],
        "COALESCE_TORCH_LIB": os.path.abspath(args.library),
    }
    options = ["--only", "coalesce", "--steps", str(args.steps), "--pairs", "0", *more]
    command = [sys.executable, TRAIN, *options]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{mode}: exit status {done.returncode}\n{done.stderr[-3000:]}")
    said = [line for line in done.stderr.splitlines() if line.startswith("coalesce: ")]
    said = [line for line in said if "compiling" not in line]
    print(*said, sep="\n", end="\n" if said else "")
    return {**json.loads(done.stdout.splitlines()[-1]), "reports": len(said)}


def summary(runs, warm_up):
    steps = [ms for run in runs for ms in run["step_ms"][warm_up:]]
    return {
        "ms per step": statistics.median(steps),
        "MiB allocated": max(run["peak_allocated_bytes"] for run in runs) / 2**20,
        "MiB reserved": max(run["peak_reserved_bytes"] for run in runs) / 2**20,
    }


if __name__ == "__main__":
    main()
