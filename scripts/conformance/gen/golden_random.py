#!/usr/bin/env python3
"""The random golden vectors (50-random-*.txt): small scripts of conformance.py.

    golden_random.py          write those that are missing
    golden_random.py --all    write all again

Existing traces are kept, so that a change of the generator does not change the
goldens. Afterwards: goldens.py --record NAME..."""

import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import conformance as c
from oraclelib import FULL, GOLDEN

SKIP = (
    "default-fraction",
    "expandable-roundup",
    "non_split_rounding-256",
    "process_fraction-gc",
    "other-keys",
    "roundup-8",
    "max_split-21",
    "combo-large_segment-split",
    "expandable-large_segment",
    "large_segment-12",
    "roundup-2",
    "gc-0.9",
    "expandable-fraction",
    "device-free_syncs",
    "device-foreign",
)
WITH_POOLS = ("default", "max_split-64", "gc-0.6")
# Recorded for every release. The other configurations are recorded for 2.11 only.
ALL_RELEASES = (
    "default",
    "default-pools",
    "expandable",
    "combo-split-gc-roundup",
    "gc-0.6",
    "max_split-64-pools",
)
CAPS = [300, 1024, 4096, 512, 2048, 16384]


def busy(cfg, cap, ops, pools):
    """The first of a few seeds whose script exercises enough."""

    def score(seed):
        lines, _, _ = c.make(cfg, seed, ops, cap, pools)
        allocs = [x.split() for x in lines if x[0] == "a"]
        big = sum(int(w[2]) > cap // 40 for w in allocs)
        records = sum(x[0] == "r" for x in lines)
        streams = {w[3] for w in allocs if len(w) > 3}
        return min(big, 60) + 3 * min(10, records) + 20 * len(streams)

    return max(range(100, 130), key=score)


def traces():
    """(name, text) of each."""
    n = 0
    for i, cfg in enumerate(x for x in c.CONFIGS if x.name not in SKIP):
        for pools in [False, True] if cfg.name in WITH_POOLS else [False]:
            n += 1
            cap = max(cfg.min_cap, CAPS[i % len(CAPS)] * c.MB)
            ops = 300 + 20 * (i % 4)
            seed = busy(cfg, cap, ops, pools)
            lines, env, extra = c.make(cfg, seed, ops, cap, pools)
            env["FAKE_ADDR"] = ("up", "firstfit", "down")[n % 3]
            short = f"{cfg.name}{'-pools' if pools else ''}"
            name = f"50-random-{short}"
            conf = env.pop("PYTORCH_CUDA_ALLOC_CONF", None)
            what = ", private pools" if pools else ""
            head = [f"# random trace: conformance.py configuration {cfg.name}, seed {seed}{what}"]
            if conf:
                head.append(f"# conf: {conf}")
            head.append("# env: " + " ".join(f"{k}={v}" for k, v in env.items()))
            head.append("# args: " + " ".join([*FULL, *extra]))
            if short not in ALL_RELEASES:
                head.append("# releases: 2.11")
            yield name, "\n".join(head + lines) + "\n"


def main():
    total = written = older = 0
    for name, text in traces():
        path = os.path.join(GOLDEN, name + ".txt")
        total += 1
        if "--all" in sys.argv or not os.path.exists(path):
            with open(path, "w") as f:
                f.write(text)
            written += 1
            print("written:", name)
        else:
            with open(path) as f:
                older += f.read() != text
    print(
        f"{total} traces, {written} written, {older} kept that the generator now makes differently"
    )


if __name__ == "__main__":
    main()
