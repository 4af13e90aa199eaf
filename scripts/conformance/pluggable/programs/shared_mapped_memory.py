"""Tensors in memory that a policy has mapped, shared with another process.

Its pages have one size or several. PyTorch's own allocator can open the former.

COALESCE_TORCH_ALLOC=policy=gmlake
COALESCE_TORCH_ALLOC=policy=quilt
"""

import os
import pickle
import subprocess
import sys

import torch
from harness import MB, bytes_on_gpu

HAS_CONTENTS = bytes_on_gpu(1).fill_(7).item() == 7
SEVERAL_SIZES = b"p"


def contains(tensor, value):
    """Whether each byte has the value. The simulated GPU has no contents."""
    return not HAS_CONTENTS or tensor.eq(value).all().item()


def receive():
    """What the other process does with the tensors that it reads from standard input."""
    shared, values = pickle.load(sys.stdin.buffer)
    torch.cuda.empty_cache()
    free = torch.cuda.mem_get_info()[0]
    opened = [torch.UntypedStorage._new_shared_cuda(*s) for s in shared]
    tensors = [torch.empty(0, dtype=torch.uint8, device="cuda").set_(s) for s in opened]
    for tensor, value in zip(tensors, values, strict=True):
        assert contains(tensor, value)
        tensor.fill_(value + 100)
    torch.cuda.synchronize()
    del tensors, tensor, opened
    torch.cuda.ipc_collect()
    torch.cuda.empty_cache()
    assert HAS_CONTENTS or torch.cuda.mem_get_info()[0] == free, "all of it is closed"


def send(tensors, allocator):
    """Returns the marks of the handles."""
    values = list(range(1, len(tensors) + 1))
    for tensor, value in zip(tensors, values, strict=True):
        tensor.fill_(value)
    torch.cuda.synchronize()
    shared = [tensor.untyped_storage()._share_cuda_() for tensor in tensors]
    env = {**os.environ, "ALLOCATOR": allocator, "COALESCE_TORCH_ALLOC": ""}
    subprocess.run(
        [sys.executable, __file__, "receive"],
        input=pickle.dumps((shared, values)),
        env=env,
        check=True,
    )
    for tensor, value in zip(tensors, values, strict=True):
        assert contains(tensor, value + 100)
    return {s[1][1:2] for s in shared}


def in_pieces():
    """A tensor for which quilt maps free pages of several sizes side by side."""
    small = [bytes_on_gpu(6 * MB) for _ in range(20)]
    large = [bytes_on_gpu(40 * MB) for _ in range(30)]
    later = [bytes_on_gpu(12 * MB) for _ in range(20)]
    del small[::2], later[::2]
    kept = small, large, later
    return bytes_on_gpu(150 * MB), kept


if sys.argv[1:] == ["receive"]:
    receive()
else:
    tensors = [bytes_on_gpu(3 * MB), bytes_on_gpu(5000), bytes_on_gpu(30 * MB)]
    for allocator in ("native", "coalesce"):
        assert SEVERAL_SIZES not in send(tensors, allocator)
    if "quilt" in os.environ["COALESCE_TORCH_ALLOC"]:
        tensor, kept = in_pieces()
        for part in kept:
            for other in part:
                other.fill_(50)
        assert send([tensor], "coalesce") == {SEVERAL_SIZES}
        for part in kept:
            assert all(contains(other, 50) for other in part), "their pages are shared too, not their bytes"
