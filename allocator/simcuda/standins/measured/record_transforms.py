#!/usr/bin/env python3
"""Records the workspaces that cuFFT takes on this GPU for the Fourier transforms of a CSV.

    record_transforms.py transforms.csv OUT.csv

PyTorch asks its allocator for each workspace, so the allocator's trace has their sizes. Needs
PyTorch with CUDA and a GPU that does nothing else. README.md beside this file describes the
columns."""

import argparse
import csv
import sys
from pathlib import Path

import torch

REAL = {"fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}
COMPLEX = {"fp16": torch.complex32, "fp32": torch.complex64, "fp64": torch.complex128}


def requested(call):
    """The result of a call, and the sizes that it requested beside it."""
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.memory._record_memory_history(context=None)
    result = call()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    sizes = [entry["size"] for entry in trace if entry["action"] == "alloc"]
    sizes.remove(result.nbytes)
    return sizes


def measure(row):
    """The workspace of a transform, 0 if it takes none."""
    sizes = [int(size) for size in row["sizes"].split("x")]
    half = [*sizes[:-1], sizes[-1] // 2 + 1]
    axes = list(range(1, len(sizes) + 1))
    kinds = {
        "c2c": (COMPLEX, sizes, lambda x: torch.fft.fftn(x, dim=axes)),
        "r2c": (REAL, sizes, lambda x: torch.fft.rfftn(x, dim=axes)),
        "c2r": (COMPLEX, half, lambda x: torch.fft.irfftn(x, s=sizes, dim=axes)),
    }
    types, shape, transform = kinds[row["kind"]]
    x = torch.zeros(int(row["batch"]), *shape, dtype=types[row["type"]], device="cuda")
    found = requested(lambda: transform(x))
    if row["kind"] == "c2r":
        # PyTorch copies the input, which cuFFT overwrites.
        found.remove(x.nbytes)
    return max(found, default=0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("transforms", type=Path)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    torch.backends.cuda.cufft_plan_cache.max_size = 0
    with args.transforms.open() as file:
        rows = list(csv.DictReader(file))
    with args.out.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            try:
                row["workspace"] = measure(row)
            except RuntimeError as error:
                print(row, error, file=sys.stderr)
                continue
            writer.writerow(row)


if __name__ == "__main__":
    main()
