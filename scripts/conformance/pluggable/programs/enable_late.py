"""enable() after the first use of CUDA is an error.

ENABLE=0
"""

import torch
from harness import coalesce_torch

kept = torch.empty(1, device="cuda")
try:
    coalesce_torch.enable()
except RuntimeError as error:
    assert "PyTorch has used its own allocator already" in str(error), error
else:
    raise SystemExit("no error")
