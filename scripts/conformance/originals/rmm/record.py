#!/usr/bin/env python3
"""Records vectors with RMM on random operations; see ../README.md.

record.py DRIVER FOLDER                  the vectors in the repository; those called written-*
                                         were written by hand and are recorded again
record.py DRIVER FOLDER --seeds A..B     others: each configuration with each seed
"""

import argparse
import random
import subprocess
from pathlib import Path

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

# policy, name, settings, capacity of the device, the largest request
CONFIGURATIONS = [
    ("rmm_pool", "default", "", 4 * GIB, 64 * MIB),
    ("rmm_pool", "grows-from-nothing", "initial_pool_size:0", 2 * GIB, 32 * MIB),
    ("rmm_pool", "short-of-memory", "initial_pool_size:1048576", 200 * MIB, 24 * MIB),
    (
        "rmm_pool",
        "limited",
        f"initial_pool_size:{16 * MIB},maximum_pool_size:{160 * MIB}",
        GIB,
        40 * MIB,
    ),
    (
        "rmm_pool",
        "oddly-limited",
        "initial_pool_size:0,maximum_pool_size:100000000",
        GIB,
        20 * MIB,
    ),
    ("rmm_pool", "tiny-limit", "initial_pool_size:256,maximum_pool_size:24320", GIB, 6 * KIB),
    ("rmm_arena", "default", "", 2 * GIB, 64 * MIB),
    ("rmm_arena", "short-of-memory", f"arena_size:{100 * MIB + 100}", GIB, 16 * MIB),
    ("rmm_arena", "small-requests", f"arena_size:{8 * MIB}", GIB, 3 * MIB // 2),
    ("rmm_arena", "least", f"arena_size:{MIB}", GIB, MIB // 2),
    ("rmm_binning", "default", "", 8 * GIB, 16 * MIB),
    ("rmm_binning", "short-of-memory", f"initial_pool_size:{992 * MIB}", 1100 * MIB, 24 * MIB),
    (
        "rmm_binning",
        "small-bins",
        "min_size_exponent:8,max_size_exponent:14,initial_pool_size:0,maximum_pool_size:5242880",
        GIB,
        48 * KIB,
    ),
]


def sizes(rng: random.Random, largest: int):
    """Returns a function that draws request sizes for one of several kinds of program."""
    few = [rng.randrange(1, largest + 1) for _ in range(rng.randrange(1, 7))]
    powers = range(8, largest.bit_length())
    draws = [
        lambda: rng.choice(few),
        lambda: int(2 ** rng.uniform(0, largest.bit_length() - 1)),
        lambda: rng.randrange(1, max(2, largest // 16)),
        lambda: (1 << rng.choice(powers)) + rng.choice([-1, 0, 0, 1]),
    ]
    return rng.choice(draws)


def operations(seed: str, count: int, largest: int):
    """Lines of a script. Now and then all memory is freed and the cache emptied."""
    rng = random.Random(seed)
    live, made = [], 0
    while count > 0:
        draw, most = sizes(rng, largest), rng.choice([3, 20, 80, 250])
        streams = rng.choice([1, 2, 4])
        newest_first = rng.random() < 0.3
        for _ in range(rng.randrange(20, 400)):
            count -= 1
            if live and rng.random() < (0.4 if len(live) < most else 0.7):
                yield f"f {live.pop(-1 if newest_first else rng.randrange(len(live)))}"
            else:
                yield f"a {made} {draw()} {rng.randrange(streams)}"
                live.append(made)
                made += 1
        if rng.random() < 0.3:
            rng.shuffle(live)
            count -= len(live) + 1
            yield from (f"f {id}" for id in live)
            live.clear()
            if rng.random() < 0.5:
                yield "e"


def answer(driver: Path, script: str) -> str:
    done = subprocess.run([driver], input=script, capture_output=True, text=True, check=True)
    return done.stdout


def record(driver: Path, folder: Path, seed: int | None, count: int) -> None:
    for policy, name, conf, capacity, largest in CONFIGURATIONS:
        script = [f"# policy: {policy}", f"# conf: {conf}", f"# capacity: {capacity}"]
        script += operations(f"{policy} {name} {seed}", count, largest)
        suffix = "" if seed is None else f"-{seed}"
        path = folder / policy / f"{name}{suffix}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(answer(driver, "\n".join(script)))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("driver", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", metavar="A..B")
    parser.add_argument("--count", type=int, default=1500, help="operations of each vector")
    args = parser.parse_args()
    driver = args.driver.resolve()
    if args.seeds:
        first, last = map(int, args.seeds.split(".."))
        for seed in range(first, last + 1):
            record(driver, args.folder, seed, args.count)
        return
    record(driver, args.folder, None, args.count)
    for path in args.folder.glob("rmm_*/written-*.txt"):
        path.write_text(answer(driver, path.read_text()))


if __name__ == "__main__":
    main()
