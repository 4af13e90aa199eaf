#!/usr/bin/env python3
"""Random scripts under many settings: the oracle must not raise and must repeat
itself exactly, and its output must agree with itself and with the fake device (segment sums,
block partitions, no overlap of live allocations). Usage: sweep.py [SEEDS [ORACLE]]"""

import os
import random
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.dont_write_bytecode = True
sys.path.insert(0, ROOT)
from oraclelib import GEN, find_oracle

ORACLE = find_oracle(sys.argv[2] if len(sys.argv) > 2 else None)
G = 1 << 30
CONF = [
    None,
    "max_split_size_mb:64",
    "garbage_collection_threshold:0.6",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
    "expandable_segments:True",
    "max_split_size_mb:128,max_non_split_rounding_mb:40",
    "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.7",
    "large_segment_size_mb:40",
    "per_process_memory_fraction:0.6",
]
bad = runs = 0
tot = {"oom": 0, "retry": 0, "sync": 0, "free": 0, "ops": 0}


def fail(msg):
    global bad
    bad += 1
    print("FAIL", msg)


for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 12):
    rng = random.Random(seed)
    a = [
        "random",
        "--seed",
        str(seed),
        "--ops",
        "4000",
        "--dist",
        rng.choice(["loguniform", "mixed", "repeated", "boundary", "small"]),
        "--streams",
        str(rng.choice([1, 1, 2, 4])),
        "--live-cap",
        str(rng.choice([50, 300, 1000])),
    ]
    if rng.random() < 0.6:
        a += ["--record-prob", "0.15"]
        if rng.random() < 0.6:
            a += ["--hold"]
    cap = rng.choice([1 * G, 4 * G, 80 * G])
    if cap < 80 * G:
        a += ["--live-bytes", str(int(cap * rng.uniform(0.8, 1.6)))]
    if rng.random() < 0.5:
        a += ["--empty-prob", "0.002"]
    if rng.random() < 0.4:
        a += ["--fraction", str(rng.choice([0.5, 0.8, 0.95]))]
    if rng.random() < 0.3:
        a += ["--drain"]
    trace = subprocess.run(
        [sys.executable, GEN, *a], text=True, capture_output=True, check=True
    ).stdout
    for conf in CONF:
        for pol in ("up", "down", "firstfit"):
            env = {"FAKE_TOTAL_BYTES": str(cap), "FAKE_ADDR": pol, "PATH": os.environ["PATH"]}
            if conf:
                env["PYTORCH_CUDA_ALLOC_CONF"] = conf
            cmd = [ORACLE, "--stats", "--cudalog"]
            p = subprocess.run(cmd, input=trace, env=env, text=True, capture_output=True)
            name = f"seed={seed} conf={conf} addr={pol} gen={' '.join(a)}"
            runs += 1
            if p.returncode or "\nerr " in p.stdout or p.stderr:
                fail(f"{name}: rc={p.returncode} {p.stderr[-300:]}")
                continue
            if pol == "up":
                q = subprocess.run(
                    cmd,
                    input=trace,
                    env={**env, "MALLOC_PERTURB_": "77"},
                    text=True,
                    capture_output=True,
                )
                if q.stdout != p.stdout:
                    fail(name + ": not repeatable")
            segs, stat, last, fake = [], {}, None, {}
            for line in p.stdout.splitlines():
                w = line.split()
                if w[0] == "SEG":
                    segs.append([int(w[1], 16), int(w[2]), []])
                elif w[0] == "BLK":
                    segs[-1][2].append((int(w[1], 16), int(w[2]), w[4]))
                elif w[0] == "STAT" and w[2] == "all":
                    stat[w[1]] = tuple(map(int, w[3:]))
                elif w[0] == "S":
                    last = list(map(int, w[1:]))
                elif w[0] == "FAKE":
                    fake = dict(x.split("=") for x in w[1:])
            live = sorted((b[0], b[1]) for s in segs for b in s[2] if b[2] == "active_allocated")
            if any(x[0] + x[1] > y[0] for x, y in zip(live, live[1:])):
                fail(name + ": overlapping allocations")
            if any(sum(b[1] for b in s[2]) != s[1] for s in segs):
                fail(name + ": blocks do not partition a segment")
            if (
                sum(s[1] for s in segs) != stat["reserved_bytes"][0]
                or int(fake["used"]) != stat["reserved_bytes"][0]
            ):
                fail(
                    f"{name}: reserved {stat['reserved_bytes'][0]} "
                    f"segments {sum(s[1] for s in segs)} fake {fake['used']}"
                )
            if sum(x[1] for x in live) != stat["allocated_bytes"][0]:
                fail(name + ": allocated")
            for k, v in stat.items():
                if v[0] != v[2] - v[3] or v[1] < v[0]:
                    fail(f"{name}: stat {k} {v}")
            tot["oom"] += last[7]
            tot["retry"] += last[6]
            tot["sync"] += last[11]
            tot["free"] += last[10]
            tot["ops"] += last[0] + 1
print(f"{runs} runs, {tot}, {bad} failures")
sys.exit(bool(bad))
