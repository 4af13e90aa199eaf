"""What is run, and the files that are there before."""

import sys
from pathlib import Path
from typing import Callable, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python/tests"))
from test_record import TORCH  # a stand-in for PyTorch

STDOUT = "stdout"  # the file to which a command prints
OLD = b"what was there before\n"
TRACE = (ROOT / "workloads/traces/example_interleaved_free.csv.gz").read_bytes()
SWEEP = b"""[settings]
default = ""
round8 = "roundup_power2_divisions:8"
[[workload]]
preset = "fragmentation_large"
name = "small"
with = { rounds = 5 }
[[run]]
seeds = [1, 2]
"""
MARKS = b"Text before.\n\n<!-- table efficiency: -->\n<!-- end -->\n\nText below.\n"

# One thread, so that the operations come in the same order each time.
_SWEEP = ["coalesce", "sweep", "sweep.toml", "--out", "out.csv", "--jobs", "1"]
_RECORD = f"""
import sys
sys.dont_write_bytecode = True
sys.path[0] = {str(ROOT / "python")!r}
import types
torch = sys.modules["torch"] = types.ModuleType("torch")
exec({TORCH!r}, torch.__dict__)
import coalesce
recording = coalesce.record()
try:
    torch.request()
except torch.cuda.OutOfMemoryError:
    # The training ends as without the recording, whose warning is printed.
    sys.exit(recording.oom_path is None)
"""


class Scenario(NamedTuple):
    """A command, and what fills its folder: a function from a trial to the files by name."""

    command: list
    files: Callable


def _sweep_files(_):
    return {"sweep.toml": SWEEP, "out.csv": OLD}


def _stopped_sweep(trial):
    """A sweep that was killed while it wrote the last of its rows."""
    files = _sweep_files(trial)
    rows = trial.run(files, "torn", command=_SWEEP).count - 1  # the last write is the table
    return without_stdout(trial.run(files, "torn", rows, command=_SWEEP))


def _table(trial):
    ended = trial.run({"sweep.toml": SWEEP}, command=_SWEEP)
    return {"table.csv": ended.files["out.csv"]}


def without_stdout(ended):
    return {name: it for name, it in ended.files.items() if name != STDOUT}


SCENARIOS = {
    "sweep": Scenario(_SWEEP, _sweep_files),
    "sweep, resumed": Scenario(_SWEEP, _stopped_sweep),
    "convert": Scenario(
        ["coalesce", "convert", "trace.csv.gz", "out.csv.gz"],
        lambda _: {"trace.csv.gz": TRACE, "out.csv.gz": OLD},
    ),
    "convert, to a new file": Scenario(
        ["coalesce", "convert", "trace.csv.gz", "out.pickle"], lambda _: {"trace.csv.gz": TRACE}
    ),
    "advise": Scenario(
        # Without a limit, the answer does not depend on the time that it takes.
        [
            *["coalesce", "advise", "trace.csv.gz", "--time-limit", "0"],
            *["--html", "report.html", "--json=advice.json"],
        ],
        lambda _: {"trace.csv.gz": TRACE, "report.html": OLD},
    ),
    "report --splice": Scenario(
        ["coalesce", "report", "results", "--splice", "page.md"],
        lambda trial: {"results/default.csv": _table(trial)["table.csv"], "page.md": MARKS},
    ),
    "plot": Scenario(
        ["coalesce", "plot", "table.csv", "--out", "plots"],
        lambda trial: {**_table(trial), "plots/efficiency.svg": OLD},
    ),
    "merge": Scenario(["coalesce", "merge", "table.csv", "--out", "out.csv"], _table),
    "summary": Scenario(
        ["coalesce", "summary", "table.csv", "--xlsx", "out.xlsx"],
        lambda trial: {**_table(trial), "out.xlsx": OLD},
    ),
    "record": Scenario([sys.executable, "-c", _RECORD], lambda _: {"snapshot-rank0.pickle": OLD}),
}

# Truncates its output and writes it in two parts. What is checked must notice.
CARELESS = Scenario(
    ["sh", "-c", "{ cat trace.csv.gz && cat trace.csv.gz; } > out || echo coalesce: failed >&2"],
    lambda _: {"trace.csv.gz": TRACE, "out": OLD},
)
