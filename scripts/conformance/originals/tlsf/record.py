#!/usr/bin/env python3
"""Records vectors for allocator/tests/originals with the Vulkan Memory Allocator.

    record.py                              the vectors in the repository
    record.py --seeds 100..199 --out DIR   others, to be compared with ORIGINALS=DIR

The allocator is one C++ header, taken with Vulkan's own from the crate vk-mem. Needs cargo
and a C++ compiler, no Vulkan.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.dont_write_bytecode = True
from operations import GIB, MIB, operations

CRATE = "vk-mem@=0.5.0"
KEPT = HERE.parents[3] / "allocator/tests/originals"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "coalesce-originals/tlsf"

# Bytes of the device, of a block if set, of live memory, of the largest request.
DEVICES = [
    (4 * GIB, None, 3 * GIB, 400 * MIB),
    (1 * GIB, None, 2 * GIB, 40 * MIB),
    (3 * GIB // 2, None, 2 * GIB, 200 * MIB),
    (8 * GIB, 64 * MIB, 600 * MIB, 8 * MIB),
    (5 * GIB, None, 5 * GIB, 160 * MIB),
    (987_654_321, None, 1 * GIB, 30 * MIB),
    (5_123_456_789, 100_000_001, 4 * GIB, 60 * MIB),
]


def headers() -> Path:
    """The folder of the headers in the crate's source."""
    package = CACHE / "headers"
    manifest = package / "Cargo.toml"
    if not manifest.exists():
        subprocess.run(["cargo", "init", "--quiet", "--vcs", "none", package], check=True)
        add = ["cargo", "add", "--quiet", "--manifest-path", manifest, CRATE]
        subprocess.run(add, check=True)
    tell = ["cargo", "metadata", "--format-version", "1", "--manifest-path", manifest]
    packages = json.loads(subprocess.check_output(tell))["packages"]
    (crate,) = (package for package in packages if package["name"] == "vk-mem")
    return Path(crate["manifest_path"]).parent / "vendor"


def recorder() -> Path:
    """Builds the recorder if it is missing or its source is newer."""
    binary, source = CACHE / "recorder", HERE / "recorder.cpp"
    if not binary.exists() or binary.stat().st_mtime < source.stat().st_mtime:
        CACHE.mkdir(parents=True, exist_ok=True)
        include = headers()
        subprocess.run(
            ["c++", "-std=c++17", "-O2", "-Wall", source, "-o", binary, "-pthread"]
            + ["-isystem", include / "VulkanMemoryAllocator/include"]
            + ["-isystem", include / "Vulkan-Headers/include"],
            check=True,
        )
    return binary


def record(ops: str, capacity: int, block: int | None, vector: Path) -> None:
    arguments = [str(capacity)] if block is None else [str(capacity), str(block)]
    with vector.open("w") as out:
        subprocess.run([recorder(), *arguments], input=ops, text=True, stdout=out, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default=f"0..{len(DEVICES) - 1}", metavar="A..B")
    parser.add_argument("--ops", type=int, default=1500)
    parser.add_argument("--out", type=Path, default=KEPT)
    args = parser.parse_args()
    folder = args.out / "tlsf"
    folder.mkdir(parents=True, exist_ok=True)
    first, last = map(int, args.seeds.split(".."))
    for seed in range(first, last + 1):
        capacity, block, live, largest = DEVICES[seed % len(DEVICES)]
        ops = operations(seed, args.ops, largest=largest, live=live)
        record("".join(f"{op}\n" for op in ops), capacity, block, folder / f"random-{seed}.txt")
    if args.out == KEPT:
        record((HERE / "blocks.ops").read_text(), 2 * GIB, None, folder / "blocks.txt")


if __name__ == "__main__":
    main()
