#!/usr/bin/env python3
"""Records real PyTorch programs on a GPU: the history of their memory, and what PyTorch says of it.

    record.py --out FOLDER [NAME ...]              records, and measures under the usual settings
    record.py --out FOLDER --conditions ROWS.csv   measures under the settings and limits of a table
    record.py --list

Each program of programs/ runs in a process of its own, or one for each rank. Needs PyTorch 2.11; a
program that needs a package or devices that are missing is left out. FOLDER gets NAME.pickle.xz
(NAME_RANK.pickle.xz with several ranks), the final snapshot with the history from the first tensor
on, without stacks, and measured.csv with a row for each run: `what` is record, settings, limit or
async. ROWS.csv has the columns program, what, conf and limit_bytes; others are ignored. For a
program that uses several devices in one process, `rank` is the device.

Rows that measured.csv has are kept and not run again, so an interrupted call continues (--again:
run all). Starts nothing more after --minutes, and ends what still runs 45 s later."""

import argparse
import csv
import fnmatch
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
SETTINGS = (
    "",
    "expandable_segments:True",
    "garbage_collection_threshold:0.6,max_split_size_mb:256",
    "max_split_size_mb:128",
    "roundup_power2_divisions:8",
)
KEY = ("program", "what", "conf", "limit_bytes")
COLUMNS = (
    *("program", "rank", "what", "conf", "limit_bytes"),
    *("allocations", "peak_requested_bytes", "peak_reserved_bytes", "retries", "ooms"),
)
LOCK = threading.Lock()


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment(row, rank, program):
    env = {**os.environ, "PYTHONHASHSEED": "0", "PYTORCH_CUDA_ALLOC_CONF": row["conf"]}
    if not row["conf"]:
        del env["PYTORCH_CUDA_ALLOC_CONF"]
    env.pop("PYTORCH_ALLOC_CONF", None)
    if program.ranks > 1:
        env.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(program.ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=row["port"],
        )
    return env


def run(row, program, options, started, until):
    """Runs a program under a condition; returns its rows of the table."""
    row = {**row, "port": str(free_port())}
    several = program.ranks > 1
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for rank in range(program.ranks):
            figures = Path(folder) / f"{rank}.json"
            command = [sys.executable, HERE / "one.py", program.name, "--figures", figures]
            if row["limit_bytes"]:
                command += ["--limit", row["limit_bytes"]]
            if row["what"] == "record":
                name = f"{program.name}_{rank}" if several else program.name
                command += ["--snapshot", options.out / f"{name}.pickle.xz"]
            log = open(Path(folder) / f"{rank}.log", "w+")
            env = environment(row, rank, program)
            process = subprocess.Popen(list(map(str, command)), env=env, stdout=log, stderr=log)
            started.add(process)
            processes.append((process, figures, log))
        rows = []
        for rank, (process, figures, log) in enumerate(processes):
            try:
                process.wait(max(1, min(options.limit, until - time.monotonic())))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            started.discard(process)
            if process.returncode != 0 or not figures.exists():
                log.seek(0)
                why = log.read()[-1500:]
                for other, _, _ in processes:
                    if other.poll() is None:
                        other.kill()
                raise RuntimeError(f"status {process.returncode}\n{why}")
            report = json.loads(figures.read_text())
            devices = report["devices"]
            for device, values in devices.items():
                part = rank if several else device if len(devices) > 1 else ""
                rows.append({**{key: row[key] for key in KEY}, "rank": part, **values})
    return rows


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="patterns of programs (all)")
    parser.add_argument("--out", type=Path, default=Path("recordings"))
    parser.add_argument("--conditions", type=Path, help="table of what to run")
    parser.add_argument("--only", action="append", help="record, settings, limit or async")
    parser.add_argument("--jobs", type=int, default=4, help="programs at a time")
    parser.add_argument("--limit", type=float, default=180, help="seconds for a program")
    parser.add_argument("--minutes", type=float, default=8.5, help="for the whole call")
    parser.add_argument("--again", action="store_true", help="run what was run before")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    options.out = options.out.resolve()
    return options


def conditions(options, names):
    """The rows to run, without figures."""
    if options.conditions is not None:
        with open(options.conditions, newline="") as file:
            table = [{key: row[key] for key in KEY} for row in csv.DictReader(file)]
        rows = list({tuple(row.values()): row for row in table if row["program"] in names}.values())
    else:
        usual = [("record", "")] + [("settings", conf) for conf in SETTINGS]
        usual.append(("async", "backend:cudaMallocAsync"))
        rows = [
            {"program": name, "what": what, "conf": conf, "limit_bytes": ""}
            for what, conf in usual
            for name in names
        ]
    return [row for row in rows if not options.only or row["what"] in options.only]


def main():
    options = arguments()
    sys.path.insert(0, str(HERE))
    import torch
    from programs import load

    programs = load()
    if options.list:
        for program in programs.values():
            print(f"{program.name}: {' '.join(program.about.split())}")
        return
    devices = torch.cuda.device_count()
    chosen = {}
    for name, program in programs.items():
        if any(fnmatch.fnmatchcase(name, rule) for rule in options.names or ["*"]):
            lacks = program.missing() + ["a second device"] * (program.devices > devices)
            if lacks:
                print(f"{name}: left out, lacks {', '.join(lacks)}")
            else:
                chosen[name] = program
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "measured.csv"
    done = set()
    if path.exists() and not options.again:
        with open(path, newline="") as file:
            done = {tuple(row[key] for key in KEY) for row in csv.DictReader(file)}
    else:
        path.write_text(",".join(COLUMNS) + "\n")
    rows = [it for it in conditions(options, chosen) if tuple(it.values()) not in done]
    deadline, started, problems = time.monotonic() + 60 * options.minutes, set(), []

    def task(number, row):
        what = f"{row['program']} {row['what']} {row['conf']} {row['limit_bytes']}".strip()
        if time.monotonic() > deadline:
            problems.append(f"{what}: no time left")
            return
        began = time.monotonic()
        try:
            found = run(row, chosen[row["program"]], options, started, deadline + 45)
        except RuntimeError as error:
            problems.append(f"{what}: {error}")
            print(f"[{number}/{len(rows)}] {what}: FAILED", flush=True)
            return
        with LOCK, open(path, "a", newline="") as file:
            csv.DictWriter(file, COLUMNS, lineterminator="\n").writerows(found)
        peak = max(it["peak_reserved_bytes"] for it in found) / (1 << 30)
        seconds = time.monotonic() - began
        figures = f"{found[0]['allocations']} allocations, {peak:.2f} GiB, {seconds:.0f} s"
        print(f"[{number}/{len(rows)}] {what}: {figures}", flush=True)

    with ThreadPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(task, number, row) for number, row in enumerate(rows, 1)]
        try:
            for future in futures:
                future.result()
        except KeyboardInterrupt:
            for future in futures:
                future.cancel()
            for process in list(started):
                process.kill()
    for problem in problems:
        print(problem)
    print(f"{len(rows) - len(problems)} runs, {len(problems)} failed or left; {path}")
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
