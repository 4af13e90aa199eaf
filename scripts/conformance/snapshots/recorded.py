"""Records the real snapshots for the tests of the reader: one state of a small program, written by
Python and by PyTorch's C++ (torch::cuda::_memory_snapshot_pickled, which Python has no name
for).

    $(../setup-torch.sh | tail -n 1) - DIR < recorded.py

Read from standard input, so that the stacks contain no local path. Writes torch-
python.pickle and torch-cpp.pickle."""

import ctypes
import os
import sys

import torch

PROGRAM = """
def layer(mib):
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")

def program():
    with torch.cuda.stream(torch.cuda.Stream()):
        kept.append(layer(3))
    small, large = layer(1), layer(30)
    del small
    kept.append(layer(7))
    del large
    kept.append(torch.empty(1000, device="cuda"))
    try:
        layer(1 << 20)
    except torch.OutOfMemoryError:
        pass
"""


def by_cpp():
    path = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cuda.so")
    pickled = ctypes.CDLL(path)._ZN5torch4cuda24_memory_snapshot_pickledB5cxx11Ev
    pickled.restype, pickled.argtypes = None, [ctypes.c_void_p]
    text = (ctypes.c_size_t * 4)()  # a std::string of libstdc++: where, how long, ...
    pickled(ctypes.addressof(text))
    return ctypes.string_at(text[0], text[1])


torch.cuda.memory._record_memory_history(max_entries=1000, context="all", stacks="python")
names = {"torch": torch, "kept": []}
exec(compile(PROGRAM, "train.py", "exec"), names)
names["program"]()
torch.cuda.memory._dump_snapshot(os.path.join(sys.argv[1], "torch-python.pickle"))
with open(os.path.join(sys.argv[1], "torch-cpp.pickle"), "wb") as f:
    f.write(by_cpp())
os._exit(0)  # skips the shutdown of the fake device
