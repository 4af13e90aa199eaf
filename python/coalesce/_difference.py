"""diff(): what grew between two programs."""

from dataclasses import dataclass, field
from typing import Any, Dict, Tuple

from . import _program
from ._program import Source


@dataclass(frozen=True)
class Difference:
    """The difference between two programs at their peaks. All amounts are in bytes."""

    verdict: str
    """The result in one sentence."""
    cause: str
    """`equal`, `program` (it requests other amounts), `allocator` (it needs other amounts for the
    same requests) or `both`."""
    before_bytes: int
    """What the first program reserves at its peak."""
    after_bytes: int
    """What the second one reserves."""
    notes: Tuple[str, ...]
    """What limits the comparison, one sentence each."""
    text: str = field(repr=False)
    """What `coalesce diff` prints."""
    json: Dict[str, Any] = field(repr=False, compare=False)
    """What `coalesce diff --json` prints; `coalesce schema diff` describes it."""

    @property
    def change_bytes(self) -> int:
        """What the second program reserves more; negative if it reserves less."""
        return self.after_bytes - self.before_bytes

    def __str__(self) -> str:
        return self.text


def diff(before: Source, after: Source) -> Difference:
    """Compares two programs at their peaks: who holds more, and why.

    before, after: as for advise().

    Raises CoalesceError if a file cannot be read, or if it holds nothing that can be replayed.
    """
    output = _program.run("diff", [before, after], {})
    found = output.json
    return Difference(
        verdict=found["verdict"],
        cause=found["cause"],
        before_bytes=found["before"]["peak"]["reserved_bytes"],
        after_bytes=found["after"]["peak"]["reserved_bytes"],
        notes=tuple(found["notes"]),
        text=output.text,
        json=found,
    )
