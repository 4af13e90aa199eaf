#!/usr/bin/env python3
"""Fails if PyTorch's allocator needs more instructions for a malloc and its free than recorded.

    instructions.py            compares with benches/instructions.csv
    instructions.py --record   counts with the default compiler and writes that file

The exit status is 1 if a script needs over 3 % more instructions than recorded, or has no
record. If an increase is intended, or a script became faster, record again and commit the file.

benches/instructions.rs has the scripts. Valgrind counts, so the load of the machine does not
matter. The compiler does: that of the record is used, and installed if rustup can. Otherwise the
table is shown but nothing fails, because between compilers it says nothing about the change.

Installs what else is missing: valgrind from Debian's packages, gungraun-runner, in the version of
Cargo.lock, into a folder of the cache.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
RECORD = CHECKOUT / "benches" / "instructions.csv"
# Mallocs in each script, as in benches/instructions.rs.
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


def runner() -> Path:
    """Gungraun's runner. It must have the version of the library."""
    version = stdout("cargo", "pkgid", "gungraun").strip().rpartition("@")[2]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / f"coalesce-gungraun-{version}"
    program = folder / "bin" / "gungraun-runner"
    if not program.exists():
        what = ["gungraun-runner", "--version", version]
        subprocess.run(
            ["cargo", "install", "--quiet", "--locked", *what, "--root", folder], check=True
        )
    return program


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


def count() -> dict[str, float]:
    """Instructions for a malloc and its free, by script."""
    os.environ["GUNGRAUN_RUNNER"] = str(runner())
    said = stdout(
        *["cargo", "bench", "--quiet", "--locked", "-p", "coalesce-bench"],
        *["--bench", "instructions", "--", "--output-format=json"],
    )
    counts = {}
    for line in filter(None, said.splitlines()):
        script = json.loads(line)
        total = script["profiles"][0]["data"]["total"]["metrics"]["Ir"]["values"]["new"]
        counts[script["id"]] = total / PAIRS
    if not counts:
        raise Stop("the benchmark counted nothing")
    return counts


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
