"""The report of a training that died of an out-of-memory error. The callbacks share it."""

import os
from pathlib import Path
from typing import List, Union

from . import _death
from ._advice import Advice, advise
from ._program import typed
from ._record import MAX_ENTRIES, rank, record, steps


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
        self.recording._report = self._report
        self._time_limit = time_limit

    def annotate(self, error: BaseException) -> None:
        """Writes the report of an error that ends the training, and adds the lines to its
        traceback. Does nothing for other errors."""
        _death.annotate(error, self.recording._explain)

    def _report(self, snapshot: Path) -> List[str]:
        try:
            found = advise(snapshot, time_limit=self._time_limit)
            return _saved(found, snapshot.with_name(f"advice-rank{rank()}.html"), snapshot)
        except Exception as error:
            return [f"No report: {error}", *steps(snapshot)]


def _saved(found: Advice, report: Path, snapshot: Path) -> List[str]:
    """Writes the report and returns its lines. The advice is told also if the file cannot be written."""
    try:
        return lines(found, found.save_html(report), snapshot)
    except OSError as error:
        *advice, _ = lines(found, report, snapshot)
        return [*advice, f"No report: {error}; try: {typed('advise', snapshot.absolute())}"]


def lines(found: Advice, report: Path, snapshot: Path) -> List[str]:
    """Why memory ran out; what to do; where the report is, and the command that prints it."""
    if found.cause is None:
        why, *rest = "Memory ran out, but not when the recording is replayed.", *found.sentences
    else:
        why, *rest = found.sentences
    remedy = rest[0] if rest else "No setting was found that helps."
    if found.settings is not None:
        remedy = remedy.replace("settings below", f"settings {found.environment}")
    again = typed("advise", snapshot.absolute())
    return [why, remedy, f"Report: {report.absolute()}; as text: {again}"]
