"""A memory fraction, empty_cache, and peaks that are reset."""

import torch
from harness import MB, bytes_on_gpu, memory, record_history, report, said

record_history()
torch.cuda.set_per_process_memory_fraction(0.01)
a = bytes_on_gpu(500 * MB)
try:
    b = bytes_on_gpu(500 * MB)
except torch.OutOfMemoryError as error:
    said.append(str(error))
torch.cuda.set_per_process_memory_fraction(1.0)
b = bytes_on_gpu(500 * MB)
del a
said.append(memory.memory_reserved())
torch.cuda.empty_cache()
memory.reset_peak_memory_stats()
said.append(memory.max_memory_reserved())
c = bytes_on_gpu(100 * MB)
report()
