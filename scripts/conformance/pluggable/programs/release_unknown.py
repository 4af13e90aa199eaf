"""A release that is not reproduced is named once.

ENABLE=0
"""

import warnings

import torch
from harness import MB, bytes_on_gpu, coalesce_torch, memory

torch.__version__ = "2.99.0+cu999"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    coalesce_torch.enable()
    coalesce_torch.enable()
    kept = bytes_on_gpu(3 * MB)
    memory.memory_stats()
texts = [str(warning.message) for warning in caught if "reproduces" in str(warning.message)]
assert len(texts) == 1 and "not 2.99.0+cu999; it follows 2." in texts[0], texts
