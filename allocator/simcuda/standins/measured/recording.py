"""What the recorders of attention and of Fourier transforms share."""

import argparse
import csv
import sys
from pathlib import Path

import torch


def requested(call):
    """The result of a call, and the sizes in bytes that it requested, in order."""
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.memory._record_memory_history(context=None)
    result = call()
    trace = torch.cuda.memory._snapshot()["device_traces"][0]
    return result, [entry["size"] for entry in trace if entry["action"] == "alloc"]


def record(description, measure):
    """Writes the rows of a CSV again, with what `measure` returns for each: columns by name."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("rows", type=Path, help="the CSV beside this file")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    with args.rows.open() as file:
        rows = list(csv.DictReader(file))
    with args.out.open("w", newline="") as out:
        writer = csv.DictWriter(out, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            try:
                row.update(measure(row))
            except RuntimeError as error:
                print(row, error, file=sys.stderr)
                continue
            writer.writerow(row)
