#!/usr/bin/env python3
"""Compares what the stand-in of cuDNN says about workspaces with those measured on a GPU.

    check.py LIBCUDNN [workspaces.csv]

LIBCUDNN is the stand-in, as in FOLDER/cuda13/libcudnn.so.9 after `build FOLDER`. Asks it as PyTorch
does, through cuDNN's backend API. Prints which share of the measured workspaces lies within its
band, and the median width of the band as a multiple of the tensors of the convolution."""

import csv
import ctypes
import math
import os
import statistics
import sys
from ctypes import byref, c_int32, c_int64, c_void_p
from pathlib import Path

# Descriptors, attributes and types of cudnn_graph.h: of an operation, its convolution, x, w and y.
OPERATIONS = {
    "forward": (702, 704, 703, 705),
    "data": (708, 710, 709, 711),
    "weight": (714, 716, 715, 717),
}
TRANSPOSED = {"forward": "data", "data": "forward", "weight": "weight"}
TYPES = {"fp32": 0, "tf32": 0, "fp16": 2, "bf16": 9}
INSTANT, FALLBACK = 0, 2
# What the allocator rounds away.
SLACK = 4096
LARGE = 64 << 20
# The seed of the convolutions that did not serve to find the bounds.
HELD_OUT = "4"


class Cudnn:
    """The backend API of a library."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.cudnnBackendSetAttribute.argtypes = [
            c_void_p,
            c_int32,
            c_int32,
            c_int64,
            c_void_p,
        ]
        self.library.cudnnBackendGetAttribute.argtypes = [
            c_void_p,
            c_int32,
            c_int32,
            c_int64,
            c_void_p,
            c_void_p,
        ]
        self.library.cudnnBackendDestroyDescriptor.argtypes = [c_void_p]
        self.made = []

    def make(self):
        descriptor = c_void_p()
        self.library.cudnnBackendCreateDescriptor(0, byref(descriptor))
        self.made.append(descriptor)
        return descriptor

    def set(self, descriptor, attribute, value):
        """Sets an integer, a list of integers or a descriptor."""
        if isinstance(value, list):
            values, count = (c_int64 * len(value))(*value), len(value)
        else:
            values, count = byref(c_int32(value) if isinstance(value, int) else value), 1
        self.library.cudnnBackendSetAttribute(descriptor, attribute, 0, count, values)

    def tensor(self, kind, sizes, last):
        """A tensor whose channels are last or first."""
        order = [0, *range(2, len(sizes)), 1] if last else range(len(sizes))
        strides, step = [0] * len(sizes), 1
        for axis in reversed(order):
            strides[axis], step = step, step * sizes[axis]
        tensor = self.make()
        for attribute, value in ((901, kind), (902, sizes), (903, strides)):
            self.set(tensor, attribute, value)
        return tensor

    def asked(self, graph, mode, engine):
        """The configuration of an engine."""
        heuristics, found = self.make(), c_int64()
        self.set(heuristics, 201, graph)
        self.set(heuristics, 200, mode)
        configurations = [self.make(), self.make()]
        array = (c_void_p * 2)(*(one.value for one in configurations))
        self.library.cudnnBackendGetAttribute(heuristics, 202, 15, 2, byref(found), array)
        return configurations[engine]

    def workspaces(self, row, step):
        """The bands of the first plan, the fastest and the largest that is tried, and the bytes of
        the tensors."""
        x, w, y, stride, dilation = shapes(row)
        last = row["layout"] == "last"
        tensors = [self.tensor(TYPES[row["type"]], sizes, last) for sizes in (x, w, y)]
        convolution, operation, graph = self.make(), self.make(), self.make()
        self.set(convolution, 103, stride)
        self.set(convolution, 102, dilation)
        codes = OPERATIONS[TRANSPOSED[step] if row["transposed"] == "1" else step]
        for attribute, part in zip(codes, (convolution, *tensors)):
            self.set(operation, attribute, part)
        self.set(graph, 801, operation)
        engine = 1 if row["type"] == "fp32" else 0
        first = self.asked(graph, INSTANT, engine)
        bands = [self.band(first)]
        tried = self.asked(graph, FALLBACK, engine)
        bands += [self.band(first), self.band(tried)]
        for descriptor in self.made:
            self.library.cudnnBackendDestroyDescriptor(descriptor)
        self.made.clear()
        elements = sum(math.prod(sizes) for sizes in (x, w, y))
        return bands, elements * (4 if TYPES[row["type"]] == 0 else 2)

    def band(self, configuration):
        plan, found, bytes_, ends = self.make(), c_int64(), c_int64(), []
        self.set(plan, 401, configuration)
        for end in ("least", "most"):
            os.environ["FAKE_WORKSPACES"] = end
            self.library.cudnnBackendGetAttribute(plan, 402, 3, 1, byref(found), byref(bytes_))
            ends.append(bytes_.value)
        return ends


def shapes(row):
    """The sizes of x, w and y as cuDNN has them, the strides and the dilations."""
    names = ("batch", "in", "out", "groups", "kernel", "stride", "padding", "dilation")
    batch, channels, out, groups, kernel, stride, padding, dilation = (
        int(row[name]) for name in names
    )
    size = [int(part) for part in row["size"].split("x")]
    reach = dilation * (kernel - 1) + 1
    if row["transposed"] == "1":
        result = [(part - 1) * stride - 2 * padding + reach for part in size]
        size, result, channels, out = result, size, out, channels
    else:
        result = [(part + 2 * padding - reach) // stride + 1 for part in size]
    # PyTorch gives cuDNN two dimensions for one.
    one = [1] if len(size) == 1 else []
    window = one + [kernel] * len(size)
    return (
        [batch, channels, *one, *size],
        [out, channels // groups, *window],
        [batch, out, *one, *result],
        one + [stride] * len(size),
        one + [dilation] * len(size),
    )


def main():
    cudnn = Cudnn(sys.argv[1])
    path = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(__file__).with_name("workspaces.csv")
    groups = {}
    with path.open() as file:
        for row in csv.DictReader(file):
            fitted = "held out" if row["seed"] == HELD_OUT else "fitted"
            for step in OPERATIONS:
                (first, fastest, tried), tensors = cudnn.workspaces(row, step)
                cases = [("first", first, step)]
                if row["benchmark"] == "1":
                    cases = [("fastest", fastest, f"{step}_again"), ("tried", tried, step)]
                kinds = [row["type"], "all"]
                if tensors > LARGE:
                    kinds.append("over 64 MiB")
                for plan, (least, most), column in cases:
                    inside = least - SLACK <= int(row[column]) <= most + SLACK
                    for kind in kinds:
                        found = groups.setdefault((plan, kind, fitted), [])
                        found.append((inside, (most - least) / tensors))
    print("| plan | tensors | | workspaces | within | width |\n|---|---|---|--:|--:|--:|")
    for plan in ("first", "fastest", "tried"):
        for kind in (*TYPES, "all", "over 64 MiB"):
            for fitted in ("fitted", "held out"):
                if cases := groups.get((plan, kind, fitted)):
                    share = sum(inside for inside, _ in cases) / len(cases)
                    width = statistics.median(width for _, width in cases)
                    print(
                        f"| {plan} | {kind} | {fitted} | {len(cases)} | {share:.1%} | {width:.2f} |"
                    )


if __name__ == "__main__":
    main()
