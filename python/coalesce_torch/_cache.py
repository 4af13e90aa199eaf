"""Libraries that were compiled here, in a folder that no other user can write to.

What is loaded runs with the rights of the user. So another user must be able neither to put a
library into the folder nor to put another folder in its place, and a library is loaded only if it
has the digest that its name tells: that of what the compiler wrote.
"""

import contextlib
import ctypes
import fcntl
import grp
import hashlib
import os
import pwd
import shutil
import stat
import sys
import tempfile
from pathlib import Path

_TEMPORARY = "coalesce-torch-"
_MOST_LINKS = 40  # as many as Linux follows
_ADVICE = "set XDG_CACHE_HOME to a folder that only you can write to"


class Unusable(OSError):
    """Why a folder is not used, and what to do."""


def load(name, build):
    """Returns the loaded library `name`. build(path) compiles it where none is kept.

    It is kept in $XDG_CACHE_HOME/coalesce, or else ~/.cache/coalesce. If that folder cannot be
    used, a message says why, and the library is compiled for this process alone.

    Raises Unusable if other users can change the folder for temporary files, too.
    """
    try:
        place = _locked(_kept())
    except OSError as reason:
        print(f"coalesce: what is compiled is not kept: {reason}", file=sys.stderr)
        place = _temporary()
    with place as folder:
        return ctypes.CDLL(str(_library(folder, name, build)))


def _library(folder, name, build):
    """The path of the library in a folder in which no other process works meanwhile."""
    for leftover in folder.glob("*.unfinished"):  # of a process that was killed
        leftover.unlink()
    for kept in sorted(folder.glob(f"{name}-*.so")):
        if kept.lstat().st_uid == os.geteuid() and kept.name == _named(name, kept):
            return kept
        print(f"coalesce: {kept} is not what was compiled; compiling it again", file=sys.stderr)
        kept.unlink()
    unfinished = folder / f"{name}.unfinished"
    build(unfinished)
    with open(unfinished, "rb") as file:
        os.fsync(file.fileno())
    return unfinished.replace(folder / _named(name, unfinished))


def _named(name, path):
    return f"{name}-{hashlib.sha256(path.read_bytes()).hexdigest()}.so"


def _kept():
    """The folder that lasts, for this user alone."""
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(caches):  # the specification of XDG says to ignore it then
        caches = os.path.expanduser("~/.cache")
    if not os.path.isabs(caches):
        raise Unusable(f"this user has no home; {_ADVICE}")
    folder = Path(caches, "coalesce")
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _check(folder)
    there = folder.stat()
    if there.st_uid != os.geteuid() or _is_shared(there):
        raise Unusable(f"{folder} is not for this user alone; {_ADVICE}")
    if not os.access(folder, os.W_OK):
        raise Unusable(f"{folder} cannot be written; {_ADVICE}")
    folder.chmod(0o700)  # others could read it
    return folder


def _check(path):
    """Raises Unusable if another user can change what is at the path: its folders and links."""
    for step in _steps(path):
        there = step.lstat()
        if there.st_uid not in (0, os.geteuid()):
            raise Unusable(f"{step} belongs to another user; {_ADVICE}")
        # In a folder with the sticky bit, as /tmp, only the owner can replace a file.
        if stat.S_ISDIR(there.st_mode) and not there.st_mode & stat.S_ISVTX and _is_shared(there):
            raise Unusable(
                f"other users can write to {step}, and may have done so; check what is in it and "
                f"run chmod go-w on it, or {_ADVICE}"
            )


def _is_shared(there):
    """Whether users other than the owner and root can write to a folder."""
    if not there.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return False
    if there.st_mode & stat.S_IWOTH:
        return True
    try:
        owner = pwd.getpwuid(there.st_uid).pw_name
        group = grp.getgrgid(there.st_gid)
    except KeyError:
        return True
    # Many systems give each user a group of the same name, and let it write.
    return group.gr_name != owner or any(member != owner for member in group.gr_mem)


def _steps(path):
    """Every folder and link that leads to a path, links followed."""
    left = list(reversed(path.absolute().parts))
    reached = Path(left.pop())
    yield reached
    links = 0
    while left:
        part = left.pop()
        step = reached.parent if part == ".." else reached / part
        yield step
        if step.is_symlink():
            links += 1
            if links > _MOST_LINKS:
                raise Unusable(f"{path} is a circle of symbolic links; {_ADVICE}")
            target = Path(os.readlink(step))
            left += reversed(target.parts)
            if target.is_absolute():
                reached = Path(left.pop())
        else:
            reached = step


@contextlib.contextmanager
def _locked(folder, how=fcntl.LOCK_EX):
    """The folder, in which one process works at a time."""
    # A file, because NFS locks nothing that is open for reading alone.
    with open(folder / "lock", "a") as file:
        fcntl.flock(file, how)
        yield folder


@contextlib.contextmanager
def _temporary():
    """A folder for this process. First removes those that killed processes of this user left."""
    parent = Path(tempfile.gettempdir())
    _check(parent)
    for left in parent.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):  # in use, or removed meanwhile
            # With nothing but a lock, it may be new and locked next.
            if left.lstat().st_uid == os.geteuid() and len(os.listdir(left)) > 1:
                with _locked(left, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(left)
    with tempfile.TemporaryDirectory(prefix=_TEMPORARY) as folder, _locked(Path(folder)):
        yield Path(folder)
