"""Eight threads that request memory at the same time.

COALESCE_TORCH_ALLOC=history=1000000
PYTORCH_CUDA_ALLOC_CONF=
PYTORCH_CUDA_ALLOC_CONF=release_lock_on_cudamalloc:True
"""

import random
import threading

import torch
from harness import bytes_on_gpu, memory

lock, errors, spans = threading.Lock(), [], {}


def work(seed):
    choice, live = random.Random(seed), []
    try:
        stream = torch.cuda.Stream() if seed % 2 else torch.cuda.default_stream()
        with torch.cuda.stream(stream):
            for _ in range(4000):
                if live and choice.random() < 0.5:
                    gone = live.pop(choice.randrange(len(live)))
                    with lock:
                        del spans[gone.data_ptr()]
                    del gone
                else:
                    tensor = bytes_on_gpu(choice.randrange(1, 1 << choice.randrange(1, 26)))
                    with lock:
                        assert tensor.data_ptr() not in spans
                        spans[tensor.data_ptr()] = tensor.numel()
                    live.append(tensor)
                    if len(live) % 16 == 0:
                        ends = 0
                        with lock:
                            for start, size in sorted(spans.items()):
                                assert start >= ends, "two live tensors share memory"
                                ends = start + size
    except BaseException as error:
        errors.append(error)
    with lock:
        for tensor in live:
            del spans[tensor.data_ptr()]


threads = [threading.Thread(target=work, args=[seed]) for seed in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not errors, errors
assert memory.memory_allocated() == 0, memory.memory_allocated()
stats = memory.memory_stats()
assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] > 12000, stats
memory.empty_cache()
assert memory.memory_reserved() == 0
