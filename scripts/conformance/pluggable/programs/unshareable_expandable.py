"""Memory of expandable segments that is kept private.

FAKE_TOTAL_BYTES=1G
TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=0
PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
"""

from harness import MB, bytes_on_gpu

try:
    bytes_on_gpu(30 * MB).untyped_storage()._share_cuda_()
except RuntimeError as error:
    assert "Set TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1" in str(error), error
else:
    raise SystemExit("shared")
