#!/usr/bin/env python3
"""Compares what the stand-in of cuFFT says about workspaces with those measured on a GPU.

    check_transforms.py LIBCUFFT [transforms.csv]

LIBCUFFT is the stand-in, as in FOLDER/cuda13/libcufft.so.12 after `build FOLDER`. Prints which
share of the measured workspaces lies within its band, in which share the band is a single figure,
and how wide the band is on average, as a multiple of the signal."""

import csv
import ctypes
import math
import os
import statistics
import sys
from ctypes import byref, c_longlong, c_size_t
from pathlib import Path

# cudaDataType of library_types.h; complex types are 4 above. Bytes of a real number.
TYPES = {"fp16": (2, 2), "fp32": (0, 4), "fp64": (1, 8)}
# What the allocator rounds away.
SLACK = 4096
LARGE = 64 << 20
# The seeds of the transforms that served to find the rule.
FITTED = "01"


def asked(library, row):
    """The ends of the band, and the bytes of the signal."""
    sizes = [int(size) for size in row["sizes"].split("x")]
    real, bytes_ = TYPES[row["type"]]
    before, after = (real + 4 * (side == "c") for side in row["kind"].split("2"))
    one, batch, found, ends = c_longlong(1), c_longlong(int(row["batch"])), c_size_t(), []
    for end in ("least", "most"):
        os.environ["FAKE_WORKSPACES"] = end
        lengths = (c_longlong * len(sizes))(*sizes)
        sides = (None, one, one, before, None, one, one, after)
        library.cufftXtMakePlanMany(1, len(sizes), lengths, *sides, batch, byref(found), before)
        ends.append(found.value)
    return ends, math.prod(sizes) * batch.value * bytes_ * (2 if row["kind"] == "c2c" else 1)


def main():
    library = ctypes.CDLL(sys.argv[1])
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("transforms.csv")
    groups = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            (least, most), signal = asked(library, row)
            kinds = [row["type"], row["kind"], f"{row['sizes'].count('x') + 1}D", "all"]
            if signal > LARGE:
                kinds.append("over 64 MiB")
            inside = least - SLACK <= int(row["workspace"]) <= most + SLACK
            fitted = "fitted" if row["seed"] in FITTED else "held out"
            for kind in kinds:
                case = (inside, least == most, (most - least) / signal)
                groups.setdefault((kind, fitted), []).append(case)
    print("| transforms | | workspaces | within | a single figure | width |")
    print("|---|---|--:|--:|--:|--:|")
    for kind, fitted in sorted(groups):
        inside, single, width = (statistics.mean(part) for part in zip(*groups[kind, fitted]))
        count = len(groups[kind, fitted])
        print(f"| {kind} | {fitted} | {count} | {inside:.1%} | {single:.0%} | {width:.2f} |")


if __name__ == "__main__":
    main()
