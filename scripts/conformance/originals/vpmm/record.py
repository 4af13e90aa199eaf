#!/usr/bin/env python3
"""Records vectors for the test `originals` with OpenVM's own pool.

    record.py DIR --seeds 0..99 --out OUT          random operations under random settings
    record.py DIR --traces FILE... --out OUT       recorded programs (workloads/traces)

DIR is what setup.sh prints. Requests smaller than a page are left out: the pool does not serve
them.
"""

import argparse
import gzip
import random
import subprocess
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
PAGE = 2 * MIB


def random_settings(rng):
    """Bytes of a page, of addresses at a time, initial pages, bytes of the device, and events."""
    page = rng.choice([PAGE, PAGE, 2 * PAGE, 3 * PAGE])
    pages = rng.choice([1 << 20, 1 << 20, 64, 24])
    capacity = rng.choice([64, 256, 1024, 65536]) * MIB
    initial = rng.choice([0, 0, 1, min(pages, capacity // page // 2)])
    return page, page * pages, initial, capacity, rng.choice(["held", "held", "complete"])


def random_bytes(rng, page, few):
    kind = rng.random()
    if kind < 0.5:
        return rng.choice(few) * page
    if kind < 0.6:
        return page * rng.randrange(1, 6) + rng.choice([0, 1, page - 1])
    return page + int(page * 2 ** rng.uniform(0, 5))


def random_ops(rng, count, page, held):
    """Operations that build up a working set, churn in it, and free everything now and then."""
    streams = rng.choice([1, 2, 3])
    live = []
    wanted = rng.randrange(2, 32)
    few = [rng.randrange(1, 17) for _ in range(rng.randrange(1, 6))]
    for number in range(count):
        roll = rng.random()
        if roll < 0.008:
            rng.shuffle(live)
            while live:
                yield f"f {live.pop()}"
            wanted = rng.randrange(2, 32)
        elif held and roll < 0.15:
            yield f"c {rng.randrange(streams)} {rng.choice([1, 2, 4, 1000])}"
        elif (len(live) < wanted and rng.random() < 0.6) or not live:
            live.append(number)
            stream = rng.randrange(streams) if rng.random() < 0.4 else 0
            yield f"a {number} {random_bytes(rng, page, few)} {stream}"
        else:
            yield f"f {live.pop(rng.randrange(len(live)))}"


def trace_ops(path, page):
    """The operations of a recorded program on blocks of at least a page."""
    live = set()
    with gzip.open(path, "rt", encoding="ascii") as file:
        for line in file:
            if line.startswith(("#", "op,")):
                continue
            op, block, size, stream, _ = line.rstrip("\n").split(",")
            if op == "alloc" and int(size) >= page:
                live.add(block)
                yield f"a {block} {size} {stream}"
            elif op == "free" and block in live:
                live.remove(block)
                yield f"f {block}"


def record(folder, ops, settings):
    text = "".join(f"{op}\n" for op in ops)
    command = [folder / "release/vpmm-recorder", *map(str, settings)]
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR", help="what setup.sh printed")
    parser.add_argument("--seeds", metavar="A..B", help="both included")
    parser.add_argument("--ops", type=int, default=600, help="for each seed")
    parser.add_argument("--traces", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--out", type=Path, default=Path("."))
    args = parser.parse_args()
    folder = args.folder.resolve()

    args.out.mkdir(parents=True, exist_ok=True)
    if args.seeds:
        first, last = map(int, args.seeds.split(".."))
        for seed in range(first, last + 1):
            rng = random.Random(seed)
            settings = random_settings(rng)
            ops = random_ops(rng, args.ops, settings[0], settings[-1] == "held")
            vector = record(folder, ops, settings)
            (args.out / f"random-{seed}.txt").write_text(vector, encoding="ascii")
    for path in args.traces or []:
        settings = (PAGE, 8 << 40, 0, 80 * GIB, "complete")
        vector = record(folder, trace_ops(path, PAGE), settings)
        name = path.name.removesuffix(".csv.gz")
        (args.out / f"{name}.txt").write_text(vector, encoding="ascii")


if __name__ == "__main__":
    main()
