#!/usr/bin/env python3
"""Runs real training programs on PyTorch's allocator and on another policy, and compares memory,
losses and the time of a step; then the same under a limit that PyTorch's allocator cannot meet.

    scripts/gpu/waste.py --library .../libcoalesce_torch.so --out runs.csv [PROGRAM ...]

The programs are those of scripts/recordings. Ways to run them: `default` and `expandable` are
PyTorch's own allocator, any other name is a policy of Coalesce. Without a limit each runs --rounds
times; then once with the memory that the policy reserved as the limit. --longer 5 runs five times as
many steps, for times that no start-up dominates.

In a round without a limit the ways run at the same time, and their steps take turns: what slows the
host down for seconds slows down each way alike. Bind the script to two cores (taskset), so that they
also run on the same ones. The device must have the memory for all of them.

--out gets a line for each run, and runs that it has are not repeated, so a call that was
interrupted or ran out of --minutes resumes. The tables, printed at the end, have the peak of reserved
memory, the efficiency, the time of a step relative to `default` with its 95 % interval, whether the
losses of all steps and the weights after the last are equal to the last bit, and what ended a run
with the limit.

The time of a step is divided by the time that `default` took for the same step in the same round. For
each step, this ratio's median over the rounds counts. The table has the mean of these medians over the
second half of the steps, weighted by the steps' seconds, and a bootstrap interval over the rounds.

Several of these scripts can run at the same time with the same --lock. Their rounds then take turns.
While one runs, the programs of the others can start."""

import argparse
import contextlib
import csv
import fcntl
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (
    *("trainer", "lora", "t5", "retinanet", "graphsage", "experts", "prefetch"),
    *("pipeline", "fsdp", "sleep_and_wake", "compiled_training"),
)
NATIVE = {"default": "", "expandable": "expandable_segments:True"}
KEY = ("program", "way", "limit", "round")
COLUMNS = (*KEY, "requested", "reserved", "retries", "seconds", "losses", "weights", "ended_by")


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment(way, library):
    env = {**os.environ, "PYTHONHASHSEED": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    env["MASTER_ADDR"], env["MASTER_PORT"] = "127.0.0.1", str(free_port())
    env.pop("PYTORCH_ALLOC_CONF", None)
    env["PYTORCH_CUDA_ALLOC_CONF"] = NATIVE.get(way, "")
    env["COALESCE_TORCH_LIB"] = os.path.abspath(library)
    env["COALESCE_TORCH_ALLOC"] = f"policy={way}"
    return env


def relative(own, native):
    """The time of a step relative to `native`, and its 95 % interval. Both are lists of rounds."""
    half = len(native[0]) // 2
    seconds = [statistics.median(step) for step in zip(*native)][half:]
    ratios = [[o / n for o, n in zip(*steps)][half:] for steps in zip(own, native)]
    drawn = random.Random(0)

    def mean(ratios):
        steps = map(statistics.median, zip(*ratios))
        return sum(ratio * weight for ratio, weight in zip(steps, seconds)) / sum(seconds)

    means = sorted(mean(drawn.choices(ratios, k=len(ratios))) for _ in range(1000))
    return mean(ratios), means[25], means[974]


def is_waiting(turns):
    """Blocks until the process at the other end of the socket waits for its turn or ends. Returns False
    if it has ended."""
    try:
        return turns.recv(1) == b"."
    except ConnectionError:
        return False


class Run:
    """A program run one way, in a process for each rank."""

    def __init__(self, row, options, ranks, folder):
        self.row = row
        command = [sys.executable, ROOT / "scripts/recordings/one.py", row["program"], "--steps"]
        command += ["--coalesce"] * (row["way"] not in NATIVE)
        command += ["--limit", row["limit"]] if row["limit"] else []
        env = environment(row["way"], options.library)
        self.figures = [Path(folder) / f"{row['way']}{rank}.json" for rank in range(ranks)]
        self.processes, self.turns = [], []
        for rank, figures in enumerate(self.figures):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            turns, of_process = socket.socketpair()
            turns.settimeout(options.timeout)
            number = of_process.fileno()
            with open(figures.with_suffix(".log"), "w") as log, of_process:
                self.processes.append(
                    subprocess.Popen(
                        list(map(str, [*command, "--figures", figures, "--turns", number])),
                        env={**env, **own} if ranks > 1 else env,
                        stdout=log,
                        stderr=log,
                        pass_fds=[number],
                    )
                )
            self.turns.append(turns)

    def waits(self):
        """Blocks until each process waits for its turn or has ended. Returns whether any waits."""
        self.turns = [turns for turns in self.turns if is_waiting(turns)]
        return bool(self.turns)

    def take_turn(self):
        for turns in self.turns:
            with contextlib.suppress(ConnectionError):
                turns.send(b".")

    def result(self):
        """The row with the figures of rank 0."""
        for process, figures in zip(self.processes, self.figures):
            status = process.wait()
            if not figures.exists():
                log = figures.with_suffix(".log").read_text()[-1500:]
                raise RuntimeError(f"exit status {status}\n{log}")
        report = json.loads(self.figures[0].read_text())
        device = max(report["devices"].values(), key=lambda it: it["peak_reserved_bytes"])
        return {
            **self.row,
            "requested": device["peak_requested_bytes"],
            "reserved": device["peak_reserved_bytes"],
            "retries": device["retries"],
            "seconds": ";".join(f"{it:.6f}" for it in report["seconds"]),
            "losses": ";".join(float(loss).hex() for loss in report["losses"]),
            "weights": report["weights"],
            "ended_by": report["ended_by"] or "",
        }

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def run(rows, options, ranks):
    """Runs the rows at the same time, a step of each in turn, and returns them with their figures."""
    runs = []
    with tempfile.TemporaryDirectory() as folder, open(options.lock or f"{folder}/lock", "w") as lock:
        try:
            for row in rows:
                runs.append(Run(row, options, ranks, folder))
            going = [it for it in runs if it.waits()]
            fcntl.flock(lock, fcntl.LOCK_EX)
            while going:
                for it in list(going):
                    it.take_turn()
                    if not it.waits():
                        going.remove(it)
            return [it.result() for it in runs]
        finally:
            for it in runs:
                it.end()


def read(path):
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def unlimited(options):
    for number in range(options.rounds):
        for program in options.programs:
            row = {"program": program, "limit": "", "round": str(number)}
            yield [{**row, "way": way} for way in options.ways[:: 1 if number % 2 == 0 else -1]]


def limited(options, runs):
    policy = options.ways[-1]
    for program in options.programs:
        of_policy = [it for it in runs if (it["program"], it["way"]) == (program, policy)]
        peaks = [int(it["reserved"]) for it in of_policy if not it["limit"]]
        for way in options.ways if peaks else ():
            yield [{"program": program, "way": way, "limit": str(max(peaks)), "round": "0"}]


def perform(rounds, options, deadline, programs):
    """Runs of each round the rows that the table lacks. Returns whether all were run."""
    done = {tuple(it[key] for key in KEY) for it in read(options.out)}
    is_new = not options.out.exists()
    complete = True
    with open(options.out, "a", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            table.writeheader()
        for rows in rounds:
            rows = [row for row in rows if tuple(row[key] for key in KEY) not in done]
            if not rows:
                continue
            if time.monotonic() > deadline:
                return False
            what = " ".join([rows[0]["program"], *(row["way"] for row in rows), rows[0]["round"]])
            try:
                table.writerows(run(rows, options, programs[rows[0]["program"]].ranks))
                file.flush()
                print(what, flush=True)
            except (RuntimeError, TimeoutError) as problem:
                complete = False
                print(f"{what}: FAILED, {problem}", flush=True)
    return complete


def tables(options, runs):
    policy = options.ways[-1]
    print("\n| program | way | peak reserved, MiB | efficiency | step | losses and weights |")
    print("|---|---|--:|--:|--:|---|")
    for program in options.programs:
        of_program = [it for it in runs if it["program"] == program and not it["limit"]]
        seconds = {way: [] for way in options.ways}
        for it in of_program:
            seconds[it["way"]].append([float(step) for step in it["seconds"].split(";")])
        for way in options.ways:
            own = [it for it in of_program if it["way"] == way]
            if not own or not seconds.get("default"):
                continue
            requested, reserved = (
                max(int(it[key]) for it in own) for key in ("requested", "reserved")
            )
            step = "× {:.3f} ({:.3f} to {:.3f})".format(*relative(seconds[way], seconds["default"]))
            beside = [it for it in of_program if it["way"] in ("default", way)]
            results = {(it["losses"], it["weights"]) for it in beside}
            losses = "equal" if len(results) == 1 else "differ"
            share = 100 * requested / reserved
            print(f"| {program} | {way} | {reserved >> 20:,} | {share:.1f} % | {step} | {losses} |")
    print(f"\n| program | limit, MiB: what {policy} reserved | {' | '.join(options.ways)} |")
    print("|---|--:|" + "---|" * len(options.ways))
    for program in options.programs:
        with_limit = {it["way"]: it for it in runs if it["program"] == program and it["limit"]}
        if not with_limit:
            continue
        limit = int(next(iter(with_limit.values()))["limit"]) >> 20
        cells = []
        for way in options.ways:
            own = with_limit.get(way)
            ended = own and ("out of memory" if own["ended_by"] else "completes")
            cells.append(f"{ended}, {own['retries']} retries" if own else "")
        print(f"| {program} | {limit:,} | {' | '.join(cells)} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", default=PROGRAMS, help="programs of recordings")
    parser.add_argument("--library", required=True, help="libcoalesce_torch.so")
    parser.add_argument("--out", type=Path, required=True, help="table of all runs")
    parser.add_argument(
        "--ways",
        nargs="*",
        default=["default", "expandable", "quilt"],
        help="the policy is the last",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=9, help="starts nothing after these (9)")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for a step (120)")
    parser.add_argument("--lock", help="a file; one round runs at a time")
    parser.add_argument("--unlimited", action="store_true", help="no runs with a limit")
    parser.add_argument("--longer", type=int, default=1, help="times as many steps (1)")
    options = parser.parse_args()
    os.environ["STEPS_TIMES"] = str(options.longer)
    deadline = time.monotonic() + 60 * options.minutes
    sys.path.insert(0, str(ROOT / "scripts/recordings"))
    from programs import load

    programs = load()
    for name in options.programs:
        if name not in programs or programs[name].missing():
            parser.error(f"{name}: not a program of scripts/recordings, or a package is missing")
    complete = perform(unlimited(options), options, deadline, programs)
    if not options.unlimited:
        complete &= perform(limited(options, read(options.out)), options, deadline, programs)
    tables(options, read(options.out))
    sys.exit(not complete)


if __name__ == "__main__":
    main()
