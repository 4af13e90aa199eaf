"""An observer is called when memory runs out.

FAKE_TOTAL_BYTES=1G
"""

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
torch._C._cuda_attach_out_of_memory_observer(lambda *figures: said.append(figures))
kept = bytes_on_gpu(300 * MB)
for fraction in (1.0, 0.5):
    torch.cuda.set_per_process_memory_fraction(fraction)
    try:
        bytes_on_gpu(900 * MB)
    except torch.OutOfMemoryError as error:
        said.append(str(error))
assert len(said) == 4, said
report()
