"""Settings that change while the program runs."""

import warnings

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
warnings.simplefilter("ignore")
live = []
for conf in (
    "expandable_segments:True",
    "roundup_power2_divisions:4,expandable_segments:False",
    "max_split_size_mb:100",
    "garbage_collection_threshold:0.6",
):
    torch.cuda.memory._set_allocator_settings(conf)
    live += [bytes_on_gpu(n * MB + n) for n in (1, 9, 33, 250)]
    del live[::3]
try:
    torch.cuda.memory._set_allocator_settings("max_split_size_mb:1")
except (RuntimeError, ValueError) as error:
    said.append(str(error).splitlines()[0])
report()
