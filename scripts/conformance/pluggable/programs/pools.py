"""Memory pools, nested and released."""

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
with torch.cuda.use_mem_pool(outer):
    a = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    with torch.cuda.use_mem_pool(inner):
        b = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    c = bytes_on_gpu(7 * MB)
d = bytes_on_gpu(7 * MB)
said.append(outer.use_count())
said.append([segment["segment_pool_id"] for segment in outer.snapshot()])
del a[1:]
torch.cuda.empty_cache()
del b
del inner
said.append(torch.cuda.memory_reserved())
with torch.cuda.use_mem_pool(outer):
    e = bytes_on_gpu(20 * MB)
del a, c, e
del outer
said.append(torch.cuda.memory_reserved())
report()
