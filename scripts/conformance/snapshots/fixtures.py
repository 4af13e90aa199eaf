#!/usr/bin/env python3
"""Writes the invented snapshots for the tests of the reader.

    fixtures.py DIR

One small state of two devices, by Python's pickle under the protocols 2, 4 and 5, and the same
in the form of PyTorch 2.0 and in that of the versions after 2.11. They contain everything the
dictionaries can hold: pools, pages, a failed request, a block that waits for a stream, 64-bit
addresses. Standard library only."""

import copy
import os
import pickle
import sys

MIB = 1 << 20
T = 1_700_000_000_000_000  # microseconds since 1970
HIGH = 0xFFFF_8000_0000_0000  # an address that is negative as a signed number

layer = {"name": "forward", "filename": "/app/modèle.py", "line": 12}
main = {"name": "<module>", "filename": "/app/train.py", "line": 345678}
native = {"name": "at::empty", "filename": "??", "line": 2**64 - 1}
stack, deep = [layer, main], [native, layer, main]


def block(address, size, requested, state, frames):
    return {
        "address": address,
        "size": size,
        "requested_size": requested,
        "state": state,
        "frames": frames,
    }


def segment(device, blocks, stream, kind, pool, expandable, frames):
    def total(key, states):
        return sum(b[key] for b in blocks if b["state"] in states)

    active = ("active_allocated", "active_pending_free")
    return {
        "device": device,
        "address": blocks[0]["address"],
        "total_size": sum(b["size"] for b in blocks),
        "allocated_size": total("size", active[:1]),
        "active_size": total("size", active),
        "requested_size": total("requested_size", active),
        "stream": stream,
        "segment_type": kind,
        "segment_pool_id": pool,
        "is_expandable": expandable,
        "frames": frames,
        "blocks": blocks,
    }


def entry(action, addr, size, stream, after, frames=None):
    e = {
        "action": action,
        "device_free" if action == "oom" else "addr": addr,
        "size": size,
        "stream": stream,
    }
    e.update(time_us=T + after, compile_context="N/A", user_metadata="")
    if frames is not None:
        e["frames"] = frames
    return e


def snapshot():
    a, s = 2 << 40, 94_000_000_000_000  # memory, and the handle of a stream
    segments = [
        segment(
            0,
            [
                block(a, 3 * MIB, 3 * MIB - 7, "active_allocated", stack),
                block(a + 3 * MIB, 1 * MIB, 1 * MIB, "active_pending_free", deep),
                block(a + 4 * MIB, 16 * MIB, 12345, "inactive", []),
            ],
            0,
            "large",
            (0, 0),
            False,
            stack,
        ),  # fmt: skip
        segment(
            0,
            [block(a + 64 * MIB, 2 * MIB, 512, "active_allocated", [])],
            s,
            "small",
            (0, 3),
            False,
            [],
        ),
        segment(
            1,
            [block(HIGH, 20 * MIB, 20 * MIB, "active_allocated", deep)],
            0,
            "large",
            (0, 0),
            True,
            deep,
        ),
    ]
    first = [
        entry("segment_alloc", a, 20 * MIB, 0, 1, stack),
        entry("alloc", a, 3 * MIB - 7, 0, 2, stack),
        entry("alloc", a + 3 * MIB, 1 * MIB, 0, 3, deep),
        entry("free_requested", a + 3 * MIB, 1 * MIB, 0, 4, stack),
        entry("segment_alloc", a + 64 * MIB, 2 * MIB, s, 5),
        entry("alloc", a + 64 * MIB, 512, s, 6),
        entry("snapshot", 0, 6 * MIB, 0, 7),
        entry("oom", 77 * MIB, 80 << 30, 0, 8, deep),
    ]
    second = [
        entry("segment_map", HIGH, 40 * MIB, 0, 1, deep),
        entry("segment_unmap", HIGH + 20 * MIB, 20 * MIB, 0, 2, deep),
        entry("alloc", HIGH, 20 * MIB, 0, 3, deep),
    ]
    notes = [("START", 1), ("END", 9)]
    return {
        "segments": segments,
        "device_traces": [first, second, []],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64",
            "max_split_size": 64 * MIB,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "roundup_power2_divisions": {str(1 << n): 0 for n in range(16)},
        },
        "external_annotations": [
            {"stage": stage, "name": "Optimizer.step#SGD.step", "device": 0, "time_us": T + after}
            for stage, after in notes
        ],
    }


def earlier(snap):
    """As PyTorch 2.0 wrote it: no times, no pools, requested sizes in the history of blocks."""
    snap = copy.deepcopy(snap)
    del snap["external_annotations"]
    for seg in snap["segments"]:
        for key in ("requested_size", "segment_pool_id", "is_expandable", "frames"):
            del seg[key]
        for b in seg["blocks"]:
            addr, real, frames = b.pop("address"), b.pop("requested_size"), b.pop("frames")
            if b["state"] != "inactive":
                b["history"] = [{"addr": addr, "real_size": real, "frames": frames}]
    for trace in snap["device_traces"]:
        for e in trace:
            for key in ("time_us", "compile_context", "user_metadata"):
                del e[key]
    return snap


def later(snap):
    """As the versions after 2.11 write it, and with an unknown action."""
    snap = copy.deepcopy(snap)
    for n, e in enumerate(snap["device_traces"][0]):
        e["pool_id"] = (0, 3) if n in (4, 5) else (0, 0)
    snap["device_traces"][0].append({"action": "defragment", "from": 1, "to": 2})
    snap["allocator_settings"].update(trace_alloc_max_entries=8, trace_alloc_overflowed=True)
    return snap


def main_():
    out = sys.argv[1]
    snap = snapshot()
    for protocol in (2, 4, 5):
        with open(os.path.join(out, f"protocol-{protocol}.pickle"), "wb") as f:
            pickle.dump(snap, f, protocol)
    for form in (earlier, later):
        with open(os.path.join(out, f"{form.__name__}.pickle"), "wb") as f:
            pickle.dump(form(snap), f, 4)


if __name__ == "__main__":
    main_()
