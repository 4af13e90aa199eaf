#!/usr/bin/env python3
"""Trains with CUDA graphs on PyTorch's own allocator and on ours, in turn, and compares.

    scripts/gpu/graphs.py --library .../libcoalesce_torch.so [--rounds 5]

Two programs: `compiled`, a GPT under torch.compile(mode="reduce-overhead") with batches of two
lengths, and `captured`, a training step captured by hand, with a graph of an evaluation in the same
pool. Losses and peaks must be equal. Step times are medians of each process; the table has the
median over all processes, and the range of native processes against their own median. Status 1 if
losses or peaks differ."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
WARM_UP, STEPS = 30, 200


def gpt(torch, layers=8, width=768):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True, dropout=0.0)
    return nn.Sequential(
        nn.Embedding(8192, width),
        nn.TransformerEncoder(layer, layers, enable_nested_tensor=False),
        nn.Linear(width, 8192),
    ).cuda()


def loss_of(torch, model, tokens):
    logits = model(tokens[:, :-1])
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def compiled(torch):
    """Returns a function that runs a step and returns its loss."""
    model = gpt(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    compiled_loss = torch.compile(loss_of, mode="reduce-overhead", dynamic=False)
    batches = [torch.randint(8192, (16, n), device="cuda") for n in (257, 129)]

    def step(number):
        torch.compiler.cudagraph_mark_step_begin()
        loss = compiled_loss(torch, model, batches[number % 2])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def captured(torch):
    model = gpt(torch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    static = torch.randint(8192, (16, 257), device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            loss_of(torch, model, static).backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    torch.cuda.current_stream().wait_stream(side)
    training, evaluation = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(training):
        loss = loss_of(torch, model, static)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(evaluation, pool=training.pool()), torch.no_grad():
        error = loss_of(torch, model, static)

    def step(number):
        static.copy_(torch.randint(8192, (16, 257), device="cuda"))
        training.replay()
        if number % 10 == 0:
            evaluation.replay()
            return error
        return loss

    return step


PROGRAMS = {"compiled": compiled, "captured": captured}


def child(name, allocator):
    import torch

    if allocator == "coalesce":
        sys.path.insert(0, str(ROOT / "python"))
        import coalesce_torch

        coalesce_torch.enable()
        assert coalesce_torch.interface() == "complete"
    torch.manual_seed(0)
    # Otherwise sums in another order give other losses, with any allocator.
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.enable_cudnn_sdp(False)
    step = PROGRAMS[name](torch)
    losses, times = [], []
    for number in range(WARM_UP + STEPS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loss = step(number)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    stats = torch.cuda.memory_stats()
    names = ("allocated_bytes", "requested_bytes", "reserved_bytes")
    report = {
        "losses": losses,
        "peaks": [stats[f"{name}.all.peak"] for name in names],
        "step": statistics.median(times[WARM_UP:]),
    }
    print(json.dumps(report), flush=True)
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", required=True, help="libcoalesce_torch.so")
    parser.add_argument("--rounds", type=int, default=5, help="processes for each allocator")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(*args.child)
    env = {
        **os.environ,
        "COALESCE_TORCH_LIB": os.path.abspath(args.library),
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    }

    def run(name, allocator):
        command = [sys.executable, __file__, "--library", args.library, "--child", name, allocator]
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, check=True)
        return json.loads(done.stdout.splitlines()[-1])

    different = False
    print("| program | losses | peaks | step, native | ours / native | native alone |")
    print("|---|---|---|--:|--:|--:|")
    for name in PROGRAMS:
        # The first process compiles, which needs memory; the others find what it compiled.
        run(name, "native")
        reports = {"native": [], "coalesce": []}
        for _ in range(args.rounds):
            for allocator, runs in reports.items():
                runs.append(run(name, allocator))
        every = [run for runs in reports.values() for run in runs]
        equal = {
            key: all(run[key] == every[0][key] for run in every) for key in ("losses", "peaks")
        }
        different |= not all(equal.values())
        native, ours = ([run["step"] for run in runs] for runs in reports.values())
        middle = statistics.median(native)
        cells = ["equal" if equal[key] else "DIFFERENT" for key in ("losses", "peaks")]
        ratio = statistics.median(ours) / middle
        print(
            f"| {name} | {cells[0]} | {cells[1]} | {1000 * middle:.2f} ms | {ratio:.3f} "
            f"| {min(native) / middle:.3f} to {max(native) / middle:.3f} |",
            flush=True,
        )
    sys.exit(different)


if __name__ == "__main__":
    main()
