"""A training that uses its memory rightly, with a second stream and a CUDA graph: nothing is said.

FAKE_MEMORY=1
COALESCE_TORCH_ALLOC=harden=poison
COALESCE_TORCH_ALLOC=harden=poison;conf=expandable_segments:True
"""

import torch
from harness import coalesce_torch

model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64))
model.cuda()
optimizer = torch.optim.AdamW(model.parameters())
side = torch.cuda.Stream()
for step in range(4):
    with torch.cuda.stream(side):
        batch = torch.ones(32 + step, 64, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    batch.record_stream(torch.cuda.current_stream())
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    del batch
    if step == 2:
        torch.cuda.empty_cache()
graph = torch.cuda.CUDAGraph()
static = torch.ones(32, 64, device="cuda")
torch.cuda.synchronize()
with torch.no_grad(), torch.cuda.graph(graph):
    result = model(static)
for _ in range(3):
    graph.replay()
    torch.empty(1000, device="cuda")
del graph, result
assert torch.cuda.memory_stats()["num_ooms"] == 0
# The end of the program checks what is free. check.py fails if anything is printed.
assert coalesce_torch.is_enabled()
