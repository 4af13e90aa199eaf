#!/usr/bin/env python3
"""Runs PyTorch's own tests of its CUDA allocator under PyTorch's allocator and under ours.

    run.py --library .../libcoalesce_torch.so --out FOLDER [--from FOLDER] [--only PATTERN]
    run.py --native --out FOLDER         PyTorch's allocator alone

The files of the tests are those of the installed release, from GitHub or from a folder (--from).
They are kept in the folder of results and never in this repository. A test counts as different if
its outcome is another one under ours. known.csv says which tests are left out and which
differences are known, each with a reason; patterns are matched with FILE.CLASS.TEST.

Tests run in processes of several tests each (--per-process). After a test that fails, ends its
process or takes longer than --limit seconds the others run in a new process. Results are kept
as they come: a call that was interrupted, or ended by --minutes, continues where it stopped.
Tests that known.csv calls alone look at all memory of the device, and run after the others.
FOLDER/upstream.csv and upstream.md have the table. Status 1 if a difference is not explained, 2 if
tests are left to run."""

import argparse
import csv
import fnmatch
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
FILES = ("test_cuda.py", "test_cuda_expandable_segments.py")
SOURCE = "https://raw.githubusercontent.com/pytorch/pytorch/v{release}/test/{file}"
NATIVE, OURS = "native", "ours"


def known(kind):
    """The patterns of a kind in known.csv, with reasons."""
    with open(HERE / "known.csv", newline="") as file:
        return {row["test"]: row["reason"] for row in csv.DictReader(file) if row["kind"] == kind}


def reason(test, patterns):
    return next((why for rule, why in patterns.items() if fnmatch.fnmatchcase(test, rule)), "")


class Results:
    """The outcomes so far, kept in a file with one line for each."""

    def __init__(self, path):
        self.path, self.lock, self.outcomes = path, threading.Lock(), {}
        if path.exists():
            for line in path.read_text().splitlines():
                entry = json.loads(line)
                self.outcomes[entry["allocator"], entry["test"]] = entry
        self.wanted = 0

    def add(self, entry):
        with self.lock:
            self.outcomes[entry["allocator"], entry["test"]] = entry
            with open(self.path, "a") as file:
                file.write(json.dumps(entry) + "\n")
            count = f"[{len(self.outcomes)}/{self.wanted}]"
            outcome = f"{entry['outcome']} {entry['seconds']} s"
            print(f"{count} {entry['allocator']} {entry['test']}: {outcome}", flush=True)


class Tests:
    """The files of the tests, and processes that run them."""

    def __init__(self, options, deadline):
        self.options, self.deadline = options, deadline
        self.folder = options.out / "tests"
        self.children, self.stopping = set(), False

    def fetch(self):
        self.folder.mkdir(parents=True, exist_ok=True)
        release = version("torch").partition("+")[0]
        for file in self.options.files:
            to = self.folder / file
            if self.options.source is not None:
                to.write_bytes((self.options.source / file).read_bytes())
            elif not to.exists():
                address = SOURCE.format(release=release, file=file)
                try:
                    to.write_bytes(urllib.request.urlopen(address, timeout=30).read())
                except OSError as error:
                    sys.exit(f"{address}: {error}; use --from with a folder that has {file}")

    def environment(self, allocator):
        env = dict(os.environ)
        env.pop("COALESCE_TORCH_ALLOC", None)
        if allocator == OURS:
            ours = [HERE / "site", ROOT / "python", *filter(None, [env.get("PYTHONPATH")])]
            env["PYTHONPATH"] = os.pathsep.join(map(str, ours))
            env["COALESCE_TORCH_LIB"] = str(self.options.library)
        return env

    def ensure_ours_starts(self):
        command = [sys.executable, "-c", "import torch"]
        env = self.environment(OURS)
        tried = subprocess.run(command, env=env, text=True, capture_output=True, timeout=300)
        if tried.returncode:
            sys.exit(f"our allocator cannot be enabled\n{tried.stderr[-3000:]}")

    def names(self, file):
        """The names of all tests of a file."""
        command = [sys.executable, HERE / "child.py", self.folder / file, "list"]
        listed = subprocess.run(
            command, env=self.environment(NATIVE), text=True, capture_output=True, timeout=300
        )
        if listed.returncode or not listed.stdout.strip():
            sys.exit(f"{file}: its tests cannot be listed\n{listed.stderr[-3000:]}")
        stem = Path(file).stem
        return [f"{stem}.{name}" for name in json.loads(listed.stdout.splitlines()[-1])]

    def run(self, allocator, file, tests, results):
        """Runs tests, in more than one process if some end theirs."""
        pending = dict.fromkeys(tests)
        while pending and not self.stopping and self.left() > 0:
            self.run_once(allocator, file, pending, results)

    def run_once(self, allocator, file, pending, results):
        stem = Path(file).stem
        read, write = os.pipe()
        log = tempfile.TemporaryFile("w+", errors="replace")
        child = subprocess.Popen(
            [sys.executable, HERE / "child.py", self.folder / file, str(write)],
            env=self.environment(allocator),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=log,
            pass_fds=[write],
            cwd=self.folder,
            start_new_session=True,
        )
        os.close(write)
        self.children.add(child)
        running, why, before = None, "crashed", len(pending)

        def end(test, outcome, text="", seconds=0.0):
            pending.pop(test, None)
            entry = {"allocator": allocator, "test": test, "outcome": outcome}
            results.add({**entry, "seconds": seconds, "text": text})

        try:
            child.stdin.write("\n".join(test.removeprefix(stem + ".") for test in pending).encode())
            child.stdin.close()
            rest = b""
            while True:
                # Until the first test runs, torch is imported.
                wait = min(self.options.limit + (running is None) * 120, self.left())
                if wait <= 0 or not select.select([read], [], [], wait)[0]:
                    why = "timed out" if self.left() > 0 else "interrupted"
                    break
                more = os.read(read, 1 << 16)
                if not more:
                    break
                *lines, rest = (rest + more).split(b"\n")
                for entry in map(json.loads, lines):
                    if "class" in entry:
                        continue
                    test = f"{stem}.{entry['test']}"
                    running = None if "outcome" in entry else test
                    if running is None:
                        end(test, entry["outcome"], entry["text"], entry["seconds"])
        finally:
            os.close(read)
            if child.poll() is None and (why != "crashed" or self.stopping):
                os.killpg(child.pid, signal.SIGKILL)
            status = child.wait()
            self.children.discard(child)
        with log:
            log.seek(0)
            said = log.read()[-1500:]
        if why == "interrupted" or self.stopping:
            return
        if running is not None:
            end(running, why, f"status {status}; {said}")
        elif len(pending) == before:
            end(next(iter(pending)), why, f"before it ran: status {status}; {said}")

    def left(self):
        return self.deadline - time.monotonic()

    def stop(self):
        self.stopping = True
        for child in list(self.children):
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)


def run_chunks(tests, chunks, jobs, results):
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(tests.run, *chunk, results) for chunk in chunks]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:
            tests.stop()
            for future in futures:
                future.cancel()


def table(tests, results, skipped):
    """A row for each test, and the differences that known.csv does not explain."""
    explanations = known("difference")
    rows, unexplained = [], []
    for test in tests:
        native, ours = (results.outcomes.get((who, test), {}) for who in (NATIVE, OURS))
        outcomes = [it.get("outcome", "") for it in (native, ours)]
        differs = all(outcomes) and outcomes[0] != outcomes[1]
        why = reason(test, explanations) if differs else skipped.get(test, "")
        row = {
            "test": test,
            "native": "left out" if test in skipped else outcomes[0],
            "ours": "left out" if test in skipped else outcomes[1],
            "explanation": why,
            "native_text": native.get("text", ""),
            "ours_text": ours.get("text", ""),
            "native_seconds": native.get("seconds", ""),
            "ours_seconds": ours.get("seconds", ""),
        }
        rows.append(row)
        if differs and not why:
            unexplained.append(row)
    return rows, unexplained


def save(rows, folder):
    with open(folder / "upstream.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    pairs = Counter((row["native"], row["ours"]) for row in rows)
    lines = [f"PyTorch {version('torch')}", "", "| native | ours | tests |", "|---|---|---:|"]
    lines += [f"| {a} | {b} | {n} |" for (a, b), n in pairs.most_common()]
    lines += ["", "| test | native | ours | explanation |", "|---|---|---|---|"]
    for row in rows:
        cells = (row["test"], row["native"], row["ours"], row["explanation"])
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    (folder / "upstream.md").write_text("\n".join(lines) + "\n")


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", type=Path, help="libcoalesce_torch.so")
    parser.add_argument("--native", action="store_true", help="PyTorch's allocator alone")
    parser.add_argument("--out", type=Path, required=True, help="folder of results")
    parser.add_argument("--from", dest="source", type=Path, help="folder with the files of tests")
    parser.add_argument("--file", dest="files", action="append", help=f"instead of {FILES}")
    parser.add_argument("--only", action="append", default=[], help="pattern of FILE.CLASS.TEST")
    parser.add_argument("--all", action="store_true", help="also what known.csv leaves out")
    parser.add_argument("--again", action="store_true", help="forget the kept results")
    parser.add_argument("--jobs", type=int, default=6, help="processes at a time")
    parser.add_argument("--per-process", type=int, default=20, help="tests of a process")
    parser.add_argument("--limit", type=float, default=60, help="seconds for a test")
    parser.add_argument("--minutes", type=float, default=9, help="for the whole call")
    options = parser.parse_args()
    if options.library is None and not options.native:
        parser.error("needs --library, or --native")
    options.files = options.files or list(FILES)
    for name in ("library", "out", "source"):
        path = getattr(options, name)
        setattr(options, name, path and path.resolve())
    return options


def main():
    options = arguments()
    tests = Tests(options, time.monotonic() + 60 * options.minutes)
    tests.fetch()
    if not options.native:
        tests.ensure_ours_starts()
    kept = options.out / "results.jsonl"
    if options.again:
        kept.unlink(missing_ok=True)
    results = Results(kept)
    with ThreadPoolExecutor(options.jobs) as pool:
        of_file = dict(zip(options.files, pool.map(tests.names, options.files)))
    names = [name for listed in of_file.values() for name in listed]
    left_out = {} if options.all else known("skip")
    skipped = {name: why for name in names if (why := reason(name, left_out))}
    chosen = {
        name
        for name in names
        if name not in skipped
        and any(fnmatch.fnmatchcase(name, rule) for rule in options.only or ["*"])
    }
    allocators = [NATIVE] if options.native else [NATIVE, OURS]
    results.wanted = len(
        set(results.outcomes) | {(who, name) for who in allocators for name in chosen}
    )
    alone = known("alone")
    together, in_turn = [], []
    for file, listed in of_file.items():
        for who in allocators:
            todo = [n for n in listed if n in chosen and (who, n) not in results.outcomes]
            first = [name for name in todo if not reason(name, alone)]
            size = options.per_process
            together += [(who, file, first[at : at + size]) for at in range(0, len(first), size)]
            in_turn += [(who, file, [name]) for name in todo if reason(name, alone)]
    run_chunks(tests, together, options.jobs, results)
    run_chunks(tests, in_turn, 1, results)
    rows, unexplained = table(names, results, skipped)
    save(rows, options.out)
    missing = [
        (who, name) for who in allocators for name in chosen if (who, name) not in results.outcomes
    ]
    for row in unexplained:
        print(f"\nDIFFERENT {row['test']}: {row['native']} natively, {row['ours']} under ours")
        for who in ("native_text", "ours_text"):
            if row[who]:
                print(f"  {who.removesuffix('_text')}: {row[who][:600]}")
    print(f"\n{len(names)} tests, {len(skipped)} left out, {len(missing)} runs left to do,")
    print(f"{len(unexplained)} unexplained differences; {options.out / 'upstream.csv'}")
    sys.exit(1 if unexplained else 2 if missing else 0)


if __name__ == "__main__":
    main()
