"""Without a compiler, enable() says so, and the program trains.

CXX=false
INTERFACE=pluggable
PYTHONWARNINGS=ignore:CUDA graphs,ignore:Attempting to run cuBLAS
ENABLE=0
"""

import warnings

import torch
from harness import coalesce_torch, memory
from torch import nn

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    coalesce_torch.enable()
messages = [str(warning.message) for warning in caught]
assert len(messages) == 1, messages
assert "are not available under Coalesce: false -std=" in messages[0], messages
assert coalesce_torch.interface() == "pluggable"
model = nn.Linear(512, 512).cuda()
model(torch.randn(8, 512, device="cuda")).sum().backward()
assert torch.cuda.memory_allocated() == memory.memory_allocated() > 0
