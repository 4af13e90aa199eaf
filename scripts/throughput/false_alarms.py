#!/usr/bin/env python3
"""Repeats the throughput benchmark on an unchanged build, and counts the runs that flag a change.

    false_alarms.py                  100 runs after a first one, about 40 seconds each
    false_alarms.py 20 hot gpt       20 runs of the benchmarks with "hot" or "gpt" in their names
    false_alarms.py 5 hot --noise-threshold 0.0001
                                     checks this script: nearly every run has to be flagged
    false_alarms.py --bench EXE      a built benchmark instead of that of the checkout

Criterion compares each run with the one before. It flags a benchmark if the whole confidence
interval of the change lies beyond the noise threshold. The table shows for each benchmark the
largest threshold that an unchanged build went beyond. The samples are kept apart from those of
`cargo bench`. Exit status 1: a run flagged a change.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from math import comb
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
# The lines of a benchmark begin with its name. Others are indented or begin with a plain word.
NAME = re.compile(r"^(\w+/\S+)", re.MULTILINE)
FLAGGED = re.compile(r"Performance has (?:regressed|improved)")


def built() -> str:
    """The path of the benchmark, which is built first."""
    command = ["cargo", "bench", "--bench", "throughput", "--no-run", "--message-format", "json"]
    done = subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True)
    messages = map(json.loads, done.stdout.splitlines())
    return next(message["executable"] for message in messages if message.get("executable"))


def sure_change(file: Path) -> float:
    """The end of the confidence interval that is nearer to zero; 0 if zero is inside."""
    interval = json.loads(file.read_text())["mean"]["confidence_interval"]
    return max(interval["lower_bound"], -interval["upper_bound"], 0.0)


def highest_rate(hits: int, runs: int) -> float:
    """The highest rate that agrees with the runs at 95 % confidence (Clopper and Pearson)."""
    low, high = 0.0, 1.0
    for _ in range(50):
        rate = (low + high) / 2
        few = sum(comb(runs, k) * rate**k * (1 - rate) ** (runs - k) for k in range(hits + 1))
        low, high = (rate, high) if few > 0.05 else (low, rate)
    return high


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="?", type=int, default=100, help="compared runs")
    parser.add_argument("filters", nargs="*", help="parts of names of benchmarks (default: all)")
    parser.add_argument(
        "--noise-threshold", metavar="PART", help="instead of that of each benchmark"
    )
    parser.add_argument("--bench", metavar="EXE", help="a built benchmark")
    args = parser.parse_args()
    command = [args.bench or built(), "--bench", "--noplot"]
    if args.noise_threshold:
        command += ["--noise-threshold", args.noise_threshold]
    if args.filters:
        command.append("|".join(args.filters))
    largest: dict[str, float] = {}
    flagged_runs = comparisons = 0
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "CRITERION_HOME": folder}
        # Run 0 has nothing to be compared with.
        for run in range(args.runs + 1):
            done = subprocess.run(
                command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=False
            )
            text = done.stdout
            _, *parts = NAME.split(text)
            texts = dict(zip(parts[::2], parts[1::2], strict=True))
            flagged = [name for name, said in texts.items() if FLAGGED.search(said)]
            flagged_runs += bool(flagged)
            changes = list(Path(folder).glob("**/change/estimates.json"))
            if done.returncode:
                sys.exit(f"run {run}: the benchmark failed:\n{done.stderr}")
            if not texts or len(changes) != (len(texts) if run else 0):
                sys.exit(f"run {run}: cannot read the output of the benchmark:\n{text}")
            for file in changes:
                name = str(file.relative_to(folder).parents[1])
                largest[name] = max(largest.get(name, 0.0), sure_change(file))
                comparisons += 1
            load = os.getloadavg()[0]
            names = " ".join(flagged) or "nothing"
            print(f"run {run}: {names} flagged, load {load:.1f}", flush=True)
    for name, change in sorted(largest.items()):
        print(f"{name:40} {change:6.1%}")
    print(
        f"{flagged_runs} of {args.runs} runs flagged a change ({comparisons} comparisons); "
        f"with 95 % confidence fewer than {highest_rate(flagged_runs, args.runs):.1%} do"
    )
    return 1 if flagged_runs else 0


if __name__ == "__main__":
    sys.exit(main())
