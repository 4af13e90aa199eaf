"""A policy without private pools refuses captures and pools before they begin.

COALESCE_TORCH_ALLOC=policy=cuda_async
"""

import torch
from harness import MB, bytes_on_gpu

for enter in (lambda: torch.cuda.graph(torch.cuda.CUDAGraph()).__enter__(), torch.cuda.MemPool):
    try:
        enter()
    except RuntimeError as error:
        assert "cuda_async does not serve the private pools of CUDA graphs" in str(error), error
    else:
        raise SystemExit("no error")
assert not torch.cuda.is_current_stream_capturing()
assert bytes_on_gpu(MB).numel() == MB
