"""quilt: memory runs out during a capture.

FAKE_TOTAL_BYTES=1G
PYTHONWARNINGS=ignore
COALESCE_TORCH_ALLOC=policy=quilt
"""

import torch
from harness import MB, bytes_on_gpu

kept = [bytes_on_gpu(200 * MB) for _ in range(3)]
del kept[1]
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        a = bytes_on_gpu(100 * MB)
        b = bytes_on_gpu(700 * MB)
except torch.OutOfMemoryError as error:
    assert "is out of memory: requested 700.00 MiB" in str(error), error
else:
    raise SystemExit("no error")
del graph
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again):
    a = bytes_on_gpu(100 * MB)
again.replay()
