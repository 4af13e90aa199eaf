"""Traces for the originals: the source of the operations, and the writer of vectors.

The format is described in allocator/tests/suite/originals.rs; operations are its lines without the
outcome.
"""

import random
import re
from typing import NamedTuple

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
_HEADER = re.compile(r"# (\w+): ?(.*)")


class Trace(NamedTuple):
    """The input for an original."""

    name: str
    conf: str
    """Our settings string."""
    capacity: int
    """Bytes of the device."""
    lines: list[str]
    """Operations, and comments that begin with a #."""


def read(path):
    """Reads the trace of a vector, or of a file without outcomes."""
    headers, lines = {}, []
    for line in path.read_text(encoding="utf-8").splitlines():
        header = _HEADER.fullmatch(line)
        if header and not lines:
            headers[header[1]] = header[2]
        elif line.startswith("#"):
            lines.append(line)
        elif line:
            lines.append(" ".join(line.split()[:4]))
    return Trace(path.name, headers.get("conf", ""), int(headers.get("capacity", GIB)), lines)


def write(path, original, policy, trace, outcomes):
    """Writes a vector: the lines of a trace with their outcomes. Returns the number of lines."""
    headers = {
        "original": original,
        "policy": policy,
        "conf": trace.conf,
        "capacity": trace.capacity,
    }
    lines = [f"# {key}: {value}".rstrip() for key, value in headers.items()] + outcomes
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return sum(not line.startswith("#") for line in outcomes)


def random_trace(seed, confs, count, most_streams=1, records=False):
    """A random trace, determined by its arguments; with record_stream if it `records`."""
    rng = random.Random(seed)
    streams = rng.randrange(1, most_streams + 1)
    return Trace(
        name=f"random-{seed}.txt",
        conf=rng.choice(confs),
        capacity=rng.choice([128 * MIB, 512 * MIB, 4 * GIB]),
        lines=list(_random_ops(rng, count, streams, records)),
    )


def _few_sizes(rng):
    """A few sizes, as in a model's layers: free blocks often have equal sizes."""
    sizes = [rng.choice([1, 3, 5]) << rng.randrange(8, 23) for _ in range(rng.randrange(2, 7))]
    return lambda: rng.choice(sizes)


def _any_size(rng):
    """All orders of magnitude up to 64 MiB with equal probability."""
    return lambda: int(2 ** rng.uniform(0, 26))


def _small(rng):
    return lambda: rng.randrange(1, 8 * KIB)


def _around_boundaries(rng):
    """One byte below, at and above multiples of a unit."""
    units = [256, 512, 4 * KIB, MIB, 2 * MIB, 10 * MIB]
    return lambda: max(1, rng.choice(units) * rng.randrange(1, 6) + rng.randrange(-1, 2))


_MIXES = (_few_sizes, _any_size, _small, _around_boundaries)


def _random_ops(rng, count, streams, records):
    live, made = [], 0
    size, most_live, take = None, 0, None
    for _ in range(count):
        if size is None or rng.random() < 0.003:
            size = rng.choice(_MIXES)(rng)
            most_live = rng.choice([4, 30, 100, 400])
            # Which live block is freed: a random one, the newest, the oldest.
            take = rng.choice([lambda: rng.randrange(len(live)), lambda: -1, lambda: 0])
        if rng.random() < 0.003:
            yield "e"
        elif rng.random() < 0.003:
            rng.shuffle(live)
            yield from (f"f {name}" for name in live)
            live.clear()
        elif records and live and rng.random() < 0.05:
            yield f"r {rng.choice(live)} {rng.randrange(streams)}"
        elif live and rng.random() < (0.35 if len(live) < most_live else 0.6):
            yield f"f {live.pop(take())}"
        else:
            yield f"a {made} {size()} {rng.randrange(streams)}"
            live.append(made)
            made += 1
