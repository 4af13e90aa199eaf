"""The allocator of a MemPool, where null means out of memory.

FAKE_TOTAL_BYTES=1G
STDERR=coalesce: CUDA out of memory.
ENABLE=0
"""

import os
import sys

import torch
from harness import MB, bytes_on_gpu, coalesce_torch

path = os.environ["COALESCE_TORCH_LIB"]
ours = torch.cuda.memory.CUDAPluggableAllocator(path, "coalesce_malloc", "coalesce_free")
pool = torch.cuda.MemPool(ours.allocator())
with torch.cuda.use_mem_pool(pool):
    x = bytes_on_gpu(300 * MB)
    assert coalesce_torch.memory_allocated() == 300 * MB
    try:
        bytes_on_gpu(900 * MB)
    except torch.OutOfMemoryError as error:
        assert "Tried to allocate 900.00 MiB" in str(error), error
    else:
        raise SystemExit("no error")
    y = bytes_on_gpu(300 * MB)
sys.stdout.flush()
os._exit(0)
