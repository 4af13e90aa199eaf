"""advise(): why a program ran out of memory, and which settings help."""

import contextlib
import os
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Tuple, Union, overload

from . import _brief, _program
from ._program import CoalesceError, Source

VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"


class _Advised:
    """Settings in the forms in which they are set."""

    settings: Optional[str]
    text: str

    command: Optional[str]

    @property
    def environment(self) -> Optional[str]:
        """The line `NAME=VALUE` for an environment file; None if nothing is to be changed."""
        if self.settings is None or self.command is None:
            return None
        variable = self.command.rsplit("export ", 1)[-1].split("=", 1)[0]
        is_set = "export " in self.command
        return f"{variable if is_set else VARIABLE}={self.settings}"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Advice(_Advised):
    """The answer for one program. All amounts are in bytes."""

    verdict: str
    """Why memory ran out; if it did not, what to do."""
    kind: str
    """`change`: other settings are better. `keep`: they are not. `too_large` and `impossible`: no
    settings suffice, the program must request less."""
    cause: Optional[str]
    """`fragmentation`, `too_much_memory`, `leak` or `own_limit`; None if no request fails."""
    settings: Optional[str]
    """The value of PYTORCH_CUDA_ALLOC_CONF to set, empty for the defaults; None if nothing is to be
    changed."""
    command: Optional[str]
    """The shell command that applies the settings, with the variable that the program's PyTorch reads;
    None if nothing is to be changed."""
    available_bytes: int
    """What the program may reserve, at least."""
    needs_bytes: Optional[int]
    """What it needs under the advised settings, or under the current ones if nothing is to be
    changed; None if unknown."""
    spare_bytes: int
    """What is available beyond that."""
    missing_bytes: int
    """What must go if no settings suffice."""
    requested_bytes: int
    """The most that its tensors request at one time: no allocator can do with less."""
    sentences: Tuple[str, ...]
    """The answer, the most important sentence first."""
    text: str = field(repr=False)
    """What `coalesce advise` prints."""
    json: Dict[str, Any] = field(repr=False, compare=False)
    """What `coalesce advise --json` prints; `coalesce schema advise` describes it."""
    _html: str = field(repr=False, compare=False)
    _source: Optional[Path] = field(repr=False, compare=False)

    def html(self) -> str:
        """The report as one page that works offline."""
        return self._html

    def save_html(self, path: Union[str, "os.PathLike[str]"]) -> Path:
        """Writes the report and returns its path.

        Raises CoalesceError if that is the file that was read.
        """
        path = Path(path)
        with contextlib.suppress(FileNotFoundError):
            if self._source is not None and path.samefile(self._source):
                raise CoalesceError(f"{path}: the file that was read; name another one")
        with _program.replaced(path) as unfinished:
            Path(unfinished).write_text(self._html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        # The report has all the replays inside, too much for the file of a notebook.
        return _brief.html_of(self.json, self.command)


@dataclass(frozen=True)
class RankNeeds:
    """The memory that one rank needs, in bytes; None if it is unknown."""

    rank: str
    available_bytes: int
    """What the rank may reserve."""
    current_bytes: Optional[int]
    """Under its current settings."""
    then_bytes: Optional[int]
    """Under the settings for all ranks."""
    holds_bytes: Optional[int]
    """What the rank holds at its peak under its current settings; None if it does not complete."""
    holds_then_bytes: Optional[int]
    """The same under the settings for all ranks."""


@dataclass(frozen=True)
class JobAdvice(_Advised):
    """The answer for all ranks of a job, which run under the same settings."""

    verdict: str
    """The first sentence of the answer."""
    settings: Optional[str]
    """The value of PYTORCH_CUDA_ALLOC_CONF to set, empty for the defaults; None if nothing is to be
    changed."""
    command: Optional[str]
    """The shell command that applies the settings; None if nothing is to be changed."""
    worst: int
    """The index of the rank that needs most memory."""
    needs: Tuple[RankNeeds, ...]
    """What each rank needs."""
    sentences: Tuple[str, ...]
    """The answer, the most important sentence first."""
    text: str = field(repr=False)
    """What `coalesce advise` prints."""
    json: Dict[str, Any] = field(repr=False, compare=False)
    """What `coalesce advise --json` prints; `coalesce schema job` describes it."""


@overload
def advise(
    snapshot: Source,
    *,
    capacity: Union[int, str, None] = ...,
    limit: Union[int, str, None] = ...,
    conf: Optional[str] = ...,
    torch: Optional[str] = ...,
    device: Optional[int] = ...,
    time_limit: float = ...,
) -> Advice: ...


@overload
def advise(
    snapshot: Source,
    second: Source,
    /,
    *more: Source,
    capacity: Union[int, str, None] = ...,
    limit: Union[int, str, None] = ...,
    conf: Optional[str] = ...,
    torch: Optional[str] = ...,
    device: Optional[int] = ...,
    time_limit: float = ...,
) -> JobAdvice: ...


def advise(
    snapshot: Source,
    *more: Source,
    capacity: Union[int, str, None] = None,
    limit: Union[int, str, None] = None,
    conf: Optional[str] = None,
    torch: Optional[str] = None,
    device: Optional[int] = None,
    time_limit: float = 15,
) -> Union[Advice, JobAdvice]:
    """Says why a program ran out of memory and which settings help.

    snapshot: the path of a memory snapshot, plain or compressed, of a trace or an RMM log; or a
        snapshot itself, as torch.cuda.memory._snapshot() returns it.
    more: the snapshots of the other ranks of a job, which get one set of settings.
    capacity: memory of the device: bytes, or text such as "24GiB". By default as recorded.
    limit: the most that the process may reserve, as set_per_process_memory_fraction sets it.
    conf: the current settings, as in PYTORCH_CUDA_ALLOC_CONF. By default as recorded.
    torch: the release of PyTorch, such as "2.8". By default as far as the snapshot shows it.
    device: the number of the device, if the snapshot covers several.
    time_limit: seconds until the answer; 0 for no limit.

    Raises CoalesceError if a file cannot be read, or if it holds nothing that can be replayed.
    """
    options: Dict[str, object] = {
        "capacity": _amount(capacity),
        "limit": _amount(limit),
        "conf": conf,
        "torch": torch,
        "recorded_device": device,
        "time_limit": time_limit,
    }
    output = _program.run("advise", [snapshot, *more], options, html=not more)
    if more:
        return _job(output)
    if isinstance(snapshot, Mapping):
        return _advice(output, None)
    return _advice(output, Path(snapshot).expanduser().absolute())


def _advice(output: _program.Output, source: Optional[Path]) -> Advice:
    answer = output.json["answer"]
    return Advice(
        verdict=answer["sentences"][0],
        kind=answer["kind"],
        cause=answer["cause"],
        settings=answer["conf"],
        command=answer["command"],
        available_bytes=answer["available_bytes"],
        needs_bytes=answer["needs_bytes"],
        spare_bytes=answer["spare_bytes"],
        missing_bytes=answer["missing_bytes"],
        requested_bytes=output.json["lower_bound_bytes"],
        sentences=tuple(answer["sentences"]),
        text=output.text,
        json=output.json,
        _html=output.html or "",
        _source=source,
    )


def _job(output: _program.Output) -> JobAdvice:
    job = output.json
    needs = [name.name for name in fields(RankNeeds)]
    return JobAdvice(
        verdict=job["sentences"][0],
        settings=job["conf"],
        command=job["command"],
        worst=job["worst"],
        needs=tuple(RankNeeds(**{name: rank[name] for name in needs}) for rank in job["needs"]),
        sentences=tuple(job["sentences"]),
        text=output.text,
        json=job,
    )


def _amount(value: Union[int, str, None]) -> Optional[str]:
    """An amount as the program reads it, which wants a unit."""
    if isinstance(value, int):
        if value < 0:
            raise CoalesceError(f"{value} bytes: expected a positive number")
        return f"{value}B"
    return value
