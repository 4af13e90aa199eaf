#!/usr/bin/env python3
"""Records vectors for the test `originals` with GMLake's own allocator.

    record.py DIR --seeds 0..99 --out OUT             random operations under random settings
    record.py DIR --traces FILE... --conf CONF --out OUT    recorded programs (workloads/traces)
    record.py DIR --again VECTOR...                   the operations of existing vectors

DIR is what setup.sh prints. GMLake reads freed memory, or crashes, in two situations (README.md):
random operations stop before the first of them.
"""

import argparse
import gzip
import os
import random
import subprocess
import sys
from pathlib import Path

MIB = 1 << 20
UNITS = {"": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
ORIGINAL = "GMLake (antgroup/glake fb24ee8) in PyTorch 2.0.1"
# Our settings, and GMLake's environment variables in its units.
VARIABLES = {
    "frag_limit": ("fragLimit", 1),
    "reuse_limit": ("reuseLimit", None),
    "defrag_level": ("defragLevel", None),
    "auto_gc": ("autoGC", UNITS["GiB"]),
}


def parse_bytes(text):
    digits = text.rstrip("KMGiB")
    return int(digits) * UNITS[text[len(digits) :]]


def environment(conf, capacity):
    """The environment of GMLake and the fake device."""
    env = {**os.environ, "FAKE_TOTAL_BYTES": str(capacity), "FAKE_ADDR": "up"}
    env["ASAN_OPTIONS"] = "detect_leaks=0"
    for setting in filter(None, conf.split(",")):
        key, value = setting.split(":")
        variable, unit = VARIABLES[key]
        env[variable] = value if unit is None else str(parse_bytes(value) // unit)
    return env


def replay(binary, ops, env):
    """The operations with the original's answers, and whether it reached the end."""
    text = "".join(f"{op}\n" for op in ops)
    done = subprocess.run([binary], input=text, env=env, capture_output=True, text=True)
    return done.stdout.splitlines(), done.returncode == 0


def without_answer(line):
    return " ".join(line.split()[:4])


def record(folder, ops, conf, capacity, checked=True):
    """A vector. If `checked`, it stops before undefined behavior of the original."""
    env = environment(conf, capacity)
    if checked:
        answered, _ = replay(folder / "replay-checked", ops, env)
        ops = [without_answer(line) for line in answered]
    answers, complete = replay(folder / "replay", ops, env)
    if not complete:
        sys.exit(f"the original failed ({conf})")
    header = {"original": ORIGINAL, "policy": "gmlake", "conf": conf, "capacity": capacity}
    lines = [f"# {key}: {value}".rstrip() for key, value in header.items()]
    return "\n".join(lines + answers) + "\n"


def random_bytes(rng):
    """Sizes at the limits of the pools, a few repeated sizes, and arbitrary ones."""
    kind = rng.random()
    if kind < 0.15:
        return rng.choice([1, 512, 513, 100_000, MIB - 1, MIB])
    if kind < 0.3:
        return MIB + rng.choice([1, MIB, 9 * MIB - 1, 9 * MIB, 9 * MIB + 1])
    if kind < 0.6:
        return rng.choice([6, 16, 24, 40, 64]) * MIB
    return rng.randrange(1, 100 * MIB)


def random_ops(rng, count):
    """Operations that build up a working set, churn in it, and free everything now and then."""
    streams = rng.choice([1, 2, 3])
    live = []
    wanted = rng.randrange(4, 24)
    for number in range(count):
        roll = rng.random()
        if roll < 0.004:
            yield "e"
        elif roll < 0.008:
            rng.shuffle(live)
            while live:
                yield f"f {live.pop()}"
            wanted = rng.randrange(4, 24)
        elif live and roll < 0.03 and streams > 1:
            yield f"r {rng.choice(live)} {rng.randrange(streams)}"
        elif (len(live) < wanted and rng.random() < 0.6) or not live:
            live.append(number)
            stream = rng.randrange(streams) if rng.random() < 0.3 else 0
            yield f"a {number} {random_bytes(rng)} {stream}"
        else:
            yield f"f {live.pop(rng.randrange(len(live)))}"


def random_conf(rng):
    return ",".join(
        [
            f"frag_limit:{rng.choice([2, 8, 32, 64])}MiB",
            f"reuse_limit:{rng.choice(['1', '1.5', '3', '10'])}",
            f"defrag_level:{rng.choice([0, 0, 0, 1, 2])}",
            f"auto_gc:{rng.choice([0, 1, 2, 1000])}GiB",
        ]
    )


def trace_ops(path):
    """The operations of a recorded program, without requests for zero bytes."""
    empty = set()
    with gzip.open(path, "rt", encoding="ascii") as file:
        for line in file:
            if line.startswith(("#", "op,")):
                continue
            op, block, size, stream, tag = line.rstrip("\n").split(",")
            if op == "alloc" and size == "0":
                empty.add(block)
            elif block in empty:
                continue
            elif op == "alloc":
                yield f"a {block} {size} {stream}"
            elif op == "free":
                yield f"f {block}"
            elif tag == "record_stream":
                yield f"r {block} {stream}"


def record_again(folder, path):
    lines = path.read_text(encoding="ascii").splitlines()
    header = dict(line[2:].split(":", 1) for line in lines if line.startswith("# "))
    ops = [without_answer(line) for line in lines if not line.startswith("#")]
    vector = record(folder, ops, header["conf"].strip(), int(header["capacity"]))
    path.write_text(vector, encoding="ascii")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR", help="what setup.sh printed")
    parser.add_argument("--seeds", metavar="A..B", help="both included")
    parser.add_argument("--ops", type=int, default=600, help="for each seed")
    parser.add_argument("--traces", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--conf", default="", help="settings for --traces")
    parser.add_argument("--again", type=Path, nargs="+", metavar="VECTOR")
    parser.add_argument("--out", type=Path, default=Path("."))
    args = parser.parse_args()
    folder = args.folder.resolve()

    args.out.mkdir(parents=True, exist_ok=True)
    if args.seeds:
        first, last = map(int, args.seeds.split(".."))
        for seed in range(first, last + 1):
            rng = random.Random(seed)
            conf, capacity = random_conf(rng), rng.choice([256, 512, 1024, 65536]) * MIB
            ops = list(random_ops(rng, args.ops))
            vector = record(folder, ops, conf, capacity)
            (args.out / f"random-{seed}.txt").write_text(vector, encoding="ascii")
    for path in args.traces or []:
        vector = record(folder, list(trace_ops(path)), args.conf, 80 << 30, checked=False)
        name = path.name.removesuffix(".csv.gz")
        (args.out / f"{name}.txt").write_text(vector, encoding="ascii")
    for path in args.again or []:
        record_again(folder, path)


if __name__ == "__main__":
    main()
