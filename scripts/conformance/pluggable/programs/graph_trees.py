"""Trees of CUDA graphs through torch.compile.

PYTHONWARNINGS=ignore
"""

import warnings

import torch
import torch._dynamo
from harness import record_history, report, said
from torch import nn

record_history()
warnings.simplefilter("ignore")
torch._dynamo.config.suppress_errors = False
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(3)]).cuda()
compiled = torch.compile(model, backend="cudagraphs", dynamic=False)
for rows in (32, 32, 64, 32, 64, 64, 16, 32):
    torch.compiler.cudagraph_mark_step_begin()
    compiled(torch.randn(rows, 256, device="cuda")).sum().backward()
    model.zero_grad(set_to_none=True)
kept = compiled(torch.randn(32, 256, device="cuda")).clone()
said.append(float(kept.sum()) == float(kept.sum()))
report()
