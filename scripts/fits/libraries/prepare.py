#!/usr/bin/env python3
"""Gets the scripts of a list and makes the data that they read.

    prepare.py FOLDER [--list further]

Scripts come from GitHub, or from a folder with one folder for each source (--from). The data are
random, with a fixed seed, so every call makes the same. Needs PyTorch, Pillow and transformers."""

import argparse
import importlib
import shutil
import tomllib
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent


def scripts(known, folder, origin):
    """Copies every file that a program needs."""
    for program in known["programs"].values():
        name = program["source"]
        source = known["sources"][name]
        for path in program["files"]:
            to = folder / name / path
            to.parent.mkdir(parents=True, exist_ok=True)
            if origin:
                shutil.copyfile(origin / name / path, to)
            else:
                where = f"{source['repository']}/{source['commit']}/{path}"
                with urllib.request.urlopen(f"https://raw.githubusercontent.com/{where}") as file:
                    to.write_bytes(file.read())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder that does not exist")
    parser.add_argument("--list", default="programs", help="of the programs (programs)")
    parser.add_argument("--from", dest="origin", type=Path, help="the folder of the sources")
    parser.add_argument("--scripts-only", action="store_true", help="make no data")
    args = parser.parse_args()
    known = tomllib.loads((HERE / f"{args.list}.toml").read_text())
    scripts(known, args.folder / "scripts", args.origin)
    if not args.scripts_only:
        importlib.import_module(f"data_{args.list}").make(args.folder)


if __name__ == "__main__":
    main()
