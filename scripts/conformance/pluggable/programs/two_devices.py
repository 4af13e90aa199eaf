"""Two devices, each with its own memory.

FAKE_DEVICE_COUNT=2
FAKE_TOTAL_BYTES=1G
"""

import random

import torch
from harness import MB, memory, record_history, report, said

record_history()
choice = random.Random(3)
live = []
for _ in range(1000):
    device = choice.randrange(2)
    with torch.cuda.device(choice.randrange(2)):
        try:
            size = choice.choice([1, 5000, 3 * MB, 30 * MB, 200 * MB])
            live.append(torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}"))
        except torch.OutOfMemoryError as error:
            said.append(str(error))
        if len(live) > 12:
            live.pop(choice.randrange(len(live)))
assert any("GPU 1 has" in text for text in said), said
said.append(memory.memory_stats(1))
torch.cuda.empty_cache()
report()
