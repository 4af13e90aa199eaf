#!/usr/bin/env python3
"""Compares the speed of the reference with that of PyTorch's own allocator.

    speed.py [--rounds N] [--out FOLDER] [--quick]
    speed.py --plot [--out FOLDER]      only draws the plot of a table that exists

Both replay the same scripts on the same simulated device, without a GPU: nanoseconds for each
allocation, which includes its free. Each round starts both programs for each script, one after
the other, on one core; a program replays the script once to warm up and then three times, or once
if that takes seconds. The tables show the least time and the median of all replays.

- original: PyTorch 2.11's allocator, from its wheel (scripts/conformance/setup.sh)
- locked:   `coalesce script`, behind a lock and with every statistic, as the original
- owned:    the same without the lock, for one thread

With several threads each replays the whole script. In "freed on another thread" one thread replays
it, and hands blocks that it would free to a second one, through a queue that both programs have.
The queue holds at most 256 blocks, so up to 256 more are live than in the script. The clock stops
after the last free.

FOLDER (default: results/speed of the checkout) gets speed.csv, speed.md and the plot live.svg,
which shows the time against the number of live blocks. Recorded scripts are included if
scripts/conformance/gen/rec.sh has made them. --quick: one round, small scripts.
"""

import argparse
import csv
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
CONFORMANCE = CHECKOUT / "scripts" / "conformance"
sys.path.insert(0, str(CONFORMANCE))
from oraclelib import GEN, default_dir

SCRIPTS = {
    "hot_4k": "hot 4 KiB",
    "hot_4m": "hot 4 MiB",
    "mix": "mixed, 1,000 live",
    "mix_small": "small mix",
    "frag": "fragmented",
    "transformer": "transformer",
    "gpt_real": "recorded GPT",
    "decode_real": "recorded decode",
    "record_stream": "record_stream, 4 streams",
}
LIVE = [1_000, 10_000, 100_000, 1_000_000]
THREADS = [1, 2, 4]
REPLAYS = 3
# A script of more bytes is replayed once in each round, because a replay takes seconds.
LONG_SCRIPT = 50 << 20
ON_OTHER_THREAD = "freed on another thread"
TIME = re.compile(r"^run \d+ ns_per_pair=([0-9.]+)", re.MULTILINE)
FIELDS = ["script", "setting", "threads", "program", "ns_min", "ns_median", "replays"]


def built(command: list[str]) -> str:
    """The last line that a command prints: the path of what it built."""
    done = subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip().splitlines()[-1]


def release_build(name: str) -> str:
    """The path of a program of the checkout."""
    subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=CHECKOUT, check=True)
    metadata = built(["cargo", "metadata", "--format-version", "1", "--no-deps"])
    return str(Path(re.search(r'"target_directory":"([^"]+)"', metadata)[1]) / "release" / name)


def scripts() -> dict[str, Path]:
    """The scripts, generated on first use."""
    folder = Path(default_dir())
    subprocess.run(
        ["sh", "-eu", "-c", '. "$G/bench_traces.sh"'],
        env={**os.environ, "G": str(CONFORMANCE / "gen"), "DIR": str(folder)},
        check=True,
    )
    found = {name: folder / "bench" / f"{name}.txt" for name in SCRIPTS}
    for name, path in found.items():
        if not path.exists():
            print(f"{name} is left out: make it with scripts/conformance/gen/rec.sh")
    return {name: path for name, path in found.items() if path.exists()}


def script_with_live(live: int) -> Path:
    """Mixed sizes up to 64 KiB, with so many blocks live."""
    path = Path(default_dir()) / "bench" / f"live_{live}.txt"
    if not path.exists():
        pairs = str(max(3 * live, 300_000))
        command = [sys.executable, GEN, "mix", "--seed", "1", "--max", "65536", "--pairs", pairs]
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("w") as out:
            subprocess.run([*command, "--live", str(live)], stdout=out, check=True)
        unfinished.rename(path)
    return path


class Programs:
    def __init__(self):
        original = built([str(CONFORMANCE / "setup.sh")])
        coalesce = [release_build("coalesce"), "script", "--torch", "2.11"]
        self.commands = {
            "original": [original],
            "locked": coalesce,
            "owned": [*coalesce, "--unlocked"],
        }

    def names(self, threads: int) -> list[str]:
        return [name for name in self.commands if threads == 1 or name != "owned"]

    def times(self, name: str, script: Path, setting: str, threads: int) -> list[float]:
        """Nanoseconds for an allocation and its free, for each replay."""
        replays = 1 if script.stat().st_size > LONG_SCRIPT else REPLAYS
        flags = ["--bench", str(replays), "--threads", str(threads)]
        if setting == "history":
            flags.append("--history")
        elif setting == ON_OTHER_THREAD:
            flags.append("--free-on-other-thread")
        expandable = "expandable_segments:True" if setting == "expandable" else ""
        environment = {
            **os.environ,
            "PYTORCH_CUDA_ALLOC_CONF": expandable,
            "FAKE_CAPACITY": str(1 << 40),
        }
        cores = os.sched_getaffinity(0)
        pinned = {max(cores)} if threads == 1 else cores
        with script.open() as text:
            done = subprocess.run(
                [*self.commands[name], *flags],
                stdin=text,
                stdout=subprocess.PIPE,
                env=environment,
                text=True,
                check=True,
                preexec_fn=lambda: os.sched_setaffinity(0, pinned),
            )
        return [float(time) for time in TIME.findall(done.stdout)]


def measured(cells: list[tuple[str, Path, str, int]], rounds: int) -> list[dict]:
    programs = Programs()
    times: dict[tuple, list[float]] = {}
    for number in range(rounds):
        for script, path, setting, threads in cells:
            for name in programs.names(threads):
                key = (script, setting, threads, name)
                times.setdefault(key, []).extend(programs.times(name, path, setting, threads))
        print(f"round {number + 1} of {rounds} is done", flush=True)
    return [
        dict(zip(FIELDS, (*key, f"{min(t):.1f}", f"{statistics.median(t):.1f}", len(t))))
        for key, t in times.items()
    ]


def table(rows: list[dict]) -> str:
    """The rows as Markdown: one line for each script, the programs beside each other."""
    lines: dict[tuple, dict[str, dict]] = {}
    for row in rows:
        key = (row["script"], row["setting"], row["threads"])
        lines.setdefault(key, {})[row["program"]] = row
    text = [
        "| script | original | locked | owned | original / locked |",
        "|---|---:|---:|---:|---:|",
    ]
    ratios = []
    for (script, setting, threads), by_program in lines.items():
        name = SCRIPTS.get(script, script.replace("live_", "mixed, live: "))
        name += f", {setting}" * bool(setting)
        name += f", {threads} threads" * (threads > 1 and setting != ON_OTHER_THREAD)
        shown = [
            "{ns_min} ({ns_median})".format(**by_program[program]) if program in by_program else ""
            for program in ("original", "locked", "owned")
        ]
        least = {program: float(row["ns_min"]) for program, row in by_program.items()}
        ratio = least["original"] / least["locked"]
        if script in SCRIPTS and not setting and threads == 1:
            ratios.append(ratio)
        text.append(f"| {name} | {' | '.join(shown)} | {ratio:.1f} |")
    mean = statistics.geometric_mean(ratios)
    text.append(f"\nGeometric mean over the {len(ratios)} scripts: {mean:.2f}.")
    return "\n".join(text) + "\n"


def machine() -> str:
    """The processor and the number of cores."""
    models = re.findall(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{models[0] if models else 'unknown processor'}, {len(os.sched_getaffinity(0))} cores"


HEAD = """# Speed of the reference and of PyTorch's own allocator

Nanoseconds for a malloc and its free: the least, and the median in parentheses, of {fewest} to {most}
replays, on {machine}. Made by `scripts/speed/speed.py`, which says what the columns are.

"""


def head(rows: list[dict]) -> str:
    replays = [row["replays"] for row in rows]
    return HEAD.format(fewest=min(replays), most=max(replays), machine=machine())


def plot(folder: Path) -> None:
    files = [str(folder / "speed.csv"), str(folder / "live.svg")]
    plot = ["cargo", "run", "--release", "--quiet", "--example", "plot_speed", "--", *files]
    subprocess.run(plot, cwd=CHECKOUT, check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, metavar="N", help="default: 7")
    parser.add_argument("--out", type=Path, default=CHECKOUT / "results/speed", metavar="FOLDER")
    parser.add_argument("--quick", action="store_true", help="one round, without many live blocks")
    parser.add_argument("--plot", action="store_true", help="only draw the plot of the table")
    args = parser.parse_args()
    if args.rounds < 1:
        parser.error("--rounds needs at least 1")
    if args.plot:
        plot(args.out)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    found = scripts()
    cells = [(name, path, "", 1) for name, path in found.items()]
    cells += [("hot_4k", found["hot_4k"], "history", 1), ("mix", found["mix"], "history", 1)]
    cells += [("mix", found["mix"], "expandable", 1)]
    cells += [("hot_4k", found["hot_4k"], "", n) for n in THREADS[1:]]
    cells += [(name, found[name], ON_OTHER_THREAD, 2) for name in ("hot_4k", "mix")]
    live = LIVE[:2] if args.quick else LIVE
    cells += [(f"live_{n}", script_with_live(n), "", 1) for n in live]
    rows = measured(cells, 1 if args.quick else args.rounds)
    with (args.out / "speed.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, FIELDS)
        writer.writeheader()
        writer.writerows(rows)
    text = head(rows) + table(rows)
    (args.out / "speed.md").write_text(text)
    plot(args.out)
    print(text)


if __name__ == "__main__":
    main()
