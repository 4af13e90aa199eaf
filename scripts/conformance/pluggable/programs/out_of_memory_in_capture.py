"""Memory runs out during a capture.

FAKE_TOTAL_BYTES=1G
PYTHONWARNINGS=ignore
"""

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
kept = [bytes_on_gpu(200 * MB) for _ in range(3)]
del kept[1]
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        a = bytes_on_gpu(100 * MB)
        b = bytes_on_gpu(700 * MB)
except torch.OutOfMemoryError as error:
    said.append(str(error))
assert said
del graph
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again):
    a = bytes_on_gpu(100 * MB)
report()
