"""Shared by the tools and the tests: finds the oracle and runs programs."""

import os
import random
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
GEN = os.path.join(HERE, "gen", "gen_trace.py")
GOLDEN = os.path.normpath(os.path.join(HERE, "..", "..", "allocator", "tests", "golden"))
FULL = ("--stats", "--cudalog", "--history")


def default_dir():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(cache, "coalesce-oracle")


class Release:
    """A release of PyTorch in releases.tsv, given as 2.13.0 or 2.13."""

    TABLE = os.path.join(HERE, "releases.tsv")
    # The release whose oracle setup.sh builds unless told otherwise; its goldens are complete.
    DEFAULT = "2.11"

    def __init__(self, text):
        known = self.all()
        self.full = next((v for v in known if text in (v, v.rpartition(".")[0])), None)
        if self.full is None:
            raise SystemExit(f"unknown release {text}; expected one of: {' '.join(known)}")
        self.name = self.full.rpartition(".")[0]

    @classmethod
    def all(cls):
        with open(cls.TABLE) as f:
            return [line.split("\t")[0] for line in f if not line.startswith("#")]

    @staticmethod
    def order(name):
        """A key to sort by: (2, 11) of 2.11 or 2.11.0."""
        return tuple(int(n) for n in name.split("."))[:2]

    def is_default(self):
        return self.name == self.DEFAULT

    def before(self, name):
        return self.order(self.name) < self.order(name)

    def towards_default(self):
        """The releases from this one to the default one's neighbour; none for the default one."""
        names = sorted((v.rpartition(".")[0] for v in self.all()), key=self.order)
        at, end = names.index(self.name), names.index(self.DEFAULT)
        return names[at:end] if at < end else names[at:end:-1]

    def flags(self):
        """The flags that name the release to a candidate."""
        return ["--torch", self.name]


OLDEST = "2.6"
# The first release that knows a key; absent: the oldest does.
KEYS_SINCE = {
    "graph_capture_record_stream_reuse": "2.9",
    "pinned_reserve_segment_size_mb": "2.10",
    "pinned_max_round_threshold_mb": "2.13",
    "pinned_max_cached_size_mb": "2.13",
    "per_process_memory_fraction": "2.10",
    "large_segment_size_mb": "2.11",
    "throw_on_cudamalloc_oom": "2.12",
    "expandable_segments_reserve": "2.15",
    "expandable_segments_reserve_by_class": "2.15",
}


def settings_since(conf):
    """The first release that knows all keys of a settings string."""
    found = (KEYS_SINCE.get(key, OLDEST) for key in re.findall(r"[a-z]\w+", conf))
    return max(found, key=Release.order, default=OLDEST)


def add_oracle_options(ap):
    ap.add_argument("--torch", type=Release, metavar="RELEASE")
    ap.add_argument("--oracle")


def find_oracle(path=None, release=None):
    """Returns PATH; else $ORACLE if no release is given; else the oracle that setup.sh built in
    its default folder."""
    p = path or (os.environ.get("ORACLE") if release is None else None)
    if not p:
        folder = [default_dir()]
        if release and not release.is_default():
            folder.append(f"torch-{release.full}")
        p = os.path.join(*folder, "build", "oracle")
    if not os.access(p, os.X_OK):
        which = f" --torch {release.name}" if release else ""
        raise SystemExit(
            f"no oracle at {p}: run setup.sh{which}, "
            "and pass its last line as --oracle (or ORACLE=...)"
        )
    return os.path.abspath(p)


LOCATION = re.compile(r'INTERNAL ASSERT FAILED at "[^"]*?(c10/[^"]*)":\d+')


def without_locations(out):
    """Leaves out where PyTorch was built and the lines of its sources."""
    return LOCATION.sub(r'INTERNAL ASSERT FAILED at "\1"', out)


def clean_env(extra=None):
    """The environment without any allocator or fake-device setting, except a fabric, plus EXTRA."""
    e = {k: v for k, v in os.environ.items() if not k.startswith(("FAKE_", "PYTORCH_"))}
    e["FAKE_FABRIC"] = "1"  # as on the simulated device below the candidate
    e.update(extra or {})
    return e


def agreeing(a, b):
    """The number of equal lines at the beginning of two lists."""
    n = 0
    while n < len(a) and n < len(b) and a[n] == b[n]:
        n += 1
    return n


def strip_fake(out):
    """Everything but the FAKE line (the fake device's own counters)."""
    if not out.startswith("FAKE ") and "\nFAKE " not in out:
        return out
    return "".join(x for x in out.splitlines(True) if not x.startswith("FAKE "))


def parse_seeds(text):
    """Parses A..B (inclusive), one number, or random:N, which prints the seeds drawn."""
    try:
        if text.startswith("random:"):
            first = random.SystemRandom().randrange(10**9)
            seeds = range(first, first + int(text[len("random:") :]))
            print(f"seeds {seeds[0]}..{seeds[-1]}", flush=True)
            return seeds
        lo, _, hi = text.partition("..")
        return range(int(lo), int(hi or lo) + 1)
    except (ValueError, IndexError):
        raise SystemExit(f"bad --seeds {text}; expected A..B, a number or random:N") from None


class Progress:
    """Prints a line about every 10 seconds if standard error is a terminal."""

    def __init__(self, total, what):
        self.total, self.what = total, what
        self.start = time.time()
        self.next = self.start + 10 if sys.stderr.isatty() else float("inf")

    def seconds(self):
        return time.time() - self.start

    def __call__(self, done, failed):
        if time.time() < self.next:
            return
        self.next = time.time() + 10
        print(
            f"{done} of {self.total} {self.what}, {failed} failed, {self.seconds():.0f} s",
            file=sys.stderr,
            flush=True,
        )


class Pair:
    """Runs the oracle A and the candidate B on the same script at the same time. With a release,
    the candidate gets its flags, and locations in PyTorch's sources are not compared."""

    def __init__(self, a, b, timeout=60, release=None):
        self.a, self.timeout = a, timeout
        self.b = b + release.flags() if release else b
        self.exact = release is None or release.is_default()

    def __call__(self, trace, args, env):
        """For each: exit status (or "timeout"), output without FAKE lines, stderr."""
        env = clean_env(env)
        with tempfile.TemporaryFile("w+") as f:
            f.write(trace)
            f.flush()
            ps = []
            for cmd in (self.a, self.b):
                o = tempfile.TemporaryFile("w+", errors="backslashreplace")
                e = tempfile.TemporaryFile("w+", errors="backslashreplace")
                i = open(f"/proc/self/fd/{f.fileno()}")  # its own file position
                try:
                    p = subprocess.Popen([*cmd, *args], stdin=i, stdout=o, stderr=e, env=env)
                except OSError as x:
                    raise SystemExit(f"cannot run {cmd[0]}: {x}") from None
                i.close()
                ps.append((p, o, e))
            res = []
            for p, o, e in ps:
                try:
                    rc = p.wait(self.timeout)
                except subprocess.TimeoutExpired:
                    p.kill()
                    p.wait()
                    rc = "timeout"
                o.seek(0)
                e.seek(0)
                out = [strip_fake(o.read()), e.read()]
                res.append((rc, *(out if self.exact else map(without_locations, out))))
                o.close()
                e.close()
        return res
