"""Inference."""

import random

import torch
from torch import nn

from . import program
from .parts import DEVICE, gpt, lengths, tokens


@program("transformers")
def generate():
    """transformers: generate with the dynamic cache, prompts of any length"""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32_000,
        hidden_size=2048,
        intermediate_size=5504,
        num_hidden_layers=8,
        num_attention_heads=16,
    )
    with torch.device(DEVICE):
        model = LlamaForCausalLM(config).to(torch.bfloat16).eval()
    for length in lengths(8, 64, 2048):
        batch = tokens(random.choice((1, 4, 8)), length)
        new = random.choice((8, 16, 24))
        model.generate(
            batch,
            attention_mask=torch.ones_like(batch),
            min_new_tokens=new,
            max_new_tokens=new,
            do_sample=False,
            pad_token_id=0,
        )


@program()
def mixed_server():
    """A server for text, images and embeddings: requests of every size, results kept for a while"""
    language = gpt(layers=6).eval()
    vision = nn.Sequential(
        nn.Conv2d(3, 64, 7, 2, 3),
        nn.ReLU(),
        nn.Conv2d(64, 256, 3, 2, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(256 * 49, 4096),
    ).to(DEVICE)
    table = torch.randn(500_000, 512, device=DEVICE)
    streams, kept = [torch.cuda.Stream() for _ in range(3)], []
    with torch.no_grad():
        for _ in range(250):
            kind = random.randrange(3)
            with torch.cuda.stream(streams[kind]):
                if kind == 0:
                    batch = tokens(random.choice((1, 2, 8)), random.randrange(16, 1024))
                    result = language(batch)[:, -1].float().softmax(-1)
                elif kind == 1:
                    side = random.choice((224, 384, 640, 1024))
                    images = torch.randn(random.randrange(1, 9), 3, side, side, device=DEVICE)
                    result = vision(images)
                else:
                    queries = torch.randn(random.randrange(1, 257), 512, device=DEVICE)
                    result = (queries @ table.T).topk(100).values
            kept.append(result)
            if len(kept) > 50:
                kept.pop(random.randrange(50))


@program()
def speculative():
    """Speculative decoding: a small model guesses, a large one checks; caches that are copied to
    grow"""
    large, small = gpt(layers=12, width=1536).eval(), gpt(layers=2, width=512, heads=8).eval()
    with torch.no_grad():
        for length in lengths(5, 64, 512):
            caches = [
                [torch.zeros(4, length, 1536, device=DEVICE, dtype=torch.bfloat16)] * 24,
                [torch.zeros(4, length, 512, device=DEVICE, dtype=torch.bfloat16)] * 4,
            ]
            for _ in range(12):
                for _ in range(4):
                    guess = small(tokens(4, 1))
                    caches[1] = [torch.cat([it, it[:, :1]], 1) for it in caches[1]]
                checked = large(tokens(4, 4)).float().softmax(-1)
                accepted = random.randrange(1, 5)
                caches[0] = [torch.cat([it, it[:, :accepted]], 1) for it in caches[0]]
                del guess, checked
