#!/usr/bin/env python3
"""Builds the stand-ins for NVIDIA's libraries that PyTorch needs: see README.md beside this file.

    build.py SIMCUDA OUT [--cuda 12|13] [--cc COMPILER]

SIMCUDA is libsimcuda.so, which cargo builds from the crate; OUT becomes a folder with
libcuda.so.1, libnvidia-ml.so.1, and cuda12/ and cuda13/ with the rest. An earlier build there is
replaced. Needs a C compiler and nm.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MAJORS = (12, 13)
# The versions of the libraries for CUDA 12 and 13.
VERSIONS = {
    "libcublas": (12, 13),
    "libcublasLt": (12, 13),
    "libcudart": (12, 13),
    "libcudnn": (9, 9),
    "libcufft": (11, 12),
    "libcufile": (0, 0),
    "libcupti": (12, 13),
    "libcurand": (10, 10),
    "libcusolver": (11, 12),
    "libcusparse": (12, 12),
    "libcusparseLt": (0, 0),
    "libnccl": (2, 2),
    "libnvrtc": (12, 13),
    "libnvshmem_host": (3, 3),
}
# The name of the version of each symbol, where it is not the name of the file.
SYMBOL_VERSIONS = {"libnvshmem_host": "NVSHMEM"}
UNVERSIONED = {"libcufile", "libcurand", "libcusparseLt", "libnccl"}
# What a folder of stand-ins may contain.
BUILT = re.compile(r"cuda\d+$|lib[\w-]+\.so\.\d+$")
DEFINITION = re.compile(
    r"^(?:SUCCEEDS|CREATES|FREES|DESCRIBES|NO_WORKSPACES?)\((?:\w+, )*(\w+)\)|\b(\w+)\([^;{}]*\) \{", re.M
)


def source(library, simulated):
    """The text of a stand-in. What is not written by hand only succeeds."""
    names = [library] if library != "libcudart" else ["libcudart", "libcuda"]
    by_hand = HERE / "src" / f"{library}.c"
    text = by_hand.read_text() if by_hand.exists() else ""
    defined = {name for found in DEFINITION.findall(text) for name in found if name}
    lines = [f'#include "{HERE / "standin.h"}"', text]
    for name in sorted(name for kind in names for name in functions(kind)):
        if name in defined or name in simulated:
            continue
        # Collectives and graphs are made by functions with other arguments.
        creates = re.search("[cC]reate", name) and library not in ("libcudart", "libnccl")
        lines.append(f"{'CREATES' if creates else 'SUCCEEDS'}({name})")
    return "\n".join(lines) + "\n"


def functions(library):
    """The functions of a library that PyTorch calls."""
    names = HERE / "names" / f"{library}.txt"
    return names.read_text().split() if names.exists() else []


def compiled(args, text, path, *flags):
    """Compiles a library from the text of its source."""
    options = ["-w", "-O1", "-fPIC", "-shared", "-s", f"-I{HERE / 'src'}", f"-I{HERE.parent / 'include'}"]
    options += ["-x", "c", "-", "-x", "none"]
    command = [args.cc, *options, f"-Wl,-soname,{path.name}", *flags, "-o", str(path)]
    if subprocess.run(command, input=text, text=True, check=False).returncode != 0:
        sys.exit(f"build.py: cannot compile {path.name}")


def build(args, out):
    """Builds the stand-ins into an empty folder."""
    driver = out / "libcuda.so.1"
    shutil.copyfile(args.simcuda, driver)
    symbols = subprocess.run(
        ["nm", "-D", "--defined-only", driver], text=True, capture_output=True, check=True
    )
    simulated = set(symbols.stdout.split())
    nvml = out / "libnvidia-ml.so.1"
    compiled(
        args, source("libnvidia-ml", simulated), nvml, "-DCUDA=13", str(driver), "-Wl,-rpath,$ORIGIN"
    )
    for major in args.cuda or MAJORS:
        folder = out / f"cuda{major}"
        folder.mkdir()
        for library, versions in VERSIONS.items():
            path = folder / f"{library}.so.{versions[MAJORS.index(major)]}"
            flags = [f"-DCUDA={major}"]
            if library not in UNVERSIONED:
                version = folder / "version"
                node = SYMBOL_VERSIONS.get(library, path.name)
                version.write_text(f"{node} {{ global: *; }};\n")
                flags.append(f"-Wl,--version-script={version}")
            # The runtime has the driver's functions, too, and is where a program looks for them.
            needed = "--no-as-needed" if library == "libcudart" else "--as-needed"
            flags += [f"-Wl,{needed}", str(driver), "-Wl,-rpath,$ORIGIN/.."]
            compiled(args, source(library, simulated), path, *flags)
        (folder / "version").unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("simcuda", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cuda", type=int, choices=MAJORS, action="append")
    parser.add_argument("--cc", default="cc")
    args = parser.parse_args()
    if args.out.exists():
        others = [entry.name for entry in args.out.iterdir() if not BUILT.match(entry.name)]
        if others:
            sys.exit(f"build.py: {args.out} holds other files, such as {others[0]}; name a new folder")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    # Programs may be running above an earlier build, which may hold files that are not built any more.
    with tempfile.TemporaryDirectory(dir=args.out.parent, prefix=f".{args.out.name}.") as work:
        new = Path(work) / "new"
        new.mkdir()
        build(args, new)
        if args.out.exists():
            args.out.rename(Path(work) / "old")
        new.rename(args.out)


if __name__ == "__main__":
    main()
