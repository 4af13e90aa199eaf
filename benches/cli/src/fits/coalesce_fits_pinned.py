"""Host memory that a PyTorch program pins, and how much of it is rounding.

PyTorch rounds each request for pinned memory up to a power of two, unless its settings say otherwise. The
simulated CUDA knows what is pinned. What was requested is known of the tensors that the program itself makes
in pinned memory."""

import ctypes

# Lines that are named at most.
MOST_HOLDERS = 3


class Pinned:
    """Requests for pinned memory, by the address of the block that served them."""

    def __init__(self, torch, line):
        """`line` gives the line of the program that runs."""
        self.line = line
        self.requests = {}
        self.peak, self.at_peak = 0, {}
        cuda = ctypes.CDLL("libcuda.so.1")
        cuda.fakecuda_pinned_range.argtypes = [ctypes.c_uint64]
        for read in (cuda.fakecuda_pinned_range, cuda.fakecuda_peak_pinned):
            read.restype = ctypes.c_uint64
        self.cuda = cuda
        pin_memory = torch.Tensor.pin_memory

        # The thread of a DataLoader calls it, too.
        def pinned(tensor, *args, **kwargs):
            result = pin_memory(tensor, *args, **kwargs)
            if result is not tensor:
                self.note(result)
            return result

        torch.Tensor.pin_memory = pinned

    def note(self, tensor):
        """Notes a new tensor if it is in pinned memory."""
        storage = tensor.untyped_storage()
        addr, requested = storage.data_ptr(), storage.nbytes()
        pinned = self.cuda.fakecuda_pinned_range(addr)
        if not pinned or not requested:
            return
        # Several blocks can be in one reserve.
        block = min(pinned, 1 << (requested - 1).bit_length())
        most, of_block, _ = self.requests.get(addr, (0, 0, ""))
        if requested >= most or block != of_block:
            self.requests[addr] = (requested, block, self.line())
        if self.cuda.fakecuda_peak_pinned() > self.peak:
            self.peak = self.cuda.fakecuda_peak_pinned()
            self.requests = {
                addr: request
                for addr, request in self.requests.items()
                if self.cuda.fakecuda_pinned_range(addr)
            }
            self.at_peak = dict(self.requests)

    def report(self):
        lines = {}
        for requested, block, line in self.at_peak.values():
            holder = lines.setdefault(line, {"line": line, "requested_bytes": 0, "pinned_bytes": 0})
            holder["requested_bytes"] += requested
            holder["pinned_bytes"] += block
        holders = sorted(lines.values(), key=lambda holder: -holder["pinned_bytes"])
        return {
            "peak_bytes": self.cuda.fakecuda_peak_pinned(),
            "rounding_bytes": sum(block - requested for requested, block, _ in self.at_peak.values()),
            "holders": holders[:MOST_HOLDERS],
        }
