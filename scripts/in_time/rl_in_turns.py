"""Generates and trains in turns in one process (radixark/miles#2852).

Generation keeps its cache in one block, and returns it before training, which requests activations
of different lengths. miles lets segments grow while it trains, and not while it generates, because
what it pauses and shares must not be in such segments.
"""

import random

import recorded
from recorded import GIB, block

WEIGHTS = 8 * GIB


def build():
    return block(WEIGHTS), [block(WEIGHTS) for _ in range(2)]


def generate(rng, weights):
    cache = block(24 * GIB)
    kept = []
    for _ in range(100):
        logits = block(rng.randrange(1, 256) * 256 * 1024)
        kept.append(block(rng.randrange(1, 32) * 64 * 1024))
        del logits
    del cache
    recorded.torch.cuda.empty_cache()
    return kept


def train(rng, samples):
    losses = []
    for length in sorted(rng.randrange(4, 41) * 1024 for _ in range(8)):  # short samples first
        activations = []
        for _ in range(12):
            activations.append(block(length * 16 * 1024))
            activations.append(block(length * 6 * 1024))
        losses.append(block(length * 64))
        while activations:
            activations.pop()
    return losses


def main():
    rng = random.Random(1)
    weights, state = build()
    kept = []
    for _ in range(4):
        samples = generate(rng, weights)
        if recorded.PATCHED:
            recorded.set_allocator("expandable_segments:True")
        kept += train(rng, samples)
        if recorded.PATCHED:
            recorded.set_allocator("expandable_segments:False")
        del samples
        recorded.torch.cuda.empty_cache()  # before the weights are sent


if __name__ == "__main__":
    recorded.main(main)
