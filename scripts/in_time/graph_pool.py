"""Captures graphs of larger and larger batches into one pool, between other requests
(pytorch/pytorch#196378).

Each graph needs larger blocks than the one before, which no free block of the pool can serve: the
pool grows one segment at a time. Inductor can request one block of the pool first, which later
captures share.
"""

import recorded
from recorded import GIB, MIB, block

torch = recorded.torch


def capture(graph, pool, batch, outputs):
    with torch.cuda.graph(graph, pool=pool):
        if recorded.PATCHED and batch == 1:
            block(6 * GIB)
        _hidden = block(batch * 24 * MIB)
        for _ in range(6):
            wide = block(batch * 40 * MIB)
            _hidden = block(batch * 24 * MIB)
            del wide
        outputs.append(block(batch * 2 * MIB))


def eager(batch):
    return block(batch * 30 * MIB)


def main():
    pool = torch.cuda.graph_pool_handle()
    _weights = [block(400 * MIB) for _ in range(10)]
    graphs, outputs = [], []
    for batch in range(1, 33):
        eager(batch)
        graph = torch.cuda.CUDAGraph()
        capture(graph, pool, batch, outputs)
        graphs.append(graph)


if __name__ == "__main__":
    recorded.main(main)
