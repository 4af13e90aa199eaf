"""Shared by the tools and the tests: finds the oracle and runs programs."""

import os
import random
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


def find_oracle(path=None):
    """Returns PATH, $ORACLE, or the oracle that setup.sh built in its default folder."""
    p = path or os.environ.get("ORACLE") or os.path.join(default_dir(), "build", "oracle")
    if not os.access(p, os.X_OK):
        raise SystemExit(
            f"no oracle at {p}: run setup.sh, and pass its last line as --oracle (or ORACLE=...)"
        )
    return os.path.abspath(p)


def clean_env(extra=None):
    """The environment without any allocator or fake-device setting, plus EXTRA."""
    e = {k: v for k, v in os.environ.items() if not k.startswith(("FAKE_", "PYTORCH_"))}
    e.update(extra or {})
    return e


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
    """Runs two programs on the same script at the same time."""

    def __init__(self, a, b, timeout=60):
        self.a, self.b, self.timeout = a, b, timeout

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
                res.append((rc, strip_fake(o.read()), e.read()))
                o.close()
                e.close()
        return res
