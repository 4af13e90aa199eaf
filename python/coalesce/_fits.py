"""fits(): whether a PyTorch program fits into a GPU, without a GPU."""

import os
import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any, Dict, Optional, Tuple, Union

from . import _program


@dataclass(frozen=True)
class Fits:
    """What a program needs. True in a condition if it fits as it is."""

    verdict: str
    """`fits`, `fits_with` other settings, `depends` on what only a GPU knows, `too_large`, or
    `does_not_start` for a server."""
    reserved_bytes: int
    """The peak of reserved memory, in bytes; the least if something only a GPU knows decides."""
    most_reserved_bytes: Optional[int]
    """The most; None if the program fails where it would need most."""
    requested_bytes: int
    """The peak of requested memory, in bytes."""
    device_bytes: int
    """What is in use on the device at its peak, in bytes, with what CUDA and its libraries take."""
    missing_bytes: int
    """Bytes that are missing under the best settings; 0 if it fits with some."""
    command: Optional[str]
    """The shell command that applies the settings with which it fits; None if there are none."""
    gpus: Tuple[str, ...]
    """GPUs that have enough memory for it, the smallest first."""
    largest: Optional[float]
    """The largest number with which it fits; None without `vary`, or if there is none."""
    text: str = field(repr=False)
    """What `coalesce fits` prints."""
    json: Dict[str, Any] = field(repr=False, compare=False)
    """What `coalesce fits --json` prints; `coalesce schema fits` describes it."""

    def __bool__(self) -> bool:
        return self.verdict == "fits"

    def __str__(self) -> str:
        return self.text


def fits(
    script: Union[str, "os.PathLike[str]"],
    *arguments: str,
    memory: Union[str, int, None] = None,
    device: Optional[str] = None,
    steps: Optional[int] = None,
    whole: bool = False,
    vary: Optional[str] = None,
) -> Fits:
    """Runs a script under this Python on a simulated GPU, and says what it needs.

    script, arguments: as `python SCRIPT ARGUMENTS...` would get them.
    memory: of the GPU, as `24GiB` or in bytes. Default: that of the device.
    device: the GPU, as `h100` or `rtx4090`.
    steps: ends the script after this many steps of its optimizer, even if they differ.
    whole: runs all of it, even if its steps repeat.
    vary: finds the largest number, as `BATCH=1..64` or `UTIL=0.80..0.99`, with which it fits.

    Raises CoalesceError if there is no answer.
    """
    with tempfile.TemporaryDirectory(prefix="coalesce-") as folder:
        path = os.path.join(folder, "out.json")
        flags = [f"--json={path}"] + ["--whole"] * whole
        options = {"memory": memory, "device": device, "steps": steps, "vary": vary}
        flags += [f"--{name}={value}" for name, value in options.items() if value is not None]
        program = [sys.executable, os.fspath(script), *arguments]
        text = _program.answer(["fits", *flags, "--", *program], answers=(0, 1))
        found = _program.read(path)
    verdict = found["verdict"]
    return Fits(
        verdict=verdict["kind"],
        reserved_bytes=found["peak_reserved_bytes"],
        most_reserved_bytes=found["most_reserved_bytes"],
        requested_bytes=found["peak_requested_bytes"],
        device_bytes=found["in_use"]["peak_bytes"],
        missing_bytes=verdict.get("missing_bytes", 0),
        command=verdict.get("command"),
        gpus=tuple(found["gpus"]),
        largest=(found["largest"] or {}).get("value"),
        text=text,
        json=found,
    )
