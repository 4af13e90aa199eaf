"""A history of expandable segments with stacks.

PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
"""

import random

import torch
from harness import MB, bytes_on_gpu, report

torch.cuda.memory._record_memory_history(stacks="python")
choice = random.Random(4)
live = []
for _ in range(300):
    live.append(bytes_on_gpu(choice.choice([1, 5000, 3 * MB, 30 * MB])))
    if len(live) > 30:
        live.pop(choice.randrange(len(live)))
live.clear()
torch.cuda.empty_cache()
report()
