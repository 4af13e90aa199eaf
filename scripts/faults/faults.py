#!/usr/bin/env python3
"""Checks that the tests detect mistakes: plants faults in a copy of the allocator, one at a time.

    faults.py [NAME...]      all faults of planted.py, or those whose name contains a NAME
    faults.py --list         lists them
    faults.py --check        only checks that each can still be planted: its text occurs once

A fault is caught if the tests fail, or the gate on instruction counts if the fault makes the
allocator slower. One that does not compile is an error. The checkout is not changed. Status 1 if a
fault was not caught. About 20 seconds for each on 2 cores, 2 minutes for a slower one.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True
from planted import FAULTS, SLOWER, Fault

CHECKOUT = Path(__file__).resolve().parents[2]
TESTS = ["cargo", "test", "-p", "coalesce-alloc", "--no-fail-fast"]
GATE = ["scripts/speed/instructions.py"]
TIMEOUT_S = 600


class Stop(Exception):
    """The faults cannot be judged."""


def planted(fault: Fault) -> str:
    """The text of the fault's file with the fault in it."""
    path = CHECKOUT / fault.file
    text = path.read_text(encoding="utf-8")
    count = text.count(fault.old)
    if count != 1:
        raise Stop(f"'{fault.name}': its text occurs {count} times in {fault.file}, not once")
    return text.replace(fault.old, fault.new)


def run(command: list[str], folder: Path) -> tuple[int | None, str]:
    """Returns the exit status, None after a timeout, and the output."""
    env = dict(os.environ)
    env["CARGO_TARGET_DIR"] = str(CHECKOUT / "target" / "faults")
    # The failure is enough; its smallest example is not needed.
    env["PROPTEST_MAX_SHRINK_ITERS"] = "0"
    env["RUST_BACKTRACE"] = "0"
    # A new process group, so that a test that hangs is killed together with cargo.
    with subprocess.Popen(
        command,
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=TIMEOUT_S)
        except BaseException as reason:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(reason, subprocess.TimeoutExpired):
                return None, ""
            raise
        return process.returncode, said


def failing_tests(folder: Path) -> list[str]:
    """What fails: modules with failed tests, targets that crash, or `hang`. Empty if all pass."""
    status, said = run([*TESTS, "--no-run"], folder)
    if status != 0:
        raise Stop("it does not compile:\n" + said)
    status, said = run(TESTS, folder)
    if status is None:
        return ["hang"]
    failing = re.findall(r"^ +`-p coalesce-alloc --(?:test )?(.+?)`$", said, re.MULTILINE)
    if status != 0 and not failing:
        raise Stop("the tests could not be run:\n" + said)
    modules = re.findall(r"^test (\w+)(?:::\S+)? \.\.\. FAILED$", said, re.MULTILINE)
    return sorted(set(modules)) or failing


def exceeded_counts(folder: Path) -> list[str]:
    """The scripts that need too many instructions; empty if none does."""
    status, said = run(GATE, folder)
    scripts = re.findall(r"^(\w+) .* TOO MANY$", said, re.MULTILINE)
    if status is None or (status != 0 and not scripts):
        raise Stop("the instructions could not be counted:\n" + said)
    if "NOT COMPARED" in said:
        raise Stop("the recorded compiler is not installed")
    return scripts


def failing(fault: Fault, folder: Path) -> list[str]:
    """What fails of that which has to catch the fault."""
    return exceeded_counts(folder) if fault in SLOWER else failing_tests(folder)


def copy_of_checkout(folder: Path) -> Path:
    copy = folder / "copy"
    # Without modification times: cargo would take a fault of the last run for the newer text.
    left_out = shutil.ignore_patterns("target", ".git")
    shutil.copytree(CHECKOUT, copy, ignore=left_out, copy_function=shutil.copy)
    return copy


def plant_all(faults: list[Fault]) -> int:
    """Plants each fault and prints what caught it. Returns the number of survivors."""
    survivors = 0
    with tempfile.TemporaryDirectory() as folder:
        copy = copy_of_checkout(Path(folder))
        print(f"{'(none)':64}", end="", flush=True)
        for one in {fault in SLOWER: fault for fault in faults}.values():
            if already := failing(one, copy):
                raise Stop(f"these fail without a fault: {', '.join(already)}")
        print("passes", flush=True)
        for fault in faults:
            print(f"{fault.name:64}", end="", flush=True)
            path = copy / fault.file
            sound = path.read_text(encoding="utf-8")
            path.write_text(planted(fault), encoding="utf-8")
            caught_by = failing(fault, copy)
            path.write_text(sound, encoding="utf-8")
            survivors += not caught_by
            print(f"caught by {', '.join(caught_by)}" if caught_by else "NOT CAUGHT", flush=True)
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    names = args.names or [""]
    faults = [f for f in FAULTS + SLOWER if any(name in f.name for name in names)]
    if not faults:
        raise Stop("no fault has that name; --list shows them all")
    for fault in faults:
        planted(fault)
    if args.list or args.check:
        if args.list:
            print("\n".join(f"{fault.name:64}{fault.file}" for fault in faults))
        return 0
    survivors = plant_all(faults)
    print(f"{len(faults) - survivors} of {len(faults)} faults caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Stop as reason:
        sys.exit(f"\nfaults.py: {reason}")
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; the checkout is unchanged")
