"""quilt: a history that fits the segments and that PyTorch's viewer reads.

FAKE_HOLD_EVENTS=1
COALESCE_TORCH_ALLOC=policy=quilt
"""

import random

import torch
from harness import MB, bytes_on_gpu
from torch.cuda import _memory_viz

side = torch.cuda.Stream()
before = bytes_on_gpu(5 * MB)
torch.cuda.memory._record_memory_history(max_entries=1_000_000, context="all")
choice, live = random.Random(5), []
for step in range(1500):
    with torch.cuda.stream(side if step % 5 == 0 else torch.cuda.default_stream()):
        sizes = [1, 5000, 3 * MB, 30 * MB, choice.randrange(60 * MB)]
        live.append(bytes_on_gpu(choice.choice(sizes)))
    while len(live) > 30 or live and choice.random() < 0.4:
        live.pop(choice.randrange(len(live)))
    if step % 500 == 499:
        torch.cuda.empty_cache()
snapshot = torch.cuda.memory._snapshot()
allocated = {before.data_ptr()}
for entry in snapshot["device_traces"][0]:
    if entry["action"] == "alloc":
        assert entry["addr"] not in allocated, entry
        allocated.add(entry["addr"])
    elif entry["action"] == "free_completed":
        allocated.remove(entry["addr"])
assert allocated == {before.data_ptr(), *(t.data_ptr() for t in live)}
listed = set()
for segment in snapshot["segments"]:
    end = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == end
        end += block["size"]
        if block["state"] == "active_allocated":
            listed.add(block["address"])
    assert end == segment["address"] + segment["total_size"]
assert listed == allocated
total = sum(segment["total_size"] for segment in snapshot["segments"])
assert total == torch.cuda.memory_reserved(), (total, torch.cuda.memory_reserved())
assert "<html" in _memory_viz.trace_plot(snapshot).lower()
assert "alloc" in _memory_viz.trace(snapshot) and _memory_viz.segsum(snapshot)
