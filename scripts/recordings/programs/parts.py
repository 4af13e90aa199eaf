"""Parts of several programs: a transformer, batches of varying size, training steps."""

import os
import random

import torch
import torch.nn.functional as F
from torch import nn

DEVICE = "cuda"
VOCABULARY = 32_000


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads, mlp=None):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = mlp or nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class Gpt(nn.Module):
    def __init__(self, layers=8, width=1024, heads=16, mlp=lambda: None):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.layers = nn.ModuleList(Layer(width, heads, mlp()) for _ in range(layers))
        self.head = nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def loss(self, tokens):
        logits = self(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())


def gpt(**shape):
    return Gpt(**shape).to(DEVICE, torch.bfloat16)


def tokens(batch, length):
    return torch.randint(VOCABULARY, (batch, length), device=DEVICE)


def steps(count):
    """How many training steps: `count`, as recorded, or STEPS_TIMES as many."""
    return count * int(os.environ.get("STEPS_TIMES", 1))


def lengths(count, low, high, of=64):
    """Lengths of batches, multiples of `of`."""
    return [random.randrange(low, high + 1, of) for _ in range(count)]


def train(model, optimizer, batches, loss=None):
    loss = loss or model.loss
    for batch in batches:
        loss(batch).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
