"""quilt: a device without virtual memory is served by the reference.

COALESCE_TORCH_ALLOC=policy=quilt
FAKE_NO_VMM=1
STDERR=coalesce: device 0 has no virtual memory, which the policy quilt needs
PYTHONWARNINGS=ignore
"""

import torch
from harness import MB, bytes_on_gpu, coalesce_torch

kept = [bytes_on_gpu(n * MB) for n in (1, 30)]
assert coalesce_torch.memory_reserved() == 32 * MB, coalesce_torch.memory_reserved()
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    bytes_on_gpu(MB).add_(1)
