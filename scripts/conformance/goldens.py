#!/usr/bin/env python3
"""Golden vectors of the real PyTorch CUDA caching allocator.

    goldens.py --candidate "CMD"     check a program against all of them
    goldens.py --record              record them again with the oracle (--oracle PATH)
    goldens.py --check-oracle        check the oracle itself
    ... --torch RELEASE              those of a release, as 2.13; the candidate gets the flag
                                     too. Default: 2.11, no flag

They are in allocator/tests/golden. A vector is NAME.txt (a script; README.md has the
format, and the comments at its top say what it shows and how it is run) and NAME.out
(everything the real binary printed, then "! status N" or "! died" and "! fatal:
MESSAGE" if it did not end with 0):

    # conf: STRING     PYTORCH_CUDA_ALLOC_CONF (absent: not set)
    # env: K=V ...     other environment variables
    # args: ...        command-line flags
    # optional: WHY    only with --all
    # releases: A..B   only for these: "2.12..", "2.11", "..2.10"

With a file NAME.cases the script is run once for each of its lines, as the value of
PYTORCH_CUDA_ALLOC_CONF; NAME.out holds all results, each after a line "== LINE".

The files outside of folders are those of 2.11. A folder RELEASE has only the vectors and outputs
that differ from those of the next release towards 2.11: for 2.14 the folders 2.14, 2.13 and 2.12
are searched and then the files outside, for 2.9 the folders 2.9 and 2.10.

CMD gets the script on stdin and these flags after its own. Compared are all lines but
the FAKE line, the exit status and, after a fatal error, the "fatal: ..." line on
stderr (--no-stderr: not that). Last line: "N passed, M failed"; status 1 if M > 0.
Names given as arguments (shell patterns) select vectors.
"""

import argparse
import fnmatch
import os
import shlex
import subprocess
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from oraclelib import (
    GOLDEN,
    Release,
    add_oracle_options,
    agreeing,
    clean_env,
    find_oracle,
    without_locations,
)

NAMES = ("conf", "env", "args", "optional", "releases")


def read(path):
    with open(path, errors="backslashreplace") as f:
        return f.read()


def headers(text):
    h = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        k, sep, v = line[1:].partition(":")
        if sep and k.strip() in NAMES:
            h[k.strip()] = v.strip()
    return h


class Vectors:
    """The vectors of a release."""

    def __init__(self, release):
        self.release = release
        self.folders = [os.path.join(GOLDEN, n) for n in release.towards_default()] + [GOLDEN]

    def names(self):
        found = {
            f[:-4]
            for folder in self.folders
            if os.path.isdir(folder)
            for f in os.listdir(folder)
            if f.endswith(".txt") and f[0].isdigit()
        }
        return sorted(found)

    def file(self, name, folders=None):
        """The path of a file in the first folder that has it, or None."""
        paths = (os.path.join(f, name) for f in (self.folders if folders is None else folders))
        return next((p for p in paths if os.path.exists(p)), None)

    def includes(self, h):
        first, dots, last = h.get("releases", "..").partition("..")
        order, own = Release.order, Release.order(self.release.name)
        if not dots:
            return own == order(first)
        return (not first or order(first) <= own) and (not last or own <= order(last))

    def comparable(self, want, have, no_stderr=False):
        """As the function; locations in PyTorch's sources are compared for the default release."""
        if not self.release.is_default():
            want, have = without_locations(want), without_locations(have)
        return comparable(want, have, no_stderr)

    def record(self, name, got):
        """Writes the output unless the neighbour's is the same."""
        path = os.path.join(self.folders[0], name + ".out")
        inherited = self.file(name + ".out", self.folders[1:])
        want, have = self.comparable(read(inherited), got) if inherited else (None, got)
        if want == have:
            if os.path.exists(path):
                os.remove(path)
            return
        os.makedirs(self.folders[0], exist_ok=True)
        with open(path + ".tmp", "w") as o:
            o.write(got)
        os.replace(path + ".tmp", path)


def recorded(rc, out, err):
    """One run as it is recorded."""
    if rc == "timeout":
        return "! timeout\n"
    if rc:
        out += f"! status {rc}\n" if rc > 0 else "! died\n"
        fatal = [x for x in err.splitlines() if x.startswith(("fatal: ", "  what():  "))]
        if fatal:
            message = fatal[0].replace("  what():  ", "", 1).replace("fatal: ", "", 1)
            out += f"! fatal: {message}\n"
    return out


def run(cmd, text, env, args, timeout):
    try:
        p = subprocess.run(
            [*cmd, *args],
            input=text,
            env=clean_env(env),
            text=True,
            errors="backslashreplace",
            capture_output=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return recorded("timeout", "", "")
    return recorded(p.returncode, p.stdout, p.stderr)


def result(cmd, text, h, cases, timeout):
    """One vector as it is recorded. CASES is a path or None."""
    env = dict(x.split("=", 1) for x in shlex.split(h.get("env", "")))
    args = shlex.split(h.get("args", ""))
    if not cases:
        if "conf" in h:
            env["PYTORCH_CUDA_ALLOC_CONF"] = h["conf"]
        return run(cmd, text, env, args, timeout)
    out = []
    for line in read(cases).split("\n")[:-1]:
        case = {**env, "PYTORCH_CUDA_ALLOC_CONF": line}
        out.append(f"== {line}\n" + run(cmd, text, case, args, timeout))
    return "".join(out)


def comparable(want, have, no_stderr):
    """Both outputs as lists of lines, without the lines that may differ: FAKE lines, and
    the status and message of a program where the real one was killed by its own
    uncaught exception (any status but 0 is accepted)."""
    died = "! died" in want

    def cases(out):
        return [
            [
                x
                for x in case.splitlines()
                if not x.startswith("FAKE ") and not (no_stderr and x.startswith("! fatal"))
            ]
            for case in (out.split("\n== ") if "== " in out[:3] else [out])
        ]

    w, h = cases(want), cases(have)
    if died and len(w) == len(h):
        for a, b in zip(w, h):
            if "! died" in a:
                for x in (a, b):
                    end = any(y.startswith(("! died", "! status")) for y in x)
                    x[:] = [y for y in x if not y.startswith("! ")]
                    if end:
                        x.append("! ends with an error")
    return sum(w, []), sum(h, [])


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("names", nargs="*")
    ap.add_argument("--candidate")
    ap.add_argument("--record", action="store_true")
    ap.add_argument("--check-oracle", action="store_true")
    add_oracle_options(ap)
    ap.add_argument("--all", action="store_true", help="include the optional ones")
    ap.add_argument("--no-stderr", action="store_true")
    ap.add_argument("--timeout", type=float, default=60)
    ap.add_argument("-q", "--quiet", action="store_true")
    a = ap.parse_args()
    if sum(map(bool, (a.candidate, a.record, a.check_oracle))) != 1:
        ap.error("one of --candidate, --record, --check-oracle")
    if a.candidate:
        cmd = shlex.split(a.candidate) + (a.torch.flags() if a.torch else [])
    else:
        cmd = [find_oracle(a.oracle, a.torch)]
    vectors = Vectors(a.torch or Release(Release.DEFAULT))
    passed = failed = optional = 0
    for name in vectors.names():
        if a.names and not any(fnmatch.fnmatch(name, p) for p in a.names):
            continue
        text = read(vectors.file(name + ".txt"))
        h = headers(text)
        if not vectors.includes(h):
            continue
        if "optional" in h and not (a.all or a.record or a.names):
            optional += 1
            continue
        got = result(cmd, text, h, vectors.file(name + ".cases"), a.timeout)
        if a.record and "! timeout" in got.splitlines():
            print(f"FAIL {name}: no answer in {a.timeout:g} s; nothing was recorded")
            failed += 1
            continue
        if a.record:
            vectors.record(name, got)
            passed += 1
            continue
        want = read(vectors.file(name + ".out"))
        want, have = vectors.comparable(want, got, a.no_stderr)
        if want == have:
            passed += 1
            continue
        failed += 1
        n = agreeing(want, have)
        print(f"FAIL {name}: line {n + 1}")
        if not a.quiet:
            for line in want[max(0, n - 3) : n]:
                print(f"           {line[:200]}")
            print(f"    golden {want[n][:200] if n < len(want) else '(end)'}")
            print(f"    got    {have[n][:200] if n < len(have) else '(end)'}")
    if optional:
        print(f"{optional} optional not run (--all)")
    print(f"{passed} {'recorded' if a.record else 'passed'}, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
