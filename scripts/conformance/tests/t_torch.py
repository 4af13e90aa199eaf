#!/usr/bin/env python3
"""Full torch on the fake device. Run with the python that setup-torch.sh prints:
     .../torch-python tests/t_torch.py
Each check runs in a new process, because settings are read once."""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
COMMON = """
import torch, torch.nn as nn, torch.nn.functional as F
MB = 1 << 20
"""
CHECKS = {
    "import, device, an op": (
        {},
        """
assert torch.__version__.startswith("2.11.0"), torch.__version__
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
x = torch.empty(1000, 1000, device="cuda")
assert torch.cuda.memory_allocated() == 4000256, torch.cuda.memory_allocated()
assert torch.cuda.memory_reserved() == 20 * MB
(x @ x + 1).sum().item()
print(torch.cuda.get_device_name(0), hex(x.data_ptr()))
""",
    ),
    "transformer layer: forward, backward, AdamW, autocast": (
        {},
        """
m = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True).cuda()
opt = torch.optim.AdamW(m.parameters())
torch.backends.cuda.enable_cudnn_sdp(False)
for _ in range(3):
    with torch.autocast("cuda", torch.bfloat16):
        loss = m(torch.randn(4, 64, 256, device="cuda")).sum()
    loss.backward(); opt.step(); opt.zero_grad()
print("peak", torch.cuda.max_memory_allocated())
""",
    ),
    "convolutions with cuDNN on, batch norm, SGD": (
        {},
        """
m = nn.Sequential(
    nn.Conv2d(3, 16, 3, 2, 1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
).cuda()
opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
assert torch.backends.cudnn.is_available()
for _ in range(2):
    target = torch.zeros(8, dtype=torch.long, device="cuda")
    F.cross_entropy(m(torch.randn(8, 3, 64, 64, device="cuda")), target).backward()
    opt.step(); opt.zero_grad()
print("peak", torch.cuda.max_memory_allocated())
""",
    ),
    "out of memory, cache flush, snapshot": (
        {"FAKE_TOTAL_BYTES": "1G"},
        """
torch.cuda.memory._record_memory_history()
a = torch.empty(600 * MB, dtype=torch.uint8, device="cuda")
try:
    b = torch.empty(600 * MB, dtype=torch.uint8, device="cuda"); raise SystemExit("no OOM")
except torch.OutOfMemoryError as e:
    assert "Tried to allocate 600.00 MiB. GPU 0 has a total capacity of 1024.00 MiB" in str(e), e
del a
b = torch.empty(700 * MB, dtype=torch.uint8, device="cuda")
s = torch.cuda.memory_stats()
assert (s["num_ooms"], s["num_alloc_retries"]) == (1, 2), s
acts = [e["action"] for e in torch.cuda.memory._snapshot()["device_traces"][0]]
assert acts == (
    "segment_alloc alloc oom free_requested free_completed segment_free segment_alloc alloc"
).split(), acts
""",
    ),
    "expandable segments": (
        {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        """
a = torch.empty(30 * MB, dtype=torch.uint8, device="cuda")
b = torch.empty(30 * MB, dtype=torch.uint8, device="cuda")
assert b.data_ptr() - a.data_ptr() == 30 * MB and torch.cuda.memory_reserved() == 60 * MB
assert torch.cuda.memory_snapshot()[0]["is_expandable"]
""",
    ),
    "streams: record_stream delays reuse": (
        {"FAKE_HOLD_EVENTS": "1"},
        """
s = torch.cuda.Stream()
a = torch.empty(12 * MB, dtype=torch.uint8, device="cuda"); p = a.data_ptr()
a.record_stream(s); del a
b = torch.empty(12 * MB, dtype=torch.uint8, device="cuda"); assert b.data_ptr() != p
torch.cuda.synchronize()
c = torch.empty(12 * MB, dtype=torch.uint8, device="cuda"); assert c.data_ptr() == p
""",
    ),
    "device properties": (
        {"FAKE_TOTAL_BYTES": "24G", "FAKE_CC": "8.0"},
        """
p = torch.cuda.get_device_properties(0)
assert (p.name, p.major, p.minor) == ("Fake GPU sm_80", 8, 0), p
assert (p.total_memory, p.L2_cache_size) == (24 << 30, 50 << 20), p
assert (p.multi_processor_count, p.warp_size, p.max_threads_per_multi_processor) == (108, 32, 2048)
assert (p.shared_memory_per_block_optin, p.regs_per_multiprocessor) == (232448, 65536), p
""",
    ),
    "two devices": (
        {"FAKE_DEVICE_COUNT": "2", "FAKE_TOTAL_BYTES": "1G"},
        """
assert torch.cuda.device_count() == 2
a, b = (torch.empty(700 * MB, dtype=torch.uint8, device=f"cuda:{i}") for i in range(2))
assert b.data_ptr() - a.data_ptr() == 1 << 48
with torch.cuda.device(1):
    s = torch.cuda.Stream(); b.record_stream(s)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(s); end.record(s); end.synchronize()
    assert start.elapsed_time(end) >= 0
    assert torch.cuda.mem_get_info()[0] == 324 * MB
del a
a = torch.empty(MB, device="cuda:0").to("cuda:1")
assert torch.cuda.memory_allocated(1) == 704 * MB
""",
    ),
    "CUDA graphs: capture, replay, memory of the pool": (
        {},
        """
m = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
x = torch.randn(64, 512, device="cuda")
with torch.cuda.stream(torch.cuda.Stream()):
    m(x).sum().backward()
torch.cuda.synchronize(); m.zero_grad(set_to_none=True)
graphs = [torch.cuda.CUDAGraph() for _ in range(2)]
pool = torch.cuda.graph_pool_handle()
for g in graphs:
    with torch.cuda.graph(g, pool=pool):
        assert torch.cuda.is_current_stream_capturing()
        y = m(x); y.sum().backward()
before = torch.cuda.memory_allocated()
for g in graphs:
    g.replay()
assert torch.cuda.memory_allocated() == before and not torch.cuda.is_current_stream_capturing()
of_pool = lambda: [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool]
assert len(of_pool()) >= 1, of_pool()
del y, g, graphs; m.zero_grad(set_to_none=True)
torch._C._cuda_clearCublasWorkspaces(); torch.cuda.empty_cache()
assert of_pool() == [], of_pool()
graphed = torch.cuda.make_graphed_callables(nn.Sequential(nn.Linear(64, 64), nn.ReLU()).cuda(),
    (torch.randn(8, 64, device="cuda", requires_grad=True),))
graphed(torch.randn(8, 64, device="cuda", requires_grad=True)).sum().backward()
""",
    ),
    "CUDA graphs: streams that join, calls that are forbidden": (
        {},
        """
x = torch.ones(1000, device="cuda"); side = torch.cuda.Stream()
g = torch.cuda.CUDAGraph()
with torch.cuda.graph(g):
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
    torch.cuda.current_stream().wait_stream(side)
    z = y * 2
g.replay()
def unjoined():
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x + 1
for call, why in [
    (torch.cuda.synchronize, "previous error"),
    (lambda: x.sum().item(), "previous error"),
    (unjoined, "unjoined work"),
]:
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            x + 1; call()
        raise SystemExit(f"no error: {why}")
    except torch.AcceleratorError as e:
        assert why in str(e), e
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    x + 1
""",
    ),
    "CUDA graphs: memory of other streams is reused in the capture": (
        {"PYTORCH_CUDA_ALLOC_CONF": "graph_capture_record_stream_reuse:True"},
        """
main, side = torch.cuda.Stream(), torch.cuda.Stream()
def used_on_both(joins):
    with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=main):
        x = torch.zeros(30 * MB, dtype=torch.uint8, device="cuda"); place = x.data_ptr()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            x.add_(1)
        x.record_stream(side); del x
        if joins:
            main.wait_stream(side)
            torch.zeros(1, device="cuda")
        again = torch.zeros(30 * MB, dtype=torch.uint8, device="cuda").data_ptr() == place
        main.wait_stream(side)
    return again
assert used_on_both(True) and not used_on_both(False)
""",
    ),
    "cudagraph trees": (
        {},
        """
from torch._inductor import cudagraph_trees
def model(inputs):
    x, = inputs; inputs.clear()
    return [(x * 2).relu(), x + 1]
def batch():
    return [torch.ones(1000, 1000, device="cuda")]
graphed = cudagraph_trees.cudagraphify_impl(model, batch(), [], device_index=0,
    stack_traces=["", ""], is_backward=False, is_inference=True)
places = []
for _ in range(4):
    torch.compiler.cudagraph_mark_step_begin()
    places.append([y.data_ptr() for y in graphed(batch())])
assert places[1] == places[2] == places[3], places
assert cudagraph_trees.get_container(0).tree_manager.current_node is not None
compiled = torch.compile(lambda x: (x * 2).relu().sum(), backend="cudagraphs")
for _ in range(4):
    torch.compiler.cudagraph_mark_step_begin(); compiled(*batch())
""",
    ),
    "a tensor for another process": (
        {},
        """
import multiprocessing as processes
from torch.multiprocessing.reductions import reduce_tensor
def child(rebuild, arguments, answer):
    x = rebuild(*arguments)
    answer.send((tuple(x.shape), x.device.type, torch.cuda.memory_allocated()))
    y = x + 1; torch.cuda.synchronize(); del x, y
if __name__ == "__main__":
    context = processes.get_context("spawn")
    x = torch.ones(1000, 1000, device="cuda")
    ours, theirs = context.Pipe()
    p = context.Process(target=child, args=(*reduce_tensor(x), theirs)); p.start(); theirs.close()
    assert ours.recv() == ((1000, 1000), "cuda", 0)
    p.join(); assert p.exitcode == 0, p.exitcode
""",
    ),
    "the backend cudaMallocAsync": (
        {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync", "FAKE_TOTAL_BYTES": "1G"},
        """
a = torch.empty(100 * MB, dtype=torch.uint8, device="cuda"); p = a.data_ptr()
assert (torch.cuda.memory_allocated(), torch.cuda.memory_reserved()) == (100 * MB, 128 * MB)
del a
a = torch.empty(90 * MB, dtype=torch.uint8, device="cuda"); assert a.data_ptr() == p
s = torch.cuda.Stream(); a.record_stream(s); del a
try:
    torch.empty(2 << 30, dtype=torch.uint8, device="cuda"); raise SystemExit("no OOM")
except torch.OutOfMemoryError:
    pass
torch.cuda.synchronize(); torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0, torch.cuda.memory_reserved()
assert torch.cuda.max_memory_allocated() == 100 * MB
""",
    ),
    "a bool read from the device": (
        {"FAKE_BOOL": "1"},
        """
assert torch.zeros(3, device="cuda", dtype=torch.bool).all().item() is True
""",
    ),
    "CUDAPluggableAllocator": (
        {},
        """
import ctypes, os
so = os.environ["PLUGGABLE_SO"]
al = torch.cuda.memory.CUDAPluggableAllocator(so, "p_malloc", "p_free")
torch.cuda.memory.change_current_allocator(al)
lib = ctypes.CDLL(so); lib.p_stat.restype = ctypes.c_int64
al.allocator().set_record_stream_fn(ctypes.cast(lib.p_record, ctypes.c_void_p).value)
x = torch.empty(1000, device="cuda"); assert x.data_ptr() == 0x100000000000, hex(x.data_ptr())
y = x + 1; z = (x.view(10, 100) @ y.view(100, 10)).sum(); z.item()
x.record_stream(torch.cuda.Stream())
assert lib.p_stat(3) == 1
m = nn.Linear(64, 64).cuda(); m(torch.randn(8, 64, device="cuda")).sum().backward()
n = lib.p_stat(0); del x, y, z, m
assert n > 8 and lib.p_stat(1) > 4 and lib.p_stat(4) == 0, [lib.p_stat(i) for i in range(5)]
print("allocs", n, "frees", lib.p_stat(1), "live bytes", lib.p_stat(2))
import sys; sys.stdout.flush(); os._exit(0)
""",
    ),
    "MemPool on a pluggable allocator": (
        {},
        """
import ctypes, os
so = os.environ["PLUGGABLE_SO"]
al = torch.cuda.memory.CUDAPluggableAllocator(so, "p_malloc", "p_free")
lib = ctypes.CDLL(so); lib.p_stat.restype = ctypes.c_int64
pool = torch.cuda.MemPool(al.allocator())
with torch.cuda.use_mem_pool(pool):
    x = torch.empty(MB, dtype=torch.uint8, device="cuda")
assert x.data_ptr() == 0x100000000000 and (lib.p_stat(0), lib.p_stat(2)) == (1, 2 * MB)
assert torch.cuda.memory_allocated() == MB and torch.cuda.memory_reserved() == 2 * MB
import sys; sys.stdout.flush(); os._exit(0)
""",
    ),
}
bad = 0
with tempfile.TemporaryDirectory() as tmp:
    so = os.path.join(tmp, "libpluggable.so")
    subprocess.run(
        ["gcc", "-O1", "-shared", "-fPIC", "-o", so, os.path.join(HERE, "pluggable.c")], check=True
    )
    base = {k: v for k, v in os.environ.items() if not k.startswith(("FAKE_", "PYTORCH_"))}
    for name, (env, code) in CHECKS.items():
        # A file, because a process that a program spawns imports it.
        program = os.path.join(tmp, "program.py")
        with open(program, "w") as file:
            file.write(COMMON + code)
        p = subprocess.run(
            [sys.executable, program],
            env={**base, **env, "PLUGGABLE_SO": so},
            text=True,
            capture_output=True,
        )
        ok = p.returncode == 0
        bad += not ok
        print(
            ("ok   " if ok else "FAIL ")
            + name
            + (": " + p.stdout.strip() if p.stdout.strip() else "")
        )
        if not ok:
            print("     " + p.stderr[-1500:].replace("\n", "\n     "))
print(f"{len(CHECKS) - bad} passed, {bad} failed")
sys.exit(bool(bad))
