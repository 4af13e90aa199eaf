#!/usr/bin/env python3
"""A random program whose private pools, of graphs and of MemPool, are gone at the end.

    program.py SEED OUT.pickle

The snapshots beside this file were made by it, with PyTorch 2.11 on a simulated device of 16 GiB.
That release does not record the pools of segments that were returned: `coalesce verify` finds them.
"""

import random
import sys

import torch

MB = 1 << 20


class Program:
    def __init__(self, seed):
        self.choice = random.Random(seed)
        self.sizes = [self.any_size() for _ in range(self.choice.randrange(3, 9))]
        self.graphs_share = self.choice.random()
        self.streams = [torch.cuda.Stream() for _ in range(3)]
        self.live, self.pools, self.graphs = [], [], []

    def any_size(self):
        most = self.choice.choice([1, 8, 40]) * MB
        return self.choice.randrange(1, most)

    def request(self, tensors, free_share):
        """Frees a tensor or makes one."""
        if tensors and self.choice.random() < free_share:
            tensors.pop(self.choice.randrange(len(tensors)))
        else:
            size = self.choice.choice(self.sizes)
            tensors.append(torch.empty(size, dtype=torch.uint8, device="cuda"))

    def capture(self):
        graph, kept = torch.cuda.CUDAGraph(), []
        shares = self.graphs and self.choice.random() < 0.3
        pool = self.choice.choice(self.graphs)[0].pool() if shares else None
        stream = self.choice.choice([None, self.choice.choice(self.streams)])
        with torch.cuda.graph(graph, pool=pool, stream=stream):
            for _ in range(self.choice.randrange(1, 15)):
                self.request(kept, 0.5)
        self.graphs.append((graph, kept))

    def use_pool(self):
        if self.pools and self.choice.random() < 0.4:
            pool, kept = self.choice.choice(self.pools)
        else:
            pool, kept = torch.cuda.MemPool(), []
            self.pools.append((pool, kept))
        with torch.cuda.use_mem_pool(pool):
            for _ in range(self.choice.randrange(1, 15)):
                self.request(kept, 0.5)

    def drop(self, owners):
        """Deletes a graph or a pool. Tensors may outlive a pool."""
        owner, tensors = owners.pop(self.choice.randrange(len(owners)))
        if owners is self.pools and self.choice.random() < 0.2:
            self.live.extend(tensors)
        tensors.clear()
        del owner

    def step(self):
        what = self.choice.random()
        if what < 0.4:
            for _ in range(self.choice.randrange(1, 12)):
                self.request(self.live, 0.45)
        elif what < 0.6:
            self.capture() if self.choice.random() < self.graphs_share else self.use_pool()
        elif what < 0.75 and self.graphs:
            self.drop(self.graphs)
        elif what < 0.88 and self.pools:
            self.drop(self.pools)
        elif what < 0.93:
            torch.cuda.empty_cache()
        else:
            self.choice.shuffle(self.live)
            del self.live[len(self.live) // 2 :]


def main(seed, out):
    torch.cuda.memory._record_memory_history("all", context=None, max_entries=1_000_000)
    program = Program(seed)
    for _ in range(program.choice.randrange(10, 60)):
        program.step()
    if program.choice.random() < 0.7:
        program.graphs.clear()
        program.pools.clear()
    if program.choice.random() < 0.5:
        torch.cuda.empty_cache()
    torch.cuda.memory._dump_snapshot(out)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
