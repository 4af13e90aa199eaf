"""Integers that ranks send each other through GPUs, such as sizes: what the host knows of them arrives.

A program that runs alone receives from each other rank what it would send itself."""

import functools
import importlib
import inspect

import coalesce_fits_messages as messages
import torch
from coalesce_fits_values import HOST, is_followed, known

# Elements of the largest tensor whose values are sent.
MOST_ELEMENTS = 1 << 18


def arrives(tensor, make):
    """Notes that the values of a tensor are those which a function returns, when they are read."""
    setattr(tensor, HOST, make)


def sent(tensor):
    """The values that a tensor has now, which the program may change before they are read; None if they
    are unknown."""
    host = known(tensor) if tensor.numel() <= MOST_ELEMENTS else None
    return None if host is None else host.clone()


def made_of(parts, make):
    """A function that makes a value of the parts that arrive. It returns None if one of them is unknown."""

    def made():
        arrived = parts()
        if any(part is None or part is messages.MISSING for part in arrived):
            return None
        return make(arrived)

    return made


def same_as(part):
    """A function that returns the one part that arrives."""
    return made_of(lambda: [part()], lambda all: all[0])


def all_reduce(call, tensor, op=None, group=None, **kwargs):
    kinds = torch.distributed.ReduceOp
    op = kinds.SUM if op is None else op
    reductions = {kinds.SUM: torch.sum, kinds.MAX: torch.amax, kinds.MIN: torch.amin}
    reduce = reductions.get(getattr(op, "op", op))
    parts = messages.exchange(group, sent(tensor))
    result = call(tensor, op, group, **kwargs)
    total = made_of(parts, lambda all: reduce(torch.stack(all), 0).to(all[0].dtype))
    arrives(tensor, total if reduce else lambda: None)
    return result


def broadcast(call, tensor, src=None, group=None, async_op=False, group_src=None):
    sender = messages.place(group, src, group_src)
    part = messages.share(group, sender, sent(tensor) if sender == messages.RANK else None)
    given = {} if group_src is None else {"group_src": group_src}
    result = call(tensor, src, group, async_op, **given)
    arrives(tensor, same_as(part))
    return result


def all_gather(call, tensor_list, tensor, group=None, async_op=False):
    parts = messages.exchange(group, sent(tensor))
    result = call(tensor_list, tensor, group, async_op)
    for index, each in enumerate(tensor_list):
        arrives(each, made_of(parts, lambda all, index=index: all[index].clone()))
    return result


def all_gather_into_tensor(call, output_tensor, input_tensor, group=None, async_op=False):
    parts = messages.exchange(group, sent(input_tensor))
    result = call(output_tensor, input_tensor, group, async_op)
    arrives(output_tensor, made_of(parts, lambda all: torch.cat(all).view(output_tensor.shape)))
    return result


def addressed(group, tensor, splits):
    """What an all-to-all brings to this rank."""
    ranks = messages.members(group)
    own = ranks.index(messages.RANK)
    parts = messages.exchange(group, (sent(tensor), splits))

    def result():
        chunks = []
        for part in parts():
            values, sizes = (None, None) if part is messages.MISSING else part
            if values is None:
                return None
            chunks.append(values.split(sizes or len(values) // len(ranks))[own])
        return torch.cat(chunks)

    return result


def all_to_all_single(
    call, output, input, output_split_sizes=None, input_split_sizes=None, group=None, async_op=False
):
    arrived = addressed(group, input, input_split_sizes)
    result = call(output, input, output_split_sizes, input_split_sizes, group, async_op)
    arrives(output, arrived)
    return result


def functional_all_to_all_single(call, self, output_split_sizes, input_split_sizes, group, *rest):
    found = importlib.import_module("torch.distributed._functional_collectives")
    arrived = addressed(groups_of(group), self, input_split_sizes)
    # What waits is another tensor, on which a note would be lost.
    result = found.wait_tensor(call(self, output_split_sizes, input_split_sizes, group, *rest))
    arrives(result, arrived)
    return result


def groups_of(group):
    """The process group of what functional collectives take for one."""
    if isinstance(group, tuple):
        group = group[0].get_group(group[1])
    return group.get_group() if hasattr(group, "get_group") else group


def send(call, tensor, dst=None, group=None, tag=0, group_dst=None):
    messages.send(messages.place(group, dst, group_dst), sent(tensor))
    given = {} if group_dst is None else {"group_dst": group_dst}
    return call(tensor, dst, group, tag, **given)


def receive(call, tensor, src=None, group=None, tag=0, group_src=None):
    part = messages.receive(messages.place(group, src, group_src))
    given = {} if group_src is None else {"group_src": group_src}
    result = call(tensor, src, group, tag, **given)
    arrives(tensor, same_as(part))
    return result


# By module, the functions to replace and which argument decides.
COLLECTIVES = {
    "torch.distributed.distributed_c10d": {
        "all_reduce": (all_reduce, "tensor"),
        "broadcast": (broadcast, "tensor"),
        "all_gather": (all_gather, "tensor"),
        "all_gather_into_tensor": (all_gather_into_tensor, "input_tensor"),
        "all_to_all_single": (all_to_all_single, "input"),
        "send": (send, "tensor"),
        "isend": (send, "tensor"),
        "recv": (receive, "tensor"),
        "irecv": (receive, "tensor"),
    },
    "torch.distributed._functional_collectives": {
        "all_to_all_single": (functional_all_to_all_single, "self"),
    },
}


def replaced(call, by, decides):
    """A collective that also follows integers on a GPU. All ranks decide alike, by the type alone."""
    signature = inspect.signature(by)

    @functools.wraps(call)
    def collective(*args, **kwargs):
        given = signature.bind(call, *args, **kwargs)
        if is_followed(given.arguments[decides]):
            return by(*given.args, **given.kwargs)
        return call(*args, **kwargs)

    return collective


def follow():
    for name, functions in COLLECTIVES.items():
        module = importlib.import_module(name)
        public = torch.distributed if name.endswith("c10d") else module
        for function, (by, decides) in functions.items():
            collective = replaced(getattr(module, function), by, decides)
            setattr(module, function, collective)
            setattr(public, function, collective)
