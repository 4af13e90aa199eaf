#!/usr/bin/env python3
"""Records the workspaces that cuDNN takes on this GPU for the attentions of a CSV.

    record_attention.py attention.csv OUT.csv

PyTorch requests the workspace of a call last, so the allocator's trace has its size. Needs PyTorch
with CUDA, and a GPU that does nothing else or the simulated one. README.md beside this file
describes the columns."""

import torch
from recording import record, requested
from torch.nn.attention import SDPBackend, sdpa_kernel

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def tensor(layout, heads, length, dim, row):
    """A tensor of one of the inputs: its heads are before or after its sequence."""
    options = {"device": "cuda", "dtype": TYPES[row["type"]], "requires_grad": True}
    batch = int(row["batch"])
    if layout == "bhsd":
        return torch.zeros(batch, heads, length, dim, **options)
    return torch.zeros(batch, length, heads, dim, **options).transpose(1, 2)


def measure(row):
    """The workspaces of the forward and of the backward pass."""
    names = ("heads", "kv_heads", "query", "key", "dim", "value_dim")
    heads, kv_heads, query, key, dim, value_dim = (int(row[name]) for name in names)
    of_query, of_key = row["layout"].split("/")
    inputs = (
        tensor(of_query, heads, query, dim, row),
        tensor(of_key, kv_heads, key, dim, row),
        tensor(of_key, kv_heads, key, value_dim, row),
    )
    mask = None
    if row["mask"]:
        kind, sizes = row["mask"].split()
        sizes = [int(size) for size in sizes.split("x")]
        kind = torch.bool if kind == "bool" else TYPES[row["type"]]
        mask = torch.ones(*sizes, query, key, device="cuda", dtype=kind)
    options = {
        "attn_mask": mask,
        "dropout_p": float(row["dropout"]),
        "is_causal": row["causal"] == "1",
        "enable_gqa": heads != kv_heads,
    }
    attention = torch.nn.functional.scaled_dot_product_attention
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        result, forward = requested(lambda: attention(*inputs, **options))
    # With the strides of the result, or PyTorch makes a copy.
    gradient = torch.zeros_like(result)
    _, backward = requested(lambda: torch.autograd.grad(result, inputs, gradient))
    return {"forward": forward[-1], "backward": backward[-1]}


if __name__ == "__main__":
    record(__doc__, measure)
