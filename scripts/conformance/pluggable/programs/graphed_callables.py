"""Graphed callables, and a stream that joins a capture.

PYTHONWARNINGS=ignore
"""

import torch
from harness import record_history, report
from torch import nn

record_history()
# Otherwise two threads free tensors at the same time.
torch.autograd.set_multithreading_enabled(False)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
example = torch.zeros(32, 256, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(model, (example,))
for _ in range(3):
    graphed(torch.randn(32, 256, device="cuda", requires_grad=True)).sum().backward()
graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.graph(graph):
    a = torch.zeros(1 << 20, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        b = torch.zeros(1 << 20, device="cuda") + 1
    torch.cuda.current_stream().wait_stream(side)
    b.record_stream(torch.cuda.current_stream())
    c = a + b
    del b
    d = torch.zeros(1 << 20, device="cuda")
graph.replay()
e = torch.zeros(1 << 20, device="cuda")
report()
