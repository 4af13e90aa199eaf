#!/usr/bin/env python3
"""Prints for which recordings a schedule, or another order of creation, is better than the best
constant settings, as Markdown.

all.py COALESCE [--time-limit SECONDS] RECORDING...
"""

import argparse
import json
import pathlib
import subprocess

MIB = 1 << 20

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("coalesce")
parser.add_argument("recordings", nargs="+")
parser.add_argument("--time-limit", default="60")
parser.add_argument("--not-throughout", default="", help="as of coalesce advise")
args = parser.parse_args()

print("| recording | requested | constant settings | held | schedule | held |")
print("|---|---:|---|---:|---|---:|")
asked = answered = found = 0
orders = []
for recording in args.recordings:
    command = [args.coalesce, "advise", recording, "--json", "--time-limit", args.time_limit]
    if args.not_throughout:
        command += ["--not-throughout", args.not_throughout]
    asked += 1
    ran = subprocess.run(command, capture_output=True, text=True)
    try:
        advice = json.loads(ran.stdout)
        requested = advice["lower_bound_bytes"]
    except (ValueError, KeyError, TypeError):
        # It has no history, or no recording can be replayed: there is nothing to search.
        continue
    answered += 1
    in_order = advice.get("in_order")
    if in_order:
        held = [
            in_order[key]["on_device"]["peak_reserved_bytes"] // MIB
            for key in ("constant", "with_order")
        ]
        first = f"{in_order['category'] or 'all'}, {in_order['bytes'] // MIB}"
        conf = in_order["constant"]["conf"] or "(defaults)"
        orders.append([pathlib.Path(recording).name, requested // MIB, f"`{conf}`", held[0]])
        orders[-1] += [first, held[1]]
    in_time = advice.get("in_time")
    if in_time is None:
        continue
    found += 1
    held = [
        in_time[key]["on_device"]["peak_reserved_bytes"] for key in ("constant", "with_schedule")
    ]
    patch = "; ".join(
        f"{part['place']}: `{' / '.join(part['lines'])}`" for part in in_time["patch"]
    )
    conf = in_time["constant"]["conf"] or "(defaults)"
    schedule = f"`{in_time['conf']}`, {patch}" if in_time["conf"] else patch
    cells = [
        pathlib.Path(recording).name,
        f"{requested // MIB}",
        f"`{conf}`",
        f"{held[0] // MIB}",
        schedule,
    ]
    print("| " + " | ".join(cells + [f"{held[1] // MIB}"]) + " |", flush=True)
print("\n| recording | requested | constant settings | held | created first | held |")
print("|---|---:|---|---:|---|---:|")
for row in orders:
    print("| " + " | ".join(map(str, row)) + " |")
print(f"\n{found} and {len(orders)} of {answered} recordings that can be replayed ({asked} files); MiB.")
