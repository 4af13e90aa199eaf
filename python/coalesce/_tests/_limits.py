"""The limits of a test, and what is said of one that exceeds them."""

import re
from typing import Any, List, Mapping, NamedTuple, Optional, Sequence, Union

from . import _holders
from .._brief import amount
from ._holders import Holder
from ._measure import KINDS, Usage

Amount = Union[int, str]

# Holders that a failure lists.
_MOST_HOLDERS = 8
_AMOUNT = re.compile(r"([\d.]+) *([kmgt]?)(i?)(b?)", re.IGNORECASE)


def parse(value: Amount) -> int:
    """An amount in bytes: a number of them, or text such as 12GiB, 12G (the same) or 12GB.

    Raises ValueError.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    found = _AMOUNT.fullmatch(value.strip()) if isinstance(value, str) else None
    try:
        number, letter, binary, byte = found.groups() if found else ("", "", "", "")
        base = 1000.0 if letter and byte and not binary else 1024.0
        return round(float(number) * base ** " kmgt".index(letter.lower() or " "))
    except ValueError:
        raise ValueError(f"{value!r}: expected an amount such as '12 GiB' or '500 MB'") from None


class PeakLimit(NamedTuple):
    """limit_gpu_memory: the most that a test may take."""

    limit: int
    kind: str

    @classmethod
    def of(cls, limit: Amount, *, kind: str = "reserved") -> "PeakLimit":
        if kind not in KINDS:
            raise ValueError(f"kind={kind!r}: expected one of {', '.join(KINDS)}")
        return cls(parse(limit), kind)

    def problem(self, usage: Usage) -> Optional[str]:
        peak = usage.peaks[self.kind]
        if peak <= self.limit:
            return None
        more = amount(peak - self.limit)
        limit = amount(self.limit)
        return f"{amount(peak)} {self.kind} at its peak, {more} above the limit of {limit}"


class WasteLimit(NamedTuple):
    """limit_gpu_waste: the part of the reserved memory that may be more than requested."""

    percent: float

    @classmethod
    def of(cls, percent: float) -> "WasteLimit":
        if isinstance(percent, bool) or not isinstance(percent, (int, float)):
            raise ValueError(f"{percent!r}: expected a number of percent")
        if not 0 <= percent <= 100:
            raise ValueError(f"{percent!r}: expected a number from 0 to 100, in percent")
        return cls(percent)

    def problem(self, usage: Usage) -> Optional[str]:
        if usage.waste_percent <= self.percent:
            return None
        reserved, requested = (amount(usage.peaks[kind]) for kind in ("reserved", "requested"))
        return (
            f"{usage.waste_percent:.1f} % waste, above the limit of {self.percent:g} %: {reserved} "
            f"reserved for {requested} requested"
        )


class LeakLimit(NamedTuple):
    """limit_gpu_leaks: what may live after a test and its fixtures, of what it requested."""

    limit: int

    @classmethod
    def of(cls, limit: Amount) -> "LeakLimit":
        return cls(parse(limit))

    def problem(self, snapshot: Mapping[str, Any]) -> Optional[str]:
        left = _holders.left(snapshot)
        total = sum(it.requested_bytes for it in left)
        if total <= self.limit:
            return None
        title = (
            f"{amount(total)} that the test requested lives after it, above the limit of "
            f"{amount(self.limit)}"
        )
        return "\n".join([title, "Requested by", *lines(left)])


def explained(usage: Usage, limit: Optional[PeakLimit]) -> List[str]:
    """Whether the allocator or the test is the reason, and the largest holders."""
    replayed = usage.replayed()
    return [*_reason(usage, limit, replayed.get("parts", {})), *largest(usage.holders)]


def _reason(usage: Usage, limit: Optional[PeakLimit], parts: Mapping[str, int]) -> List[str]:
    requested, reserved = usage.peaks["requested"], usage.peaks["reserved"]
    beside = {name: amount(size) for name, size in parts.items() if size and name != "requested"}
    shares = ", ".join(f"{name} {size}" for name, size in beside.items())
    if limit is not None and requested > limit.limit:
        return [
            f"Reason: the program. Its tensors request {amount(requested)}, so that no allocator "
            "could stay below the limit."
        ]
    if limit is not None and limit.kind == "requested":
        return []
    return [
        f"Reason: the allocator. Of {amount(reserved)} that it reserved, tensors request "
        f"{amount(requested)}" + (f"; beside them, {shares}." if shares else ".")
    ]


def largest(holders: Sequence[Holder]) -> List[str]:
    return ["Largest holders (requested, at the peak)", *lines(holders)] if holders else []


def lines(holders: Sequence[Holder]) -> List[str]:
    """The largest of the holders, one line each, and how much the others hold."""
    shown, others = holders[:_MOST_HOLDERS], holders[_MOST_HOLDERS:]
    found = [f"{amount(it.requested_bytes):>12}  {it} ({blocks(it.blocks)})" for it in shown]
    if others:
        rest = sum(it.requested_bytes for it in others)
        found.append(f"{amount(rest):>12}  in {counted(len(others), 'other line')}")
    return found


def blocks(number: int) -> str:
    return counted(number, "block")


def counted(number: int, what: str) -> str:
    """As `1 test` or `2 tests`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
