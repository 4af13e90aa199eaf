"""quilt: a memory fraction, and memory that runs out.

FAKE_TOTAL_BYTES=1G
COALESCE_TORCH_ALLOC=policy=quilt
"""

import torch
from harness import MB, bytes_on_gpu

torch.cuda.set_per_process_memory_fraction(0.5)
a = bytes_on_gpu(300 * MB)
try:
    bytes_on_gpu(300 * MB)
except torch.OutOfMemoryError as error:
    assert "requested 300.00 MiB; the device has 1024.00 MiB" in str(error), error
    assert "300.00 MiB is allocated, 300.00 MiB reserved, 512.00 MiB allowed" in str(error), error
else:
    raise SystemExit("no error")
torch.cuda.set_per_process_memory_fraction(1.0)
b = bytes_on_gpu(300 * MB)
