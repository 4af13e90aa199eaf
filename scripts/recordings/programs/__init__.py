"""The programs that are recorded. Each is a function without arguments, marked with `program`."""

import importlib.util
from dataclasses import dataclass

MODULES = ("graphs", "training", "streams", "serving", "libraries", "several")


@dataclass(frozen=True)
class Program:
    name: str
    run: object
    about: str
    needs: tuple
    ranks: int
    devices: int

    def missing(self):
        """What the program needs and is not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


PROGRAMS = {}


def program(*needs, ranks=1, devices=1):
    """Marks a program that needs some packages, processes and devices; it has a docstring."""

    def add(function):
        name = function.__name__
        PROGRAMS[name] = Program(name, function, function.__doc__, needs, ranks, devices)
        return function

    return add


def load():
    """All programs by name."""
    for module in MODULES:
        importlib.import_module(f"programs.{module}")
    return PROGRAMS
