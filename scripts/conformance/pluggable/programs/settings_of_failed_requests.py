"""Settings that decide what happens when the device cannot serve a request.

FAKE_TOTAL_BYTES=1G
PYTORCH_CUDA_ALLOC_CONF=release_lock_on_cudamalloc:True
PYTORCH_CUDA_ALLOC_CONF=throw_on_cudamalloc_oom:True  (since 2.12)
PYTORCH_CUDA_ALLOC_CONF=throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.6  (since 2.12)
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,throw_on_cudamalloc_oom:True  (since 2.12)
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,expandable_segments_reserve:0.5  (since 2.15)
"""

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
kept = []
for megabytes in (300, 400, 700, 2000, 2):
    try:
        kept.append(bytes_on_gpu(megabytes * MB))
    except torch.OutOfMemoryError as error:
        said.append(str(error))
    if megabytes == 400:
        del kept[0]
report()
