"""Several processes, and several devices.

With a device for each process they communicate with NCCL, else with gloo; BACKEND names another."""

import os

import torch
import torch.distributed as dist

from . import program
from .parts import Gpt, lengths, steps, tokens, train


def join():
    """Joins the group of processes; returns the device of this one."""
    rank = int(os.environ["RANK"])
    enough = torch.cuda.device_count() >= int(os.environ["WORLD_SIZE"])
    device = rank if enough else 0
    torch.cuda.set_device(device)
    backend = os.environ.get("BACKEND") or ("cuda:nccl,cpu:gloo" if enough else "gloo")
    if backend == "fake":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    else:
        dist.init_process_group(backend)
    return torch.device("cuda", device)


@program(ranks=2)
def fsdp():
    """FSDP2 on two ranks, bfloat16, lengths vary, layers resharded after the forward pass"""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = join()
    model = Gpt(layers=10).to(device)
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for layer in model.layers:
        fully_shard(layer, mp_policy=half)
    fully_shard(model, mp_policy=half)
    optimizer = torch.optim.AdamW(model.parameters())

    def loss(batch):
        return model(batch).float().logsumexp(-1).mean()

    train(model, optimizer, (tokens(4, n) for n in lengths(steps(12), 256, 1024)), loss)
    dist.destroy_process_group()


@program(ranks=2)
def ddp():
    """DistributedDataParallel on two ranks: buckets, gradients as views of them, no_sync"""
    from torch.nn.parallel import DistributedDataParallel

    device = join()
    model = DistributedDataParallel(Gpt(layers=8).to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters())
    for number, length in enumerate(lengths(14, 256, 1024)):
        with model.no_sync() if number % 2 == 0 else torch.enable_grad():
            model(tokens(4, length)).float().logsumexp(-1).mean().backward()
        if number % 2 == 1:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


@program(devices=2)
def two_devices():
    """One process, the layers of a model on two devices"""
    model = Gpt(layers=8)
    halves = model.layers[:4].to("cuda:0"), model.layers[4:].to("cuda:1")
    model.embedding.to("cuda:0"), model.head.to("cuda:1")
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths(12, 256, 1024):
        x = model.embedding(tokens(4, length))
        for device, half in enumerate(halves):
            x = x.to(f"cuda:{device}", non_blocking=True)
            for layer in half:
                x = layer(x)
        model.head(x).logsumexp(-1).mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
