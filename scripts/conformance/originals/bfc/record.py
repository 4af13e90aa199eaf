#!/usr/bin/env python3
"""Records vectors for the policies bfc and bfc_two_ended with the real BFC allocator: one written
and many random traces. See ../README.md.

    record.py DRIVER --jax SO [--tensorflow SO] --out DIR [--seed N] [--operations N]

DRIVER is bfc.cpp, compiled. SO are xla_cuda_plugin.so of jax-cuda13-pjrt and
libtensorflow_framework.so.2 of tensorflow-cpu. With both, their answers must be equal; only
the first has the two-ended mode. DIR gets a folder for each policy with a file for each case. The
same seed gives the same traces.
"""

import argparse
import random
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
JAX = "jax-cuda13-pjrt 0.12.0.1"
TENSORFLOW = "tensorflow-cpu 2.21.0"


class Case(NamedTuple):
    """A configuration, ours and the original's."""

    policy: str
    name: str
    conf: str
    capacity: int
    limit: int
    properties: tuple[str, ...] = ()
    # On a full device TensorFlow rounds the smaller regions it tries up, JAX down.
    tensorflow: bool = True
    written: bool = False

    def releases(self) -> bool:
        """Whether the original can release its idle regions."""
        return "garbage_collection=1" in self.properties


def hole(size: int, *requests: int) -> list[str]:
    """Makes a hole of `size` between chunks in use; asks for each request and gives it back."""
    lines = ["a 0 256 0", "a 1 1048576 0", f"a 2 {size} 0", "a 3 256 0", "a 4 1048576 0", "f 2"]
    for id, request in enumerate(requests, 5):
        lines += [f"a {id} {request} 0", f"a {id + 100} 256 0", f"f {id}", f"f {id + 100}"]
    return [*lines, "f 1", "f 3", "f 0", "f 4"]


# Around the sizes at which a chunk is split, by halves and by 128 MiB.
WRITTEN = [
    *hole(512, 1, 256, 257, 512, 513),
    *hole(MIB, MIB // 2, MIB // 2 + 1, MIB // 2 + 256, MIB - 1, MIB),
    *hole(400 * MIB, 200 * MIB + 256, 272 * MIB - 256, 272 * MIB, 272 * MIB + 1, 400 * MIB),
    *hole(100 * MIB, 50 * MIB, 50 * MIB + 1, 700 * MIB, 768 * MIB, 768 * MIB + 1),
]

GROWTH, GC = "growth=1", "garbage_collection=1"
CASES = [
    Case("bfc", "written", "", GIB, 768 * MIB, written=True),
    Case("bfc", "written_growth", "growth:true", GIB, 768 * MIB, (GROWTH,), written=True),
    Case("bfc_two_ended", "written", "", GIB, 768 * MIB, ("lower_from=1048576",), written=True),
    Case("bfc", "default", "", GIB, 768 * MIB),
    Case("bfc", "small_limit", "limit:30MiB", GIB, 30 * MIB),
    Case("bfc", "limit_rounded", "limit:100000001", GIB, 96 * MIB),
    Case("bfc", "growth", "growth:true", GIB, 768 * MIB, (GROWTH,)),
    Case(
        "bfc",
        "growth_gc",
        "growth:true,garbage_collection:true,limit:200MiB",
        GIB,
        200 * MIB,
        (GROWTH, GC),
    ),
    Case("bfc", "gc", "garbage_collection:true,fraction:0.5", GIB, 512 * MIB, (GC,)),
    Case(
        "bfc",
        "fragmentation",
        "growth:true,fragmentation_fraction:0.001",
        GIB,
        768 * MIB,
        (GROWTH, "fragmentation_fraction=0.001"),
    ),
    Case("bfc", "full_device", "growth:true,limit:1GiB", 300 * MIB, GIB, (GROWTH,), False),
    Case("bfc", "full_device_at_once", "limit:1GiB", 300 * MIB, GIB, (), False),
    Case("bfc_two_ended", "default", "", GIB, 768 * MIB, ("lower_from=1048576",)),
    Case(
        "bfc_two_ended",
        "small_limit",
        "limit:40MiB,lower_from:64KiB",
        GIB,
        40 * MIB,
        ("lower_from=65536",),
    ),
    Case(
        "bfc_two_ended",
        "fragmentation",
        "fragmentation_fraction:0.0005,lower_from:256KiB",
        GIB,
        768 * MIB,
        ("fragmentation_fraction=0.0005", "lower_from=262144"),
    ),
    Case(
        "bfc_two_ended", "all_upper", "lower_from:1TiB", GIB, 768 * MIB, (f"lower_from={1 << 40}",)
    ),
    Case(
        "bfc_two_ended",
        "full_device",
        "limit:1GiB,lower_from:16KiB",
        200 * MIB,
        GIB,
        ("lower_from=16384",),
    ),
]


def sizes(rng: random.Random, limit: int):
    """A way to draw sizes."""
    top = rng.choice([4 * KIB, 256 * KIB, 4 * MIB, limit // 20, limit // 4])
    few = [rng.randint(1, top) for _ in range(rng.randint(2, 12))]
    grain = rng.choice([1, 256, 512, 4096])
    kind = rng.randrange(4)

    def draw() -> int:
        if rng.random() < 0.01:
            return rng.choice([1, 255, 256, 257, limit // 2, limit - 256, limit, limit + 1])
        if kind == 0:
            return rng.choice(few)
        if kind == 1:
            return rng.randint(1, top)
        if kind == 2:  # near powers of two, just at the limits for splitting
            size = (1 << rng.randint(8, top.bit_length())) + grain * rng.randint(-2, 2)
            return max(1, min(size, top))
        return max(1, min(top, int(2 ** rng.uniform(0, top.bit_length())) * grain))

    return draw


def trace(case: Case, seed: int, operations: int) -> list[str]:
    """Phases of different sizes, lifetimes and amounts of live memory."""
    rng = random.Random(f"{case.policy} {case.name} {seed}")
    room = min(case.capacity, case.limit)
    lines: list[str] = []
    live: list[tuple[int, int]] = []
    total = ids = releases = 0
    while len(lines) < operations:
        draw = sizes(rng, room)
        target = int(room * rng.choice([0.05, 0.3, 0.7, 0.9, 1.0, 1.2]))
        order = rng.choice(["random", "oldest", "newest"])
        if rng.random() < 0.1:  # everything is freed, in some order
            rng.shuffle(live)
            lines += [f"f {id}" for id, _ in live]
            live, total = [], 0
        for _ in range(rng.randint(20, 200)):
            # The original doubles its regions each time: too often, and the size overflows.
            if case.releases() and releases < 20 and rng.random() < 0.01:
                lines.append("e")
                releases += 1
            size = draw()
            if live and (total + size > target or len(live) > 3000 or rng.random() < 0.4):
                at = {"random": rng.randrange(len(live)), "oldest": 0, "newest": -1}[order]
                id, bytes = live.pop(at)
                total -= bytes
                lines.append(f"f {id}")
            else:
                lines.append(f"a {ids} {size} 0")
                # A refused request counts as live here; its free is omitted there.
                live.append((ids, size))
                total += size
                ids += 1
    return lines


def replay(driver: str, library: str, case: Case, lines: list[str]) -> str:
    """The answers of the original."""
    properties = [f"capacity={case.capacity}", f"limit={case.limit}", *case.properties]
    done = subprocess.run(
        [driver, library, *properties],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=600,
    )
    if done.returncode != 0:
        sys.exit(f"record.py: {case.policy} {case.name}: {done.stderr}")
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("driver")
    parser.add_argument("--jax", required=True)
    parser.add_argument("--tensorflow")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--operations", type=int, default=1500)
    args = parser.parse_args()
    for case in CASES:
        lines = WRITTEN if case.written else trace(case, args.seed, args.operations)
        output = replay(args.driver, args.jax, case, lines)
        originals = [JAX]
        if args.tensorflow and case.policy == "bfc" and case.tensorflow:
            if replay(args.driver, args.tensorflow, case, lines) != output:
                sys.exit(f"record.py: {case.name}, seed {args.seed}: the originals differ")
            originals.append(TENSORFLOW)
        header = [
            f"# original: {', '.join(originals)}",
            f"# policy: {case.policy}",
            f"# conf: {case.conf}".rstrip(),
            f"# capacity: {case.capacity}",
        ]
        folder = args.out / case.policy
        folder.mkdir(parents=True, exist_ok=True)
        text = "\n".join(header) + "\n" + output
        (folder / f"{case.name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
