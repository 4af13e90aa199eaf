#!/usr/bin/env python3
"""memory_summary.{stats.json,txt}, memory_summary_abbrev.txt of the goldens: the report
that torch 2.11's own memory_summary() makes of invented statistics (chosen to hit every unit
and rounding boundary).

    golden_summary.py [TORCH]           check the files against the torch at TORCH
    golden_summary.py --write [TORCH]   write them again

TORCH: the folder of the torch package (only torch/cuda/memory.py is read, torch is
not imported); default: the one of setup-torch.sh in its default folder."""

import collections
import json
import os
import re
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from oraclelib import GOLDEN, default_dir

VENV_TORCH = "venv/lib/python3.11/site-packages/torch"
KEYS = ["current", "peak", "allocated", "freed"]
VALUES = {
    "allocation": (11, 12, 750000, 749989),
    "segment": (7, 9, 900, 893),
    "active": (11, 13, 750000, 749989),
    "inactive_split": (3, 4, 1000000, 999997),
    "allocated_bytes": (88082944, 90000000, 5 * 2**40, 5 * 2**40 - 88082944),
    "reserved_bytes": (100663296, 200000000, 786432, 786431),
    "active_bytes": (88082944, 90000000, 805306367, 805306368),
    "inactive_split_bytes": (12580352, 20968960, 24115712, 11535360),
    "requested_bytes": (87031814, 87031814, 87031814, 0),
}


def make_stats():
    s = {}
    for name, v in VALUES.items():
        large = tuple(x * 9 // 10 for x in v)
        small = tuple(x - y for x, y in zip(v, large))
        for pool, w in {"all": v, "large_pool": large, "small_pool": small}.items():
            for k, x in zip(KEYS, w):
                s[f"{name}.{pool}.{k}"] = x
    for name in ["oversize_allocations", "oversize_segments"]:
        for k, x in zip(KEYS, (1, 2, 3, 2)):
            s[f"{name}.{k}"] = x
    s.update(
        num_alloc_retries=2,
        num_ooms=1,
        max_split_size=-1,
        num_sync_all_streams=3,
        num_device_alloc=10,
        num_device_free=4,
    )
    return collections.OrderedDict(sorted(s.items()))


def memory_summary(torch, stats):
    """The function of that name, from torch's source."""
    path = os.path.join(torch, "cuda", "memory.py")
    if not os.path.exists(path):
        raise SystemExit(f"no {path}: run setup-torch.sh or name the folder of a torch package")
    with open(path) as f:
        src = f.read()
    fn = re.search(r"^def memory_summary.*?(?=^def list_gpu_processes)", src, re.S | re.M).group(0)
    ns = {
        "memory_stats": lambda device=None: stats,
        "_get_device_index": lambda d, optional=True: 0,
    }
    exec(fn.replace('device: "Device" = None', "device=None"), ns)
    return ns["memory_summary"]


def main():
    write = "--write" in sys.argv
    args = [a for a in sys.argv[1:] if a != "--write"]
    torch = args[0] if args else os.path.join(default_dir(), VENV_TORCH)
    stats = make_stats()
    summary = memory_summary(torch, stats)
    files = {
        "memory_summary.stats.json": json.dumps(stats, indent=1),
        "memory_summary.txt": summary(),
        "memory_summary_abbrev.txt": summary(abbreviated=True),
    }
    bad = 0
    for name, text in files.items():
        path = os.path.join(GOLDEN, name)
        if write:
            with open(path, "w") as f:
                f.write(text)
            continue
        with open(path) as f:
            if f.read() != text:
                bad += 1
                print("differs:", name)
    print(f"{len(files) - bad} files {'written' if write else 'agree'}, {bad} differ")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
