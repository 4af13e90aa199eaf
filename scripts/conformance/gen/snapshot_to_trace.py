#!/usr/bin/env python3
"""Turn a torch memory snapshot (pickle of torch.cuda.memory._snapshot(), with
history recorded from the start of the process) into an oracle trace.

    snapshot_to_trace.py [--defer] SNAP.pickle [ADDRESSES] > trace.txt

ADDRESSES: also writes there, as the oracle prints them, the addresses in the history.
Streams are numbered 0 (default), 1, 2, ... in order of first appearance.
The history has no record_stream entries. If the free_completed of a block does
not follow its free_requested at once, another stream used the block. --defer
then writes the free where free_completed is: the memory is reused as recorded,
and the statistics change one op later."""

import pickle
import sys

args = [x for x in sys.argv[1:] if not x.startswith("--")]
defer = "--defer" in sys.argv
with open(args[0], "rb") as f:
    snap = pickle.load(f)
tr = snap["device_traces"][0]
streams = {0: 0}
live, ids = {}, 0
out, addrs = [], []
skipped = 0
for e in tr:
    act, addr = e["action"], e.get("addr", 0)
    st = streams.setdefault(e.get("stream", 0), len(streams))
    if act == "alloc":
        live[addr] = ids
        out.append(f"a {ids} {e['size']} {st}")
        addrs.append((ids, addr))
        ids += 1
    elif act == ("free_completed" if defer else "free_requested"):
        if addr in live:
            out.append(f"f {live.pop(addr)}")
        else:
            skipped += 1
    elif act == "oom":
        out.append(f"a {ids} {e['size']} {st}")
        ids += 1
print("\n".join(out))
print(
    f"{len(out)} ops, {ids} allocations, streams {len(streams)}, frees of unknown blocks {skipped}",
    file=sys.stderr,
)
if len(args) > 1:
    with open(args[1], "w") as f:
        for i, a in addrs:
            f.write(f"A {i} {a:#x}\n")
