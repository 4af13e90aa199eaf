"""Files that a test run writes where its user says."""

import os
from pathlib import Path

from .._program import CoalesceError, is_special, replaced


def check_place(path: Path, name: str) -> None:
    """Raises CoalesceError if a file cannot be written there, before the tests run for nothing.

    name: the path as it was typed.
    """
    if path.is_dir():
        raise CoalesceError(f"{name}: is a folder; expected a file")
    # Of the file to which a link leads.
    folder = Path(os.path.realpath(path)).parent
    if not (is_special(path) or folder.is_dir()):
        raise CoalesceError(f"{name}: there is no folder {folder}")
    if path.exists() and not os.access(path, os.W_OK):
        raise CoalesceError(f"{name}: may not be written")
    if not (is_special(path) or os.access(folder, os.W_OK | os.X_OK)):
        raise CoalesceError(f"{name}: the folder {folder} may not be written")


def write(path: Path, text: str) -> None:
    """Writes a whole file, or leaves the older one. Raises OSError."""
    # Names of tests may have characters that UTF-8 does not.
    data = text.encode("utf-8", errors="backslashreplace")
    with replaced(path) as unfinished:
        Path(unfinished).write_bytes(data)
