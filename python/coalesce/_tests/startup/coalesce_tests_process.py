"""The GPU memory of one process of a test run.

The process that runs tests measures each of them. Every other one that uses a GPU leaves
PID.started in COALESCE_TESTS_FOLDER, and at its end PID.pickle, its memory snapshot, and PID.json,
its peaks."""

import atexit
import importlib
import json
import os
import pickle
import sys
from pathlib import Path

import coalesce_fits_gpu
import coalesce_fits_imports
import coalesce_fits_world

# Operations that PyTorch keeps for the snapshot of a test; the oldest are dropped.
MOST_EVENTS = 1_000_000

# The frame that PyTorch has for the workspaces of cuBLAS where it records those of C++.
OF_WORKSPACE = {"filename": "??", "line": 0, "name": "at::cuda::getCUDABlasWorkspace"}

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
    if kind in ("values", "shapes", "routes"):
        values[line] = values.get(line, 0) + 1


def begin(torch):
    """CUDA is initialized, and there is no tensor on the GPU yet."""
    global peaks, process
    process = os.getpid()
    peaks = importlib.import_module("coalesce_fits_peaks").Peaks(torch)
    peaks.keep()
    record(torch)
    if process != tester:
        # If the process is killed, nothing else says that it used the GPU.
        left_by(process, "started").touch()
        # Processes of multiprocessing end with os._exit.
        os._exit = leave
        atexit.register(finish)


def record(torch):
    """Lets PyTorch keep a history from now on, unless the program has one of its own."""
    if not torch._C._cuda_isHistoryEnabled():
        torch.cuda.memory._record_memory_history(
            context="alloc", stacks="python", max_entries=MOST_EVENTS
        )


def final_snapshot(torch):
    """PyTorch's history, in which a frame names the workspaces of cuBLAS. Releases them: nothing else
    tells which they are."""
    devices = range(torch.cuda.device_count())
    before = [freed(torch, device) for device in devices]
    torch._C._cuda_clearCublasWorkspaces()
    counts = [freed(torch, device) - count for device, count in zip(devices, before)]
    snapshot = torch.cuda.memory._snapshot()
    for events, count in zip(snapshot["device_traces"], counts):
        name_workspaces(events, count)
    return snapshot


def freed(torch, device):
    """How many blocks were freed."""
    return torch.cuda.memory_stats_as_nested_dict(device)["allocation"]["all"]["freed"]


def name_workspaces(events, count):
    """Names the blocks that were freed last as workspaces."""
    addresses = set()
    for event in reversed(events):
        if event["action"] == "free_requested" and count > 0:
            addresses.add(event["addr"])
            count -= 1
        elif event["action"] == "alloc" and event["addr"] in addresses:
            addresses.remove(event["addr"])
            event["frames"] = [OF_WORKSPACE, *event.get("frames", ())]
        if count <= 0 and not addresses:
            return


def left_by(process, what):
    """A file that a process leaves."""
    return Path(os.environ["COALESCE_TESTS_FOLDER"], f"{process}.{what}")


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
    if not left_by(process, "started").exists():
        # The test is over, and has said that this process is not counted.
        return
    stats = torch.cuda.memory_stats()
    left_by(process, "pickle").write_bytes(pickle.dumps(final_snapshot(torch)))
    known = {"peaks": found.bytes, "ooms": stats.get("num_ooms", 0), "values": values}
    left_by(process, "unfinished").write_text(json.dumps(known), encoding="utf-8")
    # Its presence says that the process is done.
    left_by(process, "unfinished").replace(left_by(process, "json"))
