"""Memory runs out: the messages, the retries, and the requests after that.

FAKE_TOTAL_BYTES=1G
"""

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
kept = []
for megabytes in (300, 500, 400, 2, 300, 700, 1 << 42):
    try:
        kept.append(bytes_on_gpu(megabytes * MB))
    except torch.OutOfMemoryError as error:
        said.append(str(error))
        kept[-1:] = []
assert len(said) == 3, said
try:
    torch.cuda.caching_allocator_alloc(1 << 60)
except torch.OutOfMemoryError as error:
    said.append(str(error))
assert len(said) == 4, said
report()
