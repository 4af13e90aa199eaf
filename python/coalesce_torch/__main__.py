"""Runs a program with Coalesce as PyTorch's allocator.

    python -m coalesce_torch train.py --its --arguments
    python -m coalesce_torch -m package.module --its --arguments

What follows the program are its own arguments.
"""

import os
import runpy
import sys

USAGE = "usage: python -m coalesce_torch (PROGRAM.py | -m MODULE) [ARGUMENTS]"


def main():
    arguments = sys.argv[1:]
    is_module = arguments[:1] == ["-m"]
    if is_module:
        del arguments[0]
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stderr)
        return 0 if arguments else 2
    program = arguments[0]
    if not is_module and not os.path.exists(program):
        print(f"coalesce_torch: no program {program}\n{USAGE}", file=sys.stderr)
        return 2
    # As Python does for a program that it starts itself.
    sys.argv = arguments
    sys.path[0] = os.getcwd() if is_module else os.path.dirname(os.path.abspath(program))

    import coalesce_torch

    try:
        coalesce_torch.enable()
    except (OSError, RuntimeError, ValueError) as error:
        print(f"coalesce_torch: {error}", file=sys.stderr)
        return 2
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main())
