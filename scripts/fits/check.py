#!/usr/bin/env python3
"""Checks `coalesce fits` with PyTorch: what it says equals what whole runs of the programs show.

    check.py --python "$(../conformance/setup-torch.sh)" --coalesce ../../target/release/coalesce

Each program runs whole on the simulated GPU, which gives the true peak of reserved memory, and
then under `coalesce fits`, which may end it early. The programs are those of ../predictions, and
some short ones. Prints a line for each; status 1 if one is off."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAMS = Path(__file__).resolve().parents[1] / "predictions" / "programs.py"
MEMORY = "256GiB"
# Programs of ../predictions, and why a run of them ends.
KNOWN = {"cnn": "program", "evaluation": "program", "halving": "repeats"}

TRAIN = """
import os, torch
model = torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(8))).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1000):
    loss = model(torch.randn(int(os.environ["BATCH"]) << 10, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
# Libraries ask whether there is a torch before they import it.
SELECT = """
import importlib.util; importlib.util.find_spec("torch")
import torch
found = torch.ones(1000, device="cuda").nonzero()
if found.sum().item() > 0:
    torch.empty(1 << 20, device="cuda")
found[found > 0]
torch.where(found > 0, found, found)
"""


def true_peak(python, name):
    """The peak of reserved memory of a whole run, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats.json"
        environment = {**os.environ, "FAKE_TOTAL_BYTES": MEMORY, "FAKE_ADDR": "cuda"}
        command = [python, PROGRAMS, name, "--stats", stats]
        subprocess.run(command, env=environment, check=True, capture_output=True)
        return json.loads(stats.read_text())["reserved_bytes.all.peak"]


def fits(coalesce, *arguments, **variables):
    """What `coalesce fits` answers, and its exit status."""
    command = [coalesce, "fits", "--json", *arguments]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 2:
        sys.exit(f"{' '.join(map(str, command))}:\n{done.stderr}")
    return json.loads(done.stdout), done.returncode


def checks(python, coalesce):
    """Yields what was checked, what was found and what was expected."""
    for name, ended in KNOWN.items():
        command = ["--", python, PROGRAMS, name, "--stats", "/dev/null"]
        answer, _ = fits(coalesce, "--memory", MEMORY, *command)
        yield name, (answer["peak_reserved_bytes"], answer["ended"]), (
            true_peak(python, name),
            ended,
        )
    train = ["--", python, "-c", TRAIN]
    answer, status = fits(coalesce, "--memory", "4GiB", "--vary", "BATCH=1..64", *train)
    largest = answer["largest"]["value"]
    yield "the largest batch", (status, answer["ended"], answer["steps"]), (0, "repeats", 4)
    for batch, expected in ((largest, 0), (largest + 1, 1)):
        answer, status = fits(coalesce, "--memory", "4GiB", *train, BATCH=str(batch))
        yield f"a batch of {batch}", status, expected
    answer, _ = fits(coalesce, "--memory", "4GiB", "--", python, "-c", SELECT)
    found = [[place["line"] for place in answer[kind]] for kind in ("shapes", "values")]
    yield "computed values", found, [["<string>:4", "<string>:7"], ["<string>:5"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", required=True, help="a python with PyTorch on the simulated GPU")
    parser.add_argument("--coalesce", required=True, help="the program")
    args = parser.parse_args()
    failed = False
    for name, found, expected in checks(args.python, args.coalesce):
        is_right = found == expected
        failed |= not is_right
        print(f"{name}: {found}" + ("" if is_right else f", expected {expected}"), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
