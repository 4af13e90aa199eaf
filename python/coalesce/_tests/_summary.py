"""What pytest's summary says of the GPU memory of tests."""

from typing import Any, List, Mapping

from .._brief import amount
from ._baseline import Baseline, Conditions
from ._limits import counted

# Tests in the table.
_MOST_ROWS = 10
# Lines that read values which a failure lists.
_MOST_LINES = 5


def used(report: Mapping[str, Any]) -> str:
    """How many tests used the GPU, and which."""
    kind = "simulated " if report["is_simulated"] else ""
    return f"{counted(len(_using(report)), 'test')} used the GPU ({kind}{report['device']})"


def unreported(report: Mapping[str, Any]) -> List[str]:
    """The tests whose figures lack those of processes."""
    return [
        f"{test}: processes that are not counted, as they were killed or had not ended: "
        f"{it['unreported']}"
        for test, it in report["tests"].items()
        if it["unreported"]
    ]


def table(report: Mapping[str, Any]) -> List[str]:
    """The tests that reserved most."""
    rows = sorted(_using(report).items(), key=lambda row: -row[1]["peak_reserved_bytes"])
    if not rows:
        return []
    found = [f"{'reserved':>12}{'requested':>12}  test"]
    for test, it in rows[:_MOST_ROWS]:
        figures = (it["peak_reserved_bytes"], it["peak_requested_bytes"])
        found.append("".join(f"{amount(size):>12}" for size in figures) + f"  {test}")
    if len(rows) > _MOST_ROWS:
        found.append(f"and {len(rows) - _MOST_ROWS} more")
    return found


def compared(report: Mapping[str, Any], baseline: Baseline) -> List[str]:
    """What --gpu-memory-update would change."""
    conditions = Conditions.of(report)
    where = f"PyTorch {conditions.torch} on {conditions.device}"
    if not baseline.knows(conditions):
        return [f"{baseline.name} has no line for {where}, so nothing was compared"]
    new = less = 0
    for test, it in report["tests"].items():
        accepted = baseline.lines.get((test, conditions))
        if it["outcome"] == "passed" and accepted is not None:
            less += it["peak_requested_bytes"] < accepted.requested
        elif it["outcome"] == "passed" and it["peak_reserved_bytes"]:
            new += 1
    words = [f"{counted(new, 'test')} {'is' if new == 1 else 'are'} new"] if new else []
    if less:
        needs = "needs" if less == 1 else "need"
        words.append(f"{counted(less, 'test')} {needs} less than accepted")
    if not words:
        return []
    return [f"{baseline.name}: {' and '.join(words)} ({where}); --gpu-memory-update accepts that"]


def of_values(values: Mapping[str, int]) -> str:
    """What a failed test is told that read values of a simulated GPU."""
    lines = [f"  {line} ({times}×)" for line, times in list(values.items())[:_MOST_LINES]]
    return "\n".join(
        [
            "The GPU is simulated and computes nothing: these lines read zeros, or select by them.",
            *lines,
            "Check shapes and memory only, or mark the test with @pytest.mark.real_gpu.",
        ]
    )


def _using(report: Mapping[str, Any]) -> Mapping[str, Any]:
    return {test: it for test, it in report["tests"].items() if it["peak_reserved_bytes"]}
