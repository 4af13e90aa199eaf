"""Several streams with pending work.

FAKE_HOLD_EVENTS=1
"""

import random

import torch
from harness import MB, bytes_on_gpu, record_history, report

record_history()
choice = random.Random(2)
streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
live = []
for _ in range(2000):
    with torch.cuda.stream(choice.choice(streams)):
        live.append(bytes_on_gpu(choice.choice([1, 5000, 3 * MB, 30 * MB])))
    if choice.random() < 0.3:
        live[-1].record_stream(choice.choice(streams))
    if len(live) > 40:
        live.pop(choice.randrange(len(live)))
    if choice.random() < 0.02:
        choice.choice(streams).synchronize()
    if choice.random() < 0.005:
        torch.cuda.empty_cache()
report()
