#!/usr/bin/env python3
"""Train a small GPT on the fake device and record the allocator history.
Run:  torch-python gen/record_gpt.py OUT.pickle [options]"""

import argparse
import pickle
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

ap = argparse.ArgumentParser()
ap.add_argument("out")
ap.add_argument("--layers", type=int, default=12)
ap.add_argument("--hidden", type=int, default=768)
ap.add_argument("--heads", type=int, default=12)
ap.add_argument("--vocab", type=int, default=50257)
ap.add_argument("--batch", type=int, default=8)
ap.add_argument("--seq", type=int, default=1024)
ap.add_argument("--steps", type=int, default=5)
ap.add_argument("--vary", action="store_true")
ap.add_argument("--amp", action="store_true")
ap.add_argument("--sdpa", default="auto", choices=["auto", "math", "flash", "efficient"])
ap.add_argument("--checkpoint", action="store_true")
ap.add_argument(
    "--generate",
    type=int,
    default=0,
    help="decode steps with a growing kv cache instead of training",
)
ap.add_argument(
    "--side-stream", action="store_true", help="copy inputs on a side stream with record_stream"
)
a = ap.parse_args()
torch.manual_seed(0)
torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
dev = "cuda"


class Block(nn.Module):
    def __init__(s, h, n):
        super().__init__()
        s.n = n
        s.l1, s.l2 = nn.LayerNorm(h), nn.LayerNorm(h)
        s.qkv, s.o = nn.Linear(h, 3 * h), nn.Linear(h, h)
        s.f1, s.f2 = nn.Linear(h, 4 * h), nn.Linear(4 * h, h)

    def forward(s, x):
        b, t, h = x.shape
        q, k, v = s.qkv(s.l1(x)).view(b, t, 3, s.n, h // s.n).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + s.o(y.transpose(1, 2).reshape(b, t, h))
        return x + s.f2(F.gelu(s.f1(s.l2(x))))


class GPT(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(a.vocab, a.hidden)
        s.p = nn.Embedding(a.seq, a.hidden)
        s.b = nn.ModuleList([Block(a.hidden, a.heads) for _ in range(a.layers)])
        s.ln = nn.LayerNorm(a.hidden)
        s.head = nn.Linear(a.hidden, a.vocab, bias=False)

    def forward(s, i):
        x = s.e(i) + s.p(torch.arange(i.shape[1], device=i.device))
        for b in s.b:
            x = (
                torch.utils.checkpoint.checkpoint(b, x, use_reentrant=False)
                if a.checkpoint
                else b(x)
            )
        return s.head(s.ln(x))


with torch.device(dev):
    m = GPT()
opt = torch.optim.AdamW(m.parameters(), lr=1e-4)
# All but cuDNN's, which finds no plan here.
backends = {
    "flash": torch.nn.attention.SDPBackend.FLASH_ATTENTION,
    "efficient": torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION,
    "math": torch.nn.attention.SDPBackend.MATH,
}
ctx = torch.nn.attention.sdpa_kernel(
    list(backends.values()) if a.sdpa == "auto" else [backends[a.sdpa]]
)
side = torch.cuda.Stream() if a.side_stream else None
rng = random.Random(0)
with ctx:
    for _ in range(a.steps):
        t = rng.choice([a.seq // 2, a.seq * 3 // 4, a.seq - 37, a.seq]) if a.vary else a.seq
        host = torch.zeros(a.batch, t, dtype=torch.long)
        if side is not None:
            with torch.cuda.stream(side):
                i = host.to(dev, non_blocking=True)
            torch.cuda.current_stream().wait_stream(side)
            i.record_stream(torch.cuda.current_stream())
        else:
            i = host.to(dev)
        with torch.autocast("cuda", torch.bfloat16, enabled=a.amp):
            logits = m(i)
            loss = F.cross_entropy(logits.view(-1, a.vocab), i.view(-1))
        del logits
        loss.backward()
        opt.step()
        opt.zero_grad(set_to_none=True)
        loss.item()
        del loss, i
print(
    "peak allocated",
    torch.cuda.max_memory_allocated() >> 20,
    "MiB reserved",
    torch.cuda.max_memory_reserved() >> 20,
    "MiB",
)
snap = torch.cuda.memory._snapshot()
snap["stats"] = dict(torch.cuda.memory_stats())  # plain data, as all else in it
with open(a.out, "wb") as f:
    pickle.dump(snap, f)
print("entries", len(snap["device_traces"][0]), "segments", len(snap["segments"]))
