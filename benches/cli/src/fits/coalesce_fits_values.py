"""What a PyTorch program reads from the simulated GPU.

No kernel runs, so the GPU has no values. Most integers and masks come from the host, however: token
ids, labels, lengths, edges, and what the program makes of them. They are also computed on the CPU,
so that a read of them gives what a GPU gives, and a mask selects as many elements.

Values that depend on weights are unknown. A read of them gives zeros or ones, and a mask of them
selects none or all of its elements: two environment variables decide. A router of experts chooses
each of them equally often. Such lines are noted."""

import contextlib
import ctypes
import os
import sys

from torch import arange, is_tensor
from torch import bool as boolean
from torch.overrides import TorchFunctionMode

# What an unknown read gives: "zeros" or "ones".
READS = os.environ["COALESCE_FITS_READS"]
# How much an unknown mask selects: "none" or "all".
SELECTS = os.environ["COALESCE_FITS_SELECTS"]

# Elements of the largest tensor that is computed on the CPU, too. Token ids of a batch have fewer.
MOST_ELEMENTS = 1 << 24

# Functions that return a value of the GPU as a number of Python.
READ = {"item", "tolist", "__bool__", "__int__", "__float__", "__index__", "__contains__"}
# Functions that can copy a tensor to the host.
COPY = {"cpu", "to"}
# Functions whose result has a shape that depends on values, and what PyTorch reads to know it.
SELECT = {
    "nonzero": lambda values: values.count_nonzero(),
    "argwhere": lambda values: values.count_nonzero(),
    "masked_select": lambda values: values.count_nonzero(),
    "where": lambda values: values.count_nonzero(),
    "__getitem__": lambda values: values.count_nonzero(),
    "__setitem__": lambda values: values.count_nonzero(),
    "unique": lambda values: values.unique().numel(),
    "unique_consecutive": lambda values: values.unique_consecutive().numel(),
    "repeat_interleave": lambda values: values.sum(),
    "bincount": lambda values: values.max(),
}
# Functions for which cuDNN or cuFFT takes workspaces.
CONVOLVE = {f"conv{kind}{size}d" for kind in ("", "_transpose") for size in (1, 2, 3)}
TRANSFORM = {"stft", "istft"}
TRANSFORM |= {f"fft_{i}{kind}fft{n}" for i in ("", "i") for kind in ("", "r", "h") for n in ("", "2", "n")}
# A router chooses among this many experts at most, and this many of them for a token.
MOST_EXPERTS = 512
MOST_CHOSEN = 16
# Functions whose values are random: those on the CPU would differ.
RANDOM = {"randint", "randint_like", "randperm", "random_", "bernoulli_", "geometric_"}

# Operators whose result is known if one operand has this value: true for "or", false for "and" and for
# products. Text generation ends at its limit, which is known, or at a token, which is not.
DECIDES = {
    **dict.fromkeys(("__or__", "__ror__", "__ior__", "bitwise_or", "logical_or"), True),
    **dict.fromkeys(("__and__", "__rand__", "__iand__", "bitwise_and", "logical_and"), False),
    **dict.fromkeys(("__mul__", "__rmul__", "mul", "mul_"), False),
}

# The attribute of a tensor on the GPU with its values on the host, or with a function that returns them or None.
HOST = "_coalesce_fits_host"


class Values(TorchFunctionMode):
    """Sees every call of PyTorch's functions by the program."""

    def __init__(self, note, pinned=lambda tensor: None):
        """`note` is called with "values", "shapes", "routes" or "workspaces" for each call after which
        the memory of a real GPU may differ; `pinned`, with each tensor on the host that may be pinned."""
        super().__init__()
        self.note, self.pinned = note, pinned
        self.simulated = ctypes.CDLL("libcuda.so.1")
        self.simulated.fakecuda_set_count.argtypes = [ctypes.c_uint64]

    def __torch_function__(self, function, types, args=(), kwargs=None):
        # pytest shows the program's own line.
        __tracebackhide__ = True
        kwargs = kwargs or {}
        name = getattr(function, "__name__", "")
        # A property, such as the shape.
        if name == "__get__":
            return function(*args)
        if not args or not on_gpu(args[0]):
            result = function(*args, **kwargs)
            if pins(name, kwargs) and is_tensor(result) and not result.is_cuda:
                self.pinned(result)
        elif name in READ:
            return self.read(function, args, kwargs)
        else:
            if name in CONVOLVE or name in TRANSFORM:
                self.note("workspaces")
            mask = mask_of(name, args, kwargs)
            if mask is None:
                result = function(*args, **kwargs)
            else:
                result = self.selected(mask, name, function, args, kwargs)
            if name in COPY and is_tensor(result) and not result.is_cuda:
                if pins(name, kwargs):
                    self.pinned(result)
                return self.copied(args[0], result)
            if name == "topk":
                self.routed(args[0], result)
        follow(name, function, args, kwargs, result)
        return result

    def read(self, function, args, kwargs):
        """The result of a function that reads."""
        result = function(*args, **kwargs)
        host = hosted(args)
        if host is not None:
            return function(*host, **kwargs)
        self.note("values")
        return ones_like(result) if READS == "ones" else result

    def copied(self, tensor, result):
        """A copy on the host, with its values."""
        host = known(tensor)
        if host is not None:
            result.copy_(host)
        elif result.dtype is boolean:
            # The program may select elements of other copies by it.
            self.note("shapes")
            result.fill_(SELECTS == "all")
        elif READS == "ones":
            result.fill_(1)
        return result

    def selected(self, mask, name, function, args, kwargs):
        """The result of a function that selects elements."""
        host = known(mask)
        if host is not None:
            count = int(SELECT[name](host)) if host.numel() > 0 else 0
        else:
            self.note("shapes")
            count = mask.numel() if SELECTS == "all" else 0
        self.reads(count)
        try:
            result = function(*args, **kwargs)
        finally:
            self.reads(0)
        changed = args[0] if name == "__setitem__" else result
        node = changed.grad_fn if is_tensor(changed) else None
        if node is not None:
            # The backward pass looks at the mask again.
            node.register_prehook(lambda *gradients: self.reads(count))
            node.register_hook(lambda *gradients: self.reads(0))
        return result

    def routed(self, scores, result):
        """Assumes that a router chooses each expert equally often."""
        indices = result[1]
        experts, chosen = scores.shape[-1], indices.shape[-1]
        is_router = scores.ndim > 1 and chosen < experts <= MOST_EXPERTS and chosen <= MOST_CHOSEN
        if is_router and scores.shape[:-1] == indices.shape[:-1]:
            self.note("routes")
            setattr(indices, HOST, (arange(indices.numel()) % experts).view(indices.shape))

    def reads(self, count):
        """Sets what PyTorch reads where it asks how many elements a mask selects."""
        self.simulated.fakecuda_set_count(count)
        # Some check the values first.
        self.simulated.fakecuda_set_bool(int(count > 0))


def on_gpu(tensor):
    return is_tensor(tensor) and tensor.is_cuda


def known(tensor):
    """The values of a tensor on the GPU, or None."""
    host = getattr(tensor, HOST, None)
    if callable(host):
        host = host()
        setattr(tensor, HOST, host)
    return host


def pins(name, kwargs):
    """Whether a function of PyTorch may make a tensor in pinned memory."""
    return kwargs.get("pin_memory") or (name == "to" and kwargs.get("non_blocking"))


def mask_of(name, args, kwargs):
    """The tensor whose values decide the shape of a call's result, if one does."""
    if name not in SELECT or (name == "where" and (len(args) > 1 or kwargs)):
        return None
    if name in ("__getitem__", "__setitem__"):
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        return next((part for part in parts if is_tensor(part) and part.dtype is boolean), None)
    if name in ("masked_select", "repeat_interleave"):
        found = args[1] if len(args) > 1 else kwargs.get("mask", kwargs.get("repeats"))
        return found if is_tensor(found) else None
    return args[0]


def follow(name, function, args, kwargs, result):
    """Computes the result on the host, too, if all of its values come from there."""
    changes = name.endswith("_") and not name.endswith("__") or name == "__setitem__"
    target = args[0] if changes and args else kwargs.get("out", result)
    if not is_followed(target):
        return
    host = None
    with contextlib.suppress(Exception):
        if name in ("cuda", "to"):
            # Not by the same function, which would bring the values to the GPU.
            source = hosted(args[0])
            host = None if source is None else source.detach().to(target.dtype, copy=True)
        elif name not in RANDOM:
            host = computed(function, args, kwargs)
            if host is None and name in DECIDES:
                host = decided(DECIDES[name], args, target)
    if is_tensor(host) and not host.is_cuda and host.shape == target.shape:
        setattr(target, HOST, host)
    elif hasattr(target, HOST):
        delattr(target, HOST)


def is_followed(tensor):
    """Whether the values of a tensor are worth knowing: integers and masks."""
    return (
        on_gpu(tensor)
        and not tensor.is_floating_point()
        and not tensor.is_complex()
        and tensor.numel() <= MOST_ELEMENTS
    )


def computed(function, args, kwargs):
    """What a function returns, or changes, on the host."""
    there, named = hosted(args), hosted(kwargs)
    if there is None or named is None:
        return None
    if "device" in named:
        named["device"] = "cpu"
    result = function(*there, **named)
    # An assignment to elements returns nothing.
    return there[0] if result is None else result


def decided(value, operands, target):
    """The result of an operator if one of the operands is known to be this value, which decides."""
    for operand in operands:
        host = hosted(operand)
        if is_tensor(host) and (host.dtype is boolean or not value) and (host == value).all():
            return host.new_full(target.shape, value, dtype=target.dtype)
    return None


def hosted(value):
    """The same arguments with tensors on the host; None if the values of one are unknown."""
    if is_tensor(value):
        return known(value) if value.is_cuda else value
    if isinstance(value, (tuple, list)):
        parts = [hosted(part) for part in value]
        lost = any(now is None and part is not None for now, part in zip(parts, value))
        return None if lost else type(value)(parts)
    if isinstance(value, dict):
        parts = {key: hosted(part) for key, part in value.items()}
        lost = any(parts[key] is None and part is not None for key, part in value.items())
        return None if lost else parts
    return value


def ones_like(value):
    """A value of the same type and structure, of ones."""
    if isinstance(value, list):
        return [ones_like(part) for part in value]
    return type(value)(1)


def line_of_program():
    """The innermost caller outside of PyTorch and of these modules, as FILE:LINE."""
    frame = sys._getframe(1)
    here = os.path.dirname(__file__)
    inside = f"{os.sep}torch{os.sep}"
    while frame.f_back and (
        inside in frame.f_code.co_filename or os.path.dirname(frame.f_code.co_filename) == here
    ):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"
