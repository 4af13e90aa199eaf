"""Coalesce as the allocator of PyTorch.

    import coalesce_torch

    coalesce_torch.enable()  # before the first tensor on a GPU

The library libcoalesce_torch.so is next to this file, or COALESCE_TORCH_LIB holds its path. It
exists for Linux only. COALESCE_TORCH_ALLOC selects the policy:

    COALESCE_TORCH_ALLOC="policy=pytorch;conf=expandable_segments:True;history=100000"

policy is any policy listed by `coalesce policies` except the offline ones. The default makes the
decisions of the installed PyTorch's own allocator. conf holds its settings; without it,
PYTORCH_CUDA_ALLOC_CONF applies. history is the number of history entries in a snapshot; without it
none are recorded. torch=2.13 names another release of PyTorch to follow, from 2.6 to 2.15.

The functions below return the same as those of the same name in torch.cuda. PyTorch does not
support them for pluggable allocators, and a program that prints its peak would fail. enable()
therefore makes torch.cuda.memory_stats, the functions built on it (memory_allocated,
memory_summary, ...), reset_peak_memory_stats and memory._snapshot report on Coalesce.
"""

import ctypes
import json
import os
import pickle
import sys
import warnings
from collections import OrderedDict

try:
    import torch
except ImportError as error:
    raise ImportError("coalesce_torch needs PyTorch, which is not installed here") from error

__all__ = [
    "dump_snapshot",
    "empty_cache",
    "enable",
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

# Optional hooks of a pluggable allocator, and the functions that implement them.
_HOOKS = {
    "set_record_stream_fn": "coalesce_record_stream",
    "set_reset_fn": "coalesce_empty_cache",
    "set_memory_fraction_fn": "coalesce_set_memory_fraction",
    "set_base_alloc_fn": "coalesce_base_allocation",
    "set_begin_allocate_to_pool": "coalesce_refuse_pool",
}

_library = None
_allocator = None  # PyTorch keeps a pointer into this object


def enable():
    """Makes PyTorch allocate GPU memory through Coalesce for the rest of the process.

    Raises ValueError if the settings are invalid, OSError if the library is not found, RuntimeError
    if PyTorch has used its own allocator already or lacks a part that Coalesce needs.
    """
    global _allocator
    if _allocator is not None:
        return
    library = _load()
    problem = _text(library.coalesce_configuration_error())
    if problem is not None:
        raise ValueError(problem)
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        library._name, "coalesce_malloc_or_throw", "coalesce_free"
    )
    missing = [setter for setter in _HOOKS if not hasattr(allocator.allocator(), setter)]
    # Without it PyTorch would use the null pointer of a failed request as an address.
    missing += filter(None, [_text(library.coalesce_missing_symbol())])
    if missing:
        raise RuntimeError(
            f"Coalesce cannot be PyTorch's allocator: PyTorch {torch.__version__} has no "
            + ", no ".join(missing)
        )
    for setter, function in _HOOKS.items():
        address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
        getattr(allocator.allocator(), setter)(address)
    torch.cuda.memory.change_current_allocator(allocator)
    _allocator = allocator
    for name, function in _ANSWERS.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)


def is_enabled():
    """Returns whether PyTorch allocates through Coalesce."""
    return _allocator is not None


def memory_stats(device=None):
    """Like torch.cuda.memory_stats: the same statistics in the same order."""
    return OrderedDict(_call("coalesce_memory_stats", _ordinal(device)))


def memory_summary(device=None, abbreviated=False):
    """Like torch.cuda.memory_summary: a printable table."""
    return _call("coalesce_memory_summary", _ordinal(device), int(abbreviated))


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
    _call("coalesce_reset_peak_stats", _ordinal(device))


def empty_cache():
    """Returns cached memory to the devices. Same as torch.cuda.empty_cache."""
    _load().coalesce_empty_cache()


def memory_snapshot():
    """Like torch.cuda.memory._snapshot, without stack traces."""
    snapshot = _call("coalesce_snapshot", torch.cuda.device_count())
    for segment in snapshot["segments"]:
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
    for entry in (entry for entries in snapshot["device_traces"] for entry in entries):
        if "pool_id" in entry:
            entry["pool_id"] = tuple(entry["pool_id"])
    return snapshot


def dump_snapshot(filename="dump_snapshot.pickle"):
    """Writes a snapshot for pytorch.org/memory_viz or for coalesce."""
    snapshot = memory_snapshot()
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _nested(flat):
    """Converts flat keys to the nested dictionaries that PyTorch's C++ code returns."""
    nested = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        place = nested
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return nested


# Replacements for the C++ functions that PyTorch's Python code calls.
_ANSWERS = {
    "_cuda_memoryStats": lambda device: _nested(memory_stats(device)),
    "_cuda_resetPeakMemoryStats": lambda device: reset_peak_memory_stats(device),
    "_cuda_memorySnapshot": lambda *_: memory_snapshot(),
}


def _load():
    global _library
    if _library is None:
        folder = os.path.dirname(os.path.abspath(__file__))
        default_path = os.path.join(folder, "libcoalesce_torch.so")
        try:
            library = ctypes.CDLL(os.environ.get("COALESCE_TORCH_LIB") or default_path)
        except OSError as error:
            advice = "install the wheel coalesce-gpu, or set COALESCE_TORCH_LIB to its path"
            if sys.platform != "linux":
                advice = "the library exists for Linux only"
            raise OSError(f"{error}; {advice}") from None
        for function in (
            "coalesce_configuration_error",
            "coalesce_missing_symbol",
            "coalesce_set_torch_version",
            "coalesce_memory_stats",
            "coalesce_memory_summary",
            "coalesce_snapshot",
            "coalesce_reset_peak_stats",
        ):
            getattr(library, function).restype = ctypes.c_void_p
        library.coalesce_release_text.argtypes = [ctypes.c_void_p]
        library.coalesce_release_text.restype = None
        library.coalesce_set_torch_version.argtypes = [ctypes.c_char_p]
        _library = library
        version = torch.__version__.encode()
        warning = _text(library.coalesce_set_torch_version(version))
        if warning is not None:
            warnings.warn(warning, stacklevel=3)
    return _library


def _call(function, *arguments):
    """Calls a function of the library and returns the value of its reply."""
    library = _load()
    reply = json.loads(_text(getattr(library, function)(*arguments)))
    if "error" in reply:
        raise RuntimeError(reply["error"])
    return reply["value"]


def _text(address):
    """Copies a text of the library and releases it."""
    if not address:
        return None
    try:
        return ctypes.string_at(address).decode()
    finally:
        _library.coalesce_release_text(address)


def _ordinal(device):
    index = device if isinstance(device, int) or device is None else torch.device(device).index
    return torch.cuda.current_device() if index is None else index
