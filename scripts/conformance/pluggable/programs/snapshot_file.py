"""A snapshot file that PyTorch's own viewer reads.

COALESCE_TORCH_ALLOC=history=1000000
"""

import pickle
import tempfile

from harness import MB, bytes_on_gpu, coalesce_torch
from torch.cuda import _memory_viz

a = [bytes_on_gpu(3 * MB) for _ in range(9)]
del a[::2]
with tempfile.NamedTemporaryFile() as file:
    coalesce_torch.dump_snapshot(file.name)
    snapshot = pickle.load(file)
assert "segments" in snapshot and len(snapshot["device_traces"][0]) > 20
assert "20.0MiB" in _memory_viz.segsum(snapshot), _memory_viz.segsum(snapshot)
assert "alloc" in _memory_viz.trace(snapshot)
assert "<html" in _memory_viz.trace_plot(snapshot).lower()
