"""The report of a training that died of an out-of-memory error. The callbacks share it."""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import List, Optional, Type, Union

from ._advice import Advice, advise
from ._record import MAX_ENTRIES, rank, record
from ._text import printable

# The attribute of an error that holds its lines. A reference from here to the error would keep the
# tensors in its traceback alive.
_LINES = "_coalesce_lines"

# The reporter that speaks if the process dies, and whether the hook that asks it is installed.
_newest: Optional["Reporter"] = None
_is_hooked = False


class Reporter:
    """Records from now on. If an out-of-memory error ends the process, it leaves a snapshot and a
    page in the folder, and prints three lines below the traceback."""

    def __init__(
        self,
        folder: Union[str, "os.PathLike[str]"] = ".",
        *,
        max_entries: int = MAX_ENTRIES,
        time_limit: float = 15,
    ) -> None:
        self.recording = record(folder, max_entries=max_entries)
        self._time_limit = time_limit
        _speaks_at_the_end(self)

    def annotate(self, error: BaseException) -> None:
        """Writes the report of an error that ends the training, and adds the lines to its
        traceback, where Python can (from 3.11 on). Does nothing for other errors."""
        lines = self._lines_for(error)
        if lines and hasattr(error, "add_note"):
            error.add_note("\n".join(lines))
            setattr(error, _LINES, [])

    def print(self, error: BaseException) -> None:
        """Prints the lines for an error that ends the process, unless its traceback has them."""
        for line in self._lines_for(error):
            print(line, file=sys.stderr, flush=True)

    def _lines_for(self, error: BaseException) -> List[str]:
        """The lines for an out-of-memory error, none for others. Writes the report once."""
        if not _is_out_of_memory(error):
            return []
        if not hasattr(error, _LINES):
            setattr(error, _LINES, self._explain())
        lines: List[str] = getattr(error, _LINES)
        return lines

    def _explain(self) -> List[str]:
        snapshot = self.recording.oom_path
        if snapshot is None:
            return []
        try:
            found = advise(snapshot, time_limit=self._time_limit)
            said = _saved(found, snapshot.with_name(f"advice-rank{rank()}.html"), snapshot)
        except Exception as error:
            said = [f"{snapshot.absolute()} shows what memory was used for. No report: {error}"]
        return [f"coalesce: {printable(line)}" for line in said]


def _saved(found: Advice, report: Path, snapshot: Path) -> List[str]:
    """Writes the report and returns its lines. The advice is told also if the file cannot be written."""
    try:
        return lines(found, found.save_html(report), snapshot)
    except OSError as error:
        *advice, _ = lines(found, report, snapshot)
        return [*advice, f"No report: {error}. {snapshot.absolute()} shows what memory was used for."]


def lines(found: Advice, report: Path, snapshot: Path) -> List[str]:
    """Why memory ran out; what to do; where the report is."""
    if found.cause is None:
        why, *rest = "Memory ran out, but not when the recording is replayed.", *found.sentences
    else:
        why, *rest = found.sentences
    remedy = rest[0] if rest else "No setting was found that helps."
    if found.settings is not None:
        remedy = remedy.replace("settings below", f"settings {found.environment}")
    return [why, remedy, f"Report: {report.absolute()} (from {snapshot.name} beside it)"]


def _is_out_of_memory(error: Optional[BaseException]) -> bool:
    """Whether an error is, or was raised from, an out-of-memory error of PyTorch."""
    torch = sys.modules.get("torch")
    while torch is not None and error is not None:
        if isinstance(error, torch.cuda.OutOfMemoryError):
            return True
        error = error.__cause__
    return False


def _speaks_at_the_end(reporter: Reporter) -> None:
    global _newest, _is_hooked
    _newest = reporter
    if _is_hooked:
        return
    _is_hooked = True
    previous = sys.excepthook

    def hook(
        kind: Type[BaseException], error: BaseException, traceback: Optional[TracebackType]
    ) -> None:
        previous(kind, error, traceback)
        if _newest is not None:
            _newest.print(error)

    sys.excepthook = hook
