"""Without a compiler, a PyTorch that lacks a hook is refused.

ENABLE=0
CXX=false
INTERFACE=pluggable
PYTHONWARNINGS=ignore:CUDA graphs,ignore:Attempting to run cuBLAS
"""

import torch
from harness import coalesce_torch

coalesce_torch._pluggable._HOOKS["set_something_fn"] = "coalesce_empty_cache"
try:
    coalesce_torch.enable()
except RuntimeError as error:
    assert str(error).endswith(f"PyTorch {torch.__version__} has no set_something_fn"), error
else:
    raise SystemExit("no error")
assert torch.empty(1, device="cuda").numel() == 1, "and PyTorch keeps its own"
