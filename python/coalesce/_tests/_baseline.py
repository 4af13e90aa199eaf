"""The accepted memory of tests: a text with one line for each, and what grew since."""

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from .._brief import amount
from .._program import CoalesceError
from . import _figures, _files, _limits
from ._holders import Holder

# How much more than the baseline a test may request on a real GPU, in percent. Libraries measure
# kernels there, so workspaces differ between runs. On a simulated GPU, the tolerance is zero.
TOLERANCE_PERCENT = 1.0

# How the lines begin that git leaves where it could not merge.
_CONFLICT = ("<<<<<<<", "|||||||", "=======", ">>>>>>>")

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

    def __init__(self, path: Union[str, Path]) -> None:
        """Reads the file if there is one. Raises CoalesceError."""
        self.name = str(path)
        # Tests may change the working folder.
        self.path = Path(os.path.abspath(path))
        self.lines: Dict[Tuple[str, Conditions], Accepted] = {}
        # Where a test was read, to name both lines if there is another.
        self._numbers: Dict[Tuple[str, Conditions], int] = {}
        if not self.path.exists():
            return
        # A device such as /dev/full has no end.
        if not self.path.is_file():
            raise CoalesceError(f"{path}: expected a file")
        try:
            text = self.path.read_text(encoding="utf-8")
        except OSError as error:
            raise CoalesceError(f"{path}: {error.strerror}") from None
        except UnicodeError:
            raise CoalesceError(f"{path}: expected a text in UTF-8") from None
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith(_CONFLICT):
                raise CoalesceError(f"{path}:{number}: git left a conflict here; resolve it")
            if line.strip() and not line.startswith("#"):
                self._read(line, number)

    def _read(self, line: str, number: int) -> None:
        try:
            torch, device, requested, reserved, test = line.split(None, 4)
            accepted = Accepted(*(int(it.replace(",", "")) for it in (requested, reserved)))
        except ValueError:
            raise CoalesceError(
                f"{self.name}:{number}: expected PyTorch, device, requested, reserved, test"
            ) from None
        key = (test, Conditions(torch, device))
        if key in self.lines:
            raise CoalesceError(
                f"{self.name}: lines {self._numbers[key]} and {number} are both for {test} with "
                f"PyTorch {torch} on {device}; remove one"
            )
        self.lines[key], self._numbers[key] = accepted, number

    @property
    def report_path(self) -> Path:
        """The report of the run that wrote the baseline. Without it, growth has no lines."""
        return Path(f"{self.path}.json")

    def check_place(self) -> None:
        """Raises CoalesceError if update() cannot write."""
        _files.check_place(self.path, self.name)
        _files.check_place(self.report_path, f"{self.name}.json")

    def _kept(self, conditions: Conditions) -> Mapping[str, Any]:
        """The tests of the report beside the file. Raises CoalesceError if it is damaged."""
        if not self.report_path.exists():
            return {}
        report = _figures.read(self.report_path)
        kept: Mapping[str, Any] = report["tests"]
        return kept if Conditions.of(report) == conditions else {}

    def accepts(self, test: str, conditions: Conditions, found: Mapping[str, Any]) -> bool:
        """Whether a test is new or requests no more than before."""
        accepted = self.lines.get((test, conditions))
        if accepted is None:
            return True
        allowed = 0.0 if found["is_simulated"] else accepted.requested * TOLERANCE_PERCENT / 100
        return bool(found["peak_requested_bytes"] - accepted.requested <= allowed)

    def knows(self, conditions: Conditions) -> bool:
        """Whether it has a line that can be compared."""
        return any(it == conditions for _, it in self.lines)

    def growth(self, test: str, conditions: Conditions, found: Mapping[str, Any]) -> str:
        """What is to be said of a test that requests more."""
        accepted = self.lines[test, conditions]
        more = found["peak_requested_bytes"] - accepted.requested
        reserved = found["peak_reserved_bytes"]
        return "\n".join(
            [
                f"{exact(more)} above what {self.name} accepts: "
                f"{amount(found['peak_requested_bytes'])} requested at its peak",
                f"Reserved: {amount(accepted.reserved)} before, {amount(reserved)} now.",
                *self._grown(test, conditions, found),
            ]
        )

    def _grown(self, test: str, conditions: Conditions, found: Mapping[str, Any]) -> List[str]:
        why = "does not have the test"
        try:
            old = self._kept(conditions).get(test)
        except CoalesceError:
            old, why = None, "is damaged"
        if old is None:
            holders = [Holder(*it) for it in found["holders"]]
            unknown = f"What grew is unknown, as {self.name}.json {why}."
            return [unknown, *_limits.largest(holders)]
        return grown(old, found)

    def update(self, report: Mapping[str, Any]) -> List[str]:
        """Accepts what the tests of a run needed that passed, and says so. Raises OSError."""
        conditions = Conditions.of(report)
        passed = {test: it for test, it in report["tests"].items() if it["outcome"] == "passed"}
        used = {test: it for test, it in passed.items() if it["peak_reserved_bytes"]}
        for test in passed:
            self.lines.pop((test, conditions), None)
        for test, it in used.items():
            accepted = Accepted(it["peak_requested_bytes"], it["peak_reserved_bytes"])
            self.lines[test, conditions] = accepted
        rows = [
            f"{it.torch} {it.device} {accepted.requested:,} {accepted.reserved:,} {test}\n"
            for (test, it), accepted in sorted(self.lines.items())
        ]
        said = [f"{self.name} accepts what {_limits.counted(len(used), 'test')} requested"]
        try:
            kept = {test: it for test, it in self._kept(conditions).items() if test not in passed}
        except CoalesceError:
            kept = {}
            said.append(f"{self.name}.json was damaged, and is written anew")
        _files.write(self.path, _HEAD + "".join(rows))
        _figures.save(self.report_path, {**report, "tests": {**kept, **used}})
        return said


def exact(more: int) -> str:
    """A change, with its sign, and exact if it is small."""
    sign = "+" if more >= 0 else "-"
    if abs(more) < 1024:
        return sign + _limits.counted(abs(more), "byte")
    return f"{sign}{amount(abs(more))} ({more:+,} bytes)"


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
