"""Captures under the rules of a newer release.

COALESCE_TORCH_ALLOC=torch=2.13
PYTHONWARNINGS=ignore
"""

import torch
from harness import MB, bytes_on_gpu

side = torch.cuda.Stream()
pool = torch.cuda.graph_pool_handle()
graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
for graph in graphs:
    with torch.cuda.graph(graph, pool=pool):
        tensor = bytes_on_gpu(3 * MB)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tensor.add_(1)
        tensor.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        del tensor
        last = bytes_on_gpu(3 * MB)
    graph.replay()
