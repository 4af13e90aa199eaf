"""Training with several streams."""

import torch
from torch import nn

from . import program
from .parts import DEVICE, gpt, lengths, steps, tokens


@program()
def prefetch():
    """The next batch is copied on a stream of its own and marked with record_stream"""
    model = gpt(layers=6)
    optimizer = torch.optim.AdamW(model.parameters())
    side = torch.cuda.Stream()

    def load(length):
        with torch.cuda.stream(side):
            batch = torch.zeros(8, length, dtype=torch.long).pin_memory()
            images = torch.zeros(8, 3, 512, 512).pin_memory()
            return [it.to(DEVICE, non_blocking=True) for it in (batch, images)]

    sizes = lengths(steps(16), 256, 1024)
    following = load(sizes[0])
    for length in sizes:
        torch.cuda.current_stream().wait_stream(side)
        batch, images = following
        for it in (batch, images):
            it.record_stream(torch.cuda.current_stream())
        following = load(length)
        loss = model.loss(batch) + images.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        del batch, images, loss


@program()
def gradient_buckets():
    """Data parallelism: gradients are gathered in buckets of 25 MiB as they come and summed on a
    stream of communication"""
    model = gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    side, bucket, pending = torch.cuda.Stream(), [], []

    def send():
        flat = torch.cat([parameter.grad.flatten() for parameter in bucket])
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            theirs = torch.empty_like(flat)
            flat.add_(theirs).div_(2)
        flat.record_stream(side)
        pending.append((list(bucket), flat))
        bucket.clear()

    def ready(parameter):
        bucket.append(parameter)
        if sum(it.numel() * it.element_size() for it in bucket) >= 25 << 20:
            send()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(ready)
    for length in lengths(14, 256, 1024):
        model.loss(tokens(8, length)).backward()
        if bucket:
            send()
        torch.cuda.current_stream().wait_stream(side)
        for parameters, flat in pending:
            parts = flat.split([it.numel() for it in parameters])
            for parameter, part in zip(parameters, parts):
                parameter.grad.copy_(part.view_as(parameter))
        pending.clear()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


@program()
def pipeline():
    """Four stages on streams of their own, eight micro-batches, forward and backward in turn"""
    stages = [nn.Sequential(*gpt(layers=8).layers[at : at + 2]) for at in range(0, 8, 2)]
    streams = [torch.cuda.Stream() for _ in stages]
    parameters = [parameter for stage in stages for parameter in stage.parameters()]
    optimizer = torch.optim.AdamW(parameters)

    def forward(length):
        x = torch.randn(4, length, 1024, device=DEVICE, dtype=torch.bfloat16)
        kept = []
        for stage, stream in zip(stages, streams):
            stream.wait_stream(torch.cuda.current_stream())
            x.record_stream(stream)
            with torch.cuda.stream(stream):
                given = x.detach().requires_grad_()
                x = stage(given)
                kept.append((given, x))
            torch.cuda.current_stream().wait_stream(stream)
        return kept

    def backward(kept):
        gradient = torch.ones_like(kept[-1][1])
        for (given, result), stream in zip(kept[::-1], streams[::-1]):
            stream.wait_stream(torch.cuda.current_stream())
            gradient.record_stream(stream)
            with torch.cuda.stream(stream):
                result.backward(gradient)
                gradient = given.grad
            torch.cuda.current_stream().wait_stream(stream)

    for length in lengths(steps(8), 256, 1024):
        waiting = []
        for number in range(8):
            waiting.append(forward(length))
            if number >= 3:
                backward(waiting.pop(0))
        while waiting:
            backward(waiting.pop(0))
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
