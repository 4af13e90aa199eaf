"""The callback for Lightning's Trainer."""

import os
from typing import Any, Union

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ImportError as error:
        raise ImportError("coalesce.lightning needs Lightning: pip install lightning") from error

from ._record import MAX_ENTRIES
from ._report import Reporter

__all__ = ["OomReport"]


class OomReport(Callback):
    """Explains an out-of-memory error that ends the training.

        trainer = Trainer(..., callbacks=[OomReport()])

    Records from its creation on, so create it before the model is on a GPU. If an out-of-memory
    error ends trainer.fit, each rank leaves snapshot-rankN.pickle and advice-rankN.html in the
    folder. If nothing catches the error, three lines below the traceback say why memory ran out,
    which setting helps or how much must go, and where the report is.

    folder: where the files go.
    max_entries: the operations that are kept, as for coalesce.record().
    time_limit: seconds that the explanation may take.
    """

    def __init__(
        self,
        folder: Union[str, "os.PathLike[str]"] = ".",
        *,
        max_entries: int = MAX_ENTRIES,
        time_limit: float = 15,
    ) -> None:
        self._reporter = Reporter(folder, max_entries=max_entries, time_limit=time_limit)
        self.recording = self._reporter.recording

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._reporter.annotate(exception)
