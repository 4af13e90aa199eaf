"""Runs the program: `uvx coalesce-gpu advise snapshot.pickle`, or `python -m coalesce`."""

import os
import subprocess
import sys

from coalesce._program import CoalesceError, find


def main() -> None:
    """Replaces this process by the program, with the same arguments."""
    try:
        command = [find(), *sys.argv[1:]]
    except CoalesceError as error:
        sys.exit(f"coalesce: {error}")
    if os.name == "nt":
        # There, execv returns to the shell before the program ends.
        sys.exit(subprocess.run(command).returncode)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
