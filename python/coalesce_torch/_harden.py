"""Stacks for the mode `harden`, which says who allocated and freed memory that is used wrongly."""

import atexit
import ctypes
import sys

_MOST_FRAMES = 24


@ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)
def _frames(to, capacity):
    """Writes the Python frames of the calling thread, innermost first."""
    # A thread of PyTorch has no other frame.
    frame, lines = sys._getframe().f_back, []
    while frame is not None and len(lines) < _MOST_FRAMES:
        lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}")
        frame = frame.f_back
    text = "\n".join(lines).encode(errors="replace")[:capacity]
    ctypes.memmove(to, text, len(text))
    return len(text)


def follow(library):
    """Gives the library stacks until the interpreter ends, if the mode is on."""
    library.coalesce_hardens.restype = ctypes.c_bool
    if not library.coalesce_hardens():
        return
    library.coalesce_follow_stacks.argtypes = [ctypes.c_void_p]
    library.coalesce_follow_stacks(ctypes.cast(_frames, ctypes.c_void_p))

    def end():
        library.coalesce_check_freed()
        # Tensors may be freed after the interpreter has ended.
        library.coalesce_follow_stacks(None)

    atexit.register(end)
