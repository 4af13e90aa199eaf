"""Garbage collection under a limit.

PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.5
PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.5,per_process_memory_fraction:0.004  (since 2.10)
"""  # noqa: E501

import random

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
torch.cuda.set_per_process_memory_fraction(0.004)
choice = random.Random(1)
live = []
for _ in range(2000):
    if live and choice.random() < 0.5:
        live.pop(choice.randrange(len(live)))
    else:
        try:
            live.append(bytes_on_gpu(choice.choice([1, 700, MB, 3 * MB, 12 * MB, 64 * MB])))
        except torch.OutOfMemoryError as error:
            said.append(str(error))
            live.clear()
report()
