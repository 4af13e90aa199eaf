"""What a snapshot of PyTorch does not tell about its process."""

import contextlib
import os
from typing import Any, Dict, Optional, Union

KEY = "coalesce"
"""The key of a snapshot that has it, as a dict of numbers and texts."""

_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def noted(
    torch: Any, device: Optional[int] = None, limit: Optional[int] = None
) -> Dict[str, Union[int, str]]:
    """What is known about the process and a device, by default the current one. What cannot be
    found out is left out.

    limit: the bytes that the process may reserve on the device, if they are known. They are those
        of the device if set_per_process_memory_fraction was not called.
    """
    found: Dict[str, Union[int, str]] = {"torch": str(torch.__version__)}
    found.update((name, os.environ[name]) for name in _VARIABLES if name in os.environ)
    # To ask would take memory of the device.
    if not torch.cuda.is_initialized():
        return found
    with contextlib.suppress(Exception):
        found["device"] = device = torch.cuda.current_device() if device is None else device
        free, total = torch.cuda.mem_get_info(device)
        found.update(total_bytes=total, free_bytes=free)
        if limit is None:
            # Early releases cannot tell it.
            limit = round(torch.cuda.get_per_process_memory_fraction(device) * total)
    if limit is not None:
        found["limit_bytes"] = limit
    with contextlib.suppress(Exception):
        found["device_name"] = torch.cuda.get_device_name(device)
    return found
