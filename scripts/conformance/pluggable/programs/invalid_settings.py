"""An invalid settings string.

COALESCE_TORCH_ALLOC=policy=pytroch
ENABLE=0
"""

import torch
from harness import coalesce_torch

try:
    coalesce_torch.enable()
except ValueError as error:
    assert str(error).startswith("COALESCE_TORCH_ALLOC: unknown policy 'pytroch'"), error
else:
    raise SystemExit("no error")
assert torch.empty(1, device="cuda").numel() == 1, "and PyTorch keeps its own"
