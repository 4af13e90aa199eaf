"""quilt: memory pools, nested and released.

COALESCE_TORCH_ALLOC=policy=quilt
"""

import torch
from harness import MB, bytes_on_gpu

start = torch.cuda.memory_reserved()
outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
with torch.cuda.use_mem_pool(outer):
    a = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    with torch.cuda.use_mem_pool(inner):
        b = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    c = bytes_on_gpu(7 * MB)
with_pools = torch.cuda.memory_reserved()
d = bytes_on_gpu(7 * MB)
assert outer.use_count() == 1 and inner.use_count() == 1
del a[1:], b
torch.cuda.empty_cache()
e = bytes_on_gpu(60 * MB)
assert torch.cuda.memory_reserved() >= with_pools + 60 * MB, "the pools keep what is free in them"
del e, inner
with torch.cuda.use_mem_pool(outer):
    e = bytes_on_gpu(20 * MB)
del a, c, e, d, outer
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == start, torch.cuda.memory_reserved()
graph, pool = torch.cuda.CUDAGraph(), torch.cuda.MemPool()
with torch.cuda.graph(graph, pool=pool.id):
    x = bytes_on_gpu(30 * MB)
    x.add_(1)
    del x
graph.replay()
del graph, pool
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == start, torch.cuda.memory_reserved()
