"""Loads and converts the weights of experts, then serves requests (vllm-project/vllm#41268).

Converting a layer replaces weights of 510 MiB and 255 MiB by padded ones of 530 MiB and 270 MiB.
The new 270 MiB take a free block of 510 MiB; what is left of it fits nothing. vLLM limits the size
of blocks that are split while it loads.
"""

import random

import recorded
from recorded import GIB, MIB, block

LAYERS = 24


def load():
    return [[block(510 * MIB), block(255 * MIB)] for _ in range(LAYERS)]


def convert(layers):
    for layer in layers:
        for part, padded in enumerate([530 * MIB, 270 * MIB]):
            transposed = block(padded)
            layer[part] = block(padded)
            del transposed


def serve(layers, cache):
    rng = random.Random(1)
    for _ in range(50):
        tokens = rng.randrange(64, 8192)
        _hidden = block(tokens * 32 * 1024)
        for _ in layers:
            attention = block(tokens * 40 * 1024)
            gate = block(tokens * 96 * 1024)
            del attention
            _hidden = block(tokens * 32 * 1024)
            del gate


def main():
    if recorded.PATCHED:
        recorded.set_allocator("max_split_size_mb:20")
    layers = load()
    convert(layers)
    if recorded.PATCHED:
        recorded.set_allocator("")
    recorded.torch.cuda.empty_cache()
    cache = block(30 * GIB)
    serve(layers, cache)


if __name__ == "__main__":
    recorded.main(main)
