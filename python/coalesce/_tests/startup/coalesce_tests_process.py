"""The GPU memory of one process of a test run.

The process that runs tests measures each of them. Every other one that uses a GPU leaves
PID.pickle, its memory snapshot, and PID.json, its peaks, in COALESCE_TESTS_FOLDER."""

import atexit
import importlib
import json
import os
import sys
from pathlib import Path

import coalesce_fits_gpu
import coalesce_fits_imports
import coalesce_fits_world

# Operations that PyTorch keeps for the snapshot of a test; the oldest are dropped.
MOST_EVENTS = 1_000_000

# Ends the process at once.
EXIT = os._exit

# The process that runs tests, where this is one, and the one in which CUDA was initialized.
tester = process = None
# Why PyTorch cannot use the simulated GPU: "cpu_only", "rocm", "no_code"; None if it can.
lacking = None
# The peaks, once CUDA is initialized.
peaks = None
# How often each line of the program read values that only a GPU computes, or selected by them.
values = {}


def start():
    """Gets ready for the import of PyTorch. A second call does nothing."""
    if not any(getattr(finder, "then", None) is imported for finder in sys.meta_path):
        sys.meta_path.insert(0, coalesce_fits_imports.After("torch", imported, before_import))


def is_to_be_simulated():
    return bool(coalesce_fits_gpu.FOLDER)


def before_import(folder):
    """PyTorch, in this folder, is about to be imported."""
    global lacking
    if is_to_be_simulated():
        version = coalesce_fits_gpu.built(folder)
        lacking = coalesce_fits_gpu.lacks_cuda(version)
        if not lacking:
            coalesce_fits_gpu.load(version)


def imported(torch):
    global lacking
    if lacking or not torch.cuda.is_available():
        return
    if is_to_be_simulated():
        if not coalesce_fits_gpu.choose_code(torch):
            lacking = "no_code"
        coalesce_fits_world.join(torch)
        observer = importlib.import_module("coalesce_fits_values")
        observer.Values(lambda kind: note(kind, observer.line_of_program())).__enter__()
    torch.cuda._lazy_call(lambda: begin(torch))


def note(kind, line):
    if kind in ("values", "shapes"):
        values[line] = values.get(line, 0) + 1


def begin(torch):
    """CUDA is initialized, and there is no tensor on the GPU yet."""
    global peaks, process
    process = os.getpid()
    peaks = importlib.import_module("coalesce_fits_peaks").Peaks(torch)
    peaks.keep()
    record(torch)
    if process != tester:
        # Processes of multiprocessing end with os._exit.
        os._exit = leave
        atexit.register(finish)


def record(torch):
    """Lets PyTorch keep a history from now on, unless the program has one of its own."""
    if not torch._C._cuda_isHistoryEnabled():
        torch.cuda.memory._record_memory_history(
            context="alloc", stacks="python", max_entries=MOST_EVENTS
        )


def leave(status):
    finish()
    EXIT(status)


def finish():
    """Leaves what is known of this process. A second call does nothing."""
    global peaks
    # A process that is forked later cannot use the GPU.
    if peaks is None or os.getpid() != process:
        return
    torch, found, peaks = peaks.torch, peaks, None
    found.note()
    stats = torch.cuda.memory_stats()
    path = Path(os.environ["COALESCE_TESTS_FOLDER"], str(os.getpid()))
    torch.cuda.memory._dump_snapshot(f"{path}.pickle")
    known = {"peaks": found.bytes, "ooms": stats.get("num_ooms", 0), "values": values}
    # Its presence says that the process is done.
    path.with_suffix(".json").write_text(json.dumps(known), encoding="utf-8")
