#!/usr/bin/env python3
"""Runs the scripts of a list whole, and notes how much memory PyTorch's allocator used.

    prepare.py FOLDER [--list further]
    run.py FOLDER results.json [--list further]

On a real GPU that is the truth with which `coalesce fits` is compared, and on the simulated GPU the
answer that it should give. Also prints the output of each, to results.json.log. With --fits, runs
`coalesce fits` on each instead."""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
MEMORY = "139.8GiB"


class Program:
    """A script, where it runs, and how."""

    def __init__(self, name, known, folder, out):
        places = {
            "data": folder / "data",
            "source": folder / "scripts" / known["source"],
            "out": out,
        }
        self.name = name
        self.out = out
        self.folder = known.get("cwd", "{out}").format(**places)
        script = places["source"] / known["files"][0]
        self.command = [str(script), *shlex.split(known["arguments"].format(**places))]
        self.environment = {
            name: value.format(**places) for name, value in known.get("environment", {}).items()
        }

    def run(self, command, environment, limit):
        """What it printed, its exit status (None if it was ended), and its seconds."""
        paths = [environment.get("PYTHONPATH"), self.environment.get("PYTHONPATH")]
        environment = {
            **os.environ,
            # The order of frees under autocast follows hashes.
            "PYTHONHASHSEED": "0",
            "HF_HUB_OFFLINE": "1",
            "HF_HOME": str(self.out / "huggingface"),
            "TOKENIZERS_PARALLELISM": "false",
            **self.environment,
            **environment,
        }
        paths.append(os.environ.get("PYTHONPATH"))
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        status = None
        try:
            printed, problems = process.communicate(timeout=limit)
            status = process.returncode
        except subprocess.TimeoutExpired:
            # It notes its statistics.
            process.terminate()
            try:
                printed, problems = process.communicate(timeout=15)
            except subprocess.TimeoutExpired:
                # Its workers, too: they hold the pipes.
                os.killpg(process.pid, 9)
                printed, problems = process.communicate()
        return printed, problems, status, round(time.monotonic() - started, 1)


def whole(program, args):
    """The statistics of a whole run."""
    records = program.out / "records"
    records.mkdir()
    environment = {
        "PYTHONPATH": str(HERE / "record"),
        "RECORD_FOLDER": str(records),
        # Only the simulated GPU reads these.
        "FAKE_TOTAL_BYTES": args.memory,
        "FAKE_ADDR": "cuda",
    }
    command = [sys.executable, *program.command]
    printed, problems, status, seconds = program.run(command, environment, args.limit)
    found = [json.loads(path.read_text()) for path in records.glob("*.json")]
    most = max(found, key=lambda one: one["reserved_bytes"], default={})
    return {**most, "status": status, "seconds": seconds}, printed + problems


def fits(program, args):
    """What `coalesce fits` says."""
    command = [args.coalesce, "fits", "--json", "--memory", args.memory, "--"]
    command += [sys.executable, *program.command]
    printed, problems, status, seconds = program.run(command, {}, args.limit)
    answer = json.loads(printed) if printed.startswith("{") else {}
    return {**answer, "status": status, "seconds": seconds}, printed + problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="that prepare.py made")
    parser.add_argument("results", type=Path)
    parser.add_argument("--list", default="programs", help="of the programs (programs)")
    parser.add_argument("--only", nargs="*", help="names of programs")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at a time (1)")
    parser.add_argument("--limit", type=float, default=600, help="seconds for each (600)")
    parser.add_argument("--memory", default=MEMORY, help=f"of a simulated GPU ({MEMORY})")
    parser.add_argument("--fits", dest="coalesce", help="the program coalesce, to run its `fits`")
    args = parser.parse_args()
    folder = args.folder.resolve()
    programs = tomllib.loads((HERE / f"{args.list}.toml").read_text())["programs"]
    results = {}
    log = Path(f"{args.results}.log").open("w")

    def one(name):
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as out:
            try:
                program = Program(name, programs[name], folder, Path(out))
                result, text = (fits if args.coalesce else whole)(program, args)
            except Exception as error:
                result, text = {"status": repr(error)}, repr(error)
        results[name] = result
        peak = result.get("reserved_bytes", result.get("peak_reserved_bytes", 0)) / 2**20
        print(f"{name}: status {result['status']}, {peak:.0f} MiB, {result.get('seconds')} s")
        sys.stdout.flush()
        print(f"==== {name}\n{text}", file=log, flush=True)
        args.results.write_text(json.dumps(results, indent=1))

    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(one, args.only or programs))


if __name__ == "__main__":
    main()
