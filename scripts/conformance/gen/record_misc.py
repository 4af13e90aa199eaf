#!/usr/bin/env python3
"""Other workloads on the fake device: decode (growing kv cache), conv net, mixed
shapes. Usage: record_misc.py decode|conv|conv_cudnn OUT.pickle"""

import pickle
import random
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

kind, out = sys.argv[1:3]
torch.cuda.memory._record_memory_history(max_entries=10_000_000, context=None)
dev = "cuda"
torch.backends.cuda.enable_cudnn_sdp(False)
rng = random.Random(0)
if kind == "decode":
    L, h, n = 16, 2048, 16
    W = [
        [
            torch.empty(h, 3 * h, device=dev, dtype=torch.bfloat16),
            torch.empty(h, h, device=dev, dtype=torch.bfloat16),
            torch.empty(h, 4 * h, device=dev, dtype=torch.bfloat16),
            torch.empty(4 * h, h, device=dev, dtype=torch.bfloat16),
        ]
        for _ in range(L)
    ]
    with torch.no_grad():
        for _ in range(12):
            b = rng.choice([1, 2, 4, 8])
            t = rng.randint(50, 700)
            cache = [None] * L
            x = torch.empty(b, t, h, device=dev, dtype=torch.bfloat16)
            for step in range(rng.randint(20, 60)):
                for i, (qkv, proj, up, down) in enumerate(W):
                    q, k, v = (x @ qkv).view(b, -1, 3, n, h // n).permute(2, 0, 3, 1, 4).unbind(0)
                    if cache[i] is not None:
                        k = torch.cat([cache[i][0], k], 2)
                        v = torch.cat([cache[i][1], v], 2)
                    cache[i] = (k, v)
                    y = F.scaled_dot_product_attention(q, k, v, is_causal=step == 0)
                    x = x + y.transpose(1, 2).reshape(b, -1, h) @ proj
                    x = x + F.gelu(x @ up) @ down
                x = x[:, -1:]
            del cache, x, q, k, v, y
else:
    torch.backends.cudnn.enabled = kind == "conv_cudnn"

    def blk(i, o, s=1):
        return nn.Sequential(
            nn.Conv2d(i, o, 3, s, 1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(),
            nn.Conv2d(o, o, 3, 1, 1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(),
        )

    with torch.device(dev):
        m = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
            blk(64, 64),
            blk(64, 128, 2),
            blk(128, 256, 2),
            blk(256, 512, 2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(512, 1000),
        )
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    for _ in range(5):
        s = rng.choice([192, 224, 256])
        x = torch.empty(32, 3, s, s, device=dev)
        loss = F.cross_entropy(m(x), torch.zeros(32, dtype=torch.long, device=dev))
        loss.backward()
        opt.step()
        opt.zero_grad()
peak = torch.cuda.max_memory_allocated() >> 20, torch.cuda.max_memory_reserved() >> 20
print(kind, "peak allocated", peak[0], "reserved", peak[1])
snap = torch.cuda.memory._snapshot()
snap["stats"] = dict(torch.cuda.memory_stats())  # plain data, as all else in it
with open(out, "wb") as f:
    pickle.dump(snap, f)
print("entries", len(snap["device_traces"][0]))
