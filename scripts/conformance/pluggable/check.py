#!/usr/bin/env python3
"""Compares PyTorch on our allocator with PyTorch on its own: full torch on the simulated device.
     PY=$(../setup-torch.sh [--torch 2.15]); $PY check.py --library .../libcoalesce_torch.so

Programs of the first kind run under both allocators with the same settings. Each entry of the
history (operation, address, order), all statistics, the printed summary, the segments and the
error messages must be equal. Programs of the second kind run under ours alone. Each run is a new
process."""

import argparse
import bisect
import os
import pickle
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path

RELEASE = tuple(map(int, version("torch").split(".")[:2]))
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent

# Under both allocators. `said` is compared as well.
BEGIN = """
import os, pickle, random, sys, threading
sys.path.insert(0, os.environ["MODULE"])
import torch, coalesce_torch
from torch import nn
MB = 1 << 20
OURS = os.environ["ALLOCATOR"] == "coalesce"
if OURS and os.environ.get("ENABLE") != "0":
    coalesce_torch.enable()
    assert coalesce_torch.interface() == os.environ.get("INTERFACE", "complete")
memory = coalesce_torch if OURS else torch.cuda
said = []
def bytes_on_gpu(n):
    return torch.empty(n, dtype=torch.uint8, device="cuda")
"""
# Under both allocators, before the program.
RECORD = """
torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
"""
RECORD_STACKS = """
torch.cuda.memory._record_memory_history(stacks="python")
"""
END = """
report = {
    "said": said,
    "snapshot": torch.cuda.memory._snapshot(),
    "stats": dict(torch.cuda.memory_stats()),
    "summary": torch.cuda.memory_summary(),
    "figures": [memory.memory_allocated(), memory.max_memory_allocated(0),
                memory.memory_reserved("cuda"), memory.max_memory_reserved(torch.device("cuda:0"))],
}
with open(os.environ["REPORT"], "wb") as file:
    pickle.dump(report, file)
"""
# Sends tensors to two processes: one with PyTorch's own allocator and one with Coalesce.
SHARE = """
import subprocess
child = os.environ["BEGIN"] + '''
shared = pickle.load(sys.stdin.buffer)
torch.cuda.init()
free = torch.cuda.mem_get_info()[0]
opened = [torch.UntypedStorage._new_shared_cuda(*s) for s in shared]
tensors = [torch.empty(0, dtype=torch.uint8, device="cuda").set_(s) for s in opened]
kept = bytes_on_gpu(MB)
print([t.numel() for t in tensors], tensors[1].sum().item(), torch.cuda.memory_allocated())
print(free - torch.cuda.mem_get_info()[0])
for tensor in tensors:
    tensor.fill_(9)
torch.cuda.synchronize()
del tensors, tensor, opened
torch.cuda.ipc_collect()
print(free - torch.cuda.mem_get_info()[0])
'''
tensors = [bytes_on_gpu(3 * MB), bytes_on_gpu(5000), bytes_on_gpu(30 * MB)]
for allocator in ("native", "coalesce"):
    tensors[1].fill_(7)
    shared = [tensor.untyped_storage()._share_cuda_() for tensor in tensors]
    said.append([(s[0], len(s[1]), s[1][1:2], s[2], s[3], s[5]) for s in shared])
    run = subprocess.run([sys.executable, "-c", child], input=pickle.dumps(shared),
                         capture_output=True, env={**os.environ, "ALLOCATOR": allocator})
    said += [run.returncode, run.stdout.decode(), run.stderr.decode()[-500:]]
    assert run.returncode == 0, said
    said.append(tensors[1].sum().item())
    again = tensors[0].untyped_storage()._share_cuda_()
    said.append(again[1] == shared[0][1])
del tensors, shared, again
torch.cuda.ipc_collect()
a = bytes_on_gpu(900 * MB)
said.append(torch.cuda.memory_allocated())
"""
# PyTorch warns of empty graphs and of streams of gradients.
QUIET = {"PYTHONWARNINGS": "ignore"}
UNDER_BOTH = {
    "out of memory: messages, retries, and the requests after it": (
        {"FAKE_TOTAL_BYTES": "1G"},
        """
kept = []
for megabytes in (300, 500, 400, 2, 300, 700, 1 << 42):
    try:
        kept.append(bytes_on_gpu(megabytes * MB))
    except torch.OutOfMemoryError as error:
        said.append(str(error))
        kept[-1:] = []
assert len(said) == 3, said
try:
    torch.cuda.caching_allocator_alloc(1 << 60)
except torch.OutOfMemoryError as error:
    said.append(str(error))
assert len(said) == 4, said
""",
    ),
    "a transformer with a second stream for its batches": (
        {"FAKE_HOLD_EVENTS": "1", "FAKE_TOTAL_BYTES": "2G"},
        """
side = torch.cuda.Stream()
model = nn.TransformerEncoder(
    nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 4, enable_nested_tensor=False
).cuda()
optimizer = torch.optim.AdamW(model.parameters())
torch.backends.cuda.enable_cudnn_sdp(False)
for step in range(6):
    with torch.cuda.stream(side):
        batch = torch.zeros(8, 128 + 32 * (step % 3), 512).to("cuda", non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    batch.record_stream(torch.cuda.current_stream())
    model(batch).sum().backward()
    del batch
    optimizer.step()
    optimizer.zero_grad()
""",
    ),
    "out of memory in the backward pass, on a thread of autograd": (
        {"FAKE_TOTAL_BYTES": "3G"},
        """
model = nn.Sequential(*[nn.Linear(4096, 4096) for _ in range(8)]).cuda()
for rows in (4096, 24000, 4096, 30000, 20000, 16000):
    try:
        model(torch.randn(rows, 4096, device="cuda")).sum().backward()
        said.append(f"{rows}: went")
    except torch.OutOfMemoryError as error:
        said.append(f"{rows}: {error}")
    model.zero_grad(set_to_none=True)
assert len([text for text in said if "went" in text]) >= 2, said
assert any("out of memory" in text for text in said), said
""",
    ),
    "a memory fraction, empty_cache, and reset peaks": (
        {},
        """
torch.cuda.set_per_process_memory_fraction(0.01)
a = bytes_on_gpu(500 * MB)
try:
    b = bytes_on_gpu(500 * MB)
except torch.OutOfMemoryError as error:
    said.append(str(error))
torch.cuda.set_per_process_memory_fraction(1.0)
b = bytes_on_gpu(500 * MB)
del a
said.append(memory.memory_reserved())
torch.cuda.empty_cache()
memory.reset_peak_memory_stats()
said.append(memory.max_memory_reserved())
c = bytes_on_gpu(100 * MB)
""",
    ),
    "garbage collection under a limit": (
        {
            "PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.5"
            + ",per_process_memory_fraction:0.004" * (RELEASE >= (2, 10))
        },
        """
torch.cuda.set_per_process_memory_fraction(0.004)
choice = random.Random(1)
live = []
for _ in range(2000):
    if live and choice.random() < 0.5:
        live.pop(choice.randrange(len(live)))
    else:
        try:
            live.append(bytes_on_gpu(choice.choice([1, 700, MB, 3 * MB, 12 * MB, 64 * MB])))
        except torch.OutOfMemoryError as error:
            said.append(str(error))
            live.clear()
""",
    ),
    "several streams with pending work": (
        {"FAKE_HOLD_EVENTS": "1"},
        """
choice = random.Random(2)
streams = [torch.cuda.default_stream(), torch.cuda.Stream(), torch.cuda.Stream()]
live = []
for _ in range(2000):
    with torch.cuda.stream(choice.choice(streams)):
        live.append(bytes_on_gpu(choice.choice([1, 5000, 3 * MB, 30 * MB])))
    if choice.random() < 0.3:
        live[-1].record_stream(choice.choice(streams))
    if len(live) > 40:
        live.pop(choice.randrange(len(live)))
    if choice.random() < 0.02:
        choice.choice(streams).synchronize()
    if choice.random() < 0.005:
        torch.cuda.empty_cache()
""",
    ),
    "history with stacks": (
        {},
        """
torch.cuda.memory._record_memory_history(stacks="python")
def one(n):
    return bytes_on_gpu(n * MB)
def many():
    return [one(n) for n in (1, 3, 30, 12)]
side = torch.cuda.Stream()
kept = many()
kept[0].record_stream(side)
del kept[1:3]
again = many()
kept[0] = None
torch.cuda.empty_cache()
""",
    ),
    "stacks of some calls only; a ring; a history that is cleared and resumed": (
        {},
        """
first = bytes_on_gpu(MB)
torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=20)
def busy(times):
    return [bytes_on_gpu(MB * (1 + n % 7)) for n in range(times)]
a = busy(30)
del a
torch.cuda.memory._record_memory_history(context="state", stacks="python", max_entries=50)
b = busy(10)
torch.cuda.memory._record_memory_history(enabled=None)
del first
c = busy(5)
torch.cuda.memory._record_memory_history(stacks="python", max_entries=1000)
del b[::2], c
""",
    ),
    "expandable segments with stacks": (
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        """
torch.cuda.memory._record_memory_history(stacks="python")
choice = random.Random(4)
live = []
for _ in range(300):
    live.append(bytes_on_gpu(choice.choice([1, 5000, 3 * MB, 30 * MB])))
    if len(live) > 30:
        live.pop(choice.randrange(len(live)))
live.clear()
torch.cuda.empty_cache()
""",
    ),
    "observers of memory that runs out": (
        {"FAKE_TOTAL_BYTES": "1G"},
        """
torch._C._cuda_attach_out_of_memory_observer(lambda *figures: said.append(figures))
kept = bytes_on_gpu(300 * MB)
for fraction in (1.0, 0.5):
    torch.cuda.set_per_process_memory_fraction(fraction)
    try:
        bytes_on_gpu(900 * MB)
    except torch.OutOfMemoryError as error:
        said.append(str(error))
assert len(said) == 4, said
""",
    ),
    "devices that are not used": (
        {"FAKE_DEVICE_COUNT": "3"},
        """
devices = range(torch.cuda.device_count())
torch.cuda.empty_cache()
kept = bytes_on_gpu(MB)
torch.cuda.empty_cache()
torch.cuda.memory._snapshot()
said.append([torch.cuda.memory_stats(device)["num_sync_all_streams"] for device in devices])
with torch.cuda.device(1):
    other = bytes_on_gpu(MB)
torch.cuda.empty_cache()
said.append([torch.cuda.memory_stats(device)["num_sync_all_streams"] for device in devices])
said.append([len(entries) for entries in torch.cuda.memory._snapshot()["device_traces"]])
""",
    ),
    "pools, nested and released": (
        {},
        """
outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
with torch.cuda.use_mem_pool(outer):
    a = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    with torch.cuda.use_mem_pool(inner):
        b = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    c = bytes_on_gpu(7 * MB)
d = bytes_on_gpu(7 * MB)
said.append(outer.use_count())
said.append([segment["segment_pool_id"] for segment in outer.snapshot()])
del a[1:]
torch.cuda.empty_cache()
del b
del inner
said.append(torch.cuda.memory_reserved())
with torch.cuda.use_mem_pool(outer):
    e = bytes_on_gpu(20 * MB)
del a, c, e
del outer
said.append(torch.cuda.memory_reserved())
""",
    ),
    "a pool that serves when memory runs out": (
        {"FAKE_TOTAL_BYTES": "1G"},
        """
pool = torch.cuda.MemPool(use_on_oom=True)
with torch.cuda.use_mem_pool(pool):
    a = bytes_on_gpu(600 * MB)
del a
b = bytes_on_gpu(300 * MB)
c = bytes_on_gpu(500 * MB)
said.append(c.data_ptr())
""",
    ),
    "settings changed while running": (
        {},
        """
import warnings
warnings.simplefilter("ignore")
live = []
for conf in ("expandable_segments:True", "roundup_power2_divisions:4,expandable_segments:False",
             "max_split_size_mb:100", "garbage_collection_threshold:0.6"):
    torch.cuda.memory._set_allocator_settings(conf)
    live += [bytes_on_gpu(n * MB + n) for n in (1, 9, 33, 250)]
    del live[::3]
try:
    torch.cuda.memory._set_allocator_settings("max_split_size_mb:1")
except (RuntimeError, ValueError) as error:
    said.append(str(error).splitlines()[0])
""",
    ),
    "8 threads in turn": (
        {},
        """
turn = [0]
done = threading.Condition()
def work(number):
    choice, live = random.Random(number), []
    with torch.cuda.stream(torch.cuda.Stream() if number % 2 else torch.cuda.default_stream()):
        for step in range(200):
            with done:
                done.wait_for(lambda: turn[0] % 8 == number)
                live.append(bytes_on_gpu(choice.choice([1, 5000, 3 * MB, 30 * MB])))
                if len(live) > 5:
                    live.pop(choice.randrange(len(live)))
                turn[0] += 1
                done.notify_all()
        with done:
            done.wait_for(lambda: turn[0] % 8 == number)
            live.clear()
            turn[0] += 1
            done.notify_all()
threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
""",
    ),
    "graphs captured by hand and replayed": (
        QUIET,
        """
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
static = torch.zeros(64, 512, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(static).sum().backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = model(static).sum()
    loss.backward()
    optimizer.step()
pool = graph.pool()
others = []
for rows in (64, 32, 8):
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other, pool=pool):
        result = model(static[:rows])
    others.append((other, result))
for _ in range(5):
    static.copy_(torch.ones(64, 512, device="cuda"))
    graph.replay()
    for other, result in others:
        other.replay()
        batch = torch.empty(1 << 20, device="cuda")
said.append([str(segment["segment_pool_id"]) for segment in torch.cuda.memory_snapshot()])
del others[1:], other, result
torch.cuda.empty_cache()
del graph, loss
torch.cuda.empty_cache()
said.append(torch.cuda.memory_reserved())
""",
    ),
    "graphed callables, and a stream that joins a capture": (
        QUIET,
        """
# Otherwise two threads free tensors at the same time.
torch.autograd.set_multithreading_enabled(False)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
example = torch.zeros(32, 256, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(model, (example,))
for _ in range(3):
    graphed(torch.randn(32, 256, device="cuda", requires_grad=True)).sum().backward()
graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
with torch.cuda.graph(graph):
    a = torch.zeros(1 << 20, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        b = torch.zeros(1 << 20, device="cuda") + 1
    torch.cuda.current_stream().wait_stream(side)
    b.record_stream(torch.cuda.current_stream())
    c = a + b
    del b
    d = torch.zeros(1 << 20, device="cuda")
graph.replay()
e = torch.zeros(1 << 20, device="cuda")
""",
    ),
    "a capture that uses memory of several streams again": (
        {"PYTORCH_CUDA_ALLOC_CONF": "graph_capture_record_stream_reuse:True", **QUIET},
        """
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
""",
    ),
    "memory that runs out in a capture": (
        {"FAKE_TOTAL_BYTES": "1G", **QUIET},
        """
kept = [bytes_on_gpu(200 * MB) for _ in range(3)]
del kept[1]
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        a = bytes_on_gpu(100 * MB)
        b = bytes_on_gpu(700 * MB)
except torch.OutOfMemoryError as error:
    said.append(str(error))
assert said
del graph
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again):
    a = bytes_on_gpu(100 * MB)
""",
    ),
    "graph trees through torch.compile": (
        QUIET,
        """
import torch._dynamo
from torch._inductor.cudagraph_trees import get_container
import warnings
warnings.simplefilter("ignore")
torch._dynamo.config.suppress_errors = False
model = nn.Sequential(*[nn.Linear(256, 256) for _ in range(3)]).cuda()
compiled = torch.compile(model, backend="cudagraphs", dynamic=False)
for rows in (32, 32, 64, 32, 64, 64, 16, 32):
    torch.compiler.cudagraph_mark_step_begin()
    compiled(torch.randn(rows, 256, device="cuda")).sum().backward()
    model.zero_grad(set_to_none=True)
kept = compiled(torch.randn(32, 256, device="cuda")).clone()
said.append(float(kept.sum()) == float(kept.sum()))
""",
    ),
    "tensors shared with another process": ({"FAKE_MEMORY": "1"}, SHARE),
    "tensors of expandable segments shared with another process": (
        {"FAKE_MEMORY": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        SHARE,
    ),
    "the profiler's view of memory": (
        {},
        """
with torch.profiler.profile(profile_memory=True, acc_events=True) as profiler:
    a = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    del a[1]
events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
said.append(sorted(str(e.nbytes()) for e in events))
""",
    ),
    "two devices": (
        {"FAKE_DEVICE_COUNT": "2", "FAKE_TOTAL_BYTES": "1G"},
        """
choice = random.Random(3)
live = []
for _ in range(1000):
    device = choice.randrange(2)
    with torch.cuda.device(choice.randrange(2)):
        try:
            size = choice.choice([1, 5000, 3 * MB, 30 * MB, 200 * MB])
            live.append(torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}"))
        except torch.OutOfMemoryError as error:
            said.append(str(error))
        if len(live) > 12:
            live.pop(choice.randrange(len(live)))
assert any("GPU 1 has" in text for text in said), said
said.append(memory.memory_stats(1))
torch.cuda.empty_cache()
""",
    ),
}

TRIES = """
kept = []
for megabytes in (300, 400, 700, 2000, 2):
    try:
        kept.append(bytes_on_gpu(megabytes * MB))
    except torch.OutOfMemoryError as error:
        said.append(str(error))
    if megabytes == 400:
        del kept[0]
"""
# Settings, with the first release that accepts their keys.
ADDED = {
    "release_lock_on_cudamalloc:True": (2, 1),
    "throw_on_cudamalloc_oom:True": (2, 12),
    "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.6": (2, 12),
    "expandable_segments:True,throw_on_cudamalloc_oom:True": (2, 12),
    "expandable_segments:True,expandable_segments_reserve:0.5": (2, 15),
}
for conf in (conf for conf, since in ADDED.items() if since <= RELEASE):
    env = {"FAKE_TOTAL_BYTES": "1G", "PYTORCH_CUDA_ALLOC_CONF": conf}
    UNDER_BOTH[conf] = env, TRIES

# Where the C++ part cannot be compiled.
PLUGGABLE = {
    "CXX": "false",
    "INTERFACE": "pluggable",
    "PYTHONWARNINGS": "ignore:CUDA graphs,ignore:Attempting to run cuBLAS",
}
EIGHT_THREADS = """
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
for thread in threads: thread.start()
for thread in threads: thread.join()
assert not errors, errors
assert memory.memory_allocated() == 0, memory.memory_allocated()
stats = memory.memory_stats()
assert stats["allocation.all.allocated"] == stats["allocation.all.freed"] > 12000, stats
memory.empty_cache()
assert memory.memory_reserved() == 0
"""

# Under our allocator alone.
OURS = {
    "8 threads": ({"COALESCE_TORCH_ALLOC": "history=1000000"}, EIGHT_THREADS),
    "8 threads that wait for the device at once": (
        {"PYTORCH_CUDA_ALLOC_CONF": "release_lock_on_cudamalloc:True"},
        EIGHT_THREADS,
    ),
    "captures under the rules of a newer release": (
        {"COALESCE_TORCH_ALLOC": "torch=2.13", **QUIET},
        """
side = torch.cuda.Stream()
pool = torch.cuda.graph_pool_handle()
graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
for graph in graphs:
    with torch.cuda.graph(graph, pool=pool):
        tensor = bytes_on_gpu(3 * MB)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            tensor.add_(1)
        tensor.record_stream(side)
        torch.cuda.current_stream().wait_stream(side)
        del tensor
        last = bytes_on_gpu(3 * MB)
    graph.replay()
""",
    ),
    "tensors that outlive the interpreter": (
        {},
        """
a = bytes_on_gpu(5 * MB)
a.record_stream(torch.cuda.Stream())
class AtExit:
    def __init__(self): self.tensor = bytes_on_gpu(3 * MB)
    def __del__(self): del self.tensor
threading.kept = AtExit()
""",
    ),
    "a program that ends with an error": (
        {"STATUS": "1", "STDERR": "ZeroDivisionError: division by zero"},
        """
model = nn.Linear(512, 512).cuda()
model(torch.randn(8, 512, device="cuda")).sum().backward()
1 / 0
""",
    ),
    "python -m coalesce_torch": (
        {"ENABLE": "0"},
        """
import subprocess, tempfile
env = {**os.environ, "PYTHONPATH": os.environ["MODULE"]}
def run(*arguments):
    command = [sys.executable, "-m", "coalesce_torch", *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "program.py")
    with open(path, "w") as file:
        file.write("import sys, torch, coalesce_torch\\n")
        file.write("x = torch.ones(9, device='cuda')\\n")
        file.write("print(sys.argv[1:], __name__, coalesce_torch.interface())\\n")
    status, out, err = run(path, "--lr", "3")
    assert (status, out) == (0, "['--lr', '3'] __main__ complete\\n"), (status, out, err)
    env["PYTHONPATH"] += os.pathsep + folder
    status, out, err = run("-m", "program", "-m")
    assert (status, out) == (0, "['-m'] __main__ complete\\n"), (status, out, err)
assert run()[0] == 2 and "usage:" in run()[2]
assert run("missing.py")[0] == 2 and "no program missing.py" in run("missing.py")[2]
env["COALESCE_TORCH_ALLOC"] = "policy=pytroch"
assert run(__file__ if "__file__" in globals() else os.__file__)[0] == 2
""",
    ),
    "a policy without private pools refuses graphs before they begin": (
        {"COALESCE_TORCH_ALLOC": "policy=cuda_async"},
        """
for enter in (lambda: torch.cuda.graph(torch.cuda.CUDAGraph()).__enter__(), torch.cuda.MemPool):
    try:
        enter()
    except RuntimeError as error:
        assert "cuda_async does not serve the private pools of CUDA graphs" in str(error), error
    else:
        raise SystemExit("no error")
assert not torch.cuda.is_current_stream_capturing()
assert bytes_on_gpu(MB).numel() == MB
""",
    ),
    "without a compiler: says so, and trains": (
        {**PLUGGABLE, "ENABLE": "0"},
        """
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    coalesce_torch.enable()
said = [str(warning.message) for warning in caught]
assert len(said) == 1 and "are not available under Coalesce: false -std=" in said[0], said
assert coalesce_torch.interface() == "pluggable"
model = nn.Linear(512, 512).cuda()
model(torch.randn(8, 512, device="cuda")).sum().backward()
assert torch.cuda.memory_allocated() == memory.memory_allocated() > 0
""",
    ),
    "enable() after the first use of CUDA": (
        {"ENABLE": "0"},
        """
kept = torch.empty(1, device="cuda")
try:
    coalesce_torch.enable()
except RuntimeError as error:
    assert "PyTorch has used its own allocator already" in str(error), error
else:
    raise SystemExit("no error")
""",
    ),
    "enable() twice; a device that does not exist": (
        {},
        """
coalesce_torch.enable()
assert coalesce_torch.is_enabled()
try:
    memory.memory_stats(200)
except RuntimeError as error:
    assert str(error) == "no device 200", error
else:
    raise SystemExit("no error")
""",
    ),
    "torch.cuda's memory statistics": (
        {"COALESCE_TORCH_ALLOC": "policy=bfc"},
        """
a, b = bytes_on_gpu(3 * MB), bytes_on_gpu(5 * MB)
del b
assert torch.cuda.memory_stats() == memory.memory_stats()
assert list(torch.cuda.memory_stats()) == list(memory.memory_stats())
assert torch.cuda.memory_summary(abbreviated=True) == memory.memory_summary(abbreviated=True)
assert torch.cuda.max_memory_allocated() == memory.max_memory_allocated() == 8 * MB
torch.cuda.reset_peak_memory_stats()
assert torch.cuda.max_memory_allocated() == memory.memory_allocated() == 3 * MB
assert torch.cuda.memory_snapshot() == memory.memory_snapshot()["segments"]
""",
    ),
    **{
        f"memory of {policy} that CUDA cannot share": (
            {"COALESCE_TORCH_ALLOC": f"policy={policy}"},
            """
try:
    bytes_on_gpu(30 * MB).untyped_storage()._share_cuda_()
except RuntimeError as error:
    assert str(error).startswith("CUDA cannot share this memory with other processes"), error
else:
    raise SystemExit("shared")
assert bytes_on_gpu(MB).numel() == MB
""",
        )
        for policy in ("cuda_async", "gmlake", "quilt")
    },
    "memory of expandable segments that is kept private": (
        {
            "FAKE_TOTAL_BYTES": "1G",
            "TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC": "0",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        },
        """
try:
    bytes_on_gpu(30 * MB).untyped_storage()._share_cuda_()
except RuntimeError as error:
    assert "Set TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1" in str(error), error
else:
    raise SystemExit("shared")
""",
    ),
    "forked DataLoader workers": (
        {},
        """
class Squares(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i): return torch.tensor(float(i * i))
kept = bytes_on_gpu(3 * MB)
loader = torch.utils.data.DataLoader(Squares(), batch_size=8, num_workers=2, pin_memory=True)
assert sum(batch.cuda().numel() for _ in range(2) for batch in loader) == 128
""",
    ),
    "without a compiler, graph captures are refused before they begin": (
        PLUGGABLE,
        """
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()): pass
except RuntimeError as error:
    assert "does not support CUDA graph capture" in str(error), error
else:
    raise SystemExit("captured")
assert bytes_on_gpu(MB).numel() == MB
""",
    ),
    "as the allocator of a MemPool, where null means out of memory": (
        {"FAKE_TOTAL_BYTES": "1G", "STDERR": "coalesce: CUDA out of memory.", "ENABLE": "0"},
        """
path = os.environ["COALESCE_TORCH_LIB"]
ours = torch.cuda.memory.CUDAPluggableAllocator(path, "coalesce_malloc", "coalesce_free")
pool = torch.cuda.MemPool(ours.allocator())
with torch.cuda.use_mem_pool(pool):
    x = bytes_on_gpu(300 * MB)
    assert coalesce_torch.memory_allocated() == 300 * MB
    try:
        bytes_on_gpu(900 * MB)
    except torch.OutOfMemoryError as error:
        assert "Tried to allocate 900.00 MiB" in str(error), error
    else:
        raise SystemExit("no error")
    y = bytes_on_gpu(300 * MB)
sys.stdout.flush(); os._exit(0)
""",
    ),
    "torch= names another release": (
        {"COALESCE_TORCH_ALLOC": "torch=2.6;history=10", **PLUGGABLE},
        """
kept = bytes_on_gpu(3 * MB)
assert len(memory.memory_stats()) == 122, memory.memory_stats()
entry = torch.cuda.memory._snapshot()["device_traces"][0][0]
assert list(entry) == ["action", "addr", "size", "stream", "time_us"], entry
assert torch.cuda.memory_summary() == memory.memory_summary()
""",
    ),
    "a release that is not reproduced is named once": (
        {"ENABLE": "0"},
        """
import warnings
torch.__version__ = "2.99.0+cu999"
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    coalesce_torch.enable()
    coalesce_torch.enable()
    kept = bytes_on_gpu(3 * MB)
    memory.memory_stats()
texts = [str(warning.message) for warning in caught if "reproduces" in str(warning.message)]
assert len(texts) == 1 and "not 2.99.0+cu999; it follows 2." in texts[0], texts
""",
    ),
    "without a compiler, a PyTorch that lacks a hook is refused": (
        {"ENABLE": "0", **PLUGGABLE},
        """
coalesce_torch._pluggable._HOOKS["set_something_fn"] = "coalesce_empty_cache"
try:
    coalesce_torch.enable()
except RuntimeError as error:
    assert str(error).endswith(f"PyTorch {torch.__version__} has no set_something_fn"), error
else:
    raise SystemExit("no error")
assert torch.empty(1, device="cuda").numel() == 1, "and PyTorch keeps its own"
""",
    ),
    "an invalid settings string": (
        {"COALESCE_TORCH_ALLOC": "policy=pytroch", "ENABLE": "0"},
        """
try:
    coalesce_torch.enable()
except ValueError as error:
    assert str(error).startswith("COALESCE_TORCH_ALLOC: unknown policy 'pytroch'"), error
else:
    raise SystemExit("no error")
assert torch.empty(1, device="cuda").numel() == 1, "and PyTorch keeps its own"
""",
    ),
    "a snapshot file, read by PyTorch's own viewer": (
        {"COALESCE_TORCH_ALLOC": "history=1000000"},
        """
import tempfile
from torch.cuda import _memory_viz
a = [bytes_on_gpu(3 * MB) for _ in range(9)]
del a[::2]
with tempfile.NamedTemporaryFile() as file:
    coalesce_torch.dump_snapshot(file.name)
    snapshot = pickle.load(file)
assert "segments" in snapshot and len(snapshot["device_traces"][0]) > 20
assert "20.0MiB" in _memory_viz.segsum(snapshot), _memory_viz.segsum(snapshot)
assert "alloc" in _memory_viz.trace(snapshot)
assert "<html" in _memory_viz.trace_plot(snapshot).lower()
""",
    ),
}
# Under each policy with private pools besides the reference. A capture fails at the first call that
# it forbids.
WITH_POOLS = {
    "graphs captured by hand and replayed": (
        QUIET,
        """
def reserved():
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()
def zeros(megabytes):
    return torch.zeros(megabytes * MB // 4, device="cuda")
side = torch.cuda.Stream()
static, warm = zeros(64), zeros(30)
del warm
torch.cuda.synchronize()
before, held = reserved(), torch.cuda.memory_allocated()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    a = static + 1
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        b = a * 2
        c = zeros(1) + zeros(12).sum()
        del c
    a.record_stream(side)
    torch.cuda.current_stream().wait_stream(side)
    b.record_stream(torch.cuda.current_stream())
    result = a + b
    del a, b
    small = [torch.ones(n, device="cuda") for n in range(1, 2000, 50)]
    del small[::2]
after = torch.cuda.memory_reserved()
assert after > before, (before, after)
# The blocks that the capture freed stay with the graph: as much again must come from elsewhere.
others = [zeros(64), zeros(64), zeros(64)]
assert torch.cuda.memory_reserved() >= after + 192 * MB - 32 * MB, torch.cuda.memory_reserved()
assert len({t.data_ptr() for t in others} | {result.data_ptr()}) == 4
del others
second = torch.cuda.CUDAGraph()
with torch.cuda.graph(second, pool=graph.pool()):
    again = static * 3
for _ in range(3):
    graph.replay()
    second.replay()
    batch = zeros(100)
    del batch
torch.cuda.synchronize()
del second, again
kept = reserved()
assert kept > before, "the first graph keeps the pool"
del graph
small.clear()
del result
torch.cuda.synchronize()
assert reserved() == before, (reserved(), before)
assert torch.cuda.memory_allocated() == held
""",
    ),
    "graphed callables": (
        QUIET,
        """
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)).cuda()
example = torch.zeros(32, 256, device="cuda", requires_grad=True)
graphed = torch.cuda.make_graphed_callables(model, (example,))
for _ in range(3):
    graphed(torch.randn(32, 256, device="cuda", requires_grad=True)).sum().backward()
""",
    ),
    "a training step in a graph, with an optimizer": (
        QUIET,
        """
model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)]).cuda()
optimizer = torch.optim.AdamW(model.parameters(), capturable=True)
static = torch.zeros(64, 512, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        optimizer.zero_grad(set_to_none=True)
        model(static).sum().backward()
        optimizer.step()
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    loss = model(static).sum()
    loss.backward()
    optimizer.step()
for rows in (64, 700, 3, 5000):
    graph.replay()
    model(torch.zeros(rows, 512, device="cuda")).sum().backward()
""",
    ),
    "pools of the program, nested and released": (
        {},
        """
start = torch.cuda.memory_reserved()
outer, inner = torch.cuda.MemPool(), torch.cuda.MemPool()
with torch.cuda.use_mem_pool(outer):
    a = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    with torch.cuda.use_mem_pool(inner):
        b = [bytes_on_gpu(n * MB) for n in (1, 3, 30)]
    c = bytes_on_gpu(7 * MB)
with_pools = torch.cuda.memory_reserved()
d = bytes_on_gpu(7 * MB)
assert outer.use_count() == 1 and inner.use_count() == 1
del a[1:], b
torch.cuda.empty_cache()
e = bytes_on_gpu(60 * MB)
assert torch.cuda.memory_reserved() >= with_pools + 60 * MB, "the pools keep what is free in them"
del e, inner
with torch.cuda.use_mem_pool(outer):
    e = bytes_on_gpu(20 * MB)
del a, c, e, d, outer
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == start, torch.cuda.memory_reserved()
graph, pool = torch.cuda.CUDAGraph(), torch.cuda.MemPool()
with torch.cuda.graph(graph, pool=pool.id):
    x = bytes_on_gpu(30 * MB)
    x.add_(1)
    del x
graph.replay()
del graph, pool
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == start, torch.cuda.memory_reserved()
""",
    ),
    "graph trees through torch.compile": (
        QUIET,
        """
import gc
import warnings
import torch._dynamo
from torch._inductor import config
from torch._inductor.cudagraph_trees import get_container
warnings.simplefilter("ignore")
torch._dynamo.config.suppress_errors = False
# The trees then compare the live blocks of their pool with what they expect after each graph.
config.triton.fast_path_cudagraph_asserts = config.triton.slow_path_cudagraph_asserts = True
start = torch.cuda.memory_reserved()
torch.cuda.memory._record_memory_history(max_entries=1_000_000, context=None)
model = nn.Sequential(*[nn.Linear(width, 700) for width in (256, 700, 700)]).cuda()
compiled = torch.compile(model, backend="cudagraphs", dynamic=False)
for rows in (32, 32, 64, 32, 64, 64, 16, 32, 3000, 3000, 16, 64):
    torch.compiler.cudagraph_mark_step_begin()
    compiled(torch.randn(rows, 256, device="cuda")).sum().backward()
    model.zero_grad(set_to_none=True)
manager = get_container(0).tree_manager
assert manager.new_graph_id().id > 7, "graphs were captured"
assert manager.debug_checkpointing_counter > 0, "checkpoints were restored"
allocated = set()
snapshot = torch.cuda.memory._snapshot()
for entry in snapshot["device_traces"][0]:
    if entry["action"] == "alloc":
        assert entry["addr"] not in allocated, entry
        allocated.add(entry["addr"])
    elif entry["action"] == "free_completed":
        allocated.discard(entry["addr"])
blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
assert allocated == {b["address"] for b in blocks if b["state"] == "active_allocated"}
del model, compiled, manager
torch._dynamo.reset()
gc.collect()
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == start, torch.cuda.memory_reserved()
""",
    ),
    "memory that runs out in a capture": (
        {"FAKE_TOTAL_BYTES": "1G", **QUIET},
        """
kept = [bytes_on_gpu(200 * MB) for _ in range(3)]
del kept[1]
graph = torch.cuda.CUDAGraph()
try:
    with torch.cuda.graph(graph):
        a = bytes_on_gpu(100 * MB)
        b = bytes_on_gpu(700 * MB)
except torch.OutOfMemoryError as error:
    assert "is out of memory: requested 700.00 MiB" in str(error), error
else:
    raise SystemExit("no error")
del graph
again = torch.cuda.CUDAGraph()
with torch.cuda.graph(again):
    a = bytes_on_gpu(100 * MB)
again.replay()
""",
    ),
    "what it does not serve is refused": (
        QUIET,
        """
import warnings
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
""",
    ),
    "a history that fits its segments, read by PyTorch's viewer": (
        {"FAKE_HOLD_EVENTS": "1"},
        """
import bisect
from torch.cuda import _memory_viz
side = torch.cuda.Stream()
before = bytes_on_gpu(5 * MB)
torch.cuda.memory._record_memory_history(max_entries=1_000_000, context="all")
choice, live = random.Random(5), []
for step in range(1500):
    with torch.cuda.stream(side if step % 5 == 0 else torch.cuda.default_stream()):
        sizes = [1, 5000, 3 * MB, 30 * MB, choice.randrange(60 * MB)]
        live.append(bytes_on_gpu(choice.choice(sizes)))
    while len(live) > 30 or live and choice.random() < 0.4:
        live.pop(choice.randrange(len(live)))
    if step % 500 == 499:
        torch.cuda.empty_cache()
snapshot = torch.cuda.memory._snapshot()
allocated = {before.data_ptr()}
for entry in snapshot["device_traces"][0]:
    if entry["action"] == "alloc":
        assert entry["addr"] not in allocated, entry
        allocated.add(entry["addr"])
    elif entry["action"] == "free_completed":
        allocated.remove(entry["addr"])
assert allocated == {before.data_ptr(), *(t.data_ptr() for t in live)}
listed = set()
for segment in snapshot["segments"]:
    end = segment["address"]
    for block in segment["blocks"]:
        assert block["address"] == end
        end += block["size"]
        if block["state"] == "active_allocated":
            listed.add(block["address"])
    assert end == segment["address"] + segment["total_size"]
assert listed == allocated
total = sum(segment["total_size"] for segment in snapshot["segments"])
assert total == torch.cuda.memory_reserved(), (total, torch.cuda.memory_reserved())
assert "<html" in _memory_viz.trace_plot(snapshot).lower()
assert "alloc" in _memory_viz.trace(snapshot) and _memory_viz.segsum(snapshot)
""",
    ),
    "a memory fraction, and memory that runs out": (
        {"FAKE_TOTAL_BYTES": "1G"},
        """
torch.cuda.set_per_process_memory_fraction(0.5)
a = bytes_on_gpu(300 * MB)
try:
    bytes_on_gpu(300 * MB)
except torch.OutOfMemoryError as error:
    assert "requested 300.00 MiB; the device has 1024.00 MiB" in str(error), error
    assert "300.00 MiB is allocated, 300.00 MiB reserved, 512.00 MiB allowed" in str(error), error
else:
    raise SystemExit("no error")
torch.cuda.set_per_process_memory_fraction(1.0)
b = bytes_on_gpu(300 * MB)
""",
    ),
}
WITHOUT_VIRTUAL_MEMORY = """
kept = [bytes_on_gpu(n * MB) for n in (1, 30)]
assert coalesce_torch.memory_reserved() == 32 * MB, coalesce_torch.memory_reserved()
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    bytes_on_gpu(MB).add_(1)
"""
for policy in ("quilt",):
    for name, (env, code) in WITH_POOLS.items():
        env = {**env, "COALESCE_TORCH_ALLOC": f"policy={policy}"}
        OURS[f"{policy}: {name}"] = env, code
    env = {
        "COALESCE_TORCH_ALLOC": f"policy={policy}",
        "FAKE_NO_VMM": "1",
        "STDERR": f"coalesce: device 0 has no virtual memory, which the policy {policy} needs",
        **QUIET,
    }
    OURS[f"{policy} on a device without virtual memory"] = env, WITHOUT_VIRTUAL_MEMORY
OTHERS = ["bfc", "cuda_async", "gmlake", "quilt"]
TRAINING = {
    "by default": [],
    "expandable segments": ["--conf", "expandable_segments:True"],
    "in bfloat16, batches of different lengths": ["--amp", "--vary"],
    "batches of different lengths, other settings": [
        *["--vary", "--conf"],
        "max_split_size_mb:200,roundup_power2_divisions:4,garbage_collection_threshold:0.8",
    ],
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", required=True, help="libcoalesce_torch.so")
    parser.add_argument("--only", default="", help="checks whose names contain this")
    parser.add_argument(
        "--gpu", action="store_true", help="on a GPU: only the checks that need no simulated device"
    )
    parser.add_argument("--jobs", type=int, default=2, help="checks at a time (2)")
    args = parser.parse_args()
    checks = {
        **{f"GPT-2, 5 steps, {n}": lambda t, o=o: gpt2(t, o) for n, o in TRAINING.items()},
        **{f"both: {n}": lambda t, c=c: under_both(t, *c) for n, c in UNDER_BOTH.items()},
        **{f"ours: {n}": lambda t, c=c: under_ours(t, *c) for n, c in OURS.items()},
        **{f"trained on {n}": lambda t, n=n: other_policy(t, n) for n in OTHERS},
    }
    chosen = {name: check for name, check in checks.items() if args.only in name}
    if args.gpu:
        simulated = [n for n, (env, _) in (UNDER_BOTH | OURS).items() if needs_simulation(env)]
        chosen = {n: c for n, c in chosen.items() if n.split(": ", 1)[-1] not in simulated}
    common = {k: v for k, v in os.environ.items() if not k.startswith(("FAKE_", "PYTORCH_"))}
    common.update(
        COALESCE_TORCH_LIB=os.path.abspath(args.library),
        MODULE=str(ROOT / "python"),
        # A fixed hash seed: PyTorch frees some objects in hash order.
        PYTHONHASHSEED="0",
        # PyTorch's threads warn about this where its own allocator makes no runtime call.
        PYTHONWARNINGS="ignore:Attempting to run cuBLAS",
    )

    build(common)

    def verdict(check):
        with tempfile.TemporaryDirectory() as folder:
            try:
                return check(Run(common, Path(folder), args.gpu))
            except Difference as difference:
                return difference

    failed = 0
    with ThreadPoolExecutor(args.jobs) as pool:
        for name, said in zip(chosen, pool.map(verdict, chosen.values()), strict=True):
            if isinstance(said, Difference):
                failed += 1
                print("FAIL", name, "\n    ", str(said).replace("\n", "\n     "), flush=True)
            else:
                print("ok  ", name + ":", said, flush=True)
    print(f"{len(chosen) - failed} passed, {failed} failed")
    sys.exit(failed > 0 or not chosen)


def needs_simulation(env):
    return any(name.startswith("FAKE_") for name in env)


def build(common):
    """Compiles what enable() compiles once."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); import coalesce_torch as c; c.enable()"
    subprocess.run([sys.executable, "-c", program, common["MODULE"]], env=common, check=True)


# PyTorch's own allocator and its settings print these, the former what it also raises.
# enable() says that it compiles.
WARNING = re.compile(
    r"\[W.* (CUDACachingAllocator|AllocatorConfig|CudaIPCTypes)\.cpp:\d+\] "
    r"|coalesce: compiling |W\d+ .*triton not found"
)


class Difference(Exception):
    pass


class Run:
    """The command and environment of a check's programs."""

    def __init__(self, common, folder, is_on_gpu):
        self.common, self.folder, self.is_on_gpu = common, folder, is_on_gpu

    def program(self, command, env):
        for _ in range(8):
            # Fixed heap addresses: PyTorch orders some objects by them.
            done = subprocess.run(
                ["setarch", "-R", sys.executable, *command],
                env={**self.common, **env},
                capture_output=True,
                text=True,
            )
            if "terminate called without an active exception" not in done.stderr:
                break
            # From 2.12 on PyTorch ends like this now and then, with its own allocator too: its
            # autograd thread outlives the interpreter.
        status, said = int(env.get("STATUS", 0)), env.get("STDERR", "")
        errors = [line for line in done.stderr.splitlines() if not WARNING.match(line)]
        if done.returncode != status or (said not in done.stderr if said else errors):
            raise Difference(f"exit status {done.returncode}\n{done.stderr[-3000:]}")
        return done.stdout


class Names:
    """Names for the addresses and streams of one process, which another process has elsewhere: the
    place of the segment in the order of creation and the offset, the place of the stream."""

    def __init__(self, snapshot):
        self.starts, self.streams = [], {}
        traces = [entry for trace in snapshot["device_traces"] for entry in trace]
        extents = [(e["addr"], e["size"]) for e in traces if e["action"] in TAKES]
        extents += [(s["address"], s["total_size"]) for s in snapshot["segments"]]
        numbers = {}
        for start, size in extents:
            number = numbers.setdefault(start, (len(numbers), size))[0]
            numbers[start] = number, max(size, numbers[start][1])
        self.starts = sorted((start, size, number) for start, (number, size) in numbers.items())
        for item in [*traces, *snapshot["segments"]]:
            self.streams.setdefault(item["stream"], len(self.streams))

    def address(self, address):
        index = bisect.bisect(self.starts, (address, float("inf"))) - 1
        start, size, number = self.starts[max(index, 0)] if self.starts else (0, 0, 0)
        return (number, address - start) if start <= address < start + size else address

    def renamed(self, snapshot):
        for trace in snapshot["device_traces"]:
            for entry in trace:
                if entry["action"] != "snapshot" and "addr" in entry:
                    entry["addr"] = self.address(entry["addr"])
                # How much of a GPU is free depends on others.
                entry.pop("device_free", None)
                entry["stream"] = self.streams[entry["stream"]]
        for segment in snapshot["segments"]:
            segment["address"] = self.address(segment["address"])
            segment["stream"] = self.streams[segment["stream"]]
            for block in segment["blocks"]:
                block["address"] = self.address(block["address"])
        snapshot["segments"].sort(key=lambda segment: segment["address"])


TAKES = ("segment_alloc", "segment_map")
# What an error says about a GPU that other processes use too.
FREE = re.compile(r"of which \S+ \S+ is free\. (.* memory in use\. )?")


def on_a_gpu(reports):
    """Leaves out of two reports what differs between any two processes on a GPU."""
    for report in reports.values():
        Names(report["snapshot"]).renamed(report["snapshot"])
        said = report.get("said", ())
        report["said"] = [FREE.sub("", t) if isinstance(t, str) else t for t in said]


def under_both(run, env, code):
    reports = {}
    for allocator in ("native", "coalesce"):
        path = run.folder / allocator
        ours = {"ALLOCATOR": allocator, "REPORT": str(path), "BEGIN": BEGIN}
        record = "" if "_record_memory_history" in code else RECORD
        run.program(["-c", BEGIN + record + code + END], {**env, **ours})
        reports[allocator] = pickle.loads(path.read_bytes())
    return equal(reports, run)


def gpt2(run, options):
    path = run.folder / "trace"
    train = ROOT / "scripts/gpu/train.py"
    sizes = ["--runs", "1", "--steps", "5", "--warm-up", "1", "--pairs", "1000"]
    run.program([train, *sizes, *options, "--trace", path], {})
    reports = {a: pickle.loads(Path(f"{path}.{a}").read_bytes()) for a in ("native", "coalesce")}
    return equal(reports, run)


def other_policy(run, policy):
    train = ROOT / "scripts/gpu/train.py"
    sizes = ["--runs", "1", "--steps", "3", "--warm-up", "1", "--pairs", "1000", "--layers", "4"]
    run.program([train, *sizes, "--policy", policy, "--vary"], {})
    return "ran to its end"


def under_ours(run, env, code):
    run.program(["-c", BEGIN + code], {**env, "ALLOCATOR": "coalesce"})
    return "as expected"


def equal(reports, run):
    """Summarizes two equal reports."""
    if run.is_on_gpu:
        on_a_gpu(reports)
    native, ours = reports["native"], reports["coalesce"]
    for key, value in native["stats"].items():
        if ours["stats"].get(key) != value:
            raise Difference(f"{key}: {value} native, {ours['stats'].get(key)} ours")
    traces = [[entries(t) for t in r["snapshot"]["device_traces"]] for r in (native, ours)]
    for device, (left, right) in enumerate(zip(*traces, strict=True)):
        for number, pair in enumerate(zip(left, right, strict=False)):
            if pair[0] != pair[1]:
                raise Difference(
                    f"device {device}, entry {number}: {pair[0]} native, {pair[1]} ours"
                )
        if len(left) != len(right):
            raise Difference(f"device {device}: {len(left)} entries native, {len(right)} ours")
    for part in native.keys() - {"snapshot"}:
        if list_of(native[part]) != list_of(ours[part]):
            raise Difference(f"{part}: {native[part]}\nnative\n{ours[part]}\nours")
    for part in ("segments", "allocator_settings"):
        left, right = native["snapshot"][part], ours["snapshot"][part]
        if repr(left) != repr(right):
            raise Difference(f"{part}: {left}\nnative\n{right}\nours")
    stats, count = ours["stats"], sum(len(trace) for trace in traces[1])
    return (
        f"{count} entries of the history equal, {stats['allocation.all.allocated']} allocations, "
        f"{stats['num_ooms']} out of memory, peak {stats['reserved_bytes.all.peak']} bytes"
    )


def entries(trace):
    """An entry without its time, including keys and their order."""
    return [[(k, v) for k, v in entry.items() if k != "time_us"] for entry in trace]


def list_of(value):
    return list(value.items()) if isinstance(value, dict) else value


if __name__ == "__main__":
    main()
