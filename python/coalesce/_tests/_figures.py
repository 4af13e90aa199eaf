"""The figures of a test run, as JSON: what `pytest --gpu-memory-json` writes."""

import json
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from .. import _program
from .._program import CoalesceError
from . import _files
from ._holders import Holder

# Lines of a test that are kept.
_MOST_HOLDERS = 30
# More is no amount of memory, and no float either.
_MOST_BYTES = 1 << 63


def read(path: Path) -> Dict[str, Any]:
    """The figures of a file, which may come from strangers.

    Raises CoalesceError if it has none, or some of another form.
    """
    try:
        report = _program.read(path)
        is_report = report["format"] == 1 and isinstance(report["tests"], dict)
        is_report &= isinstance(report["torch"], (str, type(None)))
        is_report &= isinstance(report["device"], str)
    except FileNotFoundError:
        raise CoalesceError(f"{path}: no such file") from None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        is_report = False
    if not is_report:
        raise CoalesceError(f"{path}: expected a file of pytest --gpu-memory-json")
    for test, entry in report["tests"].items():
        if not _is_entry(entry):
            raise CoalesceError(f"{path}: the entry of {test[:300]!r} has another form")
    return report


def _is_entry(entry: Any) -> bool:
    try:
        kinds = ("requested", "reserved")
        sizes = [entry[f"peak_{kind}_bytes"] for kind in kinds]
        sizes += entry.get("categories", {}).values()
        for place, function, source, size, count in entry["holders"]:
            sizes += [size, count]
            if not all(isinstance(it, str) for it in (place, function, source)):
                return False
    except (AttributeError, LookupError, TypeError, ValueError):
        return False
    return all(type(size) is int and 0 <= size < _MOST_BYTES for size in sizes)


def save(path: Path, report: Mapping[str, Any]) -> None:
    """Raises OSError."""
    _files.write(path, json.dumps(report, indent=1, ensure_ascii=False) + "\n")


def kept(holders: Sequence[Holder]) -> List[Holder]:
    """The holders of a test that are kept: the largest, and one for the others."""
    shown, others = list(holders[:_MOST_HOLDERS]), holders[_MOST_HOLDERS:]
    if others:
        size, count = (sum(getattr(it, name) for it in others) for name in Holder._fields[3:])
        shown.append(Holder("(other lines)", "", "", size, count))
    return shown
