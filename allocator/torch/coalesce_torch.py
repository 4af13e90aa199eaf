"""PyTorch on the allocators of Coalesce.

    import coalesce_torch

    coalesce_torch.enable()  # before the first tensor on a GPU

The library libcoalesce_torch.so lies beside this file, or where COALESCE_TORCH_LIB says. Which
policy serves, and how, is in COALESCE_TORCH_ALLOC:

    COALESCE_TORCH_ALLOC="policy=pytorch;conf=expandable_segments:True;history=100000"

policy is one of `coalesce policies` that need not know the program in advance; without one,
PyTorch's own decisions are made, under PYTORCH_CUDA_ALLOC_CONF unless there is a conf. history is
how many entries dump_snapshot() tells; without it there is none.

The functions below tell what those of the same names in torch.cuda tell of PyTorch's own allocator,
in the same form. PyTorch itself refuses them for others, so that a program which prints its peak
would end with an error: enable() lets torch.cuda.memory_stats, all that is built on it
(memory_allocated, memory_summary, ...), reset_peak_memory_stats and memory._snapshot ask Coalesce.
"""

import ctypes
import json
import os
import pickle
from collections import OrderedDict

import torch

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

# What PyTorch lets an allocator do besides malloc and free, and what does it.
_HOOKS = {
    "set_record_stream_fn": "coalesce_record_stream",
    "set_reset_fn": "coalesce_empty_cache",
    "set_memory_fraction_fn": "coalesce_set_memory_fraction",
    "set_base_alloc_fn": "coalesce_base_allocation",
    "set_begin_allocate_to_pool": "coalesce_refuse_pool",
}

_library = None
_allocator = None  # PyTorch keeps the address of what is in this one


def enable():
    """Lets PyTorch take all memory of its tensors on GPUs from Coalesce, from now on and for good.

    ValueError if the environment is wrong, OSError if there is no library, RuntimeError if PyTorch
    has used its own allocator already.
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
    for setter, function in _HOOKS.items():
        address = ctypes.cast(getattr(library, function), ctypes.c_void_p).value
        getattr(allocator.allocator(), setter)(address)
    torch.cuda.memory.change_current_allocator(allocator)
    _allocator = allocator
    for name, function in _ANSWERS.items():
        if hasattr(torch._C, name):
            setattr(torch._C, name, function)


def is_enabled():
    """Whether PyTorch takes its memory from Coalesce."""
    return _allocator is not None


def memory_stats(device=None):
    """As torch.cuda.memory_stats: its 122 figures, in its order."""
    return OrderedDict(_asked("coalesce_memory_stats", _ordinal(device)))


def memory_summary(device=None, abbreviated=False):
    """As torch.cuda.memory_summary: a table to print."""
    return _asked("coalesce_memory_summary", _ordinal(device), int(abbreviated))


def memory_allocated(device=None):
    """Bytes of the tensors there are."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device=None):
    """The most bytes of tensors since the start or the last reset of peaks."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device=None):
    """Bytes held from the device."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device=None):
    """The most bytes held from the device since the start or the last reset of peaks."""
    return memory_stats(device)["reserved_bytes.all.peak"]


def reset_peak_memory_stats(device=None):
    """Sets all peaks of a device to what there is now."""
    _asked("coalesce_reset_peak_stats", _ordinal(device))


def empty_cache():
    """Returns to the devices what can be returned. torch.cuda.empty_cache does the same."""
    _load().coalesce_empty_cache()


def memory_snapshot():
    """As torch.cuda.memory._snapshot, without stack traces."""
    snapshot = _asked("coalesce_snapshot", torch.cuda.device_count())
    for segment in snapshot["segments"]:
        segment["segment_pool_id"] = tuple(segment["segment_pool_id"])
    return snapshot


def dump_snapshot(filename="dump_snapshot.pickle"):
    """As torch.cuda.memory._dump_snapshot: a file for pytorch.org/memory_viz, or for coalesce."""
    snapshot = memory_snapshot()
    with open(filename, "wb") as file:
        pickle.dump(snapshot, file)


def _nested(flat):
    """The figures as PyTorch's Python code has them from C++: a dictionary for each dot."""
    nested = {}
    for key, value in flat.items():
        *path, last = key.split(".")
        place = nested
        for name in path:
            place = place.setdefault(name, {})
        place[last] = value
    return nested


# What PyTorch's Python code asks of its C++ code.
_ANSWERS = {
    "_cuda_memoryStats": lambda device: _nested(memory_stats(device)),
    "_cuda_resetPeakMemoryStats": lambda device: reset_peak_memory_stats(device),
    "_cuda_memorySnapshot": lambda _pool: memory_snapshot(),
}


def _load():
    global _library
    if _library is None:
        beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libcoalesce_torch.so")
        try:
            library = ctypes.CDLL(os.environ.get("COALESCE_TORCH_LIB") or beside)
        except OSError as error:
            raise OSError(
                f"{error}; `cargo build --release -p coalesce-torch` makes libcoalesce_torch.so: "
                "put it beside coalesce_torch.py, or its path into COALESCE_TORCH_LIB"
            ) from None
        for function in (
            "coalesce_configuration_error",
            "coalesce_memory_stats",
            "coalesce_memory_summary",
            "coalesce_snapshot",
            "coalesce_reset_peak_stats",
        ):
            getattr(library, function).restype = ctypes.c_void_p
        library.coalesce_release_text.argtypes = [ctypes.c_void_p]
        library.coalesce_release_text.restype = None
        _library = library
    return _library


def _asked(function, *arguments):
    """The value in the library's reply."""
    library = _load()
    reply = json.loads(_text(getattr(library, function)(*arguments)))
    if "error" in reply:
        raise RuntimeError(reply["error"])
    return reply["value"]


def _text(address):
    """A text of the library's, which has it back afterwards."""
    if not address:
        return None
    try:
        return ctypes.string_at(address).decode()
    finally:
        _library.coalesce_release_text(address)


def _ordinal(device):
    index = device if isinstance(device, int) or device is None else torch.device(device).index
    return torch.cuda.current_device() if index is None else index
