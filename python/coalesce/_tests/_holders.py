"""Which lines of a program hold its GPU memory, by PyTorch's own history of it."""

import linecache
import os
import sysconfig
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from . import _device

# Of one block: the bytes requested, and PyTorch's frames, the innermost first; None if unknown.
Block = Tuple[int, Optional[List[Mapping[str, Any]]]]


# Folders whose lines are not the program's.
_INSIDE = tuple(f"{folder}{os.sep}" for folder in (_device.STARTUP, _device.torch_folder()))
# The function whose frame final_snapshot() gives to workspaces.
_OF_WORKSPACE = "at::cuda::getCUDABlasWorkspace"
# Folders of installed packages.
_PACKAGES = tuple(sysconfig.get_path(name) for name in ("purelib", "platlib"))


class Holder(NamedTuple):
    """A line of the program, and what it holds."""

    place: str
    """FILE:LINE, the file relative to the working folder or to the folder of packages."""
    function: str
    source: str
    """The text of the line."""
    requested_bytes: int
    blocks: int

    @property
    def key(self) -> Tuple[str, str, str]:
        """What stays if other lines of the file change."""
        return (self.place.rpartition(":")[0], self.function, self.source)

    def __str__(self) -> str:
        source = f": {self.source}" if self.source else ""
        return f"{self.place} in {self.function}{source}" if self.function else self.place


def at_peak(snapshot: Mapping[str, Any]) -> List[Holder]:
    """Who holds what on the device whose requested memory peaks highest, at that peak; the largest
    first. The history may begin late: the blocks that are older count as well."""
    return _by_line(max(map(_History.peak, _histories(snapshot)), key=_total, default={}).values())


def left(snapshot: Mapping[str, Any]) -> List[Holder]:
    """Who holds what was requested within the history and is still held at its end."""
    return _by_line(block for one in _histories(snapshot) for block in one.left().values())


class _History(NamedTuple):
    """What happened on one device: the blocks at its end by address, and the events before."""

    end: Dict[int, Block]
    events: List[Mapping[str, Any]]

    def peak(self) -> Dict[int, Block]:
        """The blocks when most was held, the first time if it was reached again."""
        most = total = _total(self.end)
        until = len(self.events)
        live = dict(self.end)
        for index in range(len(self.events) - 1, -1, -1):
            event = self.events[index]
            if event["action"] == "alloc":
                total -= live.pop(event["addr"], (0, None))[0]
            elif event["action"] == "free_completed":
                live[event["addr"]] = (event["size"], None)
                total += event["size"]
            else:
                continue
            if total >= most:
                most, until = total, index
        return self._after(live, until)

    def left(self) -> Dict[int, Block]:
        """The blocks at the end that are not from before."""
        return self._after({}, len(self.events))

    def _after(self, live: Dict[int, Block], until: int) -> Dict[int, Block]:
        """The blocks after as many events, where these are live before the first."""
        for event in self.events[:until]:
            if event["action"] == "alloc":
                live[event["addr"]] = (event["size"], event.get("frames"))
            elif event["action"] == "free_completed":
                live.pop(event["addr"], None)
        return live


def _histories(snapshot: Mapping[str, Any]) -> Iterator[_History]:
    for device, events in enumerate(snapshot["device_traces"]):
        segments = [it for it in snapshot["segments"] if it["device"] == device]
        yield _History({addr: it for one in segments for addr, it in _held(one)}, events)


def _held(segment: Mapping[str, Any]) -> Iterator[Tuple[int, Block]]:
    for block in segment["blocks"]:
        if block["state"] in ("active_allocated", "active_pending_free"):
            yield block["address"], (block["requested_size"], block.get("frames"))


def _total(blocks: Dict[int, Block]) -> int:
    return sum(size for size, _ in blocks.values())


def _by_line(blocks: Iterable[Block]) -> List[Holder]:
    lines: Dict[Tuple[str, int, str], List[int]] = {}
    for size, frames in blocks:
        lines.setdefault(_line(frames), []).append(size)
    holders = [
        Holder(f"{_short(file)}:{line}", name, _text(file, line), sum(sizes), len(sizes))
        if file
        else Holder(name, "", "", sum(sizes), len(sizes))
        for (file, line, name), sizes in lines.items()
    ]
    return sorted(holders, key=lambda it: (-it.requested_bytes, it.place))


def _line(frames: Optional[List[Mapping[str, Any]]]) -> Tuple[str, int, str]:
    """The innermost line outside of PyTorch and of what watches it: file, number and function."""
    if frames is None:
        return ("", 0, "(requested before)")
    if frames and frames[0]["name"] == _OF_WORKSPACE:
        return ("", 0, "(workspace of cuBLAS)")
    for frame in frames:
        if not frame["filename"].startswith(_INSIDE):
            return (frame["filename"], frame["line"], frame["name"])
    return ("", 0, "(PyTorch, without a line: backward passes and libraries)")


def _short(file: str) -> str:
    for folder in (os.getcwd(), *_PACKAGES):
        if file.startswith(folder + os.sep):
            return os.path.relpath(file, folder)
    return file


def _text(file: str, line: int) -> str:
    return linecache.getline(file, line).strip()
