#!/usr/bin/env python3
"""Finds a release of PyTorch that is not in releases.tsv and compares it with the newest that is.

    radar.py --coalesce PROGRAM [--seconds 60] [--issue FILE]

Asks PyPI for the releases, adds the row of a new one to releases.tsv, builds its oracle, and runs
the golden vectors and random scripts on it, against the rules of the newest release before. FILE
gets what a maintainer has to know, as Markdown whose first line is the title: what differs, each
with its first script, reduced to a few operations. Nothing is written if no release is new.

Status: 0 if no release is new, or all agrees; 1 if something differs; 2 if it cannot be said."""

import argparse
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from oraclelib import Release

HERE = Path(__file__).resolve().parent
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
WHEELS = [
    *("--python-version", "3.11", "--implementation", "cp", "--only-binary=:all:"),
    *(f"--platform=manylinux{tag}_x86_64" for tag in ("_2_28", "_2_17", "2014")),
]
# GitHub takes 65,536 characters in an issue.
MOST_OF_A_CHECK = 12_000


class Unknown(Exception):
    """Why nothing can be said, and what was printed."""


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--coalesce", required=True, type=Path, help="the program")
    parser.add_argument("--seconds", type=int, default=60, help="for each comparison (60)")
    parser.add_argument("--issue", type=Path, help="where to write what was found")
    args = parser.parse_args()
    known = newest(Release.all())
    new = newest(published())
    if order(new) <= order(known):
        print(f"no release of PyTorch is newer than {known}")
        return 0
    print(f"PyTorch {new} is new; the newest known is {known}", flush=True)
    try:
        oracle = build(new)
        failed = list(differences(args, known, oracle))
        status = 1 if failed else 0
    except Unknown as error:
        failed, status = [error.args], 2
    verdict = ["decides as", "decides otherwise than", "cannot be compared with"][status]
    title = f"PyTorch {new} {verdict} {known}"
    parts = [f"### {what}\n\n```\n{cut(output)}\n```\n" for what, output in failed]
    row = next(line for line in table() if line.startswith(f"{new}\t"))
    body = (
        f"{title}\n\nIts row for `releases.tsv`:\n\n```\n{row}\n```\n\n{''.join(parts)}\n{NEXT}\n"
    )
    print(body)
    if args.issue:
        args.issue.write_text(body)
    return status


NEXT = "What to do: *Adding a release* in `scripts/conformance/README.md`."


def order(release):
    return tuple(int(number) for number in release.split("."))


def newest(releases):
    return max(releases, key=order)


def published():
    """The releases on PyPI, without those before a release such as 2.16.0rc1."""
    text = run([*PIP, "index", "versions", "torch", *WHEELS], "PyPI does not answer")
    return re.findall(r"(?<![\w.])\d+\.\d+\.\d+(?=,|$)", text, re.M)


def build(new):
    """Adds the release to the table and builds its oracle. Returns its path."""
    # The compiler's flags are those of the release before, until they do not suffice.
    *_, before = table()
    _, _, standard, abi, _, _ = before.split("\t")
    row = [new, cuda_runtime(new), standard, abi]
    add([*row, "?", "?"])
    setup = [HERE / "setup.sh", "--torch", new]
    # The first call tells the digests of the libraries, unless they are unpacked already.
    first = subprocess.run(setup, capture_output=True, text=True)
    told = re.search(r"recorded with: ([0-9a-f]{64}) ([0-9a-f]{64})", first.stderr)
    if told is not None:
        digests = told.groups()
    elif first.returncode == 0:
        libraries = Path(first.stdout.splitlines()[-1]).parents[1] / "torch/lib"
        files = [libraries / name for name in ("libc10.so", "libc10_cuda.so")]
        digests = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    else:
        raise Unknown("The oracle is not set up", first.stderr)
    add([*row, *digests])
    return run(setup, "The oracle is not built; a call may have a new form").splitlines()[-1]


def cuda_runtime(torch):
    """The version of CUDA's runtime that a release requires, by itself or by the whole toolkit."""
    required = requirements(f"torch=={torch}")
    toolkit = re.search(r"^cuda-toolkit\[.*\]==([\d.]+)", required, re.M)
    if toolkit is not None:
        required = requirements(f"cuda-toolkit=={toolkit[1]}")
    version = re.search(r"^nvidia-cuda-runtime(?:-cu\d+)?==(\d+\.\d+\.\d+)", required, re.M)
    if version is None:
        raise Unknown("The version of the CUDA runtime is not found", required)
    return version[1]


def requirements(package):
    """What a package requires, a line each, from PyPI's metadata: nothing is downloaded."""
    with tempfile.TemporaryDirectory() as target:
        options = ["--quiet", "--dry-run", "--ignore-installed", "--no-deps", "--target", target]
        command = [*PIP, "install", *options, *WHEELS, "--report", "-", package]
        report = json.loads(run(command, f"{package} is not on PyPI"))
    return "\n".join(report["install"][0]["metadata"].get("requires_dist", []))


def table():
    lines = Path(Release.TABLE).read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


def add(row):
    """Adds the row of a release to the table, or replaces it."""
    path = Path(Release.TABLE)
    others = [it for it in path.read_text().splitlines() if not it.startswith(f"{row[0]}\t")]
    path.write_text("\n".join([*others, "\t".join(row)]) + "\n")


def differences(args, known, oracle):
    """The comparisons that fail, each with its output."""
    release = ["--torch", known, "--oracle", oracle]
    script = ["--candidate", f"{args.coalesce.resolve()} script"]
    seeds = ["--seeds", "random:1000", "--seconds", str(args.seconds), "--max-failures", "1"]
    conformance = ["conformance.py", *release, *script, *seeds, "--ops", "2000"]
    for what, command in {
        "Golden vectors of the release before": ["goldens.py", *release, "--check-oracle"],
        "Random scripts": conformance,
        "Random scripts with pools": [*conformance, "--pools"],
        "Random scripts with several recordings": [*conformance, "--pools", "--multi-record"],
        "Settings": ["settings.py", *release, *script, *seeds],
    }.items():
        done = subprocess.run(
            [HERE / command[0], *command[1:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        last = (done.stdout.splitlines() or ["nothing printed"])[-1]
        print(f"{what}: {last}", flush=True)
        if done.returncode != 0:
            yield what, done.stdout


def run(command, problem):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise Unknown(problem, done.stdout + done.stderr)
    return done.stdout


def cut(text):
    """The beginning of a long text: the first difference is there. Failures without details go."""
    text = re.sub(r"^FAIL .*\n(?=FAIL |\d+ )", "", text.rstrip(), flags=re.M)
    text = text.replace("```", "'''")
    return text if len(text) <= MOST_OF_A_CHECK else text[:MOST_OF_A_CHECK] + "\n…"


if __name__ == "__main__":
    sys.exit(main())
