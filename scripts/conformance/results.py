#!/usr/bin/env python3
"""Compares rows of recorded results with the real PyTorch allocator.

    results.py ../../results/DATE/least.csv                all rows of recorded traces
    results.py TABLE --sample 20                           20 of them, drawn at random
    results.py TABLE --only 'gpt2_small_*,*,least'         workload, setting, capacity
    results.py TABLE --torch 2.13                          another release's oracle

A row with a column "torch" is compared with the oracle of that release.

The oracle replays each trace under the row's settings, capacity and address policy. These
must be equal: peak requested, allocated, active, reserved and inactive split bytes, retries,
failed requests, and device allocations and frees. A row of the minimum device memory is also
run on a device that is 2 MiB smaller, where a request must fail. Last line: "N passed, M failed";
status 1 if M > 0.
"""

import argparse
import csv
import fnmatch
import gzip
import os
import random
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from oraclelib import HERE, Progress, Release, add_oracle_options, clean_env, find_oracle

TRACES = os.path.normpath(os.path.join(HERE, "..", "..", "workloads", "traces"))
PAGE = 2 << 20
# Columns of the table, and the oracle's counterpart: a statistic's peak, or a number.
PEAKS = {
    "peak_requested_bytes": "requested_bytes",
    "peak_allocated_bytes": "allocated_bytes",
    "peak_active_bytes": "active_bytes",
    "peak_reserved_bytes": "reserved_bytes",
    "peak_inactive_split_bytes": "inactive_split_bytes",
}
NUMBERS = {
    "retries": "num_alloc_retries",
    "ooms": "num_ooms",
    "device_allocs": "num_device_alloc",
    "device_frees": "num_device_free",
    "syncs": "num_sync_all_streams",
}


def script(trace):
    """Converts the trace to a script. After a failure the oracle skips the same operations."""
    lines = []
    with gzip.open(os.path.join(TRACES, trace + ".csv.gz"), "rt") as source:
        for line in source:
            if line.startswith(("#", "op,")):
                continue
            op, number, size, stream, tag = line.rstrip("\n").split(",")
            if op == "alloc":
                lines.append(f"a {number} {size} {stream}")
            elif op == "free":
                lines.append(f"f {number}")
            elif tag == "record_stream":
                lines.append(f"r {number} {stream}")
    return "\n".join(lines) + "\n"


def replay(oracle, trace, row, capacity):
    """The oracle's final statistics, in the columns of the table."""
    env = clean_env({"FAKE_TOTAL_BYTES": str(capacity), "FAKE_ADDR": row["address_policy"]})
    if row["conf"]:
        env["PYTORCH_CUDA_ALLOC_CONF"] = row["conf"]
    done = subprocess.run(
        [oracle, "--quiet", "--no-oom-msg"], input=trace, env=env, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise SystemExit(f"the oracle failed on {row['workload']}: {done.stderr.strip()}")
    statistics = {}
    for line in done.stdout.splitlines():
        words = line.split()
        if words[0] == "STAT" and words[2] == "all":
            statistics[words[1]] = int(words[4])
        elif words[0] == "NUM":
            statistics[words[1]] = int(words[2])
    columns = {**PEAKS, **NUMBERS}
    return {column: statistics[name] for column, name in columns.items()}


def differences(oracle, trace, row):
    got = replay(oracle, trace, row, int(row["capacity_bytes"]))
    for column, value in got.items():
        if value != int(row[column]):
            yield f"{column} is {value}, not {row[column]}"
    if row["capacity"] == "least":
        smaller = replay(oracle, trace, row, int(row["capacity_bytes"]) - PAGE)
        if smaller["ooms"] == 0:
            yield "it completes with 2 MiB less"


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("table")
    ap.add_argument("--only", metavar="WORKLOAD,SETTING,CAPACITY", default="*,*,*")
    ap.add_argument("--sample", type=int, metavar="N")
    add_oracle_options(ap)
    a = ap.parse_args()
    wanted = a.only.split(",")
    if len(wanted) != 3:
        ap.error("--only needs three patterns separated by commas")
    with open(a.table, newline="") as source:
        rows = [row for row in csv.DictReader(source) if row["family"] == "recorded"]
    rows = [r for r in rows if not r.get("torch") or not a.torch or r["torch"] == a.torch.name]
    keys = ("workload", "setting", "capacity")
    rows = [r for r in rows if all(fnmatch.fnmatch(r[k], w) for k, w in zip(keys, wanted))]
    if a.sample is not None:
        rows = random.SystemRandom().sample(rows, min(a.sample, len(rows)))
    if not rows:
        raise SystemExit("no such rows")
    rows.sort(key=lambda row: row["workload"])
    progress, failed, name, trace = Progress(len(rows), "rows"), 0, None, ""
    for number, row in enumerate(rows):
        if row["workload"] != name:
            name = row["workload"]
            trace = script(name)
        release = Release(row["torch"]) if row.get("torch") else a.torch
        found = list(differences(find_oracle(a.oracle, release), trace, row))
        if found:
            failed += 1
            print(f"FAIL {', '.join(row[k] for k in keys)}: {'; '.join(found)}", flush=True)
        progress(number + 1, failed)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
