#!/usr/bin/env python3
"""Compares a program with the real PyTorch allocator on random settings strings.

    settings.py --candidate "CMD"

Half of the strings are passed as PYTORCH_CUDA_ALLOC_CONF, half to the op 'o' at run time;
many are invalid. The script of the golden vector 40-config-env and some ops for the garbage
collector follow each string and show its effect. The candidate is run and compared as in
goldens.py: output, exit status, the "fatal: ..." line on stderr. Until 2.9, PyTorch reads beyond
the end of a list that is not closed; where it crashes, there is nothing to compare with.
Last line: "N passed, M failed"; status 1 if M > 0.

    --torch RELEASE      the release of PyTorch to compare with, as 2.13; the candidate
                         gets the flag too. Default: that of the oracle, no flag
    --oracle PATH        default $ORACLE, else the one in setup.sh's default folder
    --seeds A..B         seeds, both ends included (or one number); default 0..9.
                         random:N: N seeds starting at a random one; the first
                         line prints them
    --cases N            strings per seed (default 100)
    --seconds S          start no case after S seconds. Prints how far it got
    --no-stderr          do not compare the message of a fatal error
    --max-failures K     default 10: shown in detail
    --timeout S          per case, default 60

On a terminal, standard error shows the progress every 10 seconds.
"""

import argparse
import os
import random
import re
import shlex
import signal
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import goldens
from oraclelib import (
    GOLDEN,
    Pair,
    Progress,
    Release,
    add_oracle_options,
    agreeing,
    find_oracle,
    parse_seeds,
    settings_since,
)

PROBE = os.path.join(GOLDEN, "40-config-env.txt")
# The vector's script does not show garbage_collection_threshold. Here each block is larger
# than all free ones, so that reserved memory grows close to the limit.
COLLECT = "m 0.9\nf sm\nc\n" + "".join(
    f"a t{i} {(8 << 30) + (i << 21)}\nf t{i}\n" for i in range(16)
)
FLAGS = ["--stats", "--no-final"]
# Keys with values that are valid, or valid except for their size.
SWITCH = ["True", "False"]
SIZES = "1 2 8 10 12 19 20 21 32 64 100 128 200 1000".split()
KEYS = {
    "large_segment_size_mb": SIZES,
    "max_split_size_mb": SIZES,
    "max_non_split_rounding_mb": SIZES,
    "garbage_collection_threshold": ["0.5", "0.8", ".3", "1e-1"],
    "roundup_power2_divisions": [
        *"1 2 4 8 16 64 [256:1,512:2,>:8] [64:8,256:4] [>:2] [65536:4] [1:8,>:1]".split()
    ],
    "expandable_segments": SWITCH,
    "per_process_memory_fraction": ["0.5", "0.8", "1.0", "1", "0"],
    "pinned_use_background_threads": SWITCH,
    "backend": ["native"],
    "release_lock_on_cudamalloc": SWITCH,
    "pinned_use_cuda_host_register": SWITCH,
    "pinned_num_register_threads": "1 2 4 64 128 3 256".split(),
    "pinned_reserve_segment_size_mb": SIZES,
    "graph_capture_record_stream_reuse": SWITCH,
    "foo": ["1"],
}
RESERVES = "0.5 0.1G 0.25g 2 1e-3 .3".split()
NEW_KEYS = {
    "throw_on_cudamalloc_oom": SWITCH,
    "expandable_segments_reserve": RESERVES,
    "expandable_segments_reserve_by_class": [
        *"[] [a:0.5] [a:0.1G,b:0.2] [a:x,b:.5] [a:1,]".split()
    ],
}
VALUES = [
    *"True False true native abc nan inf".split(),
    "",
    *"0 1 2 3 4 8 10 11 12 19 20 21 32 64 100 128 200 -1".split(),
    *"0.5 0.8 1.0 1.5 .3 1e-1 1e400".split(),
    *"9223372036854775808 18446744073709551616".split(),
    *"[256:1,512:2,>:8] [64:8,256:4] [>:2] [128:3] [100:2] [65536:4] [0:1]".split(),
    *"[ [] [:] [1:2 [1:2, [1:2,] [1:2,,4:2] [>:1,4:2]".split(),
    "[1:8 2:4]",
]
# Settings in effect before a string is applied at run time.
BEFORE = [
    "max_split_size_mb:64,large_segment_size_mb:32",
    "expandable_segments:True",
    "per_process_memory_fraction:0.5,garbage_collection_threshold:0.5",
]
# Pages of 2^60 bytes and more wrap in the fake device's arithmetic; -1 reads as 2^64 - 1.
PAGE_MB = re.compile(r"large_segment_size_mb\W*?(-?\d+)")
MAX_PAGE_MB = 1 << 40
OPEN_LIST = re.compile(r"\[[^\]]*$")


class Words:
    """Draws settings strings for a release."""

    def __init__(self, release):
        def known(keys):
            return {k: v for k, v in keys.items() if not release.before(settings_since(k))}

        new = known(NEW_KEYS)
        self.keys = {**known(KEYS), **new}
        # Keys with many invalid forms are drawn more often.
        often = [k for k in ("large_segment_size_mb", *new) if k in self.keys]
        self.names = [*self.keys, *(k for k in often for _ in range(3))]
        self.values = VALUES + (RESERVES if new else [])

    def good_word(self, rng):
        key = rng.choice(self.names)
        return f"{key}:{rng.choice(self.keys[key])}"

    def word(self, rng):
        v = rng.random()
        if v < 0.4:
            return self.good_word(rng)
        if v < 0.9:
            sep = rng.choice([*[":"] * 5, ",", "", " : ", ";"])
            return rng.choice(self.names) + sep + rng.choice(self.values)
        others = [",", ":", "[", "]", ">", ""]
        return rng.choice([*others, rng.choice(self.names), rng.choice(self.values)])

    def settings_string(self, rng):
        good = rng.random() < 0.5
        while True:
            n = rng.choice([1, 1, 2, 2, 3, 4])
            if good:
                s = ",".join(self.good_word(rng) for _ in range(n))
            else:
                sep = [",", ",", ",", ",", " ", ";"]
                s = rng.choice(sep).join(self.word(rng) for _ in range(n))
            if all(0 <= int(n) < MAX_PAGE_MB for n in PAGE_MB.findall(s)):
                return s


def make(seed, case, probe, words):
    """Returns where a case applies its settings, the string, the script and the environment."""
    rng = random.Random(f"{seed}/{case}")
    if rng.random() < 0.5:
        s = words.settings_string(rng)
        return "environment", s, probe, {"PYTORCH_CUDA_ALLOC_CONF": s}
    s = ""
    while not s:  # the argument of an op is one word
        s = words.settings_string(rng).replace(" ", "")
    before = f"o {rng.choice(BEFORE)}\n" if rng.random() < 0.5 else ""
    return "run time", s, f"{before}o {s}\n{probe}", {}


def show_difference(want, have):
    n = agreeing(want, have)
    for line in want[max(0, n - 2) : n]:
        print(f"              {line[:300]}")
    for tag, lines in (("oracle   ", want), ("candidate", have)):
        print(f"    {tag} {lines[n][:300] if n < len(lines) else '(end)'}")


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--candidate")
    add_oracle_options(ap)
    ap.add_argument("--seeds", default="0..9")
    ap.add_argument("--cases", type=int, default=100)
    ap.add_argument("--seconds", type=float)
    ap.add_argument("--no-stderr", action="store_true")
    ap.add_argument("--max-failures", type=int, default=10)
    ap.add_argument("--timeout", type=float, default=60)
    a = ap.parse_args()
    if not a.candidate:
        ap.error("--candidate is needed")
    oracle = [find_oracle(a.oracle, a.torch)]
    pair = Pair(oracle, shlex.split(a.candidate), a.timeout, a.torch)
    words = Words(a.torch or Release(Release.DEFAULT))
    seeds = parse_seeds(a.seeds)
    text = goldens.read(PROBE)
    base = dict(x.split("=", 1) for x in shlex.split(goldens.headers(text)["env"]))
    probe = "".join(x for x in text.splitlines(True) if not x.startswith("#")) + COLLECT
    total = len(seeds) * a.cases
    passed = failed = refused = crashed = 0
    reads_beyond = (a.torch or Release(Release.DEFAULT)).before("2.10")
    progress = Progress(total, "cases")
    for done, (seed, case) in enumerate((s, c) for s in seeds for c in range(a.cases)):
        if a.seconds is not None and progress.seconds() >= a.seconds:
            break
        progress(done, failed)
        where, s, trace, env = make(seed, case, probe, words)
        runs = pair(trace, FLAGS, {**base, **env})
        if reads_beyond and runs[0][0] == -signal.SIGSEGV and OPEN_LIST.search(s):
            crashed += 1
            continue
        in_time = all(rc != "timeout" for rc, _, _ in runs)
        want, have = (goldens.recorded(*r) for r in runs)
        refused += "! " in want
        want, have = goldens.comparable(want, have, a.no_stderr)
        if want == have and in_time:
            passed += 1
            continue
        failed += 1
        print(f"FAIL seed={seed} case={case} {where}: {s!r}", flush=True)
        if failed <= a.max_failures:
            show_difference(want, have)
    done = passed + failed
    print(
        f"{done} strings in {progress.seconds():.1f} s; "
        f"the oracle rejected {refused} and accepted {done - refused}"
    )
    if crashed:
        print(f"{crashed} strings crash the oracle")
    if a.seconds is not None and done + crashed < total:
        print(f"stopped after {a.seconds:g} s: {done} of {total} strings")
    elif a.seconds is not None:
        print(f"all {total} strings run")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
