#!/usr/bin/env python3
"""disk.py --coalesce PROGRAM [--sample N] [--only NAME]: fails and kills at file operations.

Each scenario runs once for each of its operations on files, which then fails with ENOSPC, EFBIG,
EIO or EACCES, or with which the disk becomes full, or at which the process is killed: before it, or
after half of a write. Then must hold:

- every input is unchanged, and every output is what it was before or what it is to become, whole;
  the rows that a journal had are still in it, or in the table;
- success means that all outputs are new and all text was printed; failure is a message, no panic
  and no signal;
- the same command, run again, succeeds with the same outputs, and leaves no other file.

README.md says more. Needs a C compiler. Exits with 1 if something does not hold."""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from scenarios import CARELESS, SCENARIOS, STDOUT

HERE = Path(__file__).resolve().parent
KINDS = ["ENOSPC", "full", "EFBIG", "EIO", "EACCES", "kill", "torn"]
KILLED = 128 + 9
# A message of the program, or Python's before any of the package runs.
SAID = re.compile("^coalesce: |coalesce: memory|^Fatal Python error: init_sys_streams", re.M)
TIMEOUT_S = 120

TIMES = re.compile(rb'("seconds": ?|tried in )[0-9.]+')


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--coalesce", required=True, type=Path, help="the program")
    parser.add_argument("--sample", type=int, help="failures of each scenario, drawn (all)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the sample")
    parser.add_argument("--only", default="", help="scenarios whose names contain this")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time (2)")
    args = parser.parse_args()
    chance = random.Random(args.seed)
    violations = []
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(args.jobs) as pool:
        injector = Path(scratch, "inject")
        subprocess.run(["cc", "-O2", "-o", injector, HERE / "inject.c"], check=True)
        bench = Bench(args.coalesce.resolve(), injector, Path(scratch).resolve())
        careless = Trial(bench, CARELESS)
        if not any(pool.map(careless.violations, careless.failures())):
            sys.exit("a careless writer has no violations: nothing is checked")
        print(f"{'':26}operations  failures  violations")
        for name, scenario in SCENARIOS.items():
            if args.only not in name:
                continue
            trial = Trial(bench, scenario)
            failures = trial.failures()
            operations = max(Counter(kind for kind, _ in failures).values())
            if args.sample:
                failures = chance.sample(failures, min(args.sample, len(failures)))
            found = [one for some in pool.map(trial.violations, failures) for one in some]
            print(f"{name:26}{operations:10}{len(failures):10}{len(found):12}", flush=True)
            violations += [f"{name}: {one}" for one in found]
    for one in violations:
        print(one)
    if violations and args.sample:
        print(f"the sample was drawn with --seed {args.seed}")
    sys.exit(bool(violations))


class Bench(NamedTuple):
    """What all trials use."""

    program: Path
    injector: Path
    scratch: Path

    def folder(self):
        """A folder of the thread."""
        folder = self.scratch / f"thread-{threading.get_ident()}" / "work"
        folder.mkdir(parents=True, exist_ok=True)
        return folder


class Ended(NamedTuple):
    """A run that ended: its status, its errors, the files in the folder and what was injected."""

    status: int
    errors: str
    files: dict
    count: int
    failed: str

    @property
    def hurts(self):
        return f"status {self.status}, {self.errors.strip() or 'no message'}"


class Trial:
    """A scenario with its failures."""

    def __init__(self, bench, scenario):
        self.bench = bench
        self.scenario = scenario
        self.before = scenario.files(self)
        clean = self.run(self.before)
        if clean.status != 0:
            sys.exit(f"{' '.join(scenario.command)} fails without a failure: {clean.hurts}")
        self.after = clean.files
        if self.run(self.before).files != self.after:
            sys.exit(f"{' '.join(scenario.command)} does not write the same twice")

    def failures(self):
        """Each kind with each number of an operation that can fail so."""
        counts = {kind: self.run(self.before, kind).count for kind in KINDS}
        return [(kind, n) for kind, count in counts.items() for n in range(1, count + 1)]

    def run(self, files, kind="EIO", number=0, command=None):
        """Runs the command in a folder with these files."""
        folder = self.bench.folder()
        fill(folder, files)
        report = folder.parent / "report"
        words = command or self.scenario.command
        words = [str(self.bench.program) if word == "coalesce" else word for word in words]
        with open(folder / STDOUT, "wb") as stdout:
            done = subprocess.run(
                [self.bench.injector, folder, kind, str(number), report, *words],
                cwd=folder,
                env={**os.environ, "RUST_BACKTRACE": "0"},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.PIPE,
                timeout=TIMEOUT_S,
            )
        count, failed = report.read_text().rstrip("\n").split(" ", 1)
        errors = done.stderr.decode(errors="replace")
        return Ended(done.returncode, errors, contents(folder), int(count), failed)

    def violations(self, failure):
        """What does not hold if this fails."""
        kind, number = failure
        ended = self.run(self.before, kind, number)
        again = self.run({name: it for name, it in ended.files.items() if name != STDOUT})
        found = [*self.after_failure(ended, kind), *self.after_repetition(again)]
        return [f"{kind} {number}, {ended.failed}: {one}" for one in found]

    def after_failure(self, ended, kind):
        if ended.failed == "nothing":
            return  # threads made fewer operations this time
        for name, was in self.before.items():
            there = ended.files.get(name)
            rows = was[: was.rfind(b"\n") + 1]
            is_longer = name.endswith(".journal") and there is not None and there.startswith(rows)
            if there not in (was, self.after.get(name)) and not is_longer:
                yield f"{name} is lost"
        for name, will in self.after.items():
            there = ended.files.get(name)
            if name not in self.before and name != STDOUT and there not in (None, will):
                yield f"{name} is new and not whole"
            if ended.status == 0 and there != will:
                yield f"success, but {name} is not written"
        if kind in ("kill", "torn"):
            if ended.status != KILLED:
                yield f"not killed: {ended.hurts}"
        elif "panicked" in ended.errors or ended.status > 100:
            yield f"not reported: {ended.hurts}"
        elif ended.status != 0 and not SAID.search(ended.errors):
            yield f"no message: {ended.hurts}"

    def after_repetition(self, again):
        if again.status != 0:
            yield f"the next run fails: {again.hurts}"
        for name in sorted(again.files.keys() | self.after.keys()):
            if name not in self.after:
                yield f"the next run leaves {name}"
            elif again.files.get(name) != self.after[name]:
                yield f"the next run does not write {name}"


def fill(folder, files):
    """Makes the folder contain these files and no other."""
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    for name, bytes_ in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes_)


def contents(folder):
    """The files in the folder, by name, without the times in them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(it.relative_to(folder)): TIMES.sub(rb"\1?", it.read_bytes()) for it in files}


if __name__ == "__main__":
    main()
