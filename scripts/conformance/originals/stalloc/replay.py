"""Runs STAlloc's own allocator on a plan: replay.py ALLOC.so HEIGHT < OPERATIONS

Reads `a BYTES` and `f NUMBER`, writes the place of each request in the arena, or `-` if it is
elsewhere. The arena has HEIGHT bytes; STALLOC_MODEL_INFO_PATH names the plan. Each program needs
a new process, because the allocator is created once.
"""

import ctypes
import sys

# The first allocation of the device, which is the arena.
ARENA = 0x20000000000


def main() -> None:
    library = ctypes.CDLL(sys.argv[1])
    malloc, free = library.my_malloc, library.my_free
    malloc.restype = ctypes.c_uint64
    malloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    free.restype = None
    free.argtypes = [ctypes.c_uint64, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
    height = int(sys.argv[2])
    blocks: list[tuple[int, int]] = []
    answers = []
    for line in sys.stdin:
        kind, number = line.split()
        if kind == "a":
            addr = malloc(int(number), 0, None)
            blocks.append((addr, int(number)))
            is_planned = ARENA <= addr < ARENA + height
            answers.append(str(addr - ARENA) if is_planned else "-")
        else:
            addr, size = blocks[int(number)]
            free(addr, size, 0, None)
    # The allocator itself also writes to standard output.
    sys.stderr.write(" ".join(answers))


if __name__ == "__main__":
    main()
