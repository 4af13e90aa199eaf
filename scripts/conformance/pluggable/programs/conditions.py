"""The conditions of a program, which its docstring lists below the first line.

A condition is an environment variable, NAME=value. A variable that is listed several times makes a
case of each value; without a value it is not set. A value that only newer releases of PyTorch
accept ends with two spaces and `(since 2.12)`. STATUS and STDERR are what the program must end
with.
"""

import itertools
import re
from importlib.metadata import version

RELEASE = tuple(map(int, version("torch").split(".")[:2]))
CONDITION = re.compile(r"^([A-Z_]+)=(.*?)(?:  \(since (\d+)\.(\d+)\))?$", re.MULTILINE)


def cases(docstring):
    """The environments in which the program runs."""
    values = {}
    for name, value, *since in CONDITION.findall(docstring):
        accepted = values.setdefault(name, [])
        if RELEASE >= tuple(int(part) for part in since if part):
            accepted.append(value)
    combined = itertools.product(*values.values())
    return [{n: v for n, v in zip(values, case, strict=True) if v} for case in combined]
