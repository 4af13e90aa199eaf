#!/usr/bin/env python3
"""Compares what recorded programs reserved on a GPU with the simulated device.

    predicted.py OUT/traces.txt [--coalesce target/release/coalesce]

OUT is the folder that scripts/gpu/measure wrote; it has recordings.txt, too. Each program is replayed on
simulated devices that place memory as the driver does, and at addresses that go up, and a table is
printed: peak reserved memory in MiB, and how many are equal to the byte. The policy cuda_async is the
driver's own pool on the GPU and a model of it here. Status 1 if a program cannot be replayed.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
ADDRESSES = ["cuda", "up"]
WORKLOADS = ["workloads/traces/{}.csv.gz", "workloads/recordings/h200/{}.trace.xz"]


def rows(text):
    """Reads the JSON objects of a text."""
    decoder = json.JSONDecoder()
    text = text.lstrip()
    while text:
        row, end = decoder.raw_decode(text)
        yield row
        text = text[end:].lstrip()


def simulated(coalesce, row, addresses):
    """Peak reserved bytes of the same run on a simulated device of the same size."""
    paths = [ROOT / it.format(row["workload"]) for it in WORKLOADS]
    trace = next(it for it in paths if it.exists())
    command = [coalesce, "replay", trace, "--policy", row["policy"], "--conf", row["conf"]]
    command += ["--addresses", addresses, "--capacity", str(row["capacity_bytes"]), "--json"]
    said = subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout
    return json.loads(said)["peak_reserved_bytes"]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", type=Path)
    parser.add_argument("--coalesce", type=Path, default=ROOT / "target/release/coalesce")
    arguments = parser.parse_args()
    measured = {}
    for row in rows(arguments.traces.read_text()):
        measured.setdefault((row["policy"], row["conf"]), []).append(row)
    for (policy, conf), of_setting in measured.items():
        print(f"\n{policy}, {conf or 'default'}\n")
        print("| program | GPU | " + " | ".join(f"addresses {a}" for a in ADDRESSES) + " |")
        print("|---|--:|" + "--:|" * len(ADDRESSES))
        equal = dict.fromkeys(ADDRESSES, 0)
        for row in of_setting:
            real = row["peak_reserved_bytes"]
            cells = [f"{real / 2**20:.0f}"]
            for addresses in ADDRESSES:
                peak = simulated(arguments.coalesce, row, addresses)
                equal[addresses] += peak == real
                off = "" if peak == real else f" ({100 * (peak / real - 1):+.1f} %)"
                cells.append(f"{peak / 2**20:.0f}{off}")
            print(f"| {row['workload']} | " + " | ".join(cells) + " |")
        counts = " | ".join(f"{equal[a]} of {len(of_setting)}" for a in ADDRESSES)
        print(f"| equal | | {counts} |")


if __name__ == "__main__":
    try:
        main()
    except (OSError, ValueError, KeyError, StopIteration, subprocess.CalledProcessError) as error:
        sys.exit(f"predicted.py: {error}")
