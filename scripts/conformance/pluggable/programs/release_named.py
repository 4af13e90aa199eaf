"""The setting torch= names another release.

COALESCE_TORCH_ALLOC=torch=2.6;history=10
CXX=false
INTERFACE=pluggable
PYTHONWARNINGS=ignore:CUDA graphs,ignore:Attempting to run cuBLAS
"""

import torch
from harness import MB, bytes_on_gpu, memory

kept = bytes_on_gpu(3 * MB)
assert len(memory.memory_stats()) == 122, memory.memory_stats()
entry = torch.cuda.memory._snapshot()["device_traces"][0][0]
assert list(entry) == ["action", "addr", "size", "stream", "time_us"], entry
assert torch.cuda.memory_summary() == memory.memory_summary()
