"""record(): PyTorch keeps a history of its memory, and leaves a snapshot when memory runs out."""

import os
import pickle
import sys
import warnings
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, List, Optional, Type, Union

from . import _death, _process
from ._explain import at_death
from ._program import CoalesceError, replaced, typed

MAX_ENTRIES = 1_000_000

# PyTorch cannot detach an observer, so one serves all recordings of the process.
_active: List["Recording"] = []
_is_observing = False


def record(
    folder: Union[str, "os.PathLike[str]"] = ".",
    *,
    max_entries: int = MAX_ENTRIES,
    stacks: bool = True,
) -> "Recording":
    """Records what happens to GPU memory, and leaves a snapshot when it runs out.

    Call it before the first tensor on a GPU, or the snapshot lacks the beginning:

        coalesce.record()
        train()

    When a request fails, each process writes snapshot-rankN.pickle to the folder, where N is its
    rank (RANK, or that of torch.distributed; 0 without either). A later failure replaces it. If the
    error ends the program, lines below its traceback name the snapshot and the command that
    explains it. In a with statement, the recording stops at the end.

    max_entries: the operations that are kept; the oldest are dropped. A snapshot takes about 100
        to 300 bytes for each, so that the default makes up to a few hundred MB.
    stacks: whether to record the lines of the program that request memory.

    Raises CoalesceError if PyTorch is not installed. What else goes wrong, such as a machine
    without a GPU, becomes a warning and leaves a recording that does nothing, so that the training
    goes on.
    """
    recording = Recording(Path(folder), max_entries, stacks)
    recording._start()
    return recording


class Recording:
    """A recording that record() started."""

    oom_path: Optional[Path] = None
    """The snapshot that the newest failed request left; None if there is none."""

    def __init__(self, folder: Path, max_entries: int, stacks: bool) -> None:
        self._folder = folder
        self._max_entries = max_entries
        self._stacks = stacks
        self._owns_history = False
        # Says what the snapshot of a failed request shows; None if nothing but record() is used.
        self._report: Optional[Callable[[Path], List[str]]] = None

    @property
    def is_active(self) -> bool:
        """Whether it records."""
        return self in _active

    @property
    def snapshot_path(self) -> Path:
        """Where a failed request leaves the snapshot of this process."""
        return self._folder / f"snapshot-rank{rank()}.pickle"

    def dump(self, path: Union[str, "os.PathLike[str]", None] = None) -> Path:
        """Writes a snapshot now, by default to snapshot_path, and returns its path.

        Its key "coalesce" has what PyTorch does not write: the memory of the device, how much of it
        is free, and the limit of the process.

        Raises CoalesceError if nothing is recorded, OSError if the file cannot be written.
        """
        if not self.is_active:
            raise CoalesceError("nothing is recorded: record() was stopped or could not start")
        path = self.snapshot_path if path is None else Path(path)
        self._write(path, _process.noted(_torch()))
        return path

    def stop(self) -> None:
        """Stops recording and releases its memory. A second call does nothing."""
        if not self.is_active:
            return
        _active.remove(self)
        if self._owns_history:
            try:
                _torch().cuda.memory._record_memory_history(enabled=None)
            except Exception as error:
                _warn("the recording of memory did not stop", error)

    def __enter__(self) -> "Recording":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if error is not None:
            _death.annotate(error, self._explain)
        self.stop()

    def _explain(self, error: BaseException) -> List[str]:
        """What to say of the newest failed request: what its text proves, and how to learn more; or the report."""
        path = self.oom_path
        if path is None:
            return []
        return at_death(error) + steps(path) if self._report is None else self._report(path)

    def _write(self, path: Path, process: Any) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        snapshot = _torch().cuda.memory._snapshot()
        snapshot[_process.KEY] = process
        with replaced(path) as unfinished, open(unfinished, "wb") as file:
            pickle.dump(snapshot, file)

    def _start(self) -> None:
        torch = _torch()
        if not torch.cuda.is_available():
            _warn("memory is not recorded: PyTorch finds no GPU")
            return
        try:
            _observe(torch)
            # Another recording may run, with settings that someone chose.
            if not torch._C._cuda_isHistoryEnabled():
                torch.cuda.memory._record_memory_history(
                    context="all" if self._stacks else None,
                    stacks="python",
                    max_entries=self._max_entries,
                )
                self._owns_history = True
            _active.append(self)
            _death.speak_at_death(_explain)
        except Exception as error:
            _warn("memory is not recorded", error)


def steps(snapshot: Path) -> List[str]:
    """What to say of a snapshot that nothing explained yet."""
    path = snapshot.absolute()
    return [
        f"Snapshot: {path}",
        f"Why memory ran out and which settings help: {typed('advise', path)}",
    ]


def rank() -> int:
    """The rank of this process: RANK, or that of torch.distributed; 0 without either."""
    if os.environ.get("RANK", "").isdecimal():
        return int(os.environ["RANK"])
    distributed = _torch().distributed
    if distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return 0


def _observe(torch: Any) -> None:
    global _is_observing
    if not _is_observing:
        torch._C._cuda_attach_out_of_memory_observer(_out_of_memory)
        _is_observing = True


def _explain(error: BaseException) -> List[str]:
    """What to say when the process dies: a report if one of the recordings makes one."""
    newest_first = reversed([it for it in _active if it.oom_path is not None])
    best = max(newest_first, key=lambda it: it._report is not None, default=None)
    return [] if best is None else best._explain(error)


def _out_of_memory(device: int, _requested: int, allowed: int, *_: int) -> None:
    """PyTorch calls this when a request fails, before it raises OutOfMemoryError."""
    for recording in list(_active):
        recording.oom_path = None
        try:
            path = recording.snapshot_path
            recording._write(path, _process.noted(_torch(), device, allowed))
            recording.oom_path = path
        except Exception as error:
            _warn("memory ran out, and the snapshot was not written", error)


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise CoalesceError("recording needs PyTorch, which is not installed here") from None
    return torch


def _warn(what: str, error: Optional[Exception] = None) -> None:
    text = f"coalesce: {what}" + (f": {error}" if error is not None else "")
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    except RuntimeWarning:
        # Warnings are errors here, but the training must go on.
        print(text, file=sys.stderr)
