"""Hooks into what a Python process imports."""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


class After(importlib.abc.MetaPathFinder):
    """Calls a function with a module once it is imported, another with its folder before that, and
    a third if there is none."""

    def __init__(self, module, then, before=lambda folder: None, otherwise=lambda: None):
        self.module = module
        self.then = then
        self.before = before
        self.otherwise = otherwise

    def find_spec(self, name, path, target=None):
        if name != self.module:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        # Some only ask whether there is such a module, and import it later.
        sys.meta_path.insert(0, self)
        if spec is None:
            self.otherwise()
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_then(module):
                sys.meta_path.remove(self)
                self.before(Path(spec.origin).parent)
                execute(module)
                self.then(module)

            spec.loader.exec_module = execute_then
        return spec


def run_hidden():
    """Runs the sitecustomize module that the one beside this module hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    others = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))
