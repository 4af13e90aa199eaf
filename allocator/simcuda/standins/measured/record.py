#!/usr/bin/env python3
"""Records the workspaces that cuDNN takes on this GPU for the convolutions of a CSV.

    record.py workspaces.csv OUT.csv [--workers N]

PyTorch asks its allocator for each workspace, so the allocator's trace has their sizes: what a step
requests beside its result. Needs PyTorch with CUDA and a GPU that does nothing else. README.md
beside this file describes the columns."""

import argparse
import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TYPES = {"fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16"}
STEPS = ("forward", "data", "weight")
INTEGERS = ("batch", "in", "out", "groups", "kernel", "stride", "padding", "dilation", "transposed")
# PyTorch tries no workspace for which the memory that is left does not suffice.
KEPT = 4 << 30


def requested(torch, result=None):
    """The sizes requested since the last call but for that of the result."""
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.memory._record_memory_history(context=None, max_entries=10_000)
    sizes = [entry["size"] for entry in trace if entry["action"] == "alloc"]
    if result is not None and result.nbytes in sizes:
        sizes.remove(result.nbytes)
    return sizes


def measure(torch, row):
    """For each step, what its first and second call request; None if cuDNN does not serve it."""
    batch, channels, out, groups, kernel, stride, padding, dilation, transposed = (
        int(row[name]) for name in INTEGERS
    )
    size = [int(part) for part in row["size"].split("x")]
    rank = len(size)
    torch.backends.cudnn.allow_tf32 = row["type"] == "tf32"
    options = {"device": "cuda", "dtype": getattr(torch, TYPES[row["type"]])}
    x = torch.empty(batch, channels, *size, **options)
    sizes = (channels, out // groups) if transposed else (out, channels // groups)
    w = torch.empty(*sizes, *[kernel] * rank, **options)
    if row["layout"] == "last":
        form = torch.channels_last if rank == 2 else torch.channels_last_3d
        x, w = x.to(memory_format=form), w.to(memory_format=form)
    kind = (
        [stride] * rank,
        [padding] * rank,
        [dilation] * rank,
        bool(transposed),
        [0] * rank,
        groups,
    )
    if "Cudnn" not in torch._C._select_conv_backend(x, w, None, *kind).name:
        return None
    requested(torch)
    found, dy = {}, None
    for step, mask in zip(STEPS, (None, [True, False, False], [False, True, False])):
        found[step] = []
        for _ in range(2):
            if mask is None:
                result = torch.ops.aten.convolution(x, w, None, *kind)
            else:
                results = torch.ops.aten.convolution_backward(dy, x, w, None, *kind, mask)
                result = next(one for one in results if one is not None)
            found[step].append(requested(torch, result))
        if mask is None:
            dy = torch.empty_like(result)
            requested(torch)
    return found


def completed(row, found):
    """The row with what was found, or None if PyTorch made copies of its own."""
    if any(len(again) > 1 for _, again in found.values()):
        return None
    for step, (first, again) in found.items():
        row[step] = max(first, default=0)
        row[f"{step}_again"] = max(again, default=0)
    return row


def work(rows, writer, flush):
    """Measures rows of one mode of torch.backends.cudnn.benchmark.

    PyTorch remembers the plan of a problem, whichever the mode."""
    import torch

    for row in rows:
        torch.backends.cudnn.benchmark = row["benchmark"] == "1"
        try:
            found = measure(torch, row)
        except RuntimeError as error:
            print(row, error, file=sys.stderr)
            torch.cuda.empty_cache()
            continue
        row = found and completed(row, found)
        if row:
            writer.writerow(row)
            flush()
        if torch.cuda.memory_reserved() > KEPT:
            torch.cuda.empty_cache()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("convolutions", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--workers", type=int, default=4, help="processes at a time (4)")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    args = parser.parse_args()
    with args.convolutions.open() as file:
        rows = list(csv.DictReader(file))
    if args.share:
        mode, index = args.share.split("/")
        mine = [row for row in rows if row["benchmark"] == mode][int(index) :: args.workers]
        with args.out.open("w", newline="") as out:
            work(mine, csv.DictWriter(out, rows[0].keys(), lineterminator="\n"), out.flush)
        return
    with tempfile.TemporaryDirectory() as folder, args.out.open("w", newline="") as out:
        csv.DictWriter(out, rows[0].keys(), lineterminator="\n").writeheader()
        out.flush()
        for mode in "01":
            parts = [Path(folder, f"{mode}-{index}") for index in range(args.workers)]
            processes = [
                subprocess.Popen(
                    [
                        sys.executable,
                        __file__,
                        str(args.convolutions),
                        str(part),
                        "--share",
                        f"{mode}/{index}",
                    ]
                    + ["--workers", str(args.workers)],
                    env=os.environ,
                )
                for index, part in enumerate(parts)
            ]
            for process, part in zip(processes, parts):
                process.wait()
                out.write(part.read_text())


if __name__ == "__main__":
    main()
