"""Runs a program that only requests memory, and prints what PyTorch's allocator held, as a line of
JSON.

python PROGRAM.py [--patched | --schedule FILE] [--snapshot FILE]
"""

import argparse
import functools
import importlib.util
import json
import pathlib
import sys

import torch

GIB = 1 << 30
MIB = 1 << 20

_parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
_parser.add_argument("--patched", action="store_true", help="with the lines that avoid the waste")
_parser.add_argument("--schedule", help="what `coalesce advise --json=FILE` wrote, to be followed")
_parser.add_argument("--snapshot", help="where to write the recording")
_args = _parser.parse_args()
PATCHED = _args.patched


# A tensor of so many bytes. It is not filled: no kernel runs.
block = functools.partial(torch.empty, dtype=torch.uint8, device="cuda")


def set_allocator(settings):
    """Changes the settings of PyTorch's allocator, in any release."""
    change = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (change or torch.cuda.memory._set_allocator_settings)(settings)


def _follow(path):
    """Follows a schedule with PyTorch's own allocator."""
    file = pathlib.Path(__file__).parents[2] / "python/coalesce_torch/_schedule.py"
    spec = importlib.util.spec_from_file_location("_schedule", file)
    schedule = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(schedule)
    schedule.follow(*schedule.read(path))


def main(program):
    torch.cuda.init()
    if _args.schedule:
        _follow(_args.schedule)
    torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    failed = False
    try:
        program()
    except torch.OutOfMemoryError:
        failed = True
    if _args.snapshot:
        torch.cuda.memory._dump_snapshot(_args.snapshot)
    stats = torch.cuda.memory_stats()
    names = {
        "reserved_peak": "reserved_bytes.all.peak",
        "allocated_peak": "allocated_bytes.all.peak",
        "retries": "num_alloc_retries",
        "ooms": "num_ooms",
        "device_allocs": "num_device_alloc",
        "device_frees": "num_device_free",
    }
    found = {name: stats[key] for name, key in names.items()}
    program = pathlib.Path(sys.argv[0]).stem
    does = "schedule" if _args.schedule else "patched" if PATCHED else "as it is"
    known = {"program": program, "does": does, "torch": torch.__version__, "failed": failed}
    print(json.dumps(known | found))
