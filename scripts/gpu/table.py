#!/usr/bin/env python3
"""Makes a table for `coalesce compare` of what recorded programs reserved on a GPU.

    table.py OUT/traces.txt >table.csv

OUT is the folder that scripts/gpu/measure wrote. The table has the memory that each program
used. Other columns are empty or 0: they depend on the GPU's size, on its driver or on the trace.
"""

import csv
import json
import sys
from pathlib import Path

KEY = ["workload", "seed", "policy", "address_policy"]
MEMORY = [
    "peak_requested_bytes",
    "peak_reserved_bytes",
    "retries",
    "ooms",
    "skipped_frees",
]
TEXT = ["family", "unsupported", "profile", "ns_per_pair_samples", "sweep"]
OPTIONAL = [
    "efficiency",
    "fragmentation",
    "first_oom_event",
    "shatter_at_oom",
    "fails_above_bytes",
    "largest_batch",
    "driver_calls_per_1000",
    "late_calls",
    "late_calls_per_1000",
    "steps",
    "quiet_from_step",
    "late_calls_per_step",
    "streams",
    "pools",
    "lower_bound_with_pools_bytes",
    "ns_per_pair",
    "ns_per_pair_low",
    "ns_per_pair_high",
]


def table(text):
    """The rows of a text of JSON objects, each a run of `coalesce replay --json`."""
    decoder = json.JSONDecoder()
    text = text.lstrip()
    while text:
        run, end = decoder.raw_decode(text)
        text = text[end:].lstrip()
        row = {column: run[column] for column in [*KEY, *MEMORY]}
        row |= {"setting": run["conf"] or "default", "capacity": "GPU", "conf": run["conf"]}
        row |= dict.fromkeys([*TEXT, *OPTIONAL], "")
        calls = [column for column in run if column.startswith("calls_")]
        others = ["capacity_bytes", "events", "allocations", "lower_bound_bytes"]
        others += ["peak_allocated_bytes", "peak_active_bytes"]
        others += ["peak_inactive_split_bytes", "inactive_split_at_peak_bytes"]
        others += ["device_allocs", "device_frees", "syncs", "driver_time_ns", "cell", "cells"]
        yield row | dict.fromkeys([*others, *calls], 0)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    rows = list(table(Path(sys.argv[1]).read_text()))
    out = csv.DictWriter(sys.stdout, rows[0], lineterminator="\n")
    out.writeheader()
    out.writerows(rows)


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError, IndexError) as error:
        sys.exit(f"table.py: {error}")
