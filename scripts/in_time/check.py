#!/usr/bin/env python3
"""Records each program, lets advise look for a schedule, follows it, and compares what was held
with what was said.

    check.py [--record] COALESCE [PYTHON]

PYTHON runs CUDA code: on a GPU, or on the simulated one of scripts/conformance/setup-torch.sh.
Prints the table in README.md. Fails if a schedule does not hold what advise says, to the byte, or
if a run prints something else than is recorded in runs.jsonl; with --record, writes that file.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from itertools import zip_longest

HERE = pathlib.Path(__file__).parent
PROGRAMS = ["load_then_serve", "rl_offload", "rl_in_turns", "stashed_tables", "graph_pool"]
MIB = 1 << 20


def run(python, program, *arguments):
    ran = subprocess.run(
        [python, HERE / f"{program}.py", *arguments], capture_output=True, text=True
    )
    if ran.returncode != 0:
        sys.exit(f"{program}: {ran.stderr}")
    return json.loads(ran.stdout.splitlines()[-1])


def advise(coalesce, snapshot, out, *arguments):
    command = [coalesce, "advise", snapshot, f"--json={out}", "--time-limit", "120", *arguments]
    subprocess.run(command, check=True, capture_output=True)
    return json.loads(pathlib.Path(out).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write runs.jsonl")
    parser.add_argument("coalesce")
    parser.add_argument("python", nargs="?", default=sys.executable)
    args = parser.parse_args()
    coalesce, python = args.coalesce, args.python
    runs, wrong = [], []
    print("| program | as it is | the trick | settings alone | schedule | says | holds |")
    print("|---|---:|---:|---|---|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for program in PROGRAMS:
            snapshot, advice = f"{folder}/{program}.pickle", f"{folder}/{program}.json"
            plain = run(python, program, "--snapshot", snapshot)
            patched = run(python, program, "--patched")
            found = advise(coalesce, snapshot, advice)
            row = min(
                (row for row in found["ranking"]),
                key=lambda row: row["on_device"]["peak_reserved_bytes"],
            )
            alone = (
                f"`{row['conf'] or '(defaults)'}` {row['on_device']['peak_reserved_bytes'] // MIB}"
            )
            if "in_time" not in found:
                found = advise(
                    coalesce, snapshot, advice, "--not-throughout", "expandable_segments"
                )
            runs += [plain, patched]
            cells = [program, plain["reserved_peak"] // MIB, patched["reserved_peak"] // MIB, alone]
            schedule = found.get("in_time")
            if schedule is None:
                print("| " + " | ".join(map(str, cells)) + " | none is better | | |")
                continue
            followed = run(python, program, "--schedule", advice)
            runs.append(followed)
            said, held = (
                schedule["with_schedule"]["on_device"]["peak_reserved_bytes"],
                followed["reserved_peak"],
            )
            if said != held:
                wrong.append(f"{program}: {said} were said, {held} held")
            patch = "; ".join(
                f"{part['place']}: `{' / '.join(part['lines'])}`" for part in schedule["patch"]
            )
            print(
                "| " + " | ".join(map(str, [*cells, patch, said // MIB, held // MIB])) + " |",
                flush=True,
            )
    recorded = HERE / "runs.jsonl"
    if args.record:
        recorded.write_text("".join(json.dumps(run) + "\n" for run in runs))
    known = map(json.loads, recorded.read_text().splitlines())
    pairs = zip_longest(known, runs)
    wrong += [f"recorded {before}, printed {now}" for before, now in pairs if before != now]
    sys.exit("\n".join(wrong) or None)


if __name__ == "__main__":
    main()
