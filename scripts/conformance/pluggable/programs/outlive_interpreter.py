"""Tensors that outlive the interpreter."""

import threading

import torch
from harness import MB, bytes_on_gpu

a = bytes_on_gpu(5 * MB)
a.record_stream(torch.cuda.Stream())


class AtExit:
    def __init__(self):
        self.tensor = bytes_on_gpu(3 * MB)

    def __del__(self):
        del self.tensor


threading.kept = AtExit()
