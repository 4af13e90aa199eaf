"""Trains in a process that it spawns, as launchers do."""

import torch
from torch import multiprocessing


def train(rank):
    torch.cuda.set_device(rank)
    model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(50):
        model(torch.randn(512, 1024, device="cuda")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    multiprocessing.spawn(train, nprocs=1)
