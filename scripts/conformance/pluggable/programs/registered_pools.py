"""Pools that are registered with NCCL, one of them with an allocator of its own.

COALESCE_TORCH_ALLOC=policy=pytorch
COALESCE_TORCH_ALLOC=policy=quilt
"""

import torch
import torch.distributed as dist
from harness import MB, allocator_of_driver, bytes_on_gpu

device = torch.device("cuda", 0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1, device_id=device)
nccl = dist.group.WORLD._get_backend(device)
own = allocator_of_driver()
pools = [torch.cuda.MemPool(own.allocator()), torch.cuda.MemPool()]
for pool in pools:
    with torch.cuda.use_mem_pool(pool):
        before = bytes_on_gpu(30 * MB)
    nccl.register_mem_pool(pool)
    with torch.cuda.use_mem_pool(pool):
        after = bytes_on_gpu(50 * MB)
    # Fails if a segment of the pool was not registered.
    nccl.deregister_mem_pool(pool)
dist.destroy_process_group()
