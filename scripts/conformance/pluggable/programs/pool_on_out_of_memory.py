"""A pool that serves other requests when memory runs out.

FAKE_TOTAL_BYTES=1G
"""

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
pool = torch.cuda.MemPool(use_on_oom=True)
with torch.cuda.use_mem_pool(pool):
    a = bytes_on_gpu(600 * MB)
del a
b = bytes_on_gpu(300 * MB)
c = bytes_on_gpu(500 * MB)
said.append(c.data_ptr())
report()
