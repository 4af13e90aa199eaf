"""torch.cuda's memory statistics are those of the policy.

COALESCE_TORCH_ALLOC=policy=bfc
"""

import torch
from harness import MB, bytes_on_gpu, memory

a, b = bytes_on_gpu(3 * MB), bytes_on_gpu(5 * MB)
del b
assert torch.cuda.memory_stats() == memory.memory_stats()
assert list(torch.cuda.memory_stats()) == list(memory.memory_stats())
assert torch.cuda.memory_summary(abbreviated=True) == memory.memory_summary(abbreviated=True)
assert torch.cuda.max_memory_allocated() == memory.max_memory_allocated() == 8 * MB
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == memory.memory_allocated() == 3 * MB
assert torch.cuda.memory_snapshot() == memory.memory_snapshot()["segments"]
