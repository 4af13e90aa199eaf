#!/usr/bin/env python3
"""Trains for minutes under a policy of Coalesce, and records what could grow or break.

    COALESCE_TORCH_LIB=target/release/libcoalesce_torch.so scripts/gpu/soak.py --minutes 25 soak.csv

The lengths of the inputs drift. There are evaluations of other lengths, checkpoints that are loaded again into a new model, tensors whose
contents are checked before they are replaced, and a second process that takes and returns most of the free memory. Every few
seconds a row is written:

  seconds, steps      since the start
  probe_ms            median time of the steps with the same input, of which there is one in 20
  allocated_mib, reserved_mib, reserved_peak_mib
  mappings            device memory that was mapped, and not unmapped
  maps                mappings of all time
  free_mib            of the device
  host_mib            resident memory of the process
  host_ranges         lines of /proc/self/maps
  checked             tensors whose contents were checked

The status is 1 if contents changed, or a loss is not finite.
"""

import argparse
import csv
import io
import math
import multiprocessing
import os
import random
import statistics
import sys
import time
from pathlib import Path

MIB = 1 << 20
PROBE = (8, 512)


def occupy(seed, left_mib):
    """The second process: takes memory until `left_mib` MiB are free, and returns it."""
    import torch

    rng = random.Random(seed)
    while True:
        time.sleep(rng.uniform(1, 8))
        more = torch.cuda.mem_get_info()[0] - left_mib * MIB
        try:
            taken = torch.empty(max(int(more * rng.random()), 0), dtype=torch.uint8, device="cuda")
        except torch.OutOfMemoryError:
            continue
        time.sleep(rng.uniform(1, 8))
        del taken
        torch.cuda.empty_cache()


class Kept:
    """Tensors of known contents. One is checked and replaced at a time."""

    def __init__(self, torch, rng, count=24):
        self.torch, self.rng, self.checked = torch, rng, 0
        self.tensors = [self.new(seed) for seed in range(count)]

    def contents(self, seed, n):
        return self.torch.arange(n, dtype=self.torch.int32, device="cuda") * 2654435 + seed

    def new(self, seed):
        n = int(2 ** self.rng.uniform(6, 26))
        return seed, self.contents(seed, n)

    def turn(self):
        place = self.rng.randrange(len(self.tensors))
        seed, tensor = self.tensors[place]
        if not self.torch.equal(tensor, self.contents(seed, tensor.numel())):
            sys.exit(f"the contents of a tensor of {tensor.numel() * 4} bytes changed")
        self.checked += 1
        self.tensors[place] = None
        del tensor
        self.tensors[place] = self.new(seed + 1000)


class Training:
    """A transformer that predicts the next token, with Adam and autocast."""

    def __init__(self, torch, hidden=1024, layers=12, vocab=32000):
        nn = torch.nn
        self.torch, self.vocab = torch, vocab
        block = nn.TransformerEncoderLayer(hidden, 16, 4 * hidden, batch_first=True, norm_first=True)
        self.model = nn.Sequential(
            nn.Embedding(vocab, hidden),
            nn.TransformerEncoder(block, layers, enable_nested_tensor=False),
            nn.Linear(hidden, vocab),
        ).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def loss(self, batch, length):
        torch = self.torch
        tokens = torch.randint(self.vocab, (batch, length + 1), device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            logits = self.model(tokens[:, :-1])
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    def step(self, batch, length):
        loss = self.loss(batch, length)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def evaluate(self, rng):
        self.model.eval()
        with self.torch.no_grad():
            for _ in range(5):
                self.loss(16, rng.randint(64, 1536))
        self.model.train()

    def saved(self):
        file = io.BytesIO()
        self.torch.save([self.model.state_dict(), self.optimizer.state_dict()], file)
        return file

    def load(self, file):
        file.seek(0)
        model, optimizer = self.torch.load(file, map_location="cpu")
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(optimizer)


def figures(torch):
    stats = torch.cuda.memory_stats()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return {
        "allocated_mib": stats["allocated_bytes.all.current"] // MIB,
        "reserved_mib": stats["reserved_bytes.all.current"] // MIB,
        "reserved_peak_mib": stats["reserved_bytes.all.peak"] // MIB,
        "mappings": stats["num_device_alloc"] - stats["num_device_free"],
        "maps": stats["num_device_alloc"],
        "free_mib": torch.cuda.mem_get_info()[0] // MIB,
        "host_mib": resident // MIB,
        "host_ranges": Path("/proc/self/maps").read_bytes().count(b"\n"),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=25)
    parser.add_argument("--policy", default="quilt", help="of Coalesce, or native (quilt)")
    parser.add_argument("--every", type=float, default=5, help="seconds of a row (5)")
    parser.add_argument("--left", type=int, default=4096, help="MiB that the second process leaves free (4096)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    other = multiprocessing.get_context("spawn").Process(target=occupy, args=(args.seed, args.left), daemon=True)
    other.start()
    if args.policy != "native":
        os.environ["COALESCE_TORCH_ALLOC"] = f"policy={args.policy}"
        sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
        import coalesce_torch

        coalesce_torch.enable()
    import torch

    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    training, kept = Training(torch), Kept(torch, rng)
    start = time.monotonic()
    steps, probes, next_row = 0, [], start
    with args.out.open("w", newline="") as file:
        rows = csv.writer(file)
        while (now := time.monotonic()) < start + 60 * args.minutes:
            is_probe = steps % 20 == 0
            middle = 768 + 640 * math.sin((now - start) / 60)
            drifting = (rng.randint(2, 8), max(16, int(rng.gauss(middle, 80))))
            torch.cuda.synchronize()
            before = time.perf_counter()
            loss = training.step(*(PROBE if is_probe else drifting))
            torch.cuda.synchronize()
            if is_probe:
                probes.append(1000 * (time.perf_counter() - before))
            kept.turn()
            steps += 1
            if steps % 100 == 0:
                training.evaluate(rng)
            if steps % 500 == 0:
                if not loss.isfinite().item():
                    sys.exit("the loss is not finite")
                checkpoint = training.saved()
                training = None
                torch.cuda.empty_cache()
                training = Training(torch)
                training.load(checkpoint)
                del checkpoint
            if now >= next_row and probes:
                found = {"seconds": round(now - start, 1), "steps": steps, "probe_ms": round(statistics.median(probes), 2)}
                found |= figures(torch) | {"checked": kept.checked}
                if file.tell() == 0:
                    rows.writerow(found)
                rows.writerow(found.values())
                file.flush()
                probes, next_row = [], now + args.every


if __name__ == "__main__":
    main()
