#!/usr/bin/env python3
"""The programs whose memory is predicted.

    TORCH_PYTHON programs.py NAME --stats STATS.json       final torch.cuda.memory_stats()
    TORCH_PYTHON programs.py NAME --record SNAPSHOT.pickle its history, as a user would record it
    TORCH_PYTHON programs.py --list                        lists them

The environment sets the memory of the device and PYTORCH_CUDA_ALLOC_CONF: see predict.py. An
OutOfMemoryError that a program does not catch ends it."""

import argparse
import contextlib
import json
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "cuda"


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x, cache):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x, cache=None):
        x = x + self.attention(self.before(x), cache)
        return x + self.mlp(self.between(x))


class Gpt(nn.Module):
    def __init__(self, layers=4, width=512, heads=8, vocabulary=32_000, longest=2048):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(longest, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, caches=None, start=0, recompute=False):
        places = torch.arange(start, start + ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.positions(places)
        for n, layer in enumerate(self.layers):
            cache = caches[n] if caches else None
            x = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x, cache)
        return self.head(self.norm(x))


def gpt(**shape) -> Gpt:
    with torch.device(DEVICE):
        return Gpt(**shape)


def gpt_loss(model: Gpt, batch: int, length: int, amp=False, recompute=False):
    ids = torch.zeros(batch, length, dtype=torch.long).to(DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16, enabled=amp):
        logits = model(ids, recompute=recompute)
        return F.cross_entropy(logits.flatten(0, 1), ids.flatten())


def update(optimizer: torch.optim.Optimizer):
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def convolutions(wide: Sequence[int] = (64, 128, 256, 512)) -> nn.Module:
    def stage(before: int, after: int, stride: int):
        return [
            nn.Conv2d(before, after, 3, stride, 1, bias=False),
            nn.BatchNorm2d(after),
            nn.ReLU(inplace=True),
        ]

    layers = []
    for before, after in zip((3, *wide), wide, strict=False):
        layers += stage(before, after, 2) + stage(after, after, 1)
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide[-1], 1000)]
    return nn.Sequential(*layers).to(DEVICE)


def classes(batch: int):
    return torch.zeros(batch, dtype=torch.long, device=DEVICE)


def lengths():
    """A GPT on a device that it nearly fills. Every batch has a different length."""
    rng = random.Random(0)
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(14):
        length = rng.choice([100, 190, 333, 512, 640, 777, 900, 1000])
        gpt_loss(model, 12, length).backward()
        update(optimizer)


def amp():
    """A GPT under autocast to bfloat16, batches of different lengths."""
    rng = random.Random(1)
    model = gpt(layers=6)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(8):
        gpt_loss(model, 8, rng.randrange(256, 1025, 8), amp=True).backward()
        update(optimizer)


def cnn():
    """A convolutional network on images of different sizes."""
    rng = random.Random(2)
    model = convolutions()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(12):
        side = rng.randrange(128, 321, 32)
        images = torch.empty(32, 3, side, side, device=DEVICE)
        F.cross_entropy(model(images), classes(32)).backward()
        update(optimizer)


@torch.no_grad()
def decode():
    """Generation with a key-value cache that grows by concatenation."""
    rng = random.Random(3)
    model = gpt(layers=8).to(torch.bfloat16).eval()
    for _ in range(8):
        batch, length = rng.choice([1, 2, 4, 8, 16]), rng.randint(40, 900)
        ids = torch.zeros(batch, length, dtype=torch.long, device=DEVICE)
        caches = [[] for _ in model.layers]
        start = 0
        for _ in range(rng.randint(20, 60)):
            logits = model(ids, caches, start)
            start += ids.shape[1]
            ids = logits[:, -1:].argmax(-1)


def accumulation():
    """Gradient accumulation over four batches of different shapes."""
    rng = random.Random(4)
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(5):
        for _ in range(4):
            (gpt_loss(model, rng.randint(1, 8), rng.randint(64, 1024)) / 4).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update(optimizer)


def recomputation():
    """Activation checkpointing: the backward pass repeats the forward pass of every layer."""
    rng = random.Random(5)
    model = gpt(layers=8)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(6):
        gpt_loss(model, 12, rng.randint(128, 1024), recompute=True).backward()
        update(optimizer)


def prefetch():
    """Copies inputs on a second stream and hands them over with record_stream."""
    rng = random.Random(6)
    model = convolutions((64, 128))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    copies, compute = torch.cuda.Stream(), torch.cuda.current_stream()

    def load():
        side = rng.choice([160, 192, 224, 256])
        with torch.cuda.stream(copies):
            return torch.zeros(48, 3, side, side).to(DEVICE, non_blocking=True)

    ahead = load()
    for step in range(16):
        compute.wait_stream(copies)
        images, ahead = ahead, load()
        images.record_stream(compute)
        F.cross_entropy(model(images), classes(48)).backward()
        update(optimizer)
        del images
        if step % 4 == 3:
            torch.cuda.synchronize()


def evaluation():
    """Alternates epochs of training, evaluation and empty_cache."""
    rng = random.Random(7)
    model = convolutions()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        for _ in range(3):
            side = rng.randrange(160, 289, 32)
            images = torch.empty(24, 3, side, side, device=DEVICE)
            F.cross_entropy(model(images), classes(24)).backward()
            update(optimizer)
        torch.cuda.empty_cache()
        with torch.no_grad():
            for _ in range(3):
                model(torch.empty(64, 3, rng.randrange(160, 353, 32), 256, device=DEVICE))
        torch.cuda.empty_cache()


def halving():
    """Halves a batch until it fits, as trainers do to find a batch size. One request, for the
    logits, is larger than the device."""
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    batch, steps = 128, 0
    while steps < 4:
        try:
            gpt_loss(model, batch, 512).backward()
        except torch.OutOfMemoryError:
            batch //= 2
            continue
        update(optimizer)
        steps += 1


def tight_halving():
    """Like `halving`, but the batch nearly fits: the allocator decides whether and where it
    fails."""
    rng = random.Random(8)
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    batch = 16
    for _ in range(10):
        length = rng.choice([333, 512, 777, 1000])
        while True:
            try:
                gpt_loss(model, batch, length).backward()
                break
            except torch.OutOfMemoryError:
                batch //= 2
        update(optimizer)


@dataclass(frozen=True)
class Program:
    run: Callable[[], None]
    # Memory of the device, as FAKE_TOTAL_BYTES takes it.
    capacity: str
    # Further variables for the fake device.
    environment: dict[str, str] = field(default_factory=dict)

    def listing(self) -> dict:
        says = " ".join((self.run.__doc__ or "").split())
        return {"says": says, "capacity": self.capacity, "environment": self.environment}


PROGRAMS = {
    "lengths": Program(lengths, "8G"),
    "amp": Program(amp, "4G"),
    "cnn": Program(cnn, "2G"),
    "decode": Program(decode, "1600M"),
    "accumulation": Program(accumulation, "4G"),
    "recomputation": Program(recomputation, "6G"),
    "prefetch": Program(prefetch, "2G"),
    # Events complete only when something waits, as on a device that lags behind its host.
    "prefetch-behind": Program(prefetch, "2G", {"FAKE_HOLD_EVENTS": "1"}),
    "evaluation": Program(evaluation, "1400M"),
    "halving": Program(halving, "8G"),
    "tight-halving": Program(tight_halving, "7G"),
}


def run(program: Program, snapshot: str | None) -> dict[str, int | float | bool]:
    """Runs the program and returns its final memory_stats(). Writes its history to `snapshot`,
    if given."""
    torch.manual_seed(0)
    # The fake cuDNN has no plan for attention.
    torch.backends.cuda.enable_cudnn_sdp(False)
    if snapshot:
        torch.cuda.memory._record_memory_history(max_entries=1_000_000, stacks="python")
    ended_in_oom = True
    with contextlib.suppress(torch.OutOfMemoryError):
        program.run()
        ended_in_oom = False
    if snapshot:
        torch.cuda.memory._dump_snapshot(snapshot)
    return {"ended_in_oom": ended_in_oom, **torch.cuda.memory_stats()}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=PROGRAMS, nargs="?")
    parser.add_argument("--stats", metavar="STATS.json")
    parser.add_argument("--record", metavar="SNAPSHOT.pickle")
    parser.add_argument("--list", action="store_true", help="all programs and the device, as JSON")
    args = parser.parse_args()
    if args.list:
        listing = {
            "device": torch.cuda.get_device_name(),
            "device_bytes": torch.cuda.mem_get_info()[1],
            "programs": {name: program.listing() for name, program in PROGRAMS.items()},
        }
        print(json.dumps(listing))
        return
    if not args.name:
        parser.error("which program?")
    stats = run(PROGRAMS[args.name], args.record)
    if args.stats:
        with open(args.stats, "w") as out:
            json.dump(stats, out, indent=1)
    # A fake device needs no cleanup.
    os._exit(0)


if __name__ == "__main__":
    main()
