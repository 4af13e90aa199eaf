"""Trains with embedding tables that are moved to the host during the forward pass
(meta-pytorch/torchrec#4584).

The activations take the place of the tables. When the tables come back during the backward pass,
the oldest activations still lie there, so that new memory is taken. torchrec requests all that the
program will need in one block at the start.
"""

import recorded
from recorded import GIB, MIB, block

TABLES = [9 * GIB, 6 * GIB, 4 * GIB]


def build():
    return [block(size) for size in TABLES], [block(256 * MIB) for _ in range(8)]


def forward(tables):
    tables.clear()
    return [block((700 - 10 * layer) * MIB) for layer in range(48)]


def backward(activations, tables):
    while activations:
        gradient = block(activations[-1].numel() // 4)
        activations.pop()
        del gradient
        if len(activations) == 8:
            tables.extend(block(size) for size in TABLES)


def main():
    if recorded.PATCHED:
        block(27 * GIB)
    tables, dense = build()
    for _ in range(5):
        activations = forward(tables)
        backward(activations, tables)


if __name__ == "__main__":
    recorded.main(main)
