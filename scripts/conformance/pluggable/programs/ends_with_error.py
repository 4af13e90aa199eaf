"""A program that ends with an error.

STATUS=1
STDERR=ZeroDivisionError: division by zero
"""

import harness  # noqa: F401
import torch
from torch import nn

model = nn.Linear(512, 512).cuda()
model(torch.randn(8, 512, device="cuda")).sum().backward()
1 / 0
