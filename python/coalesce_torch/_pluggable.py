"""Coalesce as a CUDAPluggableAllocator: without CUDA graphs, pools, stacks or sharing.

PyTorch does not support torch.cuda.memory_stats, the functions built on it, reset_peak_memory_stats
and memory._snapshot for such allocators, and a program that prints its peak would fail. Here they
report on Coalesce.
"""

import ctypes

import torch

from ._library import call, text

# Optional hooks of a pluggable allocator, and the functions that implement them.
_HOOKS = {
    "set_record_stream_fn": "coalesce_record_stream",
    "set_reset_fn": "coalesce_empty_cache",
    "set_memory_fraction_fn": "coalesce_set_memory_fraction",
    "set_base_alloc_fn": "coalesce_base_allocation",
    "set_begin_allocate_to_pool": "coalesce_refuse_pool",
}

_allocator = None  # PyTorch keeps a pointer into this object


def install(library):
    """Makes the library PyTorch's allocator. Raises RuntimeError if PyTorch lacks a part."""
    global _allocator
    allocator = torch.cuda.memory.CUDAPluggableAllocator(
        library._name, "coalesce_malloc_or_throw", "coalesce_free"
    )
    missing = [setter for setter in _HOOKS if not hasattr(allocator.allocator(), setter)]
    # Without it PyTorch would use the null pointer of a failed request as an address.
    missing += filter(None, [text(library.coalesce_missing_symbol())])
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


def snapshot():
    """Like torch.cuda.memory._snapshot, without stacks."""
    snapshot = call("coalesce_snapshot", torch.cuda.device_count())
    for segment in snapshot["segments"]:
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
    for entry in (entry for entries in snapshot["device_traces"] for entry in entries):
        if "pool_id" in entry:
            entry["pool_id"] = tuple(entry["pool_id"])
    return snapshot


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
    "_cuda_memoryStats": lambda device: _nested(call("coalesce_memory_stats", device)),
    "_cuda_resetPeakMemoryStats": lambda device: call("coalesce_reset_peak_stats", device),
    "_cuda_memorySnapshot": lambda *_: snapshot(),
}
