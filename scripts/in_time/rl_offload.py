"""Trains in turns with an engine in other processes: weights and optimizer state are moved to the
host meanwhile (NovaSky-AI/SkyRL#1768).

What a step leaves, such as the probabilities of the samples, stays between the blocks that were
freed, and the large buffers that come back find no room. SkyRL lets segments grow once the model is
there, except while it sends the weights: memory of such segments cannot be shared with other
processes.
"""

import random

import recorded
from recorded import GIB, MIB, block

PARAMETERS = 6 * GIB


def build():
    return [block(PARAMETERS)]


def reload():
    return [block(PARAMETERS)] + [block(2 * PARAMETERS) for _ in range(3)]


def train(rng, state):
    kept = []
    for _ in range(4):
        tokens = rng.randrange(8, 64) * 1024
        activations = []
        for _ in range(24):
            activations.append(block(tokens * 6 * 1024))
            kept.append(block(tokens * 48))
        while activations:
            gradient = block(tokens * 6 * 1024)
            activations.pop()
            del gradient
    return kept


def sync(state):
    for _ in range(12):
        bucket = block(512 * MIB)
        del bucket


def main():
    rng = random.Random(1)
    model = build()
    if recorded.PATCHED:
        recorded.set_allocator("expandable_segments:True")
    kept = []
    del model
    for _ in range(5):
        state = reload()
        kept += train(rng, state)
        if recorded.PATCHED:
            recorded.set_allocator("expandable_segments:False")
        sync(state)
        if recorded.PATCHED:
            recorded.set_allocator("expandable_segments:True")
        del state
        recorded.torch.cuda.empty_cache()


if __name__ == "__main__":
    recorded.main(main)
