"""The library libcoalesce_torch.so."""

import ctypes
import json
import os
import sys
import warnings

import torch

_library = None

_TEXTS = (
    "coalesce_apply_settings",
    "coalesce_configuration_error",
    "coalesce_interface",
    "coalesce_missing_symbol",
    "coalesce_set_torch_version",
    "coalesce_memory_stats",
    "coalesce_memory_summary",
    "coalesce_snapshot",
    "coalesce_reset_peak_stats",
)


def load():
    """Returns the library, loaded once."""
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
        for function in _TEXTS:
            getattr(library, function).restype = ctypes.c_void_p
        library.coalesce_release_text.argtypes = [ctypes.c_void_p]
        library.coalesce_release_text.restype = None
        library.coalesce_history_entries.restype = ctypes.c_int64
        library.coalesce_set_torch_version.argtypes = [ctypes.c_char_p]
        library.coalesce_apply_settings.argtypes = [ctypes.c_char_p]
        _library = library
        version = torch.__version__.encode()
        warning = text(library.coalesce_set_torch_version(version))
        if warning is not None:
            warnings.warn(warning, stacklevel=3)
    return _library


def call(function, *arguments):
    """Calls a function of the library and returns the value of its reply."""
    reply = json.loads(text(getattr(load(), function)(*arguments)))
    if "error" in reply:
        raise RuntimeError(reply["error"])
    return reply["value"]


def configuration_error():
    """Returns what is wrong with COALESCE_TORCH_ALLOC, or None."""
    return text(load().coalesce_configuration_error())


def text(address):
    """Copies a text of the library and releases it."""
    if not address:
        return None
    try:
        return ctypes.string_at(address).decode()
    finally:
        _library.coalesce_release_text(address)
