"""quilt: pools that PyTorch's rules serve beside it.

FAKE_TOTAL_BYTES=1G
COALESCE_TORCH_ALLOC=policy=quilt
"""

import subprocess
import tempfile
from pathlib import Path

import torch
from harness import MB, bytes_on_gpu

SOURCE = """
#include <stddef.h>
int cuMemAlloc_v2(unsigned long long *, size_t);
int cuMemFree_v2(unsigned long long);
int allocated;
void *take(size_t bytes, int device, void *stream) {
  unsigned long long at = 0;
  allocated += cuMemAlloc_v2(&at, bytes) == 0;
  return (void *)at;
}
void give(void *at, size_t bytes, int device, void *stream) { cuMemFree_v2((unsigned long long)at); }
"""

start = torch.cuda.memory_reserved()
with tempfile.TemporaryDirectory() as folder:
    library = Path(folder, "library.so")
    command = ["cc", "-shared", "-fPIC", "-xc", "-", "-o", library]
    subprocess.run(command, input=SOURCE.encode(), check=True)
    of_user = torch.cuda.memory.CUDAPluggableAllocator(str(library), "take", "give")

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

lends = torch.cuda.MemPool(use_on_oom=True)
with torch.cuda.use_mem_pool(lends):
    a = bytes_on_gpu(600 * MB)
    place = a.data_ptr()
del a
b = bytes_on_gpu(300 * MB)
assert bytes_on_gpu(500 * MB).data_ptr() == place
