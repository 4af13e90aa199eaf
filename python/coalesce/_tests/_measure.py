"""The GPU memory of a test, from its call to its end."""

import gc
import json
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

from .. import _program
from . import _device, _holders
from ._holders import Holder
from .._program import CoalesceError

KINDS = ("reserved", "allocated", "requested")


class Usage:
    """What a test used of the GPU: of its own process, or of a process that it started, whichever
    reserved most. Fixtures' tensors that live during the test count."""

    def __init__(self, peaks: Dict[str, int], values: Dict[str, int], ooms: int) -> None:
        self.peaks = peaks
        """Bytes, by kind."""
        self.values = values
        """How often each line read values that only a GPU computes, or selected by them."""
        self.ooms = ooms
        """Failed requests."""
        self.processes = 0
        """Processes that the test started and that used a GPU."""
        self.unreported = 0
        """Those of them that are not counted: they were killed, or have not ended."""
        self.snapshot: Optional[Mapping[str, Any]] = None
        """PyTorch's history of the test; None if it was not taken."""

    @property
    def holders(self) -> List[Holder]:
        """Who held what was requested, at the peak."""
        return [] if self.snapshot is None else _holders.at_peak(self.snapshot)

    @property
    def waste_percent(self) -> float:
        """The part of the reserved memory that no tensor needed."""
        reserved = self.peaks["reserved"]
        return 100 * (reserved - self.peaks["requested"]) / reserved if reserved else 0.0

    def replayed(self) -> Dict[str, Any]:
        """What `coalesce diff` says of the peak of reserved memory: bytes of its parts and of its
        categories. Empty if the program cannot tell."""
        if self.snapshot is None:
            return {}
        try:
            with tempfile.TemporaryDirectory(prefix="coalesce-") as folder:
                path = Path(folder, "snapshot.pickle")
                path.write_bytes(pickle.dumps(self.snapshot))
                found = _program.run("diff", [path, path], {}).json
        except (CoalesceError, OSError):
            return {}
        return {
            "parts": {it["part"]: it["before_bytes"] for it in found["parts"]},
            "categories": {it["name"]: it["before_bytes"] for it in found["categories"]},
        }


class Meter:
    """Measures one test after the other in this process."""

    def __init__(self) -> None:
        # Bytes that fixtures of several tests hold.
        self._held = 0
        self._ooms = 0

    def begin(self) -> None:
        """Before the call of a test."""
        process = _device.process()
        process.values.clear()
        if process.peaks is not None:
            torch = process.peaks.torch
            _empty(torch)
            # Forgets the events, but not where the blocks were requested.
            torch.cuda.memory._record_memory_history(enabled=None)
            process.record(torch)
            process.peaks.reset()
        self._ooms = _ooms()

    def settle(self) -> None:
        """After the end of a test and of its fixtures: frees what nothing uses any more, so that
        the next begins the same way whatever ran before."""
        process = _device.process()
        if process.peaks is None:
            return
        torch = process.peaks.torch
        _empty(torch)
        if _held(torch) > self._held:
            gc.collect()
            torch.cuda.empty_cache()
        self._held = _held(torch)

    def now(self, *, snapshot: bool) -> Usage:
        """What the test has used since begin(), its own process only."""
        process = _device.process()
        if process.peaks is None:
            return Usage(dict.fromkeys(KINDS, 0), dict(process.values), 0)
        process.peaks.note()
        usage = Usage(dict(process.peaks.bytes), dict(process.values), _ooms() - self._ooms)
        if snapshot:
            usage.snapshot = process.peaks.torch.cuda.memory._snapshot()
        return usage

    def final_snapshot(self) -> Optional[Mapping[str, Any]]:
        """PyTorch's history of a test whose call has ended; None if it did not use a GPU."""
        process = _device.process()
        found: Optional[Mapping[str, Any]] = None
        if process.peaks is not None:
            found = process.final_snapshot(process.peaks.torch)
        return found

    def end(self, *, snapshot: bool) -> Usage:
        """What the test used, with the processes that it started."""
        own = self.now(snapshot=False)
        if snapshot:
            own.snapshot = self.final_snapshot()
        started = _left_by_processes()
        others = [_of_process(path) for path in started if path.with_suffix(".json").exists()]
        for path in started:
            path.unlink()
        most = max([own, *others], key=lambda usage: usage.peaks["reserved"])
        for other in others:
            own.values.update(other.values)
        most.processes, most.values = len(started), own.values
        most.unreported = len(started) - len(others)
        return most


def _left_by_processes() -> List[Path]:
    """What each process left when it began to use the GPU."""
    return sorted(Path(os.environ["COALESCE_TESTS_FOLDER"]).glob("*.started"))


def _of_process(started: Path) -> Usage:
    """What a process left at its end, which is removed."""
    path = started.with_suffix(".json")
    known = json.loads(path.read_text(encoding="utf-8"))
    usage = Usage(known["peaks"], known["values"], known["ooms"])
    with open(path.with_suffix(".pickle"), "rb") as file:
        usage.snapshot = pickle.load(file)
    path.unlink()
    path.with_suffix(".pickle").unlink()
    return usage


def _empty(torch: Any) -> None:
    """Releases what is cached. PyTorch keeps the workspaces of the first test that multiplies
    matrices, so that they would not count for the others."""
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()


def _held(torch: Any) -> int:
    return sum(torch.cuda.memory_allocated(it) for it in range(torch.cuda.device_count()))


def _ooms() -> int:
    peaks = _device.process().peaks
    if peaks is None:
        return 0
    cuda = peaks.torch.cuda
    return sum(
        cuda.memory_stats_as_nested_dict(it)["num_ooms"] for it in range(cuda.device_count())
    )
