"""Stacks of some calls only; a ring; a history that is cleared and resumed."""

import torch
from harness import MB, bytes_on_gpu, report

first = bytes_on_gpu(MB)
torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=20)


def busy(times):
    return [bytes_on_gpu(MB * (1 + n % 7)) for n in range(times)]


a = busy(30)
del a
torch.cuda.memory._record_memory_history(context="state", stacks="python", max_entries=50)
b = busy(10)
torch.cuda.memory._record_memory_history(enabled=None)
del first
c = busy(5)
torch.cuda.memory._record_memory_history(stacks="python", max_entries=1000)
del b[::2], c
report()
