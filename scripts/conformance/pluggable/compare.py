"""Compares what a program reports under PyTorch's own allocator and under Coalesce."""

import bisect
import re


class Difference(Exception):
    pass


def equal(reports):
    """Summarizes two equal reports."""
    native, ours = reports["native"], reports["coalesce"]
    for key, value in native["stats"].items():
        if ours["stats"].get(key) != value:
            raise Difference(f"{key}: {value} native, {ours['stats'].get(key)} ours")
    traces = [[entries(t) for t in r["snapshot"]["device_traces"]] for r in (native, ours)]
    for device, (left, right) in enumerate(zip(*traces, strict=True)):
        for number, pair in enumerate(zip(left, right, strict=False)):
            if pair[0] != pair[1]:
                raise Difference(
                    f"device {device}, entry {number}: {pair[0]} native, {pair[1]} ours"
                )
        if len(left) != len(right):
            raise Difference(f"device {device}: {len(left)} entries native, {len(right)} ours")
    for part in native.keys() - {"snapshot"}:
        if list_of(native[part]) != list_of(ours[part]):
            raise Difference(f"{part}: {native[part]}\nnative\n{ours[part]}\nours")
    for part in ("segments", "allocator_settings"):
        left, right = native["snapshot"][part], ours["snapshot"][part]
        if repr(left) != repr(right):
            raise Difference(f"{part}: {left}\nnative\n{right}\nours")
    stats, count = ours["stats"], sum(len(trace) for trace in traces[1])
    return (
        f"{count} entries of the history equal, {stats['allocation.all.allocated']} allocations, "
        f"{stats['num_ooms']} out of memory, peak {stats['reserved_bytes.all.peak']} bytes"
    )


def entries(trace):
    """An entry without its time, including keys and their order."""
    return [[(k, v) for k, v in entry.items() if k != "time_us"] for entry in trace]


def list_of(value):
    return list(value.items()) if isinstance(value, dict) else value


class Names:
    """Names for the addresses and streams of one process, which another process has elsewhere: the
    place of the segment in the order of creation and the offset, the place of the stream."""

    def __init__(self, snapshot):
        self.starts, self.streams = [], {}
        traces = [entry for trace in snapshot["device_traces"] for entry in trace]
        extents = [(e["addr"], e["size"]) for e in traces if e["action"] in TAKES]
        extents += [(s["address"], s["total_size"]) for s in snapshot["segments"]]
        numbers = {}
        for start, size in extents:
            number = numbers.setdefault(start, (len(numbers), size))[0]
            numbers[start] = number, max(size, numbers[start][1])
        self.starts = sorted((start, size, number) for start, (number, size) in numbers.items())
        for item in [*traces, *snapshot["segments"]]:
            self.streams.setdefault(item["stream"], len(self.streams))

    def address(self, address):
        index = bisect.bisect(self.starts, (address, float("inf"))) - 1
        start, size, number = self.starts[max(index, 0)] if self.starts else (0, 0, 0)
        return (number, address - start) if start <= address < start + size else address

    def renamed(self, snapshot):
        for trace in snapshot["device_traces"]:
            for entry in trace:
                if entry["action"] != "snapshot" and "addr" in entry:
                    entry["addr"] = self.address(entry["addr"])
                # How much of a GPU is free depends on others.
                entry.pop("device_free", None)
                entry["stream"] = self.streams[entry["stream"]]
        for segment in snapshot["segments"]:
            segment["address"] = self.address(segment["address"])
            segment["stream"] = self.streams[segment["stream"]]
            for block in segment["blocks"]:
                block["address"] = self.address(block["address"])
        snapshot["segments"].sort(key=lambda segment: segment["address"])


TAKES = ("segment_alloc", "segment_map")
# What an error says about a GPU that other processes use too.
FREE = re.compile(r"of which \S+ \S+ is free\. (.* memory in use\. )?")


def without_addresses(reports):
    """Leaves out of two reports what differs between any two processes on a GPU.

    Addresses become relative to their segments."""
    for report in reports.values():
        Names(report["snapshot"]).renamed(report["snapshot"])
        said = report.get("said", ())
        report["said"] = [FREE.sub("", t) if isinstance(t, str) else t for t in said]
