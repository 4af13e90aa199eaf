"""Runs scripts on PyTorch's allocator of pinned memory, above the simulated CUDA.

    PYTHON real.py < requests > answers

A request is a line of JSON, [script, seconds]; so is an answer, [status, output, error]. Each script has a process of its
own, forked after `import torch`. The output is that of `coalesce script --pinned`. `seconds` is how long to
wait after an operation for the thread of pinned_use_background_threads, which never ends once it was started.
"""

import ctypes
import json
import os
import sys
import tempfile
import time
import traceback
import warnings

import torch

TakeLog = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
# The stream on which graphs are captured.
CAPTURED = 0xC


class Counters(ctypes.Structure):
    """fakecuda_counters_t."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "total foreign used peak_used n_malloc n_malloc_fail n_free n_reserve n_addrfree n_create "
            "n_create_fail n_release n_map n_unmap n_setaccess create_event n_event_record query_event "
            "n_event_sync n_event_destroy n_stream_sync n_device_sync n_meminfo live_mallocs live_handles "
            "live_reservations"
        ).split()
    ]


class Device:
    """The simulated device: what was called, and when events complete."""

    def __init__(self):
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.lib.fakecuda_log_enable(1)
        self.lib.fakecuda_complete.argtypes = (ctypes.c_void_p, ctypes.c_int64)
        self.texts = []
        self.callback = TakeLog(lambda text, n, _: self.texts.append(ctypes.string_at(text, n)))
        self.counters = Counters()
        self.streams = {}

    def take_log(self):
        self.lib.fakecuda_log_take(self.callback, None)
        lines = b"".join(self.texts).decode().splitlines()
        self.texts.clear()
        return lines

    def count(self):
        self.lib.fakecuda_counters(ctypes.byref(self.counters))
        return [(name, getattr(self.counters, name)) for name in ("create_event", "query_event")]

    def stream(self, k):
        if k not in self.streams:
            external = torch.cuda.ExternalStream
            self.streams[k] = external(k * 0x1000) if k else torch.cuda.default_stream()
        return self.streams[k]

    def complete(self, stream, count):
        if stream == "*":
            self.lib.fakecuda_complete_all()
        else:
            self.lib.fakecuda_complete(int(stream) * 0x1000, count)


class Run:
    """One script. Blocks and pinned regions are named by the order of their creation."""

    def __init__(self, wait):
        self.wait = wait
        self.tensors, self.graphs = {}, {}
        self.blocks, self.regions = {}, {}  # by address
        self.n_blocks = self.n_regions = 0
        self.use_thread = self.has_thread = False
        self.stats, self.lines = None, []
        self.device = Device()
        self.target = torch.empty(1, dtype=torch.uint8, device="cuda")
        self.device.take_log()
        self.counts = dict(self.device.count())

    def step(self, number, line):
        op, *words = line.split()
        text = self.perform(op, words)
        self.note_calls()
        if op == "a":
            text = f"A {words[0]} {self.block(self.tensors[words[0]])}"
        if self.has_thread:
            time.sleep(self.wait)
            self.note_calls()
        counts = self.device.count()
        for name, count in counts:
            if count > self.counts[name] and not self.has_thread:
                self.lines.append(f"> {name} {count - self.counts[name]}")
        self.counts = dict(counts)
        if text:
            self.lines.append(text)
        self.note_stats(number)

    def perform(self, op, words):
        lib, memory = self.device.lib, torch.cuda.memory
        if op == "a":
            tensor = torch.empty(int(words[1]), dtype=torch.uint8, pin_memory=True)
            self.tensors[words[0]] = tensor
        elif op in "fr" and words[0] not in self.tensors:
            return f"skip {op} {words[0]}"
        elif op == "f":
            del self.tensors[words[0]]
        elif op == "r":
            tensor = self.tensors[words[0]]
            if not tensor.numel():
                return f"skip r {words[0]}"
            with torch.cuda.stream(self.device.stream(int(words[1]))):
                self.target.copy_(tensor[:1], non_blocking=True)
        elif op == "h":
            lib.fakecuda_set_hold(int(words[0]))
        elif op == "e":
            self.device.complete(words[0], int(words[1]) if len(words) > 1 else -1)
        elif op == "y":
            torch.cuda.synchronize()
        elif op == "c":
            torch._C._host_emptyCache()
        elif op == "k" and hasattr(torch._C, "_cuda_hostMemoryStats"):
            torch._C._cuda_resetPeakHostMemoryStats()
        elif op == "K" and hasattr(torch._C, "_cuda_hostMemoryStats"):
            torch._C._cuda_resetAccumulatedHostMemoryStats()
        elif op == "o":
            memory._set_allocator_settings(words[0])
            if "background_threads" in words[0]:
                self.use_thread = "background_threads:True" in words[0]
        elif op == "B":
            graph = torch.cuda.CUDAGraph()
            self.graphs.setdefault(words[0], []).append(graph)
            torch.cuda.set_stream(self.device.stream(CAPTURED))
            graph.capture_begin(pool=(0, int(words[0])), capture_error_mode="relaxed")
        elif op == "E":
            self.graphs[words[0]][-1].capture_end()
            torch.cuda.set_stream(self.device.stream(0))
        elif op == "P":
            self.graphs[words[0]].pop().reset()
        return ""

    def note_calls(self):
        for call in self.device.take_log():
            name, *words = call.split()
            if name in ("host_alloc", "host_register"):
                self.regions[words[1]] = f"m{self.n_regions}"
                self.n_regions += 1
                words[1] = self.regions[words[1]]
            elif name in ("host_free", "host_unregister"):
                self.blocks.pop(int(words[0], 16), None)
                words[0] = self.regions.pop(words[0])
            elif name != "event_record" and name != "devsync":
                continue
            self.lines.append(" ".join([">", name, *words]))

    def block(self, tensor):
        if not tensor.numel():
            return "none"
        addr = tensor.data_ptr()
        if addr not in self.blocks:
            self.blocks[addr] = f"#{self.n_blocks}"
            self.n_blocks += 1
            self.has_thread |= self.use_thread
        return self.blocks[addr]

    def note_stats(self, number):
        read = getattr(torch._C, "_cuda_hostMemoryStats", None)
        if read is None:
            return
        stats = []
        for name, value in sorted(read().items()):
            if not isinstance(value, dict):
                stats.append(f" {name}={value}")
            elif "count" in value:
                stats.append(f" {name}.count={value['count']}")
            else:
                order = ("current", "peak", "allocated", "freed")
                stats.append(f" {name}=" + ",".join(str(value[what]) for what in order))
        if stats != self.stats:
            self.lines.append(f"S {number}" + "".join(stats))
            self.stats = stats


def run(script, wait, out):
    """Runs a script in this process, which ends. Writes the output to a file."""
    warnings.simplefilter("ignore")
    status, state = 0, None
    try:
        state = Run(wait)
        for number, line in enumerate(script):
            state.step(number, line)
    except BaseException:
        status = 2
        out.write(traceback.format_exc() + "\n")
    if state:
        out.write("".join(line + "\n" for line in state.lines))
    out.flush()
    os._exit(status)


def main():
    for line in sys.stdin:
        script, wait = json.loads(line)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            child = os.fork()
            if child == 0:
                os.dup2(err.fileno(), 2)
                run(script, wait, out)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            print(json.dumps([status, out.read(), err.read()]), flush=True)


if __name__ == "__main__":
    main()
