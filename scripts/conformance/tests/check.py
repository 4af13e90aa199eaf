#!/usr/bin/env python3
"""Known facts about the PyTorch caching allocator, checked against the oracle.
Usage: check.py [ORACLE]"""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, ROOT)
from oraclelib import clean_env, find_oracle

ORACLE = find_oracle(sys.argv[1] if len(sys.argv) > 1 else None)
MB, GB = 1 << 20, 1 << 30
COLS = (
    "op allocated reserved active inactive_split requested retries ooms segments "
    "device_alloc device_free sync_all"
).split()


class R:
    """The output of one run, by kind of line."""

    def __init__(self):
        self.addr, self.oom, self.stat, self.num = {}, {}, {}, {}
        self.s, self.cuda, self.seg, self.errs, self.trc = [], [], [], [], []


fails = 0


def run(trace, conf=None, args=(), errors=0, **env):
    """ERRORS: how many 'err' lines there must be."""
    e = clean_env({k: str(v) for k, v in env.items()})
    if conf:
        e["PYTORCH_CUDA_ALLOC_CONF"] = conf
    if isinstance(trace, (list, tuple)):
        trace = "\n".join(trace)
    p = subprocess.run(
        [ORACLE, "--stats", "--cudalog", "--history", *args],
        input=trace,
        env=e,
        text=True,
        capture_output=True,
    )
    r = R()
    r.out, r.err, r.rc = p.stdout, p.stderr, p.returncode
    for line in p.stdout.splitlines():
        w = line.split()
        if not w or line[0] == "#":
            continue
        if w[0] == "A":
            r.addr[w[1]] = int(w[2], 16)
        elif w[0] == "oom":
            r.oom[w[1]] = line
        elif w[0] == "S":
            r.s.append(dict(zip(COLS, map(int, w[1:]))))
        elif w[0] == ">":
            r.cuda.append(" ".join(w[1:]))
        elif w[0] == "SEG":
            r.seg.append((int(w[1], 16), int(w[2]), w[5], []))
        elif w[0] == "BLK":
            r.seg[-1][3].append((int(w[1], 16), int(w[2]), w[4]))
        elif w[0] == "STAT":
            r.stat[w[1], w[2]] = tuple(map(int, w[3:]))
        elif w[0] == "NUM":
            r.num[w[1]] = int(w[2])
        elif w[0] == "err":
            r.errs.append(line)
        elif w[0] == "TRC":
            r.trc.append(w[1:])
    global fails
    if r.rc != (3 if errors else 0) or len(r.errs) != errors or "CUDA warning" in r.err:
        fails += 1
        print(f"FAIL run: rc={r.rc} errs={r.errs[:2]} stderr={r.err[-300:]}")
    return r


def check(name, got, want):
    global fails
    ok = got == want
    fails += not ok
    print(("ok   " if ok else "FAIL ") + f"{name}: {got}" + ("" if ok else f"  (wanted {want})"))


def d(r, col="allocated"):
    v = [x[col] for x in r.s]
    return [b - a for a, b in zip([0] + v, v)]


print("# rounding to 512 B")
r = run([f"a {i} {s}" for i, s in enumerate((1, 511, 512, 513, 1024, 1025))])
check("allocated per request of 1 511 512 513 1024 1025", d(r), [512, 512, 512, 1024, 1024, 1536])
check("requested", d(r, "requested"), [1, 511, 512, 513, 1024, 1025])
check("one 2 MiB segment", r.cuda, ["malloc 2097152 0x20000000000"])
check(
    "zero bytes: null pointer, nothing allocated",
    (run(["a z 0"]).addr["z"], run(["a z 0"]).s[0]["allocated"]),
    (0, 0),
)

print("# small / large boundary, segment sizes")
for size, seg in (
    (MB, 2 * MB),
    (MB + 1, 20 * MB),
    (MB - 511, 2 * MB),
    (10 * MB - 512, 20 * MB),
    (10 * MB - 511, 10 * MB),
    (10 * MB, 10 * MB),
    (10 * MB + 1, 12 * MB),
    (11 * MB, 12 * MB),
    (12 * MB, 12 * MB),
    (GB + 1, GB + 2 * MB),
):
    r = run([f"a x {size}"])
    check(f"request {size} -> segment", r.seg[0][1], seg)

print("# splitting")
r = run(["a x 10485248", "f x", f"a y {19 * MB}"])
check("large pool: rest of exactly 1 MiB is not split off", [b[1] for b in r.seg[0][3]], [20 * MB])
r = run(["a x 10485248", "f x", f"a y {19 * MB - 512}"])
check("large pool: rest of 1 MiB + 512 is", [b[1] for b in r.seg[0][3]], [19 * MB - 512, MB + 512])
r = run([f"a x {MB}", f"a y {MB - 512}"])
check("small pool: rest of 512 is split off", [b[1] for b in r.seg[0][3]], [MB, MB - 512, 512])

print("# best fit, lowest address among equals, merge of neighbours")
r = run([f"a {i} {2 * MB}" for i in range(6)] + ["f 1", "f 3", f"a n {2 * MB}"])
check("equal holes: lowest address", r.addr["n"], r.addr["1"])
r = run(
    [f"a {i} {s * MB}" for i, s in enumerate((3, 2, 4, 2, 2))] + ["f 0", "f 2", f"a n {3 * MB}"]
)
check("best fit (3 MiB hole before the 4 MiB hole)", r.addr["n"], r.addr["0"])
r = run([f"a {i} {2 * MB}" for i in range(4)] + ["f 1", "f 2", f"a n {4 * MB}"])
check("neighbours merged", r.addr["n"], r.addr["1"])

print("# streams do not share free blocks")
r = run([f"a x {12 * MB} 0", "f x", f"a y {12 * MB} 1", f"a z {12 * MB} 0"])
check(
    "stream 1 gets a new segment, stream 0 reuses",
    (r.addr["y"] != r.addr["x"], r.addr["z"] == r.addr["x"]),
    (True, True),
)

print("# max_split_size_mb:64")
c = "max_split_size_mb:64"
r = run([f"a x {100 * MB}", "f x", f"a y {60 * MB}"], c)
check("60 MiB does not take the cached oversize 100 MiB block", r.addr["y"] != r.addr["x"], True)
r = run([f"a x {100 * MB}", "f x", f"a y {90 * MB}"], c)
check("90 MiB takes it whole", (r.addr["y"] == r.addr["x"], r.s[-1]["allocated"]), (True, 100 * MB))
r = run([f"a x {100 * MB}", "f x", f"a y {80 * MB}"], c)
check("80 MiB: 100 >= 80 + 20: not taken", r.addr["y"] != r.addr["x"], True)
check("oversize_allocations current/peak", r.stat["oversize_allocations", "-"][:2], (1, 1))
check("max_split_size", r.num["max_split_size"], 64 * MB)
r = run([f"a x {100 * MB}", "f x", f"a y {60 * MB}"])
check(
    "default: 60 MiB splits the cached 100 MiB block",
    (r.addr["y"] == r.addr["x"], r.s[-1]["allocated"]),
    (True, 60 * MB),
)

print("# max_non_split_rounding_mb")
r = run([f"a x {100 * MB}", "f x", f"a y {75 * MB}"], c + ",max_non_split_rounding_mb:30")
check(
    "with 30: 100 < 75 + 30: taken whole",
    (r.addr["y"] == r.addr["x"], r.s[-1]["allocated"]),
    (True, 100 * MB),
)
r = run([f"a x {100 * MB}", "f x", f"a y {75 * MB}"], c)
check("with the default 20: not taken", r.addr["y"] == r.addr["x"], False)

print("# large_segment_size_mb (2.11)")
r = run([f"a x {3 * MB}"], "large_segment_size_mb:40")
check("segment for 3 MiB", (r.seg[0][1] if r.seg else r.err[-200:]), 40 * MB)

print("# roundup_power2_divisions")
r = run(
    [f"a {i} {s}" for i, s in enumerate((1200, 2049, 5 * MB + 1, 100 * MB))],
    "roundup_power2_divisions:4",
)
check("divisions 4: 1200, 2049, 5 MiB + 1, 100 MiB", d(r), [1536, 2560, 6 * MB, 112 * MB])
r = run(
    [f"a {i} {s}" for i, s in enumerate((130 * MB, 300 * MB, 600 * MB, 1100 * MB, 2100 * MB))],
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
)
check(
    "list form: 130, 300, 600, 1100, 2100 MiB (MiB)",
    [x / MB for x in d(r)],
    [130, 300, 768, 1280, 2304],
)

print("# memory fraction and OOM message")
r = run(["m 0.5", f"a x {3 * GB}", f"a y {2 * GB}"], FAKE_TOTAL_BYTES=8 * GB)
check("3 GiB fits in half of 8, the next 2 do not", (sorted(r.addr), sorted(r.oom)), (["x"], ["y"]))
check("message names the allowed amount", "4.00 GiB allowed" in r.oom["y"], True)
print("     " + r.oom["y"])
check("ooms, retries", (r.num["num_ooms"], r.num["num_alloc_retries"]), (1, 1))
r = run(
    [f"a x {3 * GB}", f"a y {2 * GB}"], "per_process_memory_fraction:0.5", FAKE_TOTAL_BYTES=8 * GB
)
check("per_process_memory_fraction:0.5 does the same", sorted(r.oom), ["y"])

print("# cache release under pressure")
r = run(
    [f"a x {3 * GB}", "f x", f"a y {2 * GB}", f"a z {5 * GB}", f"a w {3 * GB}"],
    FAKE_TOTAL_BYTES=8 * GB,
)
check(
    "y splits x's block; z fits; w does not",
    (r.addr["y"] == r.addr["x"], sorted(r.oom)),
    (True, ["w"]),
)
r = run([f"a x {3 * GB}", f"a v {3 * GB}", "f x", "f v", f"a z {7 * GB}"], FAKE_TOTAL_BYTES=8 * GB)
check(
    "both cached segments freed, one retry",
    (r.s[-1]["retries"], r.s[-1]["device_free"], r.s[-1]["reserved"]),
    (1, 2, 7 * GB),
)

print("# garbage_collection_threshold:0.6 with a fraction")
t = (
    ["m 0.5"]
    + [f"a {i} {400 * MB}" for i in range(6)]
    + [f"f {i}" for i in range(6)]
    + [f"a a {1000 * MB}", f"a b {1000 * MB}"]
)
r = run(t, "garbage_collection_threshold:0.6", FAKE_TOTAL_BYTES=8 * GB)
i = [x for x in r.cuda if x.startswith(("malloc", "free"))]
print("     " + "; ".join(i))
check(
    "blocks freed by the collector, none by an OOM retry",
    (r.s[-1]["retries"], r.s[-1]["device_free"] > 0),
    (0, True),
)
r2 = run(t, FAKE_TOTAL_BYTES=8 * GB)
check("without it: freed only by a retry", (r2.s[-1]["retries"] > 0), True)
r3 = run(t[1:], "garbage_collection_threshold:0.6", FAKE_TOTAL_BYTES=8 * GB)
check("without a fraction the collector never runs", r3.s[-1]["device_free"], 0)

print("# record_stream with pending events")
r = run(["h 1", f"a x {12 * MB} 0", "r x 1", "f x", f"a y {12 * MB} 0", "e 1", f"a z {12 * MB} 0"])
check(
    "freed but active while the event is pending (allocated, active)",
    (r.s[3]["allocated"], r.s[3]["active"]),
    (0, 12 * MB),
)
check(
    "not reused while pending, reused after",
    (r.addr["y"] != r.addr["x"], r.addr["z"] == r.addr["x"]),
    (True, True),
)
r = run([f"a x {12 * MB} 0", "r x 1", "f x", f"a y {12 * MB} 0"])
check("events complete at once by default: reused", r.addr["y"] == r.addr["x"], True)
r = run(["h 1", f"a x {12 * MB} 0", "r x 0", "f x", f"a y {12 * MB} 0"])
check("record on its own stream is ignored", r.addr["y"] == r.addr["x"], True)
r = run(["h 1", f"a x {6 * GB} 0", "r x 1", "f x", f"a y {6 * GB} 0"], FAKE_TOTAL_BYTES=8 * GB)
check(
    "under pressure the allocator synchronizes (sync_all) and reuses memory",
    (r.s[-1]["sync_all"], "y" in r.addr),
    (1, True),
)

print("# empty_cache")
r = run([f"a x {12 * MB}", f"a y {4 * MB}", "f x", "c"])
check("x's segment returned, y's kept", (r.s[-1]["reserved"], r.s[-1]["segments"]), (20 * MB, 1))

print("# expandable_segments:True")
e = "expandable_segments:True"
r = run([f"a x {3 * MB}", f"a y {30 * MB}", "a s 100"], e)
check(
    "large: 20 MiB pages, small: 2 MiB pages",
    sorted(x[1:3] for x in r.seg),
    [(2 * MB, "expandable=1"), (40 * MB, "expandable=1")],
)
check("y directly after x", r.addr["y"] - r.addr["x"], 3 * MB)
check(
    "address space of 9/8 of the capacity reserved",
    r.cuda[0].startswith("reserve 96636764160"),
    True,
)
r = run([f"a x {30 * MB}", f"a y {30 * MB}", "f x", "c"], e)
check(
    "empty_cache unmaps whole free pages only (reserved 60 -> 40)",
    [x["reserved"] // MB for x in r.s],
    [40, 60, 60, 40],
)
r = run([f"a x {3 * GB}", "f x", f"a y {5 * GB}", f"a z {7 * GB}"], e, FAKE_TOTAL_BYTES=8 * GB)
check("grows in place", r.addr["y"] == r.addr["x"], True)
check("OOM when physical memory is exhausted", sorted(r.oom), ["z"])

print("# injected cudaMalloc failure: retry after releasing the cache")
r = run([f"a x {12 * MB}", "f x", "x 1", f"a y {14 * MB}"])
check("retries 1, ooms 0", (r.s[-1]["retries"], r.s[-1]["ooms"]), (1, 0))

print("# private pool (graph capture style)")
r = run(
    [f"a x {12 * MB}", "f x", "B 7", f"a y {12 * MB}", "f y", "E 7", f"a z {12 * MB}", "P 7", "c"]
)
check(
    "pool does not share blocks with the default pool",
    (r.addr["y"] != r.addr["x"], r.addr["z"] == r.addr["x"]),
    (True, True),
)
check("released pool is freed by empty_cache", r.s[-1]["reserved"], 12 * MB)

print("# private pool with use_on_oom (op U), device of 300 MiB")
full = ["B 7", f"a p {200 * MB}", "E 7", "f p", f"a big {100 * MB}"]
small = dict(FAKE_TOTAL_BYTES=300 * MB)
r = run([*full, f"a x {150 * MB}"], **small)
check("without: retry, out of memory", (r.s[-1]["retries"], list(r.oom)), (1, ["x"]))
r = run([*full, "U 7 1", f"a x {150 * MB}"], **small)
check("150 MiB are served by the pool's free 200 MiB", r.addr["x"], r.addr["p"])
check("no retry, no OOM", (r.s[-1]["retries"], r.s[-1]["ooms"]), (0, 0))
check("the rest is split off", [b[1] // MB for b in r.seg[0][3]], [150, 50])
check(
    "history: alloc",
    [t[1:3] for t in r.trc if t[0] == "alloc"][-1],
    ["0x20000000000", str(150 * MB)],
)
r = run([*full, "U 7 1", "U 7 0", f"a x {150 * MB}"], **small)
check("switched off again", list(r.oom), ["x"])
r = run([*full, "U 7 1", f"a x {150 * MB} 1", "x 1", "a y 100"], **small)
check("not for another stream or size class", sorted(r.oom), ["x", "y"])
r = run([*full, "U 7 1", "B 8", f"a x {150 * MB}", "E 8"], **small)
check("not for another private pool", list(r.oom), ["x"])
cached = ["B 7", f"a p {150 * MB}", "E 7", "f p", f"a c {150 * MB} 1", "f c", "U 7 1"]
r = run([*cached, f"a x {150 * MB}"], **small)
check(
    "tried before the cache is released",
    (r.addr["x"] == r.addr["p"], r.s[-1]["device_free"]),
    (True, 0),
)
r = run(
    [f"B 7\na p {20 * MB}\nE 7", f"B 9\na q {20 * MB}\nE 9", "f p", "f q", "U 9 1", "U 7 1"]
    + [f"x 1\na {i} {20 * MB}" for i in "xyz"]
)
check(
    "two such pools: each serves one of three requests",
    (
        sorted((r.addr["x"], r.addr["y"])) == sorted((r.addr["p"], r.addr["q"])),
        r.addr["z"] in (r.addr["p"], r.addr["q"]),
        r.s[-1]["retries"],
    ),
    (True, False, 1),
)
r = run(["B 7", "E 7", "P 7", "U 7 1", "x 1", "a x 100"], errors=1)
check("of a pool that nobody uses: an assertion", "use_count > 0" in r.errs[0], True)

print("# private pool with no_split (op N)")
r = run(["B 7", "N 7", f"a x {2 * MB}", f"a y {2 * MB}", "a z 100", "E 7", f"a w {2 * MB}"])
check("whole blocks in the pool, not elsewhere", [x // MB for x in d(r)[2:5]], [20, 20, 2])
check("the default pool splits as usual", d(r)[6], 2 * MB)
check("inactive_split: only the default pool's rest", r.s[-1]["inactive_split"], 18 * MB)
r = run(["B 7", f"a x {2 * MB}", "N 7", f"a y {2 * MB}", "f y", "E 7"])
check("a rest split off before is given out whole", d(r)[3], 18 * MB)
r = run([*full, "N 7", "U 7 1", f"a x {150 * MB}"], **small)
check("use_on_oom and no_split: 200 MiB for 150", d(r)[-1], 200 * MB)

print("# emptying one private pool (op C)")
pool = ["B 7", f"a p {12 * MB}", f"a q {14 * MB}", "f p", "E 7", f"a x {16 * MB}", "f x"]
r = run([*pool, "C 7"])
check("pool in use: nothing", (r.s[-1]["device_free"], r.s[-1]["sync_all"]), (0, 0))
r = run([*pool, "P 7", "C 7", "f q", "C 7", "C 7", "C 8"])
check(
    "released: its free blocks go, later the others; the default pool's stay",
    [x["reserved"] // MB for x in r.s[7:]],
    [42, 30, 30, 16, 16, 16],
)
check(
    "only calls that find the pool synchronise",
    [x["sync_all"] for x in r.s[7:]],
    [0, 1, 1, 2, 2, 2],
)
r = run(["h 1", *pool[:3], "E 7", f"a x {16 * MB}", "r p 1", "r x 1", "f p", "f x", "P 7", "C 7"])
check(
    "waits for the events of its own blocks only",
    (r.s[-1]["reserved"] // MB, r.s[-1]["active"] // MB, r.cuda.count("event_sync stream=0x1000")),
    (30, 30, 1),
)
r = run([*pool, "P 7", "B 8", "C 7"], errors=1)
check("while a pool is recorded to: an assertion", "captures_underway" in r.errs[0], True)

print("# settings changed at run time")
r = run([f"a x {3 * MB}", "o expandable_segments:True", f"a y {30 * MB}"])
check("second segment expandable", [s[2] for s in r.seg], ["expandable=0", "expandable=1"])

print("# determinism: the same script twice, and with other heap layouts")
gen = os.path.join(ROOT, "gen", "gen_trace.py")
for extra in (
    [
        "--dist",
        "mixed",
        "--streams",
        "4",
        "--record-prob",
        "0.1",
        "--hold",
        "--live-bytes",
        "6g",
        "--empty-prob",
        "0.001",
    ],
):
    t = subprocess.run(
        [sys.executable, gen, "random", "--ops", "5000", "--seed", "3", *extra],
        text=True,
        capture_output=True,
    ).stdout
    for c in (
        None,
        e,
        "max_split_size_mb:64",
        "garbage_collection_threshold:0.6",
        "roundup_power2_divisions:4",
    ):
        outs = {
            run(
                "m 0.9\n" + t,
                c,
                FAKE_TOTAL_BYTES=4 * GB,
                MALLOC_PERTURB_=k,
                MALLOC_TOP_PAD_=4096 * (k + 1),
            ).out
            for k in (0, 1, 37)
        }
        check(f"{c or 'default'}: identical outputs of 3 runs", len(outs), 1)

print(f"{fails} failures")
sys.exit(bool(fails))
