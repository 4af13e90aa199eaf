"""A history with stacks."""

import torch
from harness import MB, bytes_on_gpu, report

torch.cuda.memory._record_memory_history(stacks="python")


def one(n):
    return bytes_on_gpu(n * MB)


def many():
    return [one(n) for n in (1, 3, 30, 12)]


side = torch.cuda.Stream()
kept = many()
kept[0].record_stream(side)
del kept[1:3]
again = many()
kept[0] = None
torch.cuda.empty_cache()
report()
