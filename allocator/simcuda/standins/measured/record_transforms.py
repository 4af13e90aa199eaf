#!/usr/bin/env python3
"""Records the workspaces that cuFFT takes on this GPU for the Fourier transforms of a CSV.

    record_transforms.py transforms.csv OUT.csv

PyTorch asks its allocator for each workspace, so the allocator's trace has their sizes. Needs
PyTorch with CUDA and a GPU that does nothing else. README.md beside this file describes the
columns."""

import torch
from recording import record, requested

REAL = {"fp16": torch.float16, "fp32": torch.float32, "fp64": torch.float64}
COMPLEX = {"fp16": torch.complex32, "fp32": torch.complex64, "fp64": torch.complex128}


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
    result, found = requested(lambda: transform(x))
    found.remove(result.nbytes)
    if row["kind"] == "c2r":
        # PyTorch copies the input, which cuFFT overwrites.
        found.remove(x.nbytes)
    return {"workspace": max(found, default=0)}


if __name__ == "__main__":
    torch.backends.cuda.cufft_plan_cache.max_size = 0
    record(__doc__, measure)
