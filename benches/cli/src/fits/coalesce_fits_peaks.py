"""The peaks of the GPU memory of this process, also if the program resets PyTorch's."""

import contextlib

# Functions of torch._C with which programs reset the peaks.
RESETS = ("_cuda_resetPeakMemoryStats", "_accelerator_resetPeakStats")


class Peaks:
    """The peaks since the last reset(), each that of the device where it is highest."""

    def __init__(self, torch):
        self.torch = torch
        self.bytes = {"reserved": 0, "allocated": 0, "requested": 0}

    def keep(self):
        """Notes the peaks before each reset by the program."""
        for name in RESETS:
            self._keep_before(name)

    def _keep_before(self, name):
        reset = getattr(self.torch._C, name, None)

        def noted(*args):
            self.note()
            return reset(*args)

        if reset is not None:
            setattr(self.torch._C, name, noted)

    def note(self):
        for device in range(self.torch.cuda.device_count()):
            # Faster than memory_stats().
            stats = self.torch.cuda.memory_stats_as_nested_dict(device)
            for kind, peak in self.bytes.items():
                self.bytes[kind] = max(peak, stats[f"{kind}_bytes"]["all"]["peak"])

    def reset(self):
        """Forgets the peaks so far."""
        for device in range(self.torch.cuda.device_count()):
            self.torch.cuda.reset_peak_memory_stats(device)
        self.bytes = dict.fromkeys(self.bytes, 0)

    @contextlib.contextmanager
    def apart(self):
        """Counts the peaks of what runs inside apart from those before. Yields what gives its reserved bytes."""
        if self.torch.cuda.is_initialized():
            self.note()
            before = dict(self.bytes)
            self.reset()
        else:
            before = self.bytes

        def reserved():
            self.note()
            return self.bytes["reserved"]

        try:
            yield reserved
        finally:
            self.note()
            self.bytes = {kind: max(peak, before[kind]) for kind, peak in self.bytes.items()}
