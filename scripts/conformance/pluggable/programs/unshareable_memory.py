"""Memory of cudaMallocAsync, which CUDA cannot share with other processes.

COALESCE_TORCH_ALLOC=policy=cuda_async
"""

from harness import MB, bytes_on_gpu

try:
    bytes_on_gpu(30 * MB).untyped_storage()._share_cuda_()
except RuntimeError as error:
    assert str(error).startswith("CUDA cannot share this memory with other processes"), error
else:
    raise SystemExit("shared")
assert bytes_on_gpu(MB).numel() == MB
