"""quilt: graphed callables.

PYTHONWARNINGS=ignore
COALESCE_TORCH_ALLOC=policy=quilt
"""

import harness  # noqa: F401
import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
example = torch.zeros(32, 256, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(model, (example,))
for _ in range(3):
    graphed(torch.randn(32, 256, device="cuda", requires_grad=True)).sum().backward()
