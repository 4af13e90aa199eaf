"""quilt: what the policy does not serve is refused.

PYTHONWARNINGS=ignore
COALESCE_TORCH_ALLOC=policy=quilt
"""

import os
import warnings

import torch
from harness import MB, bytes_on_gpu

warnings.simplefilter("ignore")


def refused(call, text):
    try:
        call()
    except Exception as error:
        assert "quilt does not serve " + text in str(error), error
    else:
        raise SystemExit("no error")
    assert not torch.cuda.is_current_stream_capturing()
    assert bytes_on_gpu(MB).numel() == MB


path = os.environ["COALESCE_TORCH_LIB"]
ours = torch.cuda.memory.CUDAPluggableAllocator(path, "coalesce_malloc", "coalesce_free")
refused(lambda: torch.cuda.MemPool(ours.allocator()), "a torch.cuda.MemPool with an allocator")
refused(lambda: torch.cuda.MemPool(use_on_oom=True), "a torch.cuda.MemPool with use_on_oom")
