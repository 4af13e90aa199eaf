"""Coalesce as the allocator of PyTorch.

    import coalesce_torch

    coalesce_torch.enable()  # before the first use of CUDA

or, for a program that is not to be changed,

    python -m coalesce_torch train.py --its --arguments

The library libcoalesce_torch.so is next to this file, or COALESCE_TORCH_LIB holds its path. It
exists for Linux only. COALESCE_TORCH_ALLOC selects the policy:

    COALESCE_TORCH_ALLOC="policy=pytorch;conf=expandable_segments:True;history=100000"

policy is any policy listed by `coalesce policies` except the offline ones. The default makes the
decisions of the installed PyTorch's own allocator. conf holds its settings; without it,
PYTORCH_CUDA_ALLOC_CONF applies. history is the number of history entries in a snapshot; without it
none are recorded until the program asks for them. torch=2.13 names another release of PyTorch to
follow, from 2.6 to 2.15. harden=poison or harden=guard finds programs that use memory wrongly.
schedule=FILE names what `coalesce advise RECORDING --json=FILE` wrote: if it found something that
the program could do at some of its lines, that is done there.

The first enable() compiles a small C++ file against the headers of the installed PyTorch, in a few
seconds, and keeps the result in ~/.cache/coalesce. Then everything that PyTorch offers works as
with its own allocator: CUDA graphs, torch.cuda.MemPool, the history with stacks, tensors shared
between processes. It needs a C++ compiler, as torch.compile does, and the headers of the CUDA
runtime, which come with PyTorch. Without them enable() warns and uses CUDAPluggableAllocator, which
has none of this; interface() tells which one is in use.

The functions below return the same as those of the same name in torch.cuda.
"""

import pickle
from collections import OrderedDict

try:
    import torch
except ImportError as error:
    raise ImportError("coalesce_torch needs PyTorch, which is not installed here") from error

from . import _complete, _harden, _pluggable, _schedule
from ._library import call, configuration_error, load

__all__ = [
    "dump_snapshot",
    "empty_cache",
    "enable",
    "interface",
    "is_enabled",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_summary",
    "reset_peak_memory_stats",
]

_interface = None


def enable():
    """Makes PyTorch allocate GPU memory through Coalesce for the rest of the process.

    Raises ValueError if the settings are invalid, OSError if the library is not found, RuntimeError
    if PyTorch has used its own allocator already or lacks a part that Coalesce needs.
    """
    global _interface
    if _interface is not None:
        return
    library = load()
    problem = configuration_error()
    if problem is not None:
        raise ValueError(problem)
    if torch.cuda.is_initialized():
        raise RuntimeError(
            "PyTorch has used its own allocator already: call coalesce_torch.enable() before the "
            "first use of CUDA, or start the program with python -m coalesce_torch"
        )
    _harden.follow(library)
    schedule = _schedule.configured()
    _interface = "complete" if _complete.install(library) else "pluggable"
    if _interface == "pluggable":
        _pluggable.install(library)
    if schedule is not None:
        _schedule.follow(*schedule)


def is_enabled():
    """Returns whether PyTorch allocates through Coalesce."""
    return _interface is not None


def interface():
    """Returns "complete", "pluggable" (no graphs, pools, stacks, sharing), or None if off."""
    return _interface


def memory_stats(device=None):
    """Like torch.cuda.memory_stats: the same statistics in the same order."""
    return OrderedDict(call("coalesce_memory_stats", _ordinal(device)))


def memory_summary(device=None, abbreviated=False):
    """Like torch.cuda.memory_summary: a printable table."""
    return call("coalesce_memory_summary", _ordinal(device), int(abbreviated))


def memory_allocated(device=None):
    """Bytes allocated to tensors."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device=None):
    """Peak of memory_allocated since the start or the last reset."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device=None):
    """Bytes reserved from the device."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device=None):
    """Peak of memory_reserved since the start or the last reset."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device=None):
    """Resets all peaks of a device to the current values."""
    call("coalesce_reset_peak_stats", _ordinal(device))


def empty_cache():
    """Returns cached memory to the devices. Same as torch.cuda.empty_cache."""
    load().coalesce_empty_cache()


def memory_snapshot():
    """Like torch.cuda.memory._snapshot; without stacks if interface() is "pluggable"."""
    if _interface == "complete":
        return torch.cuda.memory._snapshot()
    return _pluggable.snapshot()


def dump_snapshot(filename="dump_snapshot.pickle"):
    """Writes a snapshot for pytorch.org/memory_viz or for coalesce."""
    snapshot = memory_snapshot()
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _ordinal(device):
    index = device if isinstance(device, int) or device is None else torch.device(device).index
    return torch.cuda.current_device() if index is None else index
