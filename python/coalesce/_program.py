"""Finds and runs the program `coalesce`, which the wheel contains."""

import contextlib
import glob
import json
import os
import pickle
import secrets
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any, Container, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Union

try:
    import fcntl
except ImportError:  # Windows, where what a killed process left stays
    fcntl = None  # type: ignore[assignment]

# How the name of a file ends that is being written.
_UNFINISHED = ".unfinished"

# What is read: the path of a file, or a snapshot as torch.cuda.memory._snapshot() returns it.
Source = Union[str, "os.PathLike[str]", Mapping[str, Any]]


class CoalesceError(Exception):
    """Something could not be read, replayed or recorded. The message says what would be right."""


class Output(NamedTuple):
    """What a command prints and writes."""

    text: str
    json: Dict[str, Any]
    html: Optional[str]


def run(
    command: str, sources: Sequence[Source], options: Mapping[str, object], *, html: bool = False
) -> Output:
    """Runs a command on sources. An option that is None is left out.

    Raises CoalesceError with the program's message if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="coalesce-") as folder:
        json_path, html_path = Path(folder, "out.json"), Path(folder, "out.html")
        flags = [f"--json={json_path}"] + [f"--html={html_path}"] * html
        for name, value in options.items():
            if value is not None:
                flags.append(f"--{name.replace('_', '-')}={value}")
        # Names are paths here, never presets or flags.
        files = list(_files(sources, Path(folder)))
        text = answer([command, *flags, "--", *files])
        return Output(
            text=text,
            json=read(json_path),
            html=html_path.read_text(encoding="utf-8") if html else None,
        )


def answer(words: Sequence[str], *, answers: Container[int] = (0,)) -> str:
    """Runs the program and returns what it prints.

    answers: the exit statuses with which it answers.

    Raises CoalesceError with the program's message at any other.
    """
    done = subprocess.run(
        [find(), "--quiet", "--color=never", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    if done.returncode not in answers:
        said = done.stderr.strip() or f"coalesce {words[0]}: exit status {done.returncode}"
        raise CoalesceError(said[len("coalesce: ") :] if said.startswith("coalesce: ") else said)
    return done.stdout


def read(path: "Union[str, os.PathLike[str]]") -> Dict[str, Any]:
    """The JSON object that the program wrote to a file."""
    with open(path, encoding="utf-8") as file:
        found: Dict[str, Any] = json.load(file)
    return found


def find() -> str:
    """Returns the path of the program: where pip installs scripts, else on PATH.

    Raises CoalesceError if there is none.
    """
    name = "coalesce.exe" if os.name == "nt" else "coalesce"
    for folder in _script_folders():
        path = os.path.join(folder, name)
        if os.access(path, os.X_OK):
            return path
    found = shutil.which("coalesce")
    if found is None:
        raise CoalesceError(
            "the program 'coalesce' is not installed for this Python; run "
            f"{sys.executable} -m pip install --force-reinstall coalesce-gpu"
        )
    return found


def typed(verb: str, path: Path) -> str:
    """The command that a person types to run the program on a file."""
    program = ["coalesce"] if shutil.which("coalesce") else [sys.executable, "-m", "coalesce"]
    words = [*program, verb, str(path)]
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def _script_folders() -> Iterator[str]:
    yield os.path.dirname(sys.executable)
    yield sysconfig.get_path("scripts")
    # pip install --user
    yield sysconfig.get_path("scripts", "nt_user" if os.name == "nt" else "posix_user")
    # pip install --target DIR puts scripts into DIR/bin
    yield str(Path(__file__).resolve().parent.parent / "bin")


def _files(sources: Sequence[Source], folder: Path) -> List[str]:
    """The paths of sources; snapshots in memory are written to the folder."""
    files = []
    for number, source in enumerate(sources):
        if isinstance(source, Mapping):
            path = folder / f"snapshot-{number}.pickle"
            with open(path, "wb") as file:
                pickle.dump(dict(source), file)
            files.append(str(path))
            continue
        try:
            path = Path(os.fspath(source)).expanduser()
        except TypeError:
            raise CoalesceError(
                f"expected the path of a file or a snapshot (a dict), not {type(source).__name__}"
            ) from None
        if not path.exists():
            raise CoalesceError(f"{path}: no such file")
        files.append(str(path))
    return files


@contextlib.contextmanager
def replaced(path: "os.PathLike[str]") -> Iterator[str]:
    """Yields a path to write to; the file appears, or replaces an older one, once complete. A link
    stays, and leads to the file. What must not be replaced is written to."""
    if is_special(path):
        yield os.fspath(path)
        return
    target = os.path.realpath(path)
    _remove_abandoned(target)
    with _unfinished(target) as unfinished:
        try:
            yield unfinished
            os.replace(unfinished, target)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(unfinished)


@contextlib.contextmanager
def _unfinished(target: str) -> Iterator[str]:
    """The path of a new file beside the target, locked as long as its writer lives."""
    while True:
        path = f"{target}.{os.getpid()}-{secrets.token_hex(4)}{_UNFINISHED}"
        if fcntl is None:
            yield path
            return
        with open(path, "xb") as file:
            with contextlib.suppress(OSError):  # a file system without locks, where nobody has one
                fcntl.flock(file, fcntl.LOCK_EX)
            # Another process may have removed it before it was locked.
            if os.path.exists(path):
                yield path
                return


def _remove_abandoned(target: str) -> None:
    """Removes what killed processes wrote of the file."""
    if fcntl is None:
        return
    for path in glob.glob(f"{glob.escape(target)}.*{_UNFINISHED}"):
        with contextlib.suppress(OSError), open(path, "rb") as file:  # in use, or not ours
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(path)


def is_special(path: "os.PathLike[str]") -> bool:
    """Whether it is a device, a pipe, or the file to which this process prints, as /dev/stdout can
    be. Where another file replaces these, what is written there later is lost."""
    if not os.path.exists(path) or os.path.isdir(path):
        return False
    return not os.path.isfile(path) or any(_is_open(path, it) for it in (1, 2))


def _is_open(path: "os.PathLike[str]", descriptor: int) -> bool:
    """Whether a descriptor of this process is open for a file that exists."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except OSError:
        return False
