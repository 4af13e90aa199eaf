"""CUDA graphs that are captured by hand and replayed.

PYTHONWARNINGS=ignore
"""

import torch
from harness import record_history, report, said
from torch import nn

record_history()
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
static = torch.zeros(64, 512, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(static).sum().backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = model(static).sum()
    loss.backward()
    optimizer.step()
pool = graph.pool()
others = []
for rows in (64, 32, 8):
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other, pool=pool):
        result = model(static[:rows])
    others.append((other, result))
for _ in range(5):
    static.copy_(torch.ones(64, 512, device="cuda"))
    graph.replay()
    for other, result in others:
        other.replay()
        batch = torch.empty(1 << 20, device="cuda")
said.append([str(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()])
del others[1:], other, result
torch.cuda.empty_cache()
del graph, loss
torch.cuda.empty_cache()
said.append(torch.cuda.memory_reserved())
report()
