#!/usr/bin/env python3
"""Adds what a PyTorch calls in NVIDIA's libraries to the lists in names/, or only checks it.

    names.py [--check] TORCH_LIB

TORCH_LIB is the folder torch/lib of an installed PyTorch. Prints what is missing in the lists;
status 1 with --check if something is. Needs readelf and nm.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from build import HERE, SYMBOL_VERSIONS, UNVERSIONED, VERSIONS, functions

# How the functions of a library begin, where the symbols have no version: libraries that were linked without it.
BEGINNINGS = {
    "libcublas": "cublas(?!Lt)",
    "libcublasLt": "cublasLt",
    "libcuda": "cu(?!File)[A-Z]",
    "libcufile": "cuFile",
    "libcurand": "curand",
    "libcusparseLt": "cusparseLt",
    "libnccl": "p?nccl",
}


def lines(*command):
    return subprocess.run(command, text=True, capture_output=True, check=True).stdout.splitlines()


def called(folder):
    """What the libraries in a folder call, as a set of names for each library of NVIDIA."""
    undefined, defined = set(), set()
    for path in (path for path in folder.iterdir() if ".so" in path.name and path.is_file()):
        undefined |= {line.split()[-1] for line in lines("nm", "-D", "--undefined-only", path)}
        defined |= {line.split()[-1] for line in lines("nm", "-D", "--defined-only", path)}
    found = {library: set() for library in ("libcuda", *VERSIONS)}
    for name, _, version in (symbol.partition("@") for symbol in undefined - defined):
        for library in found:
            node = SYMBOL_VERSIONS.get(library, f"{library}.so.")
            begins = BEGINNINGS.get(library) if not version else None
            if (begins and re.match(begins, name)) or (
                version.startswith(node) and library not in UNVERSIONED
            ):
                found[library].add(name)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    parser.add_argument("torch_lib", type=Path)
    args = parser.parse_args()
    missing = False
    for library, names in called(args.torch_lib).items():
        known = set(functions(library))
        for name in sorted(names - known):
            missing = True
            print(f"{library}: {name}")
        if names - known and not args.check:
            text = "".join(f"{name}\n" for name in sorted(names | known))
            (HERE / "names" / f"{library}.txt").write_text(text)
    sys.exit(missing and args.check)


if __name__ == "__main__":
    main()
