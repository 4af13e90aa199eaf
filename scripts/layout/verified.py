#!/usr/bin/env python3
"""The public score: recordings that others made, replayed. Writes the tables of
results/VERIFIED.md from results/verified.csv.

    scripts/layout/verified.py --add URL FILE    verifies a published file, and adds its line
    scripts/layout/verified.py --again FOLDER    verifies the files of a folder that the table has,
                                                 and fails if a line is another today
    scripts/layout/verified.py --check           writes nothing, and fails where the page says
                                                 something else

The program is target/release/coalesce, or --coalesce PROGRAM."""

import argparse
import csv
import hashlib
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "results/verified.csv"
PAGE = ROOT / "results/VERIFIED.md"
VERDICTS = ("exact", "different", "nothing to verify", "impossible", "unreadable")
TRIED = ("exact", "different")
MARKED = r"(<!-- table {}: made by scripts/layout/verified.py -->\n).*?(<!-- end -->)"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--add", nargs=2, action="append", default=[], metavar=("URL", "FILE"))
    parser.add_argument("--again", type=Path)
    parser.add_argument("--coalesce", default=ROOT / "target/release/coalesce")
    args = parser.parse_args()
    rows = read(TABLE.read_text(encoding="utf-8"))
    for url, file in args.add:
        rows += [{**row, "origin": url} for row in verified(args.coalesce, file)]
    rows = sorted(rows, key=lambda row: (row["origin"], row["sha256"]))
    for problem in problems(rows):
        sys.exit(f"results/verified.csv: {problem}")
    if args.again:
        again(args, rows)
    if args.add:
        with TABLE.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
    old = new = PAGE.read_text(encoding="utf-8")
    for name, text in (("score", score(rows)), ("origins", origins(rows))):
        new, count = re.subn(MARKED.format(name), rf"\g<1>{text}\g<2>", new, flags=re.DOTALL)
        if count != 1:
            sys.exit(f"results/VERIFIED.md: {count} tables marked `{name}`, expected 1")
    if args.check and new != old:
        sys.exit("results/VERIFIED.md: not as verified.csv says (run scripts/layout/verified.py)")
    if new != old:
        PAGE.write_text(new, encoding="utf-8")


def read(text):
    return list(csv.DictReader(text.splitlines()))


def verified(program, file):
    """The lines that `coalesce verify` prints of a file."""
    command = [program, "verify", "--submit-nothing", "--quiet", file]
    return read(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout)


def again(args, rows):
    files = {sha256(file): file for file in args.again.iterdir() if file.is_file()}
    tried = 0
    for digest in sorted({row["sha256"] for row in rows} & files.keys()):
        recorded = [row for row in rows if row["sha256"] == digest]
        origin = recorded[0]["origin"]
        now = [{**row, "origin": origin} for row in verified(args.coalesce, files[digest])]
        tried += len(now)
        if now != recorded:
            sys.exit(f"{origin}\n  recorded: {recorded}\n  now:      {now}")
    print(f"{tried} of {len(rows)} lines are the same today; the files of the others are not there")


def sha256(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def problems(rows):
    seen = set()
    for row in rows:
        name = f"{row['origin']}, {row['sha256']}"
        columns = ("events", "allocations", "exact", "segments", "predicted")
        numbers = [row[column] for column in columns]
        if not re.fullmatch(r"https://\S+|not published", row["origin"]):
            yield f"{name}: the origin is neither an address nor `not published`"
        if not re.fullmatch(r"[0-9a-f]{16}", row["sha256"]):
            yield f"{name}: no digest of 16 digits"
        if row["verdict"] not in VERDICTS or not all(number.isdecimal() for number in numbers):
            yield f"{name}: not a line of coalesce verify --submit-nothing"
        elif row["verdict"] == "exact" and (numbers[1], numbers[3]) != (numbers[2], numbers[4]):
            yield f"{name}: exact, but not all allocations and segments"
        elif (row["verdict"] == "different") != bool(row["difference"]):
            yield f"{name}: a difference belongs to the verdict `different`"
        if tuple(row.items()) in seen:
            yield f"{name}: twice"
        seen.add(tuple(row.items()))


def score(rows):
    """By the releases whose rules explain a recording, and by the memory of the device."""
    of = defaultdict(list)
    for row in rows:
        if row["verdict"] in TRIED:
            of[row["releases"], row["memory"]].append(row)
    text = "| release | device | recordings exact | published | events | allocations exact |\n"
    text += "|---|---|---:|---:|---:|---:|\n"

    def line(release, memory, some):
        exact = [row for row in some if row["verdict"] == "exact"]
        published = sum(row["origin"] != "not published" for row in exact)
        events, allocations, right = (
            sum(int(row[column]) for row in some) for column in ("events", "allocations", "exact")
        )
        return (
            f"| {release} | {memory} | {len(exact)} of {len(some)} | {published} | {events:,} "
            f"| {right:,} of {allocations:,} |\n"
        )

    def order(key):
        return [int(number) for number in re.findall(r"\d+", key[0])], key[1]

    text += "".join(line(*key, of[key]) for key in sorted(of, key=order))
    return text + line("**all**", "", [row for some in of.values() for row in some])


def origins(rows):
    """By repository, with what cannot be verified."""
    of = defaultdict(list)
    for row in rows:
        place = re.match(r"https://github\.com/([^/]+/[^/]+)/", row["origin"])
        of[place[1] if place else row["origin"]].append(row["verdict"])
    text = "| repository | recordings exact | not verified |\n|---|---:|---|\n"
    for place, verdicts in sorted(of.items(), key=lambda pair: pair[0].lower()):
        tried = sum(verdict in TRIED for verdict in verdicts)
        others = [f"{verdicts.count(it)} {it}" for it in VERDICTS[2:] if it in verdicts]
        text += f"| {place} | {verdicts.count('exact')} of {tried} | {', '.join(others)} |\n"
    return text


if __name__ == "__main__":
    main()
