"""Random operations for the recorders that read them, one a line:

a ID BYTES STREAM    allocate
f ID                 free; also of an allocation that failed
e                    empty the cache
"""

import random
from collections.abc import Callable, Iterator

MIB = 1 << 20
GIB = 1 << 30


def sizes(rng: random.Random, largest: int) -> Callable[[], int]:
    """One of several size distributions."""

    def any_size() -> int:
        return int(largest ** rng.random())

    few = [any_size() for _ in range(rng.randint(2, 20))]
    rounding = rng.choice([512, 4096, MIB])
    return rng.choice(
        [
            any_size,
            lambda: rng.choice(few),
            lambda: -(-any_size() // rounding) * rounding,
            lambda: rng.choice(few) if rng.random() < 0.8 else any_size(),
            lambda: (
                any_size() if rng.random() < 0.2 else int(min(largest, 1 << 16) ** rng.random())
            ),
        ]
    )


def operations(
    seed: int, count: int, *, largest: int, live: int, empty: float = 0.0, streams: int = 1
) -> Iterator[str]:
    """`count` operations: live memory rises and falls between 0 and `live` bytes, in phases of
    sizes up to `largest` that are freed in one order. A share `empty` empties the cache."""
    rng = random.Random(seed)
    blocks: list[tuple[int, int]] = []
    held = made = 0
    while True:
        size = sizes(rng, largest)
        take = rng.choice([lambda: -1, lambda: 0, *[lambda: rng.randrange(len(blocks))] * 2])
        target = rng.choice([0, live, int(live * rng.random())])
        stray = rng.uniform(0, 0.45)
        for _ in range(rng.randint(10, 400)):
            if made == count:
                return
            grows = (held < target) == (rng.random() >= stray)
            if rng.random() < empty:
                yield "e"
            elif grows or not blocks:
                blocks.append((made, max(1, size())))
                held += blocks[-1][1]
                stream = rng.randrange(streams) if streams > 1 else 0
                yield f"a {made} {blocks[-1][1]} {stream}"
            else:
                id_, bytes_ = blocks.pop(take())
                held -= bytes_
                yield f"f {id_}"
            made += 1
