"""A capture that reuses memory of several streams.

PYTORCH_CUDA_ALLOC_CONF=graph_capture_record_stream_reuse:True
PYTHONWARNINGS=ignore
"""

import random

import torch
from harness import MB, record_history, report, said

record_history()
# Several blocks that become free at once do so in the order of heap addresses. Here it is one at a
# time.
sides, outside = [torch.cuda.Stream() for _ in range(3)], torch.cuda.Stream()
choice, pool = random.Random(7), torch.cuda.graph_pool_handle()


def block():
    return torch.zeros(12 * MB, device="cuda", dtype=torch.uint8)


def wait_for(streams):
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)


def say_where(tensor):
    offsets = [tensor.data_ptr() - segment["address"] for segment in torch.cuda.memory_snapshot()]
    said.append(min(offset for offset in offsets if offset >= 0))


for _ in range(4):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        for _ in range(12):
            tensor = block()
            for side in sides:
                side.wait_stream(torch.cuda.current_stream())
            users = choice.sample(sides, choice.randrange(1, 4))
            for side in users:
                with torch.cuda.stream(side):
                    torch.zeros(12 * MB, device="cuda", dtype=torch.uint8).add_(tensor)
                tensor.record_stream(side)
            freed = tensor.data_ptr()
            del tensor
            for side in choice.sample(sides, 3):
                kept = block()
                said.append(kept.data_ptr() == freed)
                wait_for([side])
                if choice.random() < 0.5:
                    kept.add_(1)
                del kept
            wait_for(sides)
        last = block()
        last.record_stream(outside)
        del last
        say_where(block())
    say_where(block())
assert True in said and False in said
report()
