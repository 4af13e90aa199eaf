"""Devices that the program does not use.

FAKE_DEVICE_COUNT=3
"""

import torch
from harness import MB, bytes_on_gpu, record_history, report, said

record_history()
devices = range(torch.cuda.device_count())
torch.cuda.empty_cache()
kept = bytes_on_gpu(MB)
torch.cuda.empty_cache()
torch.cuda.memory._snapshot()
said.append([torch.cuda.memory_stats(device)["num_sync_all_streams"] for device in devices])
with torch.cuda.device(1):
    other = bytes_on_gpu(MB)
torch.cuda.empty_cache()
said.append([torch.cuda.memory_stats(device)["num_sync_all_streams"] for device in devices])
said.append([len(entries) for entries in torch.cuda.memory._snapshot()["device_traces"]])
report()
