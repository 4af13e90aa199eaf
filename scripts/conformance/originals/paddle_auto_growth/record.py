#!/usr/bin/env python3
"""Records vectors with PaddlePaddle's own AutoGrowthBestFitAllocator.

    record.py --paddle DIR --seeds A..B --out DIR      random traces
    record.py --paddle DIR --again FILE... --out DIR   traces from files

    --paddle DIR     the folder of the paddlepaddle wheel: site-packages, or the wheel unpacked
    --out DIR        vectors go into DIR/paddle_auto_growth
    --count N        operations per random trace (default 2000)
    --stream-safe FILE   Paddle's stream_safe_cuda_allocator.cc: for traces with several streams

The CPU wheel is enough: it contains the allocator and the headers to build on it. record.cpp
fakes the device. Only GPU builds have the layer for several streams: it is compiled from Paddle's
own source
(stream_safe.h).
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent))
from traces import random_trace, read, write

POLICY = "paddle_auto_growth"
CONFS = [
    "",
    "auto_growth_chunk_size:1MiB",
    "auto_growth_chunk_size:20MiB,alignment_size:1280",
    "small_pool_size:1MiB,small_pool_auto_growth_chunk_size:2MiB,"
    "large_pool_auto_growth_chunk_size:16MiB",
    "small_pool_size:3MiB,auto_growth_chunk_size:8MiB",
    "free_idle_chunk:true,auto_growth_chunk_size:8MiB",
    "free_when_no_cache_hit:true,auto_growth_chunk_size:2MiB",
]


def flags(conf):
    """Translates our settings to Paddle's flags, which are in MiB."""
    for setting in filter(None, conf.split(",")):
        name, value = setting.split(":")
        if value.endswith("MiB"):
            yield f"--{name}_in_mb={value.removesuffix('MiB')}"
        else:
            yield f"--{name}={value}"


def version(paddle):
    (metadata,) = paddle.glob("paddlepaddle-*.dist-info")
    return metadata.name.removesuffix(".dist-info").replace("-", " ")


def build(paddle, stream_safe, folder):
    """Builds the program that runs a trace through the original."""
    program = folder / "record"
    root = paddle / "paddle"
    command = ["g++", "-std=c++17", "-O1", "-w", HERE / "record.cpp", "-o", program]
    command += [f"-I{root}/include", f"-I{root}/include/third_party"]
    command += [f"-L{root}/libs", "-lphi_core", "-lcommon"]
    command += [f"-Wl,-rpath,{root}/libs", f"-Wl,-rpath,{root}/base"]
    if stream_safe:
        # Headers of GPU builds that it includes and does not use.
        for name in ["cuda_runtime.h", "paddle/phi/backends/gpu/cuda/cuda_graph.h"]:
            empty = folder / "include" / name
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
        command[1:1] = [f'-DSTREAM_SAFE="{stream_safe.resolve()}"', f"-I{folder}/include"]
    subprocess.run(command, check=True)
    return program


def record(program, original, folder, trace):
    """Writes the vector of a trace and returns its number of operations."""
    result = subprocess.run(
        [program, str(trace.capacity), *flags(trace.conf)],
        input="".join(line + "\n" for line in trace.lines),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    outcomes = result.stdout.splitlines()
    return write(folder / trace.name, original, POLICY, trace, outcomes)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--paddle", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seeds", default="0..9", metavar="A..B")
    parser.add_argument("--again", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--stream-safe", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.again:
        traces = map(read, args.again)
    else:
        first, last = map(int, args.seeds.split(".."))
        kinds = {"most_streams": 4, "records": True} if args.stream_safe else {}
        seeds = range(first, last + 1)
        traces = (random_trace(seed, CONFS, args.count, **kinds) for seed in seeds)
    vectors = args.out / POLICY
    vectors.mkdir(parents=True, exist_ok=True)
    original = version(args.paddle)
    if args.stream_safe:
        original += f" with {args.stream_safe.name}"
    with tempfile.TemporaryDirectory() as folder:
        program = build(args.paddle, args.stream_safe, Path(folder))
        total = sum(record(program, original, vectors, trace) for trace in traces)
    print(f"{total} operations")


if __name__ == "__main__":
    main()
