#!/usr/bin/env python3
"""Records what NVIDIA's driver answers to sequences of calls: addresses, its pool's memory, times.

    scripts/gpu/driver_calls.py OUT [--seed 1] [--processes 3] [--calls 9000] [--only TEXT]
                                    [--traces FOLDER]

Each sequence runs in a process of its own, since the driver's choices depend on all earlier calls.
Needs only the driver. OUT gets a table for each sequence; columns:

    addresses-*.csv   call, bytes, address (hexadecimal), nanoseconds; first the context's memory
    pool-*.csv        call, id, bytes, stream, address, bytes that the pool holds, nanoseconds; in a
                      row `wait`, the stream waits for the one in the column id

allocator/tests/addresses and allocator/tests/pool keep parts of some. With COALESCE_DRIVER_CALLS=OUT,
`cargo test -p coalesce-alloc` compares the address policy `cuda` with all of them."""

import argparse
import csv
import ctypes
import gzip
import multiprocessing
import random
import sys
import time
from pathlib import Path

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
OUT_OF_MEMORY = 2
u64, void = ctypes.c_uint64, ctypes.c_void_p


class DriverError(Exception):
    pass


class Properties(ctypes.Structure):
    """CUmemAllocationProp: pinned memory of the first device."""

    _fields_ = [
        *((name, ctypes.c_int) for name in ("type", "handles", "location", "device")),
        ("win32", void),
        ("flags", ctypes.c_ubyte * 8),
    ]


class Access(ctypes.Structure):
    """CUmemAccessDesc: reads and writes of the first device."""

    _fields_ = [(name, ctypes.c_int) for name in ("location", "device", "flags")]


class Driver:
    """The driver's calls that an allocator makes. Each returns what it placed, or None if memory
    ran out."""

    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.nanoseconds = 0
        device, context = ctypes.c_int(), void()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        total = ctypes.c_size_t()
        self.call("cuDeviceTotalMem_v2", ctypes.byref(total), device)
        self.total = total.value
        self.properties = Properties(type=1, location=1)
        self.access = Access(location=1, flags=3)

    def call(self, name, *arguments):
        begun = time.perf_counter_ns()
        status = getattr(self.cuda, name)(*arguments)
        self.nanoseconds = time.perf_counter_ns() - begun
        if status not in (0, OUT_OF_MEMORY):
            raise DriverError(f"{name}: error {status}")
        return status == 0

    def malloc(self, size):
        address = u64()
        return (
            address.value if self.call("cuMemAlloc_v2", ctypes.byref(address), u64(size)) else None
        )

    def free(self, address):
        self.call("cuMemFree_v2", u64(address))

    def reserve(self, size):
        address = u64()
        done = self.call(
            "cuMemAddressReserve", ctypes.byref(address), u64(size), u64(0), u64(0), u64(0)
        )
        return address.value if done else None

    def unreserve(self, address, size):
        self.call("cuMemAddressFree", u64(address), u64(size))

    def create(self, size):
        page = u64()
        done = self.call(
            "cuMemCreate", ctypes.byref(page), u64(size), ctypes.byref(self.properties), u64(0)
        )
        return page.value if done else None

    def map(self, address, size, page):
        self.call("cuMemMap", u64(address), u64(size), u64(0), u64(page), u64(0))
        self.call("cuMemSetAccess", u64(address), u64(size), ctypes.byref(self.access), u64(1))

    def unmap(self, address, size, page):
        self.call("cuMemUnmap", u64(address), u64(size))
        self.call("cuMemRelease", u64(page))

    def synchronize(self):
        self.call("cuCtxSynchronize")


def table(path, columns):
    file = open(path, "w", newline="")
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(columns)
    return rows


CONTEXT_BYTES = 512 * MIB


def context_start():
    """Where the context's own memory lies: addresses without access, hardly more than 512 MiB. None
    if the driver is not NVIDIA's."""
    with open("/proc/self/maps") as maps:
        for line in maps:
            range_, access = line.split()[:2]
            start, end = (int(it, 16) for it in range_.split("-"))
            is_size = CONTEXT_BYTES <= end - start < CONTEXT_BYTES + 32 * MIB
            if access == "---p" and is_size and start % (32 * MIB) == 0:
                return start
    return None


# Sequences of allocations and reservations. Each draws a size in bytes.


def of_pytorch(random, most=600):
    kind = random.random()
    if kind < 0.3:
        return 2 * MIB
    if kind < 0.5:
        return 20 * MIB
    return 2 * MIB * random.randint(1, most // 2)


def small(random):
    return random.choice((2 * MIB, 20 * MIB))


def any_size(random):
    """From a byte to a GiB, evenly distributed on a logarithmic scale."""
    return int(2 ** random.uniform(0, 30))


SIZES = {
    "pytorch": of_pytorch,
    "small": small,
    "up_to_240_mib": lambda random: of_pytorch(random, 240),
    "any": any_size,
}


class Addresses:
    """Random allocations, reservations and mappings that hold `live` bytes at most."""

    def __init__(self, driver, path, random, live):
        self.driver, self.random, self.live = driver, random, live
        self.rows = table(path, ("call", "bytes", "address", "nanoseconds"))
        self.driver.nanoseconds = 0
        self.note("context", CONTEXT_BYTES, context_start())
        self.allocations, self.reservations = [], []
        self.held = 0

    def note(self, call, size, address):
        text = "" if address is None else f"{address:x}"
        self.rows.writerow((call, size, text, self.driver.nanoseconds))

    def malloc(self, size):
        if self.held + size > self.live:
            return self.free()
        address = self.driver.malloc(size)
        self.note("malloc", size, address)
        if address is not None:
            self.held += size
            self.allocations.append((address, size))

    def free(self):
        if not self.allocations:
            return
        address, size = self.taken(self.allocations)
        self.driver.free(address)
        self.note("free", size, address)
        self.held -= size

    def taken(self, items):
        """One of them at random, which is no longer in the list."""
        index = self.random.randrange(len(items))
        items[index], items[-1] = items[-1], items[index]
        return items.pop()

    def reserve(self, size):
        address = self.driver.reserve(size)
        self.note("reserve", size, address)
        if address is not None:
            self.reservations.append((address, size, []))

    def unreserve(self):
        address, size, pages = self.taken(self.reservations)
        while pages:
            self.unmap(pages)
        self.driver.unreserve(address, size)
        self.note("unreserve", size, address)

    def unmap(self, pages):
        address, size, page = pages.pop()
        self.driver.unmap(address, size, page)
        self.note("unmap", size, address)
        self.held -= size

    def map(self, page_bytes):
        """Maps one more page at the end of a reservation, as an expandable segment grows."""
        address, size, pages = self.random.choice(self.reservations)
        offset = len(pages) * page_bytes
        if pages and pages[0][1] != page_bytes or offset + page_bytes > size:
            return
        if self.held + page_bytes > self.live:
            if pages:
                self.unmap(pages)
            return
        page = self.driver.create(page_bytes)
        self.note("create", page_bytes, page)
        if page is None:
            return
        self.driver.map(address + offset, page_bytes, page)
        self.note("map", page_bytes, address + offset)
        pages.append((address + offset, page_bytes, page))
        self.held += page_bytes


def only_mallocs(sequence, calls, size_of):
    for _ in range(calls):
        if sequence.random.random() < 0.53:
            sequence.malloc(size_of(sequence.random))
        else:
            sequence.free()


def emptied_at_times(sequence, calls, size_of):
    for number in range(calls):
        if number % 700 == 699:
            for _ in range(len(sequence.allocations) * 9 // 10):
                sequence.free()
        elif sequence.random.random() < 0.6:
            sequence.malloc(size_of(sequence.random))
        else:
            sequence.free()


def reservations(sequence, calls, size_of, bytes_of, mapped):
    """Allocations, and reservations with pages in them if `mapped`."""
    for _ in range(calls):
        kind = sequence.random.random()
        if kind < 0.08 and len(sequence.reservations) < 40:
            sequence.reserve(bytes_of(sequence.random))
        elif kind < 0.14 and sequence.reservations:
            sequence.unreserve()
        elif kind < 0.5 and mapped and sequence.reservations:
            sequence.map(sequence.random.choice((2 * MIB, 20 * MIB)))
        elif kind < 0.56 and sequence.reservations:
            pages = sequence.random.choice(sequence.reservations)[2]
            if pages:
                sequence.unmap(pages)
        elif kind < 0.79:
            sequence.malloc(size_of(sequence.random))
        else:
            sequence.free()


def expandable_bytes(sequence):
    """An expandable segment of PyTorch reserves nine eighths of the device's memory."""
    return (sequence.driver.total * 9 // 8 + 2 * MIB - 1) // (2 * MIB) * (2 * MIB)


def some_bytes(random):
    """Multiples of 2 MiB up to 64 GiB, evenly distributed on a logarithmic scale."""
    return 2 * MIB * int(2 ** random.uniform(0, 15))


ADDRESSES = {
    "mallocs-pytorch": lambda s, n: only_mallocs(s, n, SIZES["pytorch"]),
    "mallocs-small": lambda s, n: only_mallocs(s, n, small),
    "mallocs-any": lambda s, n: only_mallocs(s, n, any_size),
    "emptied": lambda s, n: emptied_at_times(s, n, SIZES["up_to_240_mib"]),
    "expandable": lambda s, n: reservations(
        s, n, SIZES["pytorch"], lambda _: expandable_bytes(s), True
    ),
    "reservations": lambda s, n: reservations(s, n, SIZES["pytorch"], some_bytes, False),
    "mixed": lambda s, n: reservations(s, n, any_size, some_bytes, True),
}


# Sequences of the driver's pool.

THRESHOLD, RESERVED = 4, 5
FOLLOW_EVENTS, OPPORTUNISTIC, INTERNAL_DEPENDENCIES = 1, 2, 3


class Pool:
    """Calls of the device's default pool, which keeps all memory until it is trimmed."""

    def __init__(self, driver, path, random, live):
        self.driver, self.random, self.live = driver, random, live
        self.rows = table(path, ("call", "id", "bytes", "stream", "address", "held", "nanoseconds"))
        self.pool, self.streams, self.blocks = void(), {}, {}
        self.used = self.next_id = 0
        self.gates, self.held_up = None, {}
        driver.call("cuDeviceGetDefaultMemPool", ctypes.byref(self.pool), 0)
        self.set(THRESHOLD, (1 << 64) - 1, u64)

    def set(self, attribute, value, kind=ctypes.c_int):
        value = kind(value)
        self.driver.call("cuMemPoolSetAttribute", self.pool, attribute, ctypes.byref(value))

    def held(self):
        value = u64()
        self.driver.call("cuMemPoolGetAttribute", self.pool, RESERVED, ctypes.byref(value))
        return value.value

    def stream(self, number):
        """Stream 0 is the default stream."""
        if number and number not in self.streams:
            self.streams[number] = void()
            self.driver.call("cuStreamCreate", ctypes.byref(self.streams[number]), 1)
        return self.streams.get(number, void(0))

    def note(self, call, identity="", size="", stream="", address=None):
        nanoseconds = self.driver.nanoseconds
        text = "" if address is None else f"{address:x}"
        self.rows.writerow((call, identity, size, stream, text, self.held(), nanoseconds))

    def malloc(self, size, stream=0, identity=None):
        identity = self.next_id if identity is None else identity
        self.next_id = max(self.next_id, identity) + 1
        address = u64()
        handle = self.stream(stream)
        done = self.driver.call("cuMemAllocAsync", ctypes.byref(address), u64(size), handle)
        self.note("malloc", identity, size, stream, address.value if done else None)
        if done:
            self.blocks[identity] = (address.value, size)
            self.used += size
        return identity

    def free(self, identity, stream=0):
        if identity not in self.blocks:
            return
        address, size = self.blocks.pop(identity)
        self.used -= size
        self.driver.call("cuMemFreeAsync", u64(address), self.stream(stream))
        self.note("free", identity, size, stream, address)

    def trim(self, keep=0):
        self.driver.call("cuMemPoolTrimTo", self.pool, ctypes.c_size_t(keep))
        self.note("trim", "", keep)

    def hold_up(self, stream):
        """Work that stays pending on a stream until it is let through."""
        if self.gates is None:
            memory, address = void(), u64()
            self.driver.call("cuMemHostAlloc", ctypes.byref(memory), ctypes.c_size_t(4096), 2)
            self.driver.call("cuMemHostGetDevicePointer_v2", ctypes.byref(address), memory, 0)
            ctypes.memset(memory.value, 0, 4096)
            self.gates = (memory.value, address.value)
        turn = self.held_up[stream] = abs(self.held_up.get(stream, 0)) + 1
        gate, value = u64(self.gates[1] + 4 * stream), ctypes.c_uint32(turn)
        self.driver.call("cuStreamWaitValue32_v2", self.stream(stream), gate, value, 0)
        self.note("hold", "", "", stream)

    def let_through(self, stream):
        """Ends pending work, and waits until the device has noticed."""
        turn = self.held_up[stream]
        ctypes.c_uint32.from_address(self.gates[0] + 4 * stream).value = turn
        self.held_up[stream] = -turn
        time.sleep(0.0005)
        self.note("let", "", "", stream)

    def is_held_up(self, stream):
        return self.held_up.get(stream, 0) > 0

    def synchronize(self, stream=None):
        for held in [it for it in self.held_up if self.is_held_up(it)]:
            self.let_through(held)
        if stream is None:
            self.driver.synchronize()
        else:
            self.driver.call("cuStreamSynchronize", self.stream(stream))
        self.note("synchronize", "", "", "" if stream is None else stream)

    def wait(self, waiting, other):
        """Lets a stream wait for what is enqueued on another."""
        event = void()
        self.driver.call("cuEventCreate", ctypes.byref(event), 2)
        self.driver.call("cuEventRecord", event, self.stream(other))
        self.driver.call("cuStreamWaitEvent", self.stream(waiting), event, 0)
        self.driver.call("cuEventDestroy_v2", event)
        self.note("wait", other, "", waiting)


def growth(sequence, _):
    """Memory for one allocation of each size, in an empty pool each time."""
    sizes = [512, 4 * KIB, MIB, 2 * MIB, 3 * MIB, 16 * MIB, 31 * MIB, 32 * MIB, 33 * MIB, 63 * MIB]
    sizes += [64 * MIB, 65 * MIB, 100 * MIB, 500 * MIB, GIB, GIB + 512, 4 * GIB, 100]
    for size in sizes:
        sequence.free(sequence.malloc(size))
        sequence.trim()
        sequence.synchronize()
        sequence.trim()
    for size in sizes:
        sequence.malloc(size)
    for size in reversed(sizes):
        sequence.malloc(size)
    for identity in list(sequence.blocks):
        sequence.free(identity)


def neighbours(sequence, _):
    """What becomes of free memory beside other free memory, and in several places."""
    for unit in (2 * MIB, 8 * MIB, 32 * MIB, 40 * MIB, 100 * MIB):
        for each, step in ((1, 2), (2, 3), (1, 3), (3, 4)):
            blocks = [sequence.malloc(unit) for _ in range(24)]
            for index, block in enumerate(blocks):
                if index % step < each:
                    sequence.free(block)
            for factor in (1, 2, 3, 5, 8):
                sequence.malloc(unit * factor)
                sequence.malloc(unit * factor // 2 + 512)
            for identity in list(sequence.blocks):
                sequence.free(identity)
            sequence.synchronize()
            sequence.malloc(10 * unit)
            sequence.free(sequence.next_id - 1)
            sequence.synchronize()
            sequence.trim()


def churn(
    sequence,
    calls,
    size_of,
    streams=1,
    waits=0.0,
    synchronizes=0.0,
    trims=0.0,
    holds=0.0,
    idle=False,
):
    """Random allocations on one or several streams; frees on the stream of the allocation. With
    `holds`, work is pending at times. If `idle`, every free is complete before the next call."""
    own = {}
    for _ in range(calls):
        kind = sequence.random.random()
        if kind < waits and streams > 1:
            waiting, other = sequence.random.sample(range(1, streams + 1), 2)
            sequence.wait(waiting, other)
        elif kind < waits + synchronizes:
            sequence.synchronize()
        elif kind < waits + synchronizes + trims:
            sequence.trim(sequence.random.choice((0, GIB, 4 * GIB)))
        elif kind < waits + synchronizes + trims + holds:
            stream = sequence.random.randint(1, streams)
            if sequence.is_held_up(stream):
                sequence.let_through(stream)
            else:
                sequence.hold_up(stream)
        elif sequence.random.random() < 0.53 and sequence.used < sequence.live:
            stream = sequence.random.randint(1, streams)
            own[sequence.malloc(size_of(sequence.random), stream)] = stream
        elif sequence.blocks:
            identity = sequence.random.choice(list(sequence.blocks))
            sequence.free(identity, own[identity])
            if idle:
                sequence.synchronize()
    if holds:
        # Pending work would keep the process from ending.
        sequence.synchronize()


def with_reuse(events, opportunistic, internal):
    def set_and_churn(sequence, calls):
        for attribute, value in ((1, events), (2, opportunistic), (3, internal)):
            sequence.set(attribute, value)
        churn(sequence, calls, SIZES["up_to_240_mib"], 3, waits=0.1, synchronizes=0.01)

    return set_and_churn


def trace(path):
    def replay(sequence, _):
        with gzip.open(path, "rt", newline="") as file:
            lines = (line for line in file if not line.startswith("#"))
            for row in csv.DictReader(lines):
                identity, stream = int(row["id"]), int(row["stream"])
                if row["op"] == "alloc":
                    sequence.malloc(int(row["bytes"]), stream, identity)
                elif row["op"] == "free":
                    sequence.free(identity, stream)
                elif row["op"] == "empty_cache":
                    sequence.synchronize()
                    sequence.trim()

    return replay


POOLS = {
    "growth": growth,
    "neighbours": neighbours,
    "churn-small": lambda s, n: churn(s, n, lambda random: int(2 ** random.uniform(0, 20))),
    "churn-pages": lambda s, n: churn(s, n, small, synchronizes=0.001),
    "churn-pytorch": lambda s, n: churn(s, n, SIZES["up_to_240_mib"], synchronizes=0.001),
    "churn-any": lambda s, n: churn(s, n, any_size, synchronizes=0.001),
    "churn-trimmed": lambda s, n: churn(s, n, any_size, synchronizes=0.01, trims=0.003),
    "idle-small": lambda s, n: churn(
        s, n, lambda random: int(2 ** random.uniform(0, 20)), idle=True
    ),
    "idle-pages": lambda s, n: churn(s, n, small, idle=True),
    "idle-any": lambda s, n: churn(s, n, any_size, idle=True),
    "pending": lambda s, n: churn(s, n, SIZES["up_to_240_mib"], synchronizes=0.001, holds=0.03),
    "pending-any": lambda s, n: churn(s, n, any_size, synchronizes=0.001, holds=0.03),
    "pending-streams": lambda s, n: churn(s, n, SIZES["up_to_240_mib"], 3, holds=0.06),
    "pending-waits": lambda s, n: churn(
        s, n, SIZES["up_to_240_mib"], 3, waits=0.1, synchronizes=0.01, holds=0.06
    ),
    "streams-default": with_reuse(1, 1, 1),
    "streams-none": with_reuse(0, 0, 0),
    "streams-events": with_reuse(1, 0, 0),
    "streams-opportunistic": with_reuse(0, 1, 0),
    "streams-internal": with_reuse(0, 0, 1),
}


def record(kind, name, program, out, seed, calls, live):
    driver = Driver()
    path = out / f"{kind.__name__.lower()}-{name}.csv"
    program(kind(driver, path, random.Random(f"{seed} {name}"), live), calls)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="a folder")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=3, help="sequences of each kind (3)")
    parser.add_argument("--calls", type=int, default=9000, help="calls of a sequence (9000)")
    parser.add_argument("--only", default="", help="sequences whose names contain this text")
    parser.add_argument("--traces", type=Path, help="also requests of these traces, on the pool")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time (1)")
    parser.add_argument(
        "--live", type=float, default=15, help="GiB that a sequence holds at most (15)"
    )
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    work = []
    for number in range(options.seed, options.seed + options.processes):
        work += [(Addresses, f"{name}-{number}", program) for name, program in ADDRESSES.items()]
        work += [(Pool, f"{name}-{number}", program) for name, program in POOLS.items()]
    for path in sorted(options.traces.glob("*.csv.gz")) if options.traces else ():
        work.append((Pool, path.name.removesuffix(".csv.gz"), trace(path)))
    multiprocessing.set_start_method("fork")
    running, failed = [], 0
    for kind, name, program in work:
        if options.only not in f"{kind.__name__.lower()}-{name}":
            continue
        while len(running) >= options.jobs:
            time.sleep(0.01)
            failed += sum(bool(it.exitcode) for it in running)
            running = [it for it in running if it.exitcode is None]
        live = int(options.live * GIB)
        arguments = (kind, name, program, options.out, options.seed, options.calls, live)
        running.append(multiprocessing.Process(target=record, args=arguments))
        running[-1].start()
        print(kind.__name__.lower(), name, flush=True)
    for process in running:
        process.join()
        failed += bool(process.exitcode)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
