#!/usr/bin/env python3
"""Trains GPT-2 under PyTorch's own allocator and under Coalesce's, and compares losses, peaks and
the time of a step.

    cargo build --release -p coalesce-torch
    scripts/gpu/train.py --library target/release/libcoalesce_torch.so

Needs a python with torch 2.11, this file, the package coalesce_torch and the library. Each run is a new
process; the two allocators take turns. Prints a JSON object; the status is 1 if the losses, the
allocations or the peaks differ.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def parsed():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", help="libcoalesce_torch.so")
    parser.add_argument(
        "--module",
        default=ROOT / "python",
        help="the folder of the package coalesce_torch (python)",
    )
    parser.add_argument("--policy", default="pytorch", help="of Coalesce (pytorch)")
    parser.add_argument("--conf", default="", help="PYTORCH_CUDA_ALLOC_CONF, for both")
    parser.add_argument("--runs", type=int, default=3, help="runs of each (3)")
    parser.add_argument("--steps", type=int, default=30, help="training steps of a run (30)")
    parser.add_argument("--warm-up", type=int, default=5, help="untimed steps at the start (5)")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=1024)
    parser.add_argument("--vary", action="store_true", help="batches of several lengths")
    parser.add_argument("--amp", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--pairs", type=int, default=200_000, help="malloc/free pairs to time")
    parser.add_argument("--trace", help="write the allocator's history and state to this file")
    parser.add_argument("--only", choices=["native", "coalesce"], help="one run, in this process")
    return parser.parse_args()


def main():
    args = parsed()
    if args.only:
        print(json.dumps(run(args)))
        return
    results = {"native": [], "coalesce": []}
    for _ in range(args.runs):
        for allocator, runs in results.items():
            command = [sys.executable, __file__, *sys.argv[1:], "--only", allocator]
            done = subprocess.run(command, env=environment(args), stdout=subprocess.PIPE, text=True)
            if done.returncode != 0:
                sys.exit(f"{allocator}: exit status {done.returncode}")
            runs.append(json.loads(done.stdout.splitlines()[-1]))
    report = compared(args, results)
    print(json.dumps(report, indent=2))
    same = ["losses_equal", "allocations_equal", "survives_out_of_memory"]
    if args.policy == "pytorch":  # others hold other amounts
        same.append("peak_reserved_equal")
    sys.exit(not all(report[key] for key in same))


def environment(args):
    # Two runs differ only in the allocator.
    env = {
        **os.environ,
        "PYTHONHASHSEED": "0",
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "PYTORCH_CUDA_ALLOC_CONF": args.conf,
    }
    history = ";history=100000000" if args.trace else ""
    env["COALESCE_TORCH_ALLOC"] = f"policy={args.policy}{history}"
    if args.library:
        env["COALESCE_TORCH_LIB"] = os.path.abspath(args.library)
    return env


def run(args):
    """One run: its losses, memory and times."""
    import torch

    sys.path.insert(0, str(args.module))
    import coalesce_torch

    if args.only == "coalesce":
        coalesce_torch.enable()
        memory = coalesce_torch
    else:
        memory = torch.cuda
        if args.trace:
            torch.cuda.memory._record_memory_history(max_entries=100_000_000, context=None)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.manual_seed(0)
    train = training(args, torch)
    losses, milliseconds = [], []
    for step in range(args.steps):
        torch.cuda.synchronize()
        start = time.perf_counter()
        losses.append(train(step))
        torch.cuda.synchronize()
        milliseconds.append((time.perf_counter() - start) * 1e3)
    stats = memory.memory_stats()
    result = {
        "losses": [loss.hex() for loss in losses],
        "last_loss": losses[-1],
        "step_ms": milliseconds,
        "allocations": stats["allocation.all.allocated"],
        "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
        "peak_reserved_bytes": stats["reserved_bytes.all.peak"],
        "retries": stats["num_alloc_retries"],
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    if args.trace:
        write_trace(args, torch, memory)
    result["survives_out_of_memory"] = survives_out_of_memory(torch, train)
    result["pair_ns"] = pair_ns(args, torch)
    return result


def training(args, torch):
    """Returns a function that does one step and returns its loss."""
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            hidden = args.hidden
            self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

        def forward(self, x):
            batch, length, hidden = x.shape
            heads = (batch, length, 3, args.heads, hidden // args.heads)
            q, k, v = self.qkv(self.norm1(x)).view(heads).permute(2, 0, 3, 1, 4).unbind(0)
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, hidden))
            return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh"))

    class GPT2(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(args.vocab, args.hidden)
            self.positions = nn.Embedding(args.sequence, args.hidden)
            self.blocks = nn.Sequential(*[Block() for _ in range(args.layers)])
            self.norm = nn.LayerNorm(args.hidden)
            self.head = nn.Linear(args.hidden, args.vocab, bias=False)
            self.head.weight = self.tokens.weight
            for parameter in self.parameters():
                if parameter.dim() > 1:
                    nn.init.normal_(parameter, std=0.02)

        def forward(self, tokens):
            positions = torch.arange(tokens.shape[1], device=tokens.device)
            return self.head(
                self.norm(self.blocks(self.tokens(tokens) + self.positions(positions)))
            )

    # cuDNN's attention is not deterministic.
    backend = torch.nn.attention.SDPBackend
    attention = [backend.FLASH_ATTENTION, backend.EFFICIENT_ATTENTION, backend.MATH]
    with torch.device("cuda"):
        model = GPT2()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = torch.Generator().manual_seed(1)

    # Autocast frees its cache of casts in the order of heap addresses, which varies.
    autocast = torch.autocast("cuda", torch.bfloat16, enabled=args.amp, cache_enabled=False)

    def train(step):
        length = args.sequence
        if args.vary:
            length = [length, length // 2, length * 3 // 4, length - 37][step * 7 % 4]
        # Learnable data: most tokens follow from the previous one.
        tokens = torch.randint(args.vocab, (args.batch, 1), generator=data)
        tokens = (tokens + 17 * torch.arange(length + 1)) % args.vocab
        tokens = tokens.cuda()
        with torch.nn.attention.sdpa_kernel(attention):
            with autocast:
                logits = model(tokens[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            del logits
            loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return train


def write_trace(args, torch, memory):
    import pickle

    taken = memory.memory_snapshot() if args.only == "coalesce" else torch.cuda.memory._snapshot()
    report = {
        "snapshot": taken,
        "stats": dict(memory.memory_stats()),
        "summary": memory.memory_summary(),
    }
    with open(f"{args.trace}.{args.only}", "wb") as file:
        pickle.dump(report, file)


def survives_out_of_memory(torch, train):
    """Whether training continues after a request that cannot be served."""
    _, total = torch.cuda.mem_get_info()
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        train(0)
        return True
    return False


def pair_ns(args, torch):
    """Nanoseconds to allocate and free 1 MiB from Python: the minimum of ten rounds."""
    malloc = torch._C._cuda_cudaCachingAllocator_raw_alloc
    free = torch._C._cuda_cudaCachingAllocator_raw_delete
    stream = torch.cuda.current_stream().cuda_stream
    rounds = []
    for _ in range(10):
        start = time.perf_counter_ns()
        for _ in range(args.pairs // 10):
            free(malloc(1 << 20, stream))
        rounds.append((time.perf_counter_ns() - start) / max(args.pairs // 10, 1))
    return min(rounds)


def compared(args, results):
    def one(key):
        """The common value of all runs, or the list of all values."""
        values = [run[key] for runs in results.values() for run in runs]
        return values[0] if all(value == values[0] for value in values) else values

    def step_ms(allocator):
        return [ms for run in results[allocator] for ms in run["step_ms"][args.warm_up :]]

    median = {name: statistics.median(step_ms(name)) for name in results if step_ms(name)}
    return {
        "program": "GPT-2",
        **{key: one(key) for key in ("device", "torch", "cuda")},
        "python": platform.python_version(),
        "policy": args.policy,
        "conf": args.conf,
        "steps": args.steps,
        "runs_of_each": args.runs,
        "losses_equal": not isinstance(one("losses")[0], list),
        "last_loss": one("last_loss"),
        "allocations_equal": not isinstance(one("allocations"), list),
        "allocations": one("allocations"),
        "peak_reserved_equal": not isinstance(one("peak_reserved_bytes"), list),
        "peak_reserved_bytes": one("peak_reserved_bytes"),
        "survives_out_of_memory": one("survives_out_of_memory") is True,
        "step_ms_median": median,
        "step_ms_ratio": median["coalesce"] / median["native"] if median else None,
        "pair_ns": {name: min(run["pair_ns"] for run in results[name]) for name in results},
        "runs": results,
    }


if __name__ == "__main__":
    main()
