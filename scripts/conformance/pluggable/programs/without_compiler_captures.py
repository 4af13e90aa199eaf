"""Without a compiler, captures are refused before they begin.

CXX=false
INTERFACE=pluggable
PYTHONWARNINGS=ignore:CUDA graphs,ignore:Attempting to run cuBLAS
"""

import torch
from harness import MB, bytes_on_gpu

try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        pass
except RuntimeError as error:
    assert "does not support CUDA graph capture" in str(error), error
else:
    raise SystemExit("captured")
assert bytes_on_gpu(MB).numel() == MB
