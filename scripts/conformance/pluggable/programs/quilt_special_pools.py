"""quilt: pools that PyTorch's rules serve beside it.

COALESCE_TORCH_ALLOC=policy=quilt
"""

import torch
from harness import MB, allocator_of_driver, bytes_on_gpu

start = torch.cuda.memory_reserved()
of_user = allocator_of_driver()
pool = torch.cuda.MemPool(of_user.allocator())
before = bytes_on_gpu(10 * MB)
with torch.cuda.use_mem_pool(pool):
    inside = [bytes_on_gpu(30 * MB), bytes_on_gpu(5)]
after = bytes_on_gpu(10 * MB)
assert torch.cuda.memory_allocated() == 50 * MB + 512
segments = pool.snapshot()
assert {s["total_size"] for s in segments} == {30 * MB, 2 * MB}, segments
addresses = [s["address"] for s in segments]
assert all(tensor.data_ptr() in addresses for tensor in inside)
del inside
with torch.cuda.use_mem_pool(pool):
    again = bytes_on_gpu(30 * MB)
assert again.data_ptr() in addresses, "cached"
del before, after, again, pool
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == start, torch.cuda.memory_reserved()

limit = 1000 * MB / torch.cuda.get_device_properties(0).total_memory
torch.cuda.set_per_process_memory_fraction(limit)
lends = torch.cuda.MemPool(use_on_oom=True)
with torch.cuda.use_mem_pool(lends):
    a = bytes_on_gpu(600 * MB)
    place = a.data_ptr()
del a
b = bytes_on_gpu(300 * MB)
assert bytes_on_gpu(500 * MB).data_ptr() == place
