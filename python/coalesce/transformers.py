"""The callback for Hugging Face's Trainer."""

import os
from typing import Union

try:
    from transformers import TrainerCallback
except ImportError as error:
    raise ImportError(
        "coalesce.transformers needs transformers: pip install transformers"
    ) from error

from ._record import MAX_ENTRIES
from ._report import Reporter

__all__ = ["OomReport"]


class OomReport(TrainerCallback):
    """Explains an out-of-memory error that ends the training.

        trainer = Trainer(..., callbacks=[OomReport()])

    Records from its creation on, so create it before the model is on a GPU. If an out-of-memory
    error ends the process, each rank leaves snapshot-rankN.pickle and advice-rankN.html in the
    folder, and three lines below the traceback say why memory ran out, which setting helps or how
    much must go, and where the report is. An error that the program catches, as with
    auto_find_batch_size, leaves the snapshot only.

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
        # Trainer tells its callbacks of no error, so that only sys.excepthook learns of it.
        self.recording = Reporter(folder, max_entries=max_entries, time_limit=time_limit).recording
