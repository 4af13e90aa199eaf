#!/usr/bin/env python3
"""Compares predictions from a snapshot with PyTorch.

    predict.py                             all programs, all settings; the table on stdout
    predict.py --only cnn --only 'halv*'   some programs
    predict.py --csv TABLE.csv             the table as CSV as well
    predict.py --gpu                       on a GPU instead of the fake device

Each program of programs.py is recorded once, under default settings, by PyTorch 2.11 on the fake
device (../conformance/setup-torch.sh). From the snapshot alone `coalesce advise` names
settings, and `coalesce replay` predicts what the program needs under these and others. PyTorch
then runs the program under each of them. The peak of reserved memory, the retries and the
failed requests are compared.

Results are kept in a folder (--keep) and reused as long as programs.py and `coalesce` are
unchanged; a run can be interrupted at any time. Last line: "N equal, M within 1 %, U unknown, K
off"; status 1 if K > 0. A row is unknown if a request that failed in the recording succeeds in
the replay; the prediction reports this."""

import argparse
import csv
import fnmatch
import hashlib
import json
import os
import shlex
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.dont_write_bytecode = True
HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "conformance"))
sys.path.insert(0, str(HERE))
from devices import PROGRAMS, FakeDevice, Gpu, digest, run, size
from oraclelib import clean_env

# The settings for every program, besides the advised ones.
SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:64",
    "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.7,per_process_memory_fraction:0.95",
)
# A column of the table, its name in what `coalesce replay --json` prints, and in memory_stats().
FIGURES = {
    "peak_reserved_bytes": ("peak_reserved_bytes", "reserved_bytes.all.peak"),
    "retries": ("retries", "num_alloc_retries"),
    "ooms": ("ooms", "num_ooms"),
}


VERDICTS = ("equal", "within 1 %", "unknown", "off")


class Runner:
    """Runs each command once and keeps its result."""

    def __init__(self, device, coalesce, keep):
        self.device = device
        self.coalesce = shlex.split(coalesce)
        self.keep = Path(keep)
        self.keep.mkdir(parents=True, exist_ok=True)

    def once(self, key, suffix, make):
        """Returns the file that make(path) writes, or an earlier one with the same key."""
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:20]
        path = self.keep / (name + suffix)
        if not path.exists():
            unfinished = self.keep / f".{os.getpid()}-{name}{suffix}"
            try:
                make(unfinished)
                unfinished.rename(path)
            finally:
                unfinished.unlink(missing_ok=True)
        return path

    def torch(self, name, program, conf, record=False):
        """Runs the program on PyTorch and returns its snapshot or its statistics."""
        env = clean_env({"PYTHONHASHSEED": "0", **self.device.environment(program)})
        if conf:
            env["PYTORCH_CUDA_ALLOC_CONF"] = conf

        def make(path):
            python = self.device.command
            run([*python, PROGRAMS, name, "--record" if record else "--stats", path], env)

        key = [self.device.key(), name, program, conf, record]
        return self.once(key, ".pickle" if record else ".json", make)

    def ask(self, snapshot, verb, *options):
        """Runs `coalesce` on a snapshot and returns its JSON."""

        def make(path):
            command = [*self.coalesce, verb, snapshot, *options, "--json"]
            path.write_text(run(command, clean_env()))

        key = [digest(self.coalesce[0]), snapshot.name, verb, options]
        return json.loads(self.once(key, ".json", make).read_text())


def run_all(runner, programs, settings, jobs):
    """Records all programs and runs them under all settings."""
    runs = [
        (name, program, conf, record)
        for name, program in programs.items()
        for conf, record in [("", True), *((conf, False) for conf in settings)]
    ]

    def do(what):
        name, program, conf, record = what
        runner.torch(name, program, runner.device.conf(program, conf), record)
        print(f"{name}, {conf or 'default'}", file=sys.stderr, flush=True)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(do, runs))


def rows_of(runner, name, program, settings):
    """The rows of one program."""
    device = runner.device
    snapshot = runner.torch(name, program, device.conf(program, ""), record=True)
    capacity = ["--capacity", str(device.capacity(program))]
    # Without a time limit the advice is the same on every machine.
    advice = runner.ask(snapshot, "advise", *capacity, "--time-limit", "0")
    advised = [setting["conf"] for setting in advice["ranking"] if setting["is_advised"]]
    settings = [device.conf(program, conf) for conf in settings]
    for conf in dict.fromkeys([*settings, *advised]):
        predicted = runner.ask(snapshot, "replay", *capacity, "--conf", conf)
        real = json.loads(runner.torch(name, program, conf).read_text())
        row = {
            "program": name,
            "capacity_bytes": size(program["capacity"]),
            "conf": conf,
            "advised": conf in advised,
        }
        for column, (ours, theirs) in FIGURES.items():
            row["predicted_" + column] = predicted[ours]
            row["pytorch_" + column] = real[theirs]
        row["failures_averted"] = predicted["failures_averted"]
        row["verdict"] = verdict(row)
        yield row


def difference(row):
    """The error of the predicted reserved memory: predicted / real - 1."""
    return row["predicted_peak_reserved_bytes"] / row["pytorch_peak_reserved_bytes"] - 1


def verdict(row):
    """`equal` in all figures; `within 1 %` in memory and equal in the rest; `unknown` if the
    program would leave the recorded path; or `off`."""
    off = [column for column in FIGURES if row["predicted_" + column] != row["pytorch_" + column]]
    if not off:
        return "equal"
    if off == ["peak_reserved_bytes"] and abs(difference(row)) <= 0.01:
        return "within 1 %"
    return "unknown" if row["failures_averted"] > 0 else "off"


def markdown(rows):
    def figures(row, who):
        reserved = row[who + "_peak_reserved_bytes"] / (1 << 20)
        return f"{reserved:,.0f} | {row[who + '_retries']} | {row[who + '_ooms']}"

    yield (
        "| program | settings | predicted: MiB reserved | retries | OOMs "
        "| PyTorch: MiB reserved | retries | OOMs | difference |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|---|"
    last = None
    for row in rows:
        name, last = "" if row["program"] == last else row["program"], row["program"]
        conf = f"`{row['conf']}`" if row["conf"] else "default"
        setting = f"**{conf}**" if row["advised"] else conf
        off = "none" if row["verdict"] == "equal" else f"{difference(row):+.2%}"
        if row["verdict"] == "unknown":
            off += ", unknown after the failure"
        sides = f"{figures(row, 'predicted')} | {figures(row, 'pytorch')}"
        yield f"| {name} | {setting} | {sides} | {off} |"


def cache():
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "coalesce-predictions"


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", action="append", metavar="NAME", help="a program's name, or a pattern of names"
    )
    parser.add_argument(
        "--coalesce",
        default=str(ROOT / "target" / "release" / "coalesce"),
        metavar="CMD",
        help="how to call coalesce (default: %(default)s, from cargo build --release)",
    )
    parser.add_argument(
        "--python",
        metavar="CMD",
        help="the python with PyTorch (default: what setup-torch.sh prints; with --gpu python3)",
    )
    parser.add_argument(
        "--gpu", action="store_true", help="run on a GPU, limited to the size of the fake device"
    )
    parser.add_argument(
        "--keep", default=cache(), metavar="DIR", help="folder for results (default: %(default)s)"
    )
    parser.add_argument(
        "--run-only",
        action="store_true",
        help="only run the programs; copy --keep to a machine that has coalesce",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="programs to run at once")
    parser.add_argument(
        "--also", action="append", default=[], metavar="CONF", help="more settings for all programs"
    )
    parser.add_argument("--csv", metavar="FILE", help="also write the table as CSV")
    return parser.parse_args()


def main():
    args = arguments()
    device = (Gpu if args.gpu else FakeDevice).with_torch(args.python, args.keep)
    runner = Runner(device, args.coalesce, args.keep)
    programs = device.programs()
    chosen = {
        name: program
        for name, program in programs.items()
        if not args.only or any(fnmatch.fnmatch(name, only) for only in args.only)
    }
    if not chosen:
        raise SystemExit(f"no such program; expected one of: {', '.join(programs)}")

    settings = [*SETTINGS, *args.also]
    if args.run_only:
        run_all(runner, chosen, settings, args.jobs)
        return 0
    rows = []
    for number, (name, program) in enumerate(chosen.items(), 1):
        for row in rows_of(runner, name, program, settings):
            rows.append(row)
            said = f"[{number}/{len(chosen)}] {name}, {row['conf'] or 'default'}: {row['verdict']}"
            print(said, file=sys.stderr, flush=True)

    print("\n".join(markdown(rows)))
    if args.csv:
        with open(args.csv, "w", newline="") as out:
            table = csv.DictWriter(out, rows[0], lineterminator="\n")
            table.writeheader()
            table.writerows(rows)
    counts = Counter(row["verdict"] for row in rows)
    print(", ".join(f"{counts[one]} {one}" for one in VERDICTS))
    return counts["off"] > 0


if __name__ == "__main__":
    sys.exit(main())
