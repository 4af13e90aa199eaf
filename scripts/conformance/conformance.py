#!/usr/bin/env python3
"""Compares a program with the real PyTorch allocator on seeded random scripts.

    conformance.py --candidate "CMD"            all configurations, seeds 0..9

The candidate gets the script on standard input, the oracle's command-line flags
after its own, and the oracle's environment (PYTORCH_CUDA_ALLOC_CONF, FAKE_*).
It must print all of the oracle's lines but the FAKE line, and exit with the
oracle's status. A difference is shown with the lines around it and a reduced
script. Last line: "N passed, M failed"; status 1 if M > 0.

    --torch RELEASE      the release of PyTorch to compare with, as 2.13; the candidate
                         gets the flag too. Default: that of the oracle, no flag
    --oracle PATH        default $ORACLE, else the one in setup.sh's default folder
    --seeds A..B         seeds, both ends included (or one number); default 0..9.
                         random:N: N seeds starting at a random one; the first
                         line prints them
    --seconds S          start no script after S seconds, and go through the
                         configurations and address policies seed by seed, so that
                         each has an early turn. Prints how far it got
    --ops N              operations per script (default 1000)
    --configs a,b,...    names or shell patterns; --list shows them
    --addr up,down,...   address policies; every script runs under each
    --capacity 1G,8G     device sizes; default: drawn for each script
    --pools              add private pools (B, E, P, U, N, C, V, R, L, G); with expandable
                         segments they are not released (upstream's own bookkeeping
                         then fails an assertion or uses freed memory)
    --multi-record       record_stream names several streams in one script. The
                         order of frees then depends on hash tables inside the real binary
    --streams K          streams per script (default: drawn, 1 to 4)
    --args "..."         flags for both, default "--stats --cudalog --history"
    --no-shrink, --max-failures K (default 3: shown in detail), --keep DIR,
    --trace FILE (with --conf, --env K=V): run one given script instead
    --timeout S (default 60) per script, --list, -v

On a terminal, standard error shows the progress every 10 seconds.
"""

import argparse
import bisect
import fnmatch
import os
import random
import re
import shlex
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [HERE, os.path.join(HERE, "gen")]
import gen_trace
from oraclelib import (
    FULL,
    Pair,
    Progress,
    Release,
    add_oracle_options,
    agreeing,
    find_oracle,
    parse_seeds,
    settings_since,
)

MB, GB = 1 << 20, 1 << 30
FR = [0.95, 0.8, 0.6, 0.4]


class Config:
    """conf: the settings string; fraction: memory limits, of which one is set at the start
    (without a limit the garbage collector does nothing); settings: strings for the op 'o';
    classes: names for the op 'T'; since: the first release to run it for (default: the
    first one that knows all keys of conf).

    Omitted, because the real binary asserts or corrupts itself:
    max_split_size changed at run time (every settings string without it resets
    it, so in a run with max_split all strings repeat it), expandable segments
    switched on or off in a run with max_split, releases of private pools with expandable ones."""

    def __init__(
        self,
        name,
        conf="",
        fraction=None,
        settings=(),
        marks=(),
        min_cap=0,
        bad_fraction=False,
        env=None,
        classes=(),
        since=None,
    ):
        self.classes = classes
        self.since = since or settings_since(conf)
        self.name, self.conf, self.fraction, self.settings = name, conf, fraction, tuple(settings)
        self.env = env or {}
        self.min_cap, self.bad_fraction = min_cap, bad_fraction
        self.marks = [m * MB for m in marks]
        m = re.search(r"max_split_size_mb:(\d+)", conf)
        if m:
            k = int(m[1])
            self.marks += [k * MB, k * MB, (k + 20) * MB, k * MB // 2]
        self.expandable = "expandable_segments:True" in conf or any(
            "expandable" in s for s in self.settings
        )

    def restores(self, release):
        """Whether the scripts may restore checkpoints of pools. With max_split_size or a small
        reserve, a request may return free memory of a pool in use, and the real binary then loses
        track; with any reserve, by_segment cannot tell neighbouring segments of a pool apart. Until
        2.10, a grown segment cannot be restored."""
        texts = (self.conf, *self.settings)
        may_lose_memory = any(key in text for text in texts for key in ("max_split", "reserve"))
        return not may_lose_memory and not (self.expandable and release.before("2.11"))


RUNTIME = [
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[64:8,256:4]",
    "garbage_collection_threshold:0.5",
    "garbage_collection_threshold:0.9",
    "large_segment_size_mb:20",
    "large_segment_size_mb:32",
    "large_segment_size_mb:12",
    "max_non_split_rounding_mb:64",
    "roundup_power2_divisions:8,garbage_collection_threshold:0.3",
    "pinned_num_register_threads:4",
]
EXP = ["expandable_segments:True", "expandable_segments:False"]
CONFIGS = [
    Config("default"),
    Config("default-fraction", fraction=FR),
    Config("max_split-21", "max_split_size_mb:21"),
    Config("max_split-64", "max_split_size_mb:64"),
    Config("max_split-128", "max_split_size_mb:128"),
    Config("max_split-512", "max_split_size_mb:512", min_cap=4 * GB),
    Config("gc-0.3", "garbage_collection_threshold:0.3", FR),
    Config("gc-0.6", "garbage_collection_threshold:0.6", FR),
    Config("gc-0.9", "garbage_collection_threshold:0.9", FR),
    Config("roundup-2", "roundup_power2_divisions:2"),
    Config("roundup-4", "roundup_power2_divisions:4"),
    Config("roundup-8", "roundup_power2_divisions:8"),
    Config(
        "roundup-list-a",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
        marks=[256, 512, 1024, 1536],
        min_cap=4 * GB,
    ),
    Config(
        "roundup-list-b",
        "roundup_power2_divisions:[64:8,256:4]",
        marks=[32, 64, 100, 128, 256, 300],
    ),
    Config("roundup-list-c", "roundup_power2_divisions:[1:8,2:4,>:2]", marks=[1, 2, 3, 4, 5, 40]),
    Config("expandable", "expandable_segments:True"),
    Config("expandable-fraction", "expandable_segments:True", FR),
    Config("expandable-gc", "expandable_segments:True,garbage_collection_threshold:0.6", FR),
    Config("expandable-max_split", "expandable_segments:True,max_split_size_mb:64"),
    Config("expandable-roundup", "expandable_segments:True,roundup_power2_divisions:4"),
    Config(
        "expandable-large_segment",
        "expandable_segments:True,large_segment_size_mb:64",
        marks=[64, 128],
    ),
    Config(
        "non_split_rounding-40", "max_split_size_mb:64,max_non_split_rounding_mb:40", marks=[104]
    ),
    Config(
        "non_split_rounding-256", "max_split_size_mb:128,max_non_split_rounding_mb:256", marks=[384]
    ),
    Config("large_segment-12", "large_segment_size_mb:12"),
    Config("large_segment-40", "large_segment_size_mb:40", marks=[39, 41]),
    Config("process_fraction-0.6", "per_process_memory_fraction:0.6"),
    Config(
        "process_fraction-gc", "per_process_memory_fraction:0.5,garbage_collection_threshold:0.7"
    ),
    Config(
        "combo-split-gc-roundup",
        "max_split_size_mb:128,garbage_collection_threshold:0.7,roundup_power2_divisions:4",
        FR,
    ),
    Config(
        "combo-large_segment-split",
        "large_segment_size_mb:32,max_split_size_mb:32,garbage_collection_threshold:0.8",
        FR,
    ),
    Config(
        "combo-everything",
        "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.7,"
        "roundup_power2_divisions:8,large_segment_size_mb:32,max_non_split_rounding_mb:96",
        FR,
    ),
    Config(
        "other-keys",
        "release_lock_on_cudamalloc:True,backend:native,pinned_use_background_threads:True",
    ),
    Config("device-free_syncs", env={"FAKE_FREE_SYNCS": "1", "FAKE_HOLD_EVENTS": "1"}),
    Config("device-foreign", env={"FAKE_FOREIGN_BYTES": "96M", "FAKE_ADDR_BASE": "0x300000000000"}),
    Config("runtime-settings", settings=RUNTIME, fraction=[1.0, 0.8, 0.5]),
    Config("runtime-expandable", settings=EXP + EXP + RUNTIME[:2]),
    Config(
        "runtime-expandable-gc",
        "expandable_segments:True",
        [0.9, 0.5],
        settings=["garbage_collection_threshold:0.4," + e for e in EXP] + EXP,
    ),
    Config(
        "runtime-max_split-kept",
        "max_split_size_mb:64",
        FR,
        settings=[
            "max_split_size_mb:64," + s
            for s in (
                "roundup_power2_divisions:4",
                "garbage_collection_threshold:0.5",
                "max_non_split_rounding_mb:100",
                "pinned_num_register_threads:2",
            )
        ],
    ),
    Config(
        "runtime-errors",
        settings=RUNTIME[:4]
        + [
            "max_split_size_mb:19",
            "foo:1",
            "garbage_collection_threshold:1.5",
            "roundup_power2_divisions:3",
            "roundup_power2_divisions:[100:2]",
            "large_segment_size_mb:10",
            "expandable_segments:true",
            "per_process_memory_fraction:1.5",
            "max_non_split_rounding_mb:1",
        ],
        bad_fraction=True,
    ),
    # 2.9 asserts outside captures.
    Config("graph-reuse", "graph_capture_record_stream_reuse:True", since="2.10"),
    Config("throw", "throw_on_cudamalloc_oom:True"),
    Config("throw-fraction", "throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.7"),
    Config(
        "throw-gc-split",
        "throw_on_cudamalloc_oom:True,garbage_collection_threshold:0.6,max_split_size_mb:64",
        FR,
    ),
    Config("throw-expandable", "throw_on_cudamalloc_oom:True,expandable_segments:True"),
    Config(
        "runtime-throw",
        settings=[
            *("throw_on_cudamalloc_oom:True", "throw_on_cudamalloc_oom:False"),
            *("per_process_memory_fraction:0.6", "per_process_memory_fraction:1"),
            *("throw_on_cudamalloc_oom:true", "roundup_power2_divisions:4"),
        ],
        fraction=[1.0, 0.8],
        since="2.12",
    ),
    Config("reserve-0.5", "expandable_segments:True,expandable_segments_reserve:0.5"),
    Config("reserve-0.05", "expandable_segments:True,expandable_segments_reserve:0.05", FR),
    Config("reserve-1G", "expandable_segments:True,expandable_segments_reserve:1G"),
    Config(
        "reserve-classes",
        "expandable_segments:True,expandable_segments_reserve_by_class:[a:0.25,b:0.1g]",
        classes=("a", "b", "other", ""),
    ),
    Config(
        "reserve-everything",
        "expandable_segments:True,expandable_segments_reserve_by_class:[a:0.1,b:0.4],"
        "expandable_segments_reserve:0.3,max_split_size_mb:64,garbage_collection_threshold:0.7,"
        "large_segment_size_mb:32,throw_on_cudamalloc_oom:True",
        FR,
        classes=("a", "b", ""),
    ),
    Config(
        "runtime-reserve",
        "expandable_segments:True",
        settings=[
            *("expandable_segments_reserve:0.5", "expandable_segments_reserve:0.1G"),
            *("expandable_segments_reserve:0", "expandable_segments_reserve:2"),
            *("expandable_segments_reserve_by_class:[a:0.2]", "roundup_power2_divisions:4"),
            *("expandable_segments_reserve_by_class:[]", "expandable_segments:False"),
            "expandable_segments:True",
        ],
        classes=("a", ""),
        since="2.15",
    ),
]
CAPACITIES = [300 * MB, 512 * MB, 1 * GB, 1 * GB, 4 * GB, 4 * GB, 16 * GB, 80 * GB]


DEFAULT = Release(Release.DEFAULT)


def make(cfg, seed, ops, capacity=None, pools=False, multi=False, streams=0, release=DEFAULT):
    """The script, environment and extra arguments of a configuration and a seed."""
    rng = random.Random(f"{cfg.name}/{seed}")
    cap = capacity or rng.choice([c for c in CAPACITIES if c >= cfg.min_cap])
    frac = rng.choice(cfg.fraction) if cfg.fraction else None
    as_arg = rng.random() < 0.5
    lines = gen_trace.full_trace(
        f"{cfg.name}/{seed}",
        ops,
        cap,
        streams,
        "many" if multi else "one",
        pools,
        cfg.settings,
        cfg.marks,
        None if as_arg else frac,
        cfg.bad_fraction,
        release,
        cfg.classes,
        cfg.restores(release),
        cfg.expandable,
    )
    env = {"FAKE_TOTAL_BYTES": str(cap), **cfg.env}
    if cfg.conf:
        env["PYTORCH_CUDA_ALLOC_CONF"] = cfg.conf
    return lines, env, ["--fraction", str(frac)] if frac is not None and as_arg else []


def differ(r):
    (rc1, o1, _), (rc2, o2, _) = r
    return o1 != o2 or rc1 != rc2


HISTORY = re.compile(r"TRC (\w+) 0x(\w+) (\d+)")


def by_segment(out):
    """Sorts the history by segment if a checkpoint was restored: PyTorch frees the blocks of the
    segments in an order that depends on heap addresses."""
    lines = out.splitlines(True)
    if not any(line.startswith("R ") for line in lines):
        return out
    segments, keys = [], {}  # [start, end, is_expandable], by address; the segment of each line
    for n, line in enumerate(lines):
        if not (entry := HISTORY.match(line)):
            continue
        action, addr, size = entry[1], int(entry[2], 16), int(entry[3])
        keys[n] = 0
        if action in ("snapshot", "oom"):
            continue
        if action == "segment_alloc":  # where others may have been
            segments = [s for s in segments if s[1] <= addr or addr + size <= s[0]]
            bisect.insort(segments, [addr, addr + size, False])
        at = bisect.bisect_right(segments, [addr + 1]) - 1
        if action == "segment_map":
            if at >= 0 and segments[at][2] and addr <= segments[at][1]:  # it grows at its end
                segments[at][1] = max(segments[at][1], addr + size)
            else:
                at += 1
                segments.insert(at, [addr, addr + size, True])
        if at >= 0 and addr < segments[at][1]:
            keys[n] = segments[at][0]
    order = iter(sorted(keys, key=lambda n: (keys[n], n)))
    return "".join(lines[next(order)] if n in keys else line for n, line in enumerate(lines))


# How 2.6 and 2.7 refuse the argument of `m`.
FRACTION_ASSERT = "0 <= fraction && fraction <= 1 INTERNAL ASSERT"


def sound(res):
    """False if the real binary failed one of its own assertions or died."""
    rc, out, _ = res
    out = out.replace(FRACTION_ASSERT, "")
    return rc in (0, 3) and "INTERNAL ASSERT" not in out and " INVALID" not in out


def run(pair, lines, args, env):
    """Runs both programs; their outputs as far as they are comparable."""
    results = pair("\n".join(lines) + "\n", args, env)
    return [(rc, by_segment(out), err) for rc, out, err in results]


def show_difference(r, context=6):
    (rc1, o1, _), (rc2, o2, e2) = r
    la, lb = o1.splitlines(), o2.splitlines()
    n = agreeing(la, lb)
    if n == len(la) == len(lb):
        print(f"  same output, but exit status {rc2} instead of {rc1}")
    else:
        print(
            f"  first difference in output line {n + 1} (of {len(la)}; candidate {len(lb)}; "
            f"exit status {rc1}, candidate {rc2}):"
        )
        for line in la[max(0, n - context) : n]:
            print(f"      {line[:300]}")
        for tag, ls in (("oracle   ", la), ("candidate", lb)):
            for line in ls[n : n + 3]:
                print(f"    {tag} {line[:300]}")
            if n >= len(ls):
                print(f"    {tag} (ends here)")
    if e2.strip():
        print("  candidate's stderr: " + e2.strip().splitlines()[-1][:300])


def shrink(lines, fails, budget=20.0, runs=600):
    """Reduces a list of ops for which fails() holds (delta debugging)."""
    end = time.time() + budget
    count = [0]

    def ok(x):
        count[0] += 1
        return count[0] <= runs and time.time() < end and fails(x)

    lo, hi = 1, len(lines)  # usually some prefix fails already
    while lo < hi:
        mid = (lo + hi) // 2
        if ok(lines[:mid]):
            hi = mid
        else:
            lo = mid + 1
    if hi < len(lines) and ok(lines[:hi]):
        lines = lines[:hi]
    size = len(lines) // 2
    while size >= 1 and count[0] < runs and time.time() < end:
        i, changed = len(lines), False
        while i > 0:
            j = max(0, i - size)
            cut = lines[:j] + lines[i:]
            if cut and ok(cut):
                lines, changed = cut, True
            i = j
        if size > 1:
            size //= 2
        elif not changed:
            break
    return lines


class Job:
    """One run of both programs."""

    def __init__(self, name, lines, env, extra):
        self.name, self.lines, self.env, self.extra = name, lines, env, extra


def list_jobs(a, configs, seeds, caps, policies):
    def made(c, seed, cap):
        release = a.torch or DEFAULT
        return make(c, seed, a.ops, cap, a.pools, a.multi_record, a.streams, release)

    def job(c, seed, pol, lines, env, extra):
        name = f"{c.name} seed={seed} addr={pol}"
        return Job(name, lines, {**env, "FAKE_ADDR": pol}, extra)

    if a.trace:
        env = dict(e.split("=", 1) for e in a.env)
        if a.conf:
            env["PYTORCH_CUDA_ALLOC_CONF"] = a.conf
        with open(a.trace) as f:
            yield Job(a.trace, f.read().splitlines(), env, [])
    elif a.seconds is None:
        for c in configs:
            for seed in seeds:
                for cap in caps:
                    trace = made(c, seed, cap)
                    for pol in policies:
                        yield job(c, seed, pol, *trace)
    else:
        # Each round has every configuration once, neighbours with different policies.
        for seed in seeds:
            for cap in caps:
                traces = {}
                for r in range(len(policies)):
                    for i, c in enumerate(configs):
                        if c.name not in traces:
                            traces[c.name] = made(c, seed, cap)
                        yield job(c, seed, policies[(i + r) % len(policies)], *traces[c.name])


def show_small(a, pair, job, args, path):
    """Reduces the failing script of a job, writes it to PATH and shows it."""

    def fails(x):
        q = run(pair, x, args, job.env)
        return sound(q[0]) and differ(q)

    small = shrink(job.lines, fails)
    with open(path, "w") as f:
        f.write("\n".join(small) + "\n")
    print(f"  shrunk from {len(job.lines)} to {len(small)} ops, {path}:")
    for line in small[:40]:
        print(f"      {line}")
    if len(small) > 40:
        print(f"      ... {len(small) - 40} more")
    show_difference(run(pair, small, args, job.env), 3)
    env = " ".join(f"{k}={shlex.quote(v)}" for k, v in job.env.items())
    print(f"  again: {env} {shlex.join([*pair.b, *args])} < {path}", flush=True)


def show_list():
    for c in CONFIGS:
        print(
            f"{c.name:26} {c.conf or '-'}"
            + "".join(f"  {k}={v}" for k, v in c.env.items())
            + (f"  fraction {c.fraction}" if c.fraction else "")
            + (f"  run-time {len(c.settings)} strings" if c.settings else "")
            + (f"  from {c.since}" if DEFAULT.before(c.since) else "")
        )


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--candidate")
    add_oracle_options(ap)
    ap.add_argument("--seeds", default="0..9")
    ap.add_argument("--seconds", type=float)
    ap.add_argument("--ops", type=int, default=1000)
    ap.add_argument("--configs", default="*")
    ap.add_argument("--addr", default="up,down,firstfit")
    ap.add_argument("--capacity", default="")
    ap.add_argument("--pools", action="store_true")
    ap.add_argument("--multi-record", action="store_true")
    ap.add_argument("--streams", type=int, default=0)
    ap.add_argument("--args", default=" ".join(FULL))
    ap.add_argument("--no-shrink", action="store_true")
    ap.add_argument("--max-failures", type=int, default=3)
    ap.add_argument("--timeout", type=float, default=60)
    ap.add_argument("--keep", help="folder for scripts that fail (default: a new temporary one)")
    ap.add_argument("--trace")
    ap.add_argument("--conf", default="")
    ap.add_argument("--env", action="append", default=[])
    ap.add_argument("--list", action="store_true")
    ap.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="one line per configuration (with --seconds: per seed)",
    )
    a = ap.parse_args()
    if a.list:
        show_list()
        return 0
    if not a.candidate:
        ap.error("--candidate is needed")
    oracle = [find_oracle(a.oracle, a.torch)]
    pair = Pair(oracle, shlex.split(a.candidate), a.timeout, a.torch)
    flags = shlex.split(a.args)
    seeds = parse_seeds(a.seeds)
    known = [c for c in CONFIGS if not (a.torch or DEFAULT).before(c.since)]
    configs = [
        c for c in known if any(fnmatch.fnmatch(c.name, p.strip()) for p in a.configs.split(","))
    ]
    if not configs:
        raise SystemExit(f"no configuration matches {a.configs}")
    caps = [gen_trace.size_arg(c) for c in a.capacity.split(",") if c] or [None]
    policies = a.addr.split(",")
    per_seed = len(configs) * len(caps) * len(policies)
    total = 1 if a.trace else per_seed * len(seeds)
    keep = a.keep
    started = passed = failed = skipped = ops = 0
    totals = dict.fromkeys(("oom", "retry", "sync", "device_free"), 0)
    progress = Progress(total, "traces")
    last = None
    for job in list_jobs(a, configs, seeds, caps, policies):
        if a.seconds is not None and progress.seconds() >= a.seconds:
            break
        progress(started, failed)
        started += 1
        args = flags + job.extra
        r = run(pair, job.lines, args, job.env)
        ops += len(job.lines)
        part = job.name.split(" ")[0 if a.trace or a.seconds is None else 1]
        if a.verbose and part != last:
            last = part
            print(f"# {last}", flush=True)
        for line in reversed(r[0][1].splitlines()):
            if line.startswith("S "):
                w = line.split()
                for k, i in (("retry", 7), ("oom", 8), ("device_free", 11), ("sync", 12)):
                    totals[k] += int(w[i])
                break
        if not sound(r[0]):
            skipped += 1
            msg = next(
                (x for x in r[0][1].splitlines() if "INTERNAL ASSERT" in x or " INVALID" in x),
                r[0][2].strip()[-200:],
            )
            print(
                f"SKIPPED {job.name}: the real binary itself fails (status {r[0][0]}): {msg[:200]}"
            )
            continue
        if not differ(r):
            passed += 1
            continue
        failed += 1
        print(f"FAIL {job.name}", flush=True)
        if failed > a.max_failures:
            continue
        show_difference(r)
        if a.no_shrink or a.trace and len(job.lines) < 3:
            continue
        if keep is None:
            keep = tempfile.mkdtemp(prefix="conformance-")
        os.makedirs(keep, exist_ok=True)
        show_small(a, pair, job, args, os.path.join(keep, f"fail{failed}.txt"))
    dt = progress.seconds()
    print(
        f"{ops} ops in {dt:.1f} s ({ops / dt:.0f} ops/s); the oracle saw {totals['oom']} OOMs, "
        f"{totals['retry']} retries, {totals['sync']} synchronisations, "
        f"{totals['device_free']} device frees"
        + (f"; {skipped} scripts skipped" if skipped else "")
    )
    if a.seconds is not None and started == total:
        print(f"all {total} scripts run")
    elif a.seconds is not None:
        whole, rest = divmod(started, per_seed)
        print(
            f"stopped after {a.seconds:g} s: {started} of {total} scripts run, {whole} of "
            f"{len(seeds)} seeds complete, {rest} of {per_seed} scripts of seed {seeds[whole]}"
        )
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
