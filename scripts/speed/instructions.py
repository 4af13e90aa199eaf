#!/usr/bin/env python3
"""Fails if PyTorch's allocator needs more instructions for a malloc and its free than recorded.

    instructions.py            compares with benches/instructions.csv
    instructions.py --record   counts with the default compiler and writes that file

The exit status is 1 if a script needs over 3 % more instructions than recorded, or has no
record. If an increase is intended, or a script became faster, record again and commit the file.

benches/suite/instructions.rs has the scripts. Valgrind counts, so the load of the machine does not
matter. The compiler does: that of the record is used, and installed if rustup can. Otherwise the
table is shown but nothing fails, because between compilers it says nothing about the change.

Installs valgrind from Debian's packages if it is missing.
"""

import argparse
import csv
import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
RECORD = CHECKOUT / "benches" / "instructions.csv"
# Mallocs in each script, as in benches/suite/instructions.rs.
PAIRS = 10_000
# Largest increase that passes, relative to the recorded count.
LIMIT = 0.03


class Stop(Exception):
    """There are no counts."""


def stdout(*command: str) -> str:
    run = subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True)
    return run.stdout


def install_valgrind() -> None:
    if shutil.which("valgrind"):
        return
    as_root = [] if os.geteuid() == 0 else ["sudo"]
    subprocess.run([*as_root, "apt-get", "update", "-qq"], check=True)
    subprocess.run([*as_root, "apt-get", "install", "-y", "-qq", "valgrind"], check=True)


def compiler() -> str:
    """The compiler that cargo uses here, and its target."""
    said = stdout("rustc", "-vV").splitlines()
    host = next(line.removeprefix("host: ") for line in said if line.startswith("host: "))
    return f"{said[0]}, {host}"


def use(recorded: str) -> None:
    """Makes cargo use the recorded compiler if that is possible."""
    if compiler() == recorded or not shutil.which("rustup"):
        return
    version = recorded.split()[1]
    install = ["rustup", "toolchain", "install", version, "--no-self-update"]
    if subprocess.run([*install, "--profile", "minimal"]).returncode == 0:
        os.environ["RUSTUP_TOOLCHAIN"] = version


def built() -> str:
    """Builds the scripts, and returns their program."""
    said = stdout(
        *["cargo", "bench", "--quiet", "--locked", "--bench", "instructions"],
        *["--no-run", "--message-format", "json"],
    )
    artifacts = (json.loads(line) for line in said.splitlines())
    for artifact in artifacts:
        if artifact.get("executable") and artifact["target"]["name"] == "instructions":
            return artifact["executable"]
    raise Stop("cargo did not report the program of the benchmark")


def count_one(program: str, script: str) -> float:
    """Instructions for a malloc and its free in a script."""
    # The cache is not simulated: only instructions are compared, and counting them alone is faster.
    command = ["valgrind", "--tool=callgrind", "--toggle-collect=*instructions::counted*"]
    command += ["--cache-sim=no", "--callgrind-out-file=/dev/null", program, script]
    run = subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True)
    total = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or total is None:
        raise Stop(f"{' '.join(command)} failed:\n{run.stderr}")
    if int(total[1]) == 0:
        raise Stop("the benchmark counted nothing")
    return int(total[1]) / PAIRS


def count() -> dict[str, float]:
    """Instructions for a malloc and its free, by script."""
    program = built()
    scripts = stdout(program).split()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        counts = pool.map(count_one, [program] * len(scripts), scripts)
        return dict(zip(scripts, counts))


def read() -> tuple[str, dict[str, float]]:
    """The compiler of the record, and its counts."""
    with RECORD.open(encoding="utf-8", newline="") as file:
        compiler = file.readline().removeprefix("# ").strip()
        rows = csv.DictReader(file)
        return compiler, {row["script"]: float(row["instructions_per_pair"]) for row in rows}


def record(counts: dict[str, float]) -> None:
    with RECORD.open("w", encoding="utf-8", newline="") as file:
        file.write(f"# {compiler()}\n")
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["script", "instructions_per_pair"])
        rows.writerows((script, f"{per_pair:.1f}") for script, per_pair in counts.items())


def compare(recorded: dict[str, float], counts: dict[str, float]) -> bool:
    """Prints the table. Returns whether all scripts are within the limit."""
    print(f"{'instructions for a malloc and its free':40}{'recorded':>9}{'now':>9}{'change':>9}")
    passes = True
    for script in {**recorded, **counts}:
        before, now = recorded.get(script), counts.get(script)
        if before is None or now is None:
            print(f"{script:40}" + ("   is not recorded" if now else "   exists no longer"))
            passes = False
            continue
        change = now / before - 1
        verdict = "   TOO MANY" if change > LIMIT else "   fewer" if change < -LIMIT else ""
        passes &= change <= LIMIT
        print(f"{script:40}{before:9.1f}{now:9.1f}{change:+9.1%}{verdict}")
    return passes


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    install_valgrind()
    if args.record:
        record(count())
        print(RECORD.read_text(encoding="utf-8"), end="")
        return 0
    recorded_with, recorded = read()
    use(recorded_with)
    counts = count()
    passes = compare(recorded, counts)
    # Another compiler inlines differently, which can change counts by more than the limit.
    if (now := compiler()) != recorded_with:
        print(f"NOT COMPARED: recorded with {recorded_with}; this is {now}")
        return 0
    if not passes:
        print("if this is intended, run scripts/speed/instructions.py --record and commit")
    return 0 if passes else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Stop as reason:
        sys.exit(f"instructions.py: {reason}")
    except subprocess.CalledProcessError as failed:
        sys.exit(f"instructions.py: {' '.join(map(str, failed.cmd))} failed")
