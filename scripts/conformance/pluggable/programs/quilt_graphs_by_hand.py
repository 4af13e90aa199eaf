"""quilt: CUDA graphs that are captured by hand and replayed.

PYTHONWARNINGS=ignore
COALESCE_TORCH_ALLOC=policy=quilt
"""

import torch
from harness import MB


def reserved():
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()


def zeros(megabytes):
    return torch.zeros(megabytes * MB // 4, device="cuda")


side = torch.cuda.Stream()
static, warm = zeros(64), zeros(30)
del warm
torch.cuda.synchronize()
before, held = reserved(), torch.cuda.memory_allocated()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    a = static + 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        b = a * 2
        c = zeros(1) + zeros(12).sum()
        del c
    a.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    b.record_stream(torch.cuda.current_stream())
    result = a + b
    del a, b
    small = [torch.ones(n, device="cuda") for n in range(1, 2000, 50)]
    del small[::2]
after = torch.cuda.memory_reserved()
assert after > before, (before, after)
# The blocks that the capture freed stay with the graph: as much again must come from elsewhere.
others = [zeros(64), zeros(64), zeros(64)]
assert torch.cuda.memory_reserved() >= after + 192 * MB - 32 * MB, torch.cuda.memory_reserved()
assert len({t.data_ptr() for t in others} | {result.data_ptr()}) == 4
del others
second = torch.cuda.CUDAGraph()
with torch.cuda.graph(second, pool=graph.pool()):
    again = static * 3
for _ in range(3):
    graph.replay()
    second.replay()
    batch = zeros(100)
    del batch
torch.cuda.synchronize()
del second, again
kept = reserved()
assert kept > before, "the first graph keeps the pool"
del graph
small.clear()
del result
torch.cuda.synchronize()
assert reserved() == before, (reserved(), before)
assert torch.cuda.memory_allocated() == held
