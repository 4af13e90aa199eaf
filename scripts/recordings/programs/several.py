"""Several processes, and several devices.

With a device for each process they communicate with NCCL, else with gloo; BACKEND names another."""

import os
import random

import torch
import torch.distributed as dist
from torch import nn

from . import program
from .parts import Gpt, gpt, lengths, steps, tokens, train


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


def even(logits):
    return logits.float().logsumexp(-1).mean()


def sharded(layer_of):
    """Trains with FSDP2. `layer_of` prepares each layer."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    device = join()
    model = Gpt(layers=10).to(device)
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
    for number, layer in enumerate(model.layers):
        model.layers[number] = fully_shard(layer_of(layer), mp_policy=half)
    fully_shard(model, mp_policy=half)
    optimizer = torch.optim.AdamW(model.parameters())
    batches = (tokens(4, n) for n in lengths(steps(12), 256, 1024))
    train(model, optimizer, batches, lambda batch: even(model(batch)))
    dist.destroy_process_group()


@program(ranks=2)
def fsdp():
    """FSDP2 on two ranks, bfloat16, lengths vary, layers resharded after the forward pass"""
    sharded(lambda layer: layer)


@program(ranks=2)
def fsdp_checkpointed():
    """As fsdp, with activations recomputed in the backward pass"""
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    sharded(checkpoint_wrapper)


@program(ranks=2)
def tensor_parallel():
    """The parts of each layer and the logits divided among two ranks, lengths vary"""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, parallel

    join()
    # Both ranks have the same batches.
    random.seed(0)
    model = gpt()
    plan = {"head": parallel.ColwiseParallel(output_layouts=Replicate())}
    for number in range(len(model.layers)):
        plan[f"layers.{number}.mlp.0"] = parallel.ColwiseParallel()
        plan[f"layers.{number}.mlp.2"] = parallel.RowwiseParallel()
    parallel.parallelize_module(model, init_device_mesh("cuda", (2,)), plan)
    # Updates of several parameters at once take either divided ones or whole ones.
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    train(model, optimizer, (tokens(8, n) for n in lengths(steps(12), 256, 1024)))
    dist.destroy_process_group()


@program(ranks=2)
def stages():
    """Two stages of a pipeline, one on each rank, eight micro-batches, 1F1B"""
    from torch.distributed.pipelining import PipelineStage, Schedule1F1B

    device = join()
    rank = dist.get_rank()
    layers = list(gpt(layers=12).layers[6 * rank : 6 * rank + 6])
    stage = PipelineStage(nn.Sequential(*layers), rank, 2, device)
    schedule = Schedule1F1B(stage, 8, loss_fn=lambda result, _: result.float().square().mean())
    optimizer = torch.optim.AdamW(stage.submod.parameters())
    for _ in range(steps(12)):
        x = torch.randn(32, 1024, 1024, device=device, dtype=torch.bfloat16)
        schedule.step(*([x] if rank == 0 else []), **({"target": x} if rank == 1 else {}))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


def replicated(model):
    optimizer = torch.optim.AdamW(model.parameters())
    for number, length in enumerate(lengths(steps(14), 256, 1024)):
        with model.no_sync() if number % 2 == 0 else torch.enable_grad():
            even(model(tokens(4, length))).backward()
        if number % 2 == 1:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)


@program(ranks=2)
def ddp():
    """DistributedDataParallel on two ranks: buckets, gradients as views of them, no_sync"""
    from torch.nn.parallel import DistributedDataParallel

    device = join()
    replicated(DistributedDataParallel(Gpt(layers=8).to(device), gradient_as_bucket_view=True))
    dist.destroy_process_group()


@program(ranks=2)
def ddp_registered():
    """As ddp, with buckets in memory of NCCL's own allocator that is registered with it"""
    from torch.nn.parallel import DistributedDataParallel

    device = join()
    model = Gpt(layers=8).to(device)
    nccl = dist.group.WORLD._get_backend(device)
    pool = torch.cuda.MemPool(nccl.mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        # Buckets would be replaced after the first step, if no parameter could be unused.
        model = DistributedDataParallel(
            model, gradient_as_bucket_view=True, find_unused_parameters=True
        )
    nccl.register_mem_pool(pool)
    replicated(model)
    nccl.deregister_mem_pool(pool)
    dist.destroy_process_group()


@program(ranks=2)
def symmetric():
    """Gradients summed in symmetric memory, which each rank reads from the other"""
    import torch.distributed._symmetric_memory as symm

    device = join()
    model = gpt(layers=4)
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters)
    group = dist.group.WORLD.group_name
    count = sum(it.numel() for it in parameters)
    shared = symm.empty(count, dtype=torch.bfloat16, device=device)
    symm.rendezvous(shared, group)
    for length in lengths(steps(12), 256, 1024):
        model.loss(tokens(4, length)).backward()
        torch.cat([it.grad.flatten() for it in parameters], out=shared)
        torch.ops.symm_mem.two_shot_all_reduce_(shared, "sum", group)
        for it, part in zip(parameters, shared.split([it.numel() for it in parameters])):
            it.grad.copy_(part.view_as(it))
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
