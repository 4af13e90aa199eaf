"""Limits of GPU memory in tests of unittest. For pytest there is a plugin, see coalesce.pytest.

from coalesce import testing

testing.prepare()  # before `import torch`

class Training(testing.GpuMemory, unittest.TestCase):
    def test_training(self):
        with self.limit_gpu_memory("12 GiB"):
            train()
"""

import atexit
import os
import unittest
import warnings
from contextlib import contextmanager
from typing import Iterator

from ._tests import _device, _limits
from ._tests._limits import Amount, PeakLimit
from ._tests._measure import Meter

__all__ = ["GpuMemory", "prepare"]


def prepare(device: str = "h100") -> None:
    """Puts a simulated GPU below PyTorch if there is no real one. A second call does nothing.

    device: the GPU to simulate, as `coalesce fits --device` names it.

    Raises CoalesceError if PyTorch is imported already, or if there is no such device.
    """
    if not _device.is_started():
        _device.start(device, simulated=not _device.has_gpu())
        atexit.register(_device.stop, os.getpid())


class GpuMemory(unittest.TestCase):
    """Assertions on GPU memory, for a test case."""

    @contextmanager
    def limit_gpu_memory(self, limit: Amount, *, kind: str = "reserved") -> Iterator[None]:
        """Fails if the block takes more GPU memory at its peak.

        limit: bytes, or text such as "12 GiB".
        kind: what is limited: reserved, allocated or requested memory.
        """
        allowed = PeakLimit.of(limit, kind=kind)
        if not _device.is_started():
            self.fail("coalesce.testing.prepare() was not called")
        meter = Meter()
        meter.settle()
        meter.begin()
        yield
        usage = meter.end(snapshot=True)
        if usage.unreported:
            warnings.warn(
                f"{usage.unreported} of the processes that the block started are not counted: they "
                "were killed, or have not ended",
                stacklevel=3,
            )
        problem = allowed.problem(usage)
        if problem:
            self.fail("\n".join([problem, *_limits.explained(usage, allowed)]))
