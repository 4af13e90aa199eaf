#!/usr/bin/env python3
"""Records vectors with CuPy's own memory pool (cupy.cuda.memory.SingleDeviceMemoryPool).

    record.py --seeds A..B --out DIR      random traces, into DIR/cupy
    record.py --again FILE... --out DIR   traces from files, recorded or written by hand

    --count N        operations per random trace (default 2000)
    --heap python    leave CuPy's objects where Python puts them (see below)
    --ties           only count how often there are equally large free chunks to choose from

No GPU and no driver: the pool gets its memory from a function here, which places it as a fresh
device does. Everything else is the unchanged wheel.

Among equally large free chunks CuPy takes the one whose Python object has the lowest address. Where
Python puts an object depends on the history of the process, so this choice is accidental and
cannot be repeated. Here these objects live on a heap with ascending addresses, so that the oldest
chunk is taken. Both are CuPy; this form can be compared.
"""

import argparse
import ctypes
import gc
import importlib.metadata
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent))
from traces import MIB, random_trace, read, write

POLICY = "cupy"
PACKAGE = "cupy-cuda12x"
CONFS = ["", "", f"limit:{50 * MIB}", f"limit:{200 * MIB + 512}"]
CUDA_ERROR_MEMORY_ALLOCATION = 2
HEAP_ROOM = 1 << 36
"""Bytes of address space; pages are taken as they are used."""


def pretend_there_is_a_device():
    """CuPy asks the runtime which device is current and how many there are, through pointers that
    its modules read from one another when they are imported. These two answer 0 and 1."""
    from cupy_backends.cuda.api import runtime

    new_capsule = ctypes.pythonapi.PyCapsule_New
    new_capsule.restype = ctypes.py_object
    new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    signature = b"int (int __pyx_skip_dispatch)"
    answer = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
    for name, value in [("getDevice", 0), ("getDeviceCount", 1)]:
        function = answer(lambda _, value=value: value)
        pointer = ctypes.cast(function, ctypes.c_void_p)
        runtime.__pyx_capi__[name] = new_capsule(pointer, signature, None)
        KEPT.append((function, signature))


KEPT = []
pretend_there_is_a_device()
warnings.filterwarnings("ignore", category=DeprecationWarning)
warnings.filterwarnings("ignore", message="CUDA path could not be detected")
import cupy
from cupy.cuda import memory


def install_growing_heap():
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "growing_heap.so"
        include = sysconfig.get_paths()["include"]
        source = HERE / "growing_heap.cpp"
        subprocess.run(
            ["g++", "-O2", "-shared", "-fPIC", f"-I{include}", source, "-o", library], check=True
        )
        heap = ctypes.PyDLL(library)
    heap.install.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    KEPT.append(heap)
    if heap.install(memory._Chunk.__basicsize__, HEAP_ROOM) != 0:
        sys.exit("record.py: no address space for the heap")
    chunks = [memory._Chunk.__new__(memory._Chunk) for _ in range(100)]
    addresses = [id(chunk) for chunk in chunks]
    assert addresses == sorted(addresses), "CuPy's objects are not on the growing heap"


class Device:
    """Memory in steps of 2 MiB at ascending addresses."""

    GRANULARITY = 2 << 20
    FIRST_ADDRESS = 0x20000000000

    def __init__(self, capacity):
        self.free_bytes = capacity
        self.next_address = self.FIRST_ADDRESS
        self.sizes = {}

    def malloc(self, size, _device):
        size = -(-size // self.GRANULARITY) * self.GRANULARITY
        if size > self.free_bytes:
            raise cupy.cuda.runtime.CUDARuntimeError(CUDA_ERROR_MEMORY_ALLOCATION)
        address = self.next_address
        self.next_address += size
        self.free_bytes -= size
        self.sizes[address] = size
        return address

    def free(self, address, _device):
        self.free_bytes += self.sizes.pop(address)


class Original:
    """Runs the lines of a trace on the pool."""

    STREAM_STEP = 0x1000

    def __init__(self, trace):
        device = Device(trace.capacity)
        source = memory.PythonFunctionAllocator(device.malloc, device.free)
        self.pool = memory.SingleDeviceMemoryPool(source.malloc)
        self.pool.set_limit(size=int(trace.conf.removeprefix("limit:") or 0))
        self.live = {}
        self.streams = {}
        self.reused = self.tied = 0

    def stream(self, index):
        if index not in self.streams:
            handle = index * self.STREAM_STEP
            self.streams[index] = cupy.cuda.ExternalStream(handle, device_id=0)
        return self.streams[index]

    def malloc(self, size, stream):
        """A MemoryPointer, or None if there is not enough memory."""
        self.stream(stream).use()
        try:
            return self.pool.malloc(size)
        except memory.OutOfMemoryError:
            return None

    def count_ties(self, size, stream):
        size = -(-size // 512) * 512
        index = self.pool._debug_arena_get_index(stream * self.STREAM_STEP)
        fitting = [chunk_size for chunk_size, _ in index if chunk_size >= size]
        self.reused += bool(fitting)
        self.tied += fitting.count(min(fitting, default=None)) > 1

    def run(self, line, ties=False):
        """The line with its outcome; None if it frees an unknown allocation."""
        match line.split():
            case ["a", name, size, stream]:
                if ties:
                    self.count_ties(int(size), int(stream))
                pointer = self.malloc(int(size), int(stream))
                if pointer is None:
                    return f"{line} oom"
                self.live[name] = pointer
                return f"{line} {pointer.ptr:#x}"
            case ["f", name]:
                if self.live.pop(name, None) is None:
                    return None
                return line
            case ["e"]:
                self.pool.free_all_blocks()
                return line
            case ["#", *_]:
                return line
        sys.exit(f"record.py: unknown line '{line}'")


def record(folder, trace):
    """Writes the vector of a trace and returns its number of operations."""
    original = Original(trace)
    outcomes = [outcome for line in trace.lines if (outcome := original.run(line)) is not None]
    version = importlib.metadata.version(PACKAGE)
    return write(folder / trace.name, f"{PACKAGE} {version}", POLICY, trace, outcomes)


def count_ties(traces):
    reused = tied = 0
    for trace in traces:
        original = Original(trace)
        for line in trace.lines:
            original.run(line, ties=True)
        reused += original.reused
        tied += original.tied
    print(f"{reused} allocations from free chunks, {tied} of them with a choice among equals")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0..9", metavar="A..B")
    parser.add_argument("--again", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--out", type=Path, metavar="DIR")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--heap", choices=["growing", "python"], default="growing")
    parser.add_argument("--ties", action="store_true")
    args = parser.parse_args()
    if args.out is None and not args.ties:
        parser.error("--out DIR is missing")
    if args.heap == "growing":
        install_growing_heap()
    # CuPy collects garbage when memory runs out: exclude imported modules from each search.
    gc.freeze()
    if args.again:
        traces = map(read, args.again)
    else:
        first, last = map(int, args.seeds.split(".."))
        seeds = range(first, last + 1)
        traces = (random_trace(seed, CONFS, args.count, most_streams=4) for seed in seeds)
    if args.ties:
        count_ties(traces)
        return
    folder = args.out / POLICY
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{sum(record(folder, trace) for trace in traces)} operations")


if __name__ == "__main__":
    main()
