"""Training on one stream."""

import os
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from . import program
from .parts import DEVICE, gpt, lengths, steps, tokens, train


@program()
def accumulation():
    """Gradients accumulated over four batches of any length"""
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(12):
        for length in lengths(4, 128, 1536):
            (model.loss(tokens(4, length)) / 4).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program()
def checkpointing():
    """Activations recomputed in the backward pass"""
    model = gpt(layers=12)
    optimizer = torch.optim.AdamW(model.parameters())

    def loss(batch):
        x = model.embedding(batch)
        for layer in model.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return model.head(x).float().logsumexp(-1).mean()

    train(model, optimizer, (tokens(8, n) for n in lengths(14, 512, 2048)), loss)


class Experts(nn.Module):
    """Each token goes to two of the experts."""

    def __init__(self, width=1024, count=8):
        super().__init__()
        self.choose = nn.Linear(width, count)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
            for _ in range(count)
        )

    def forward(self, x):
        flat = x.flatten(0, -2)
        weights = self.choose(flat).softmax(-1)
        result = torch.zeros_like(flat)
        # The shares are those of a router that is learning, whatever its weights.
        for number, expert in enumerate(self.experts):
            count = max(1, int(len(flat) * random.betavariate(2, 6)))
            chosen = torch.randint(len(flat), (count,), device=flat.device)
            part = expert(flat[chosen]) * weights[chosen, number : number + 1]
            result = result.index_add(0, chosen, part)
        return result.view_as(x)


@program()
def experts():
    """A mixture of experts with shares that change every step"""
    model = gpt(layers=6, mlp=Experts)
    optimizer = torch.optim.AdamW(model.parameters())
    train(model, optimizer, (tokens(4, n) for n in lengths(steps(12), 256, 1024)))


@program()
def offloaded_optimizer():
    """The optimizer's state waits in host memory; empty_cache after each move"""
    model = gpt(layers=6)
    optimizer = torch.optim.AdamW(model.parameters())

    def move(device):
        for state in optimizer.state.values():
            for name, value in state.items():
                if torch.is_tensor(value) and value.dim() > 0:
                    state[name] = value.to(device)
        torch.cuda.empty_cache()

    for length in lengths(12, 256, 1536):
        model.loss(tokens(8, length)).backward()
        move(DEVICE)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        move("cpu")


@program()
def goes_on_after_oom():
    """A limit of 6 GiB unless there is another; a batch that does not fit is halved"""
    limit = int(os.environ.get("LIMIT_BYTES", 6 << 30))
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(limit / total)
    model = gpt(layers=6)
    optimizer = torch.optim.AdamW(model.parameters())
    for length in lengths(14, 256, 2048):
        size = 16
        while size > 0:
            try:
                model.loss(tokens(size, length)).backward()
                break
            except torch.OutOfMemoryError:
                optimizer.zero_grad(set_to_none=True)
                size //= 2
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program()
def autocast_foreach():
    """float32 weights under autocast, gradients scaled, an average of the weights kept"""
    model = gpt(layers=6).float()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
    average = torch.optim.swa_utils.AveragedModel(model)
    for length in lengths(14, 256, 1024):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model.loss(tokens(4, length))
        (loss * 1024).backward()
        torch._foreach_mul_([p.grad for p in model.parameters()], 1 / 1024)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        average.update_parameters(model)


class Block(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(8, before), nn.Conv2d(before, after, 3, padding=1)
        self.again = nn.Conv2d(after, after, 3, padding=1)
        self.skip = nn.Conv2d(before, after, 1)

    def forward(self, x):
        return self.again(F.silu(self.conv(F.silu(self.norm(x))))) + self.skip(x)


@program()
def unet():
    """A U-Net that removes noise from images of four resolutions"""
    widths = (64, 128, 256, 512)
    down = nn.ModuleList(Block(a, b) for a, b in zip((8, *widths), widths))
    up = nn.ModuleList(Block(a + b, b) for a, b in zip((512, 512, 256, 128), widths[::-1]))
    last = nn.Conv2d(64, 8, 1)
    model = nn.ModuleList((down, up, last)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters())

    def loss(images):
        noise = torch.randn_like(images)
        x, kept = images + noise, []
        for block in down:
            x = block(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        for block in up:
            beside = kept.pop()
            x = block(torch.cat([F.interpolate(x, beside.shape[-2:]), beside], 1))
        return F.mse_loss(last(x), noise)

    sizes = [random.choice((64, 96, 128, 192)) for _ in range(16)]
    train(model, optimizer, (torch.randn(8, 8, n, n, device=DEVICE) for n in sizes), loss)
