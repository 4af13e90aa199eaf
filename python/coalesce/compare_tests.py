"""Compares the GPU memory of tests in two files of `pytest --gpu-memory-json`.

    python -m coalesce.compare_tests before.json after.json

Prints a table in Markdown: the tests that request more or less, and why. The files may come from
strangers: what they say is shown as text, without markup, and there is a limit to its length."""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ._brief import amount
from ._program import CoalesceError
from ._tests import _baseline, _figures
from ._tests._baseline import Conditions
from ._text import printable

# The most rows of the table. A comment on GitHub has at most 65,536 characters.
MOST_ROWS = 40
# Characters of a text in a cell.
MOST_CHARACTERS = 300


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m coalesce.compare_tests", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    files = parser.parse_args(arguments)
    try:
        print(markdown(_figures.read(files.before), _figures.read(files.after)))
    except CoalesceError as error:
        sys.exit(f"coalesce: {error}")


def markdown(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """The table of the tests that changed."""
    old, new = before["tests"], after["tests"]
    changed = [test for test in old if test in new and _change(old[test], new[test])]
    changed.sort(key=lambda test: -abs(_change(old[test], new[test])))
    only = {"new": [it for it in new if it not in old], "gone": [it for it in old if it not in new]}
    lines = ["### GPU memory of tests", "", _summary(changed, old, new, only)]
    conditions = [Conditions.of(report) for report in (before, after)]
    lines += [
        f"\nNote: before it was {_code(f'{was}')}, now it is {_code(f'{now}')}."
        for was, now in zip(*conditions)
        if was != now
    ]
    rows = [_row(test, old[test], new[test]) for test in changed]
    rows += [_row(test, None, new[test]) for test in only["new"]]
    if rows:
        lines += ["", "| test | before | after | change | why |", "|---|---:|---:|---:|---|"]
        lines += rows[:MOST_ROWS]
    if len(rows) > MOST_ROWS:
        lines += ["", f"And {len(rows) - MOST_ROWS} more."]
    return "\n".join(lines)


def _summary(
    changed: List[str], old: Mapping[str, Any], new: Mapping[str, Any], only: Dict[str, List[str]]
) -> str:
    more = sum(_change(old[test], new[test]) > 0 for test in changed)
    same = len(new) - len(changed) - len(only["new"])
    counts = [
        (more, "needs more", "need more"),
        (len(changed) - more, "needs less", "need less"),
        (same, "is equal", "are equal"),
        *((len(tests), f"is {name}", f"are {name}") for name, tests in only.items()),
    ]
    said = (f"{n} {one if n == 1 else many}" for n, one, many in counts if n)
    return f"Tests: {', '.join(said)}."


def _row(test: str, old: Optional[Mapping[str, Any]], new: Mapping[str, Any]) -> str:
    cells = [_code(test), "new" if old is None else _peaks(old), _peaks(new)]
    if old is None:
        cells += ["", ""]
    else:
        grown = _baseline.grown(old, new)
        cells += [_baseline.exact(_change(old, new)), "<br>".join(map(_code, grown[:3]))]
    return "| " + " | ".join(cells) + " |"


def _peaks(entry: Mapping[str, Any]) -> str:
    requested, reserved = (entry[f"peak_{kind}_bytes"] for kind in ("requested", "reserved"))
    return f"{amount(int(requested))} ({amount(int(reserved))} reserved)"


def _change(old: Mapping[str, Any], new: Mapping[str, Any]) -> int:
    return int(new["peak_requested_bytes"]) - int(old["peak_requested_bytes"])


def _code(text: str) -> str:
    """Text in a cell, in which nothing is markup."""
    text = printable(str(text)[:MOST_CHARACTERS]).replace("`", "'").replace("|", "¦")
    return f"`{text}`"


if __name__ == "__main__":
    main()
