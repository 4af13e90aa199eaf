#!/usr/bin/env python3
"""Records vectors for allocator/tests/originals with CubeCL's memory management.

    record.py                              the vectors in the repository
    record.py --seeds 100..199 --out DIR   others, to be compared with ORIGINALS=DIR

Builds the recorder with cargo, some minutes the first time.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True
from operations import GIB, MIB, operations

KEPT = HERE.parents[3] / "allocator/tests/originals"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "coalesce-originals/cubecl"

# Bytes of the device, of what is live, of the largest request; share of `e`; streams.
DEVICES = [
    (4 * GIB, 3 * GIB, 400 * MIB, 0.002, 1),
    (80 * GIB, 30 * GIB, 20 * GIB, 0.002, 1),
    (1 * GIB, 1 * GIB, 4 * MIB, 0.01, 1),
    (987_654_321, 600 * MIB, 200 * MIB, 0.0, 1),
    (24 * GIB, 12 * GIB, 300 * MIB, 0.002, 3),
    (100 * MIB, 80 * MIB, 24 * MIB, 0.001, 2),
]
# Requests between two searches for idle pages.
CLEANUPS = [32, 1, 0, 500]
# Operations per vector: idle pages are first returned after 1000 requests.
OPS = {"sliced": 1500, "exclusive": 2500}


def recorder() -> Path:
    build = ["cargo", "build", "--quiet", "--release", "--locked", "--target-dir", CACHE]
    subprocess.run([*build, "--manifest-path", HERE / "Cargo.toml"], check=True)
    return CACHE / "release/cubecl-recorder"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default=f"0..{len(DEVICES) - 1}", metavar="A..B")
    parser.add_argument("--ops", type=int)
    parser.add_argument("--out", type=Path, default=KEPT)
    args = parser.parse_args()
    binary = recorder()
    first, last = map(int, args.seeds.split(".."))
    for policy in OPS:
        count = args.ops or OPS[policy]
        folder = args.out / f"cubecl_{policy}"
        folder.mkdir(parents=True, exist_ok=True)
        for seed in range(first, last + 1):
            capacity, live, largest, empty, streams = DEVICES[seed % len(DEVICES)]
            options = {"largest": largest, "live": live, "empty": empty, "streams": streams}
            ops = "".join(f"{op}\n" for op in operations(seed, count, **options))
            arguments = [policy, str(capacity), str(CLEANUPS[seed % len(CLEANUPS)])]
            with (folder / f"random-{seed}.txt").open("w") as out:
                subprocess.run([binary, *arguments], input=ops, text=True, stdout=out, check=True)


if __name__ == "__main__":
    main()
