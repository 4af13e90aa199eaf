"""Writes what PyTorch's allocator used, when the process ends, to RECORD_FOLDER/PID.json.

Python imports it at its start, so the script that runs is not changed."""

import atexit
import builtins
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

PROCESS = os.getpid()
IMPORT = builtins.__import__


def begin():
    """Records the requests, once there is a GPU to request memory of."""
    torch = sys.modules["torch"]
    torch.cuda.memory._record_memory_history(context=None, max_entries=5_000_000)


def imported(name, *args, **kwargs):
    module = IMPORT(name, *args, **kwargs)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "compile") and hasattr(torch, "cuda"):
        builtins.__import__ = IMPORT
        torch.cuda._lazy_call(begin)
    return module


def write():
    torch = sys.modules.get("torch")
    # Not in a forked worker.
    if os.getpid() != PROCESS or torch is None or not torch.cuda.is_initialized():
        return
    stats = torch.cuda.memory_stats()
    events = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    sizes = Counter(event["size"] for event in events if event["action"] == "alloc")
    known = {
        **{
            f"{kind}_bytes": stats[f"{kind}_bytes.all.peak"]
            for kind in ("reserved", "allocated", "requested", "active")
        },
        "retries": stats["num_alloc_retries"],
        "ooms": stats["num_ooms"],
        "allocations": stats["allocation.all.allocated"],
        "device": torch.cuda.get_device_name(),
        "python": sys.version.split()[0],
        "versions": {
            name: sys.modules[name].__version__
            for name in ("torch", "torchvision", "transformers", "accelerate", "peft", "timm")
            + ("torch_geometric", "lightning", "datasets", "diffusers", "trl")
            + ("sentence_transformers",)
            if hasattr(sys.modules.get(name), "__version__")
        },
        # How often each number of bytes was requested.
        "sizes": {str(size): sizes[size] for size in sorted(sizes, reverse=True)},
    }
    (Path(os.environ["RECORD_FOLDER"]) / f"{PROCESS}.json").write_text(json.dumps(known))


def ended(number, frame):
    write()
    os._exit(128 + number)


if "RECORD_FOLDER" in os.environ:
    builtins.__import__ = imported
    atexit.register(write)
    signal.signal(signal.SIGTERM, ended)
