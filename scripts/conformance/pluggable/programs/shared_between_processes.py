"""Tensors shared with two other processes, one on PyTorch's own allocator and one on Coalesce.

FAKE_MEMORY=1
PYTORCH_CUDA_ALLOC_CONF=
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
"""

import os
import pickle
import subprocess
import sys

import torch
from harness import MB, bytes_on_gpu, record_history, report, said


def receive():
    """What the other process does with the tensors that it reads from standard input."""
    shared = pickle.load(sys.stdin.buffer)
    torch.cuda.init()
    free = torch.cuda.mem_get_info()[0]
    opened = [torch.UntypedStorage._new_shared_cuda(*s) for s in shared]
    tensors = [torch.empty(0, dtype=torch.uint8, device="cuda").set_(s) for s in opened]
    kept = bytes_on_gpu(MB)
    print([t.numel() for t in tensors], tensors[1].sum().item(), torch.cuda.memory_allocated())
    print(free - torch.cuda.mem_get_info()[0])
    for tensor in tensors:
        tensor.fill_(9)
    torch.cuda.synchronize()
    del tensors, tensor, opened
    torch.cuda.ipc_collect()
    print(free - torch.cuda.mem_get_info()[0])
    del kept


def send():
    tensors = [bytes_on_gpu(3 * MB), bytes_on_gpu(5000), bytes_on_gpu(30 * MB)]
    for allocator in ("native", "coalesce"):
        tensors[1].fill_(7)
        shared = [tensor.untyped_storage()._share_cuda_() for tensor in tensors]
        said.append([(s[0], len(s[1]), s[1][1:2], s[2], s[3], s[5]) for s in shared])
        run = subprocess.run(
            [sys.executable, __file__, "receive"],
            input=pickle.dumps(shared),
            capture_output=True,
            env={**os.environ, "ALLOCATOR": allocator},
        )
        said.extend([run.returncode, run.stdout.decode(), run.stderr.decode()[-500:]])
        assert run.returncode == 0, said
        said.append(tensors[1].sum().item())
        again = tensors[0].untyped_storage()._share_cuda_()
        said.append(again[1] == shared[0][1])


if sys.argv[1:] == ["receive"]:
    receive()
else:
    record_history()
    send()
    torch.cuda.ipc_collect()
    a = bytes_on_gpu(900 * MB)
    said.append(torch.cuda.memory_allocated())
    report()
