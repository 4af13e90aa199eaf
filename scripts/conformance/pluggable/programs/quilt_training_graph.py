"""quilt: a training step in a graph, with an optimizer.

PYTHONWARNINGS=ignore
COALESCE_TORCH_ALLOC=policy=quilt
"""

import harness  # noqa: F401
import torch
from torch import nn

model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
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
for rows in (64, 700, 3, 5000):
    graph.replay()
    model(torch.zeros(rows, 512, device="cuda")).sum().backward()
