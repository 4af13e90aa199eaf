"""Memory runs out in the backward pass, on a thread of autograd.

FAKE_TOTAL_BYTES=3G
"""

import torch
from harness import record_history, report, said
from torch import nn

record_history()
model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]).cuda()
for rows in (4096, 24000, 4096, 30000, 20000, 16000):
    try:
        model(torch.randn(rows, 4096, device="cuda")).sum().backward()
        said.append(f"{rows}: went")
    except torch.OutOfMemoryError as error:
        said.append(f"{rows}: {error}")
    model.zero_grad(set_to_none=True)
assert len([text for text in said if "went" in text]) >= 2, said
assert any("out of memory" in text for text in said), said
report()
