#!/usr/bin/env python3
"""minimal_snapshot.pickle of the goldens: a hand-made snapshot (one segment, four trace
entries) with every key of torch 2.11's torch.cuda.memory._snapshot(); torch's
_memory_viz.py reads it.

    golden_snapshot.py [--write] [TORCH]

Compares the file (or writes it), and with the folder of a torch package also runs its
_memory_viz.py stats, trace, trace_plot, segment_plot."""

import os
import pickle
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from oraclelib import GOLDEN

PATH = os.path.join(GOLDEN, "minimal_snapshot.pickle")
FRAMES = [{"filename": "/a/b.py", "line": 3, "name": "f"}]
A = 0x7F0000000000
SEGMENT = dict(
    device=0,
    address=A,
    total_size=20971520,
    allocated_size=5242880,
    active_size=5242880,
    requested_size=5242880,
    stream=0,
    segment_type="large",
    segment_pool_id=(0, 0),
    is_expandable=False,
    frames=FRAMES,
    blocks=[
        dict(
            address=A, size=5242880, requested_size=5242880, state="active_allocated", frames=FRAMES
        ),
        dict(address=A + 5242880, size=15728640, requested_size=0, state="inactive", frames=[]),
    ],
)
COMMON = dict(compile_context="N/A", user_metadata="")
TRACE = [
    dict(action="segment_alloc", addr=A, size=20971520, stream=0, time_us=1, **COMMON),
    dict(action="alloc", addr=A, size=5242880, stream=0, time_us=2, **COMMON, frames=FRAMES),
    dict(action="oom", device_free=5, size=1 << 30, stream=0, time_us=3, **COMMON),
    dict(action="snapshot", addr=0, size=5242880, stream=0, time_us=4, **COMMON),
]
SNAPSHOT = dict(
    segments=[SEGMENT], device_traces=[TRACE], allocator_settings={}, external_annotations=[]
)


def run_viz(torch, what, tmp):
    cmd = [sys.executable, os.path.join(torch, "cuda", "_memory_viz.py"), what, PATH]
    if "plot" in what:
        cmd += ["-o", os.path.join(tmp, what + ".html")]
    r = subprocess.run(cmd, capture_output=True, text=True)
    print(what, "ok" if r.returncode == 0 else r.stderr[-300:])
    return r.returncode == 0


def main():
    args = [a for a in sys.argv[1:] if a != "--write"]
    if "--write" in sys.argv:
        with open(PATH, "wb") as f:
            pickle.dump(SNAPSHOT, f, protocol=4)
    with open(PATH, "rb") as f:
        good = pickle.load(f) == SNAPSHOT
    print("minimal_snapshot.pickle", "agrees" if good else "differs")
    if args:
        with tempfile.TemporaryDirectory() as tmp:
            for what in ("stats", "trace", "trace_plot", "segment_plot"):
                good &= run_viz(args[0], what, tmp)
    return not good


if __name__ == "__main__":
    sys.exit(main())
