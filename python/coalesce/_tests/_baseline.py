"""The accepted memory of tests: a text with one line for each, and what grew since."""

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from .. import _program
from . import _limits
from .._brief import amount
from ._holders import Holder
from .._program import CoalesceError

# How much more than the baseline a test may request on a real GPU, in percent. There, libraries
# choose workspaces by what they measure. On the simulated one, equal programs request equal bytes.
TOLERANCE_PERCENT = 1.0

# Lines of a test that a report keeps.
_MOST_HOLDERS = 30

_HEAD = """\
# The GPU memory of tests at their peaks, in bytes. What is requested is compared, what is reserved
# is for information. `pytest --gpu-memory-baseline FILE --gpu-memory-update` writes this file.
# PyTorch, device, requested, reserved, test
"""


class Conditions(NamedTuple):
    """Under which figures can be compared."""

    torch: str
    """The release, as 2.11."""
    device: str
    """As `h100` for a simulated one."""

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> "Conditions":
        release = ".".join((report["torch"] or "none").split(".")[:2])
        return cls(release, report["device"].replace(" ", "-"))


class Accepted(NamedTuple):
    """What a test may need."""

    requested: int
    reserved: int


class Baseline:
    """The lines of the file, and of the report beside it, which knows who held the memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: Dict[Tuple[str, Conditions], Accepted] = {}
        if path.exists():
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if line.strip() and not line.startswith("#"):
                    self._read(line, number)

    def _read(self, line: str, number: int) -> None:
        try:
            torch, device, requested, reserved, test = line.split(None, 4)
            accepted = Accepted(*(int(it.replace(",", "")) for it in (requested, reserved)))
        except ValueError:
            raise CoalesceError(
                f"{self.path}:{number}: expected PyTorch, device, requested, reserved, test"
            ) from None
        self.lines[test, Conditions(torch, device)] = accepted

    @property
    def report_path(self) -> Path:
        """The report of the run that wrote the baseline. Without it, growth has no lines."""
        return self.path.with_name(self.path.name + ".json")

    def accepts(self, test: str, conditions: Conditions, found: Mapping[str, Any]) -> bool:
        """Whether a test is new or requests no more than before."""
        accepted = self.lines.get((test, conditions))
        if accepted is None:
            return True
        allowed = 0.0 if found["is_simulated"] else accepted.requested * TOLERANCE_PERCENT / 100
        return bool(found["peak_requested_bytes"] - accepted.requested <= allowed)

    def growth(self, test: str, conditions: Conditions, found: Mapping[str, Any]) -> str:
        """What is to be said of a test that requests more."""
        accepted = self.lines[test, conditions]
        more = found["peak_requested_bytes"] - accepted.requested
        reserved = found["peak_reserved_bytes"]
        return "\n".join(
            [
                f"requested {amount(found['peak_requested_bytes'])} at its peak, {exact(more)} "
                f"above what {self.path.name} accepts",
                f"Reserved: {amount(accepted.reserved)} before, {amount(reserved)} now.",
                *self._grown(test, conditions, found),
            ]
        )

    def _grown(self, test: str, conditions: Conditions, found: Mapping[str, Any]) -> List[str]:
        before = read(self.report_path) if self.report_path.exists() else None
        old = before and Conditions.of(before) == conditions and before["tests"].get(test)
        if not old:
            holders = [Holder(*it) for it in found["holders"]]
            unknown = f"What grew is unknown, as {self.report_path.name} does not have the test."
            return [unknown, *_limits.largest(holders)]
        return grown(old, found)

    def update(self, report: Mapping[str, Any]) -> None:
        """Accepts what the tests of a run needed that passed."""
        conditions = Conditions.of(report)
        passed = {test: it for test, it in report["tests"].items() if it["outcome"] == "passed"}
        for test, it in passed.items():
            accepted = Accepted(it["peak_requested_bytes"], it["peak_reserved_bytes"])
            self.lines[test, conditions] = accepted
        rows = [
            f"{it.torch} {it.device} {accepted.requested:,} {accepted.reserved:,} {test}\n"
            for (test, it), accepted in sorted(self.lines.items())
        ]
        write(self.path, _HEAD + "".join(rows))
        old = read(self.report_path) if self.report_path.exists() else None
        kept = old["tests"] if old and Conditions.of(old) == conditions else {}
        save(self.report_path, {**report, "tests": {**kept, **passed}})


def exact(more: int) -> str:
    """A change, with its sign, and exact if it is small."""
    sign = "+" if more >= 0 else "-"
    rounded = amount(abs(more))
    return f"{sign}{rounded}" if abs(more) < 1024 else f"{sign}{rounded} ({more:+,} bytes)"


def grown(before: Mapping[str, Any], after: Mapping[str, Any]) -> List[str]:
    """What grew between two entries of reports, by line and by category; the largest first."""
    changes = []
    old, new = (_by_key(entry["holders"]) for entry in (before, after))
    for key in {**new, **old}:
        was, now = old.get(key), new.get(key)
        one = now or was
        more = _bytes(now) - _bytes(was)
        if one is not None and more:
            counts = f"{was.blocks if was else 0} → {_limits.blocks(now.blocks if now else 0)}"
            changes.append((more, f"{exact(more)}  {one} ({counts})"))
    found = [text for _, text in sorted(changes, reverse=True) if _ > 0]
    categories = [before.get("categories", {}), after.get("categories", {})]
    for name in {**categories[1], **categories[0]}:
        more = categories[1].get(name, 0) - categories[0].get(name, 0)
        if more > 0 and all(categories):
            found.append(f"{exact(more)}  category {name.replace('_', ' ')}")
    return found


def _by_key(holders: Sequence[Sequence[Any]]) -> Dict[Tuple[str, str, str], Holder]:
    """By what stays if other lines change. Lines with the same text in one function are one."""
    found: Dict[Tuple[str, str, str], Holder] = {}
    for one in (Holder(*it) for it in holders):
        same = found.get(one.key)
        if same is not None:
            bytes_ = same.requested_bytes + one.requested_bytes
            one = same._replace(requested_bytes=bytes_, blocks=same.blocks + one.blocks)
        found[one.key] = one
    return found


def _bytes(holder: Optional[Holder]) -> int:
    return 0 if holder is None else holder.requested_bytes


def kept(holders: Sequence[Holder]) -> List[Holder]:
    """The holders that a report keeps: the largest, and one for the others."""
    shown, others = list(holders[:_MOST_HOLDERS]), holders[_MOST_HOLDERS:]
    if others:
        size, count = (sum(getattr(it, name) for it in others) for name in Holder._fields[3:])
        shown.append(Holder("(other lines)", "", "", size, count))
    return shown


def read(path: Path) -> Dict[str, Any]:
    """A report, as `--gpu-memory-json` writes it.

    Raises CoalesceError if it is none.
    """
    try:
        report = _program.read(path)
        if report["format"] == 1 and isinstance(report["tests"], dict):
            return report
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise CoalesceError(f"{path}: expected a file of pytest --gpu-memory-json")


def save(path: Path, report: Mapping[str, Any]) -> None:
    write(path, json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with _program.replaced(path) as unfinished:
        Path(unfinished).write_text(text, encoding="utf-8")
