#!/usr/bin/env python3
"""Checks that the documented steps for adding a policy, a family or a verb are complete.

    check.py [NAME...]       the procedures called NAME, or all of PROCEDURES

The script copies the checkout to target/howto/checkout and takes exactly the documented steps of
all procedures in the copy. Then it runs a command for each procedure, which fails if a step is
missing. The new file is the example of the documentation, and the documentation must contain every
line that the script inserts. Status 1 if a procedure does not work as documented.

Cargo builds the copy in target/howto/build, which the script first fills with the contents of
target/debug. It cannot build in target/debug itself, because cargo does not distinguish the copied
files from those of the checkout and would miss changes. After `cargo test --workspace`, all
procedures take about two minutes on 2 cores.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

CHECKOUT = Path(__file__).resolve().parents[2]


class Insert(NamedTuple):
    """A line that goes into a file, before the first line that starts with `before`."""

    file: str
    line: str
    before: str | None = None  # at the end of the file


class Procedure(NamedTuple):
    """What the documentation tells a contributor to do."""

    docs: str  # the file with the instructions and the example
    new_file: str
    crate: str  # the example's name for the crate it goes into
    inserts: list[Insert]
    command: list[str]  # for the whole workspace, whose features are those that the tests built
    expect: str  # a regular expression that the output of the command must match


PROCEDURES = {
    "policy": Procedure(
        docs="allocator/src/policy.rs",
        new_file="allocator/src/policy/exact_fit.rs",
        crate="coalesce_alloc",
        inserts=[
            Insert("allocator/src/policy.rs", "pub(crate) mod exact_fit;", "pub(crate) mod "),
            Insert(
                "allocator/src/registry.rs",
                '"exact_fit", "reuses blocks of their exact size" => exact_fit::ExactFit;',
                "    offline:",
            ),
            Insert(
                "allocator/tests/suite/properties.rs",
                'exact_fit: "exact_fit", "", tight(Up);',
                "    direct:",
            ),
        ],
        command="cargo test --workspace --test suite properties::exact_fit".split(),
        expect=r"test result: ok\. [1-9]",
    ),
    "family": Procedure(
        docs="workloads/src/families.rs",
        new_file="workloads/src/families/pulse.rs",
        crate="coalesce_workloads",
        inserts=[
            Insert("workloads/src/families.rs", "pub mod pulse;", "pub mod "),
            Insert(
                "workloads/src/catalog.rs",
                'Family::of::<crate::families::pulse::Pulse>("pulse"),',
                "    Family::of::<",
            ),
        ],
        command="cargo test --workspace --test main catalog::".split(),
        expect=r"test result: ok\. [1-9]",
    ),
    "verb": Procedure(
        docs="benches/cli/src/main.rs",
        new_file="benches/cli/src/hello.rs",
        crate="coalesce",
        inserts=[Insert("benches/cli/src/main.rs", "mod hello; Hello", "    mod advise;")],
        command="cargo run --quiet --bin coalesce -- hello --name Ada".split(),
        expect=r"Hello, Ada!",
    ),
}


class Stop(Exception):
    """Why a procedure does not work as documented."""


def documentation(path: Path) -> str:
    """The module documentation of a Rust file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    docs = [line.removeprefix("//!").removeprefix(" ") for line in lines if line.startswith("//!")]
    return "\n".join(docs) + "\n"


def example(docs: str, crate: str) -> str:
    """The first block of code, without the part that tries it out."""
    blocks = re.search(r"^```(?:ignore)?\n(.*?)^```$", docs, re.DOTALL | re.MULTILINE)
    if blocks is None:
        raise Stop("the documentation has no example")
    code = blocks[1].split("// Try it:")[0].rstrip() + "\n"
    return re.sub(rf"\b{crate}\b", "crate", code)


def insert(file: Path, line: str, before: str | None) -> None:
    """Inserts a line into a file of the copy."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
    at = len(lines)
    if before is not None:
        starts = [index for index, other in enumerate(lines) if other.startswith(before)]
        if not starts:
            raise Stop(f"{file}: no line starts with '{before}'")
        at = starts[0]
    lines.insert(at, line + "\n")
    file.write_text("".join(lines), encoding="utf-8")


def copy(folder: Path) -> None:
    """Copies the checkout. Unchanged files keep their times, so cargo does not rebuild them."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=CHECKOUT,
        check=True,
        capture_output=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = CHECKOUT / name
        if not source.is_file():
            continue  # deleted, but not from the index
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)


def programs(folder: str, names: list[str]) -> list[str]:
    """The names of the programs in a folder of cargo's output."""
    return [name for name in names if Path(folder).name == "deps" and "." not in name]


# The commands run few tests, so optimizing the packages would take longer than it saves.
NOT_OPTIMIZED = [
    f"--config=profile.dev.package.coalesce-{package}.opt-level=0"
    for package in ("alloc", "bench", "workloads")
]


def copy_built(folder: Path) -> None:
    """Copies cargo's output, except programs, so that unchanged crates are not rebuilt."""
    shutil.rmtree(folder, ignore_errors=True)
    built = CHECKOUT / "target/debug"
    for name in (".fingerprint", "build", "deps"):
        if (built / name).is_dir():
            shutil.copytree(built / name, folder / "debug" / name, ignore=programs)


def take_steps(procedure: Procedure, folder: Path) -> None:
    """Takes the documented steps in the copy."""
    docs = documentation(CHECKOUT / procedure.docs)
    for step in procedure.inserts:
        if step.line not in docs:
            raise Stop(f"{procedure.docs} does not tell to add: {step.line}")
    (folder / procedure.new_file).write_text(example(docs, procedure.crate), encoding="utf-8")
    for step in procedure.inserts:
        insert(folder / step.file, step.line, step.before)


def check(procedure: Procedure, folder: Path) -> None:
    """Runs the command of a procedure in the copy."""
    cargo, *arguments = procedure.command
    done = subprocess.run(
        [cargo, *NOT_OPTIMIZED, *arguments],
        cwd=folder,
        env={**os.environ, "CARGO_TARGET_DIR": str(CHECKOUT / "target/howto/build")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0 or re.search(procedure.expect, done.stdout) is None:
        raise Stop(f"{' '.join(procedure.command)}, after the documented steps:\n{done.stdout}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROCEDURES))
    names = parser.parse_args().names or list(PROCEDURES)
    for name in names:
        if name not in PROCEDURES:
            parser.error(f"unknown procedure '{name}'; expected one of: {', '.join(PROCEDURES)}")
    folder = CHECKOUT / "target/howto/checkout"
    copy(folder)
    copy_built(CHECKOUT / "target/howto/build")
    # One that cannot be taken would make the commands of the others fail too.
    for action in (take_steps, check):
        failed = False
        for name in names:
            try:
                action(PROCEDURES[name], folder)
            except Stop as stop:
                failed = True
                print(f"{name}: {stop}", file=sys.stderr)
        if failed:
            return 1
    print(f"the documented steps work: {', '.join(names)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
