#!/usr/bin/env python3
"""Generates seeded random scripts for the allocator oracle (format: ../README.md).

  gen_trace.py random --seed 1 --ops 20000 --dist loguniform --streams 2 \
       --record-prob 0.1 --live-cap 500 > t.txt
  gen_trace.py full --seed 1 --ops 1000 --capacity 1g > t.txt   (all op kinds)
  gen_trace.py transformer --seed 1 --iters 20 > t.txt
  gen_trace.py hot|mix|frag ...            (throughput patterns)

The output depends only on the arguments (random.Random(seed)).
"""

import argparse
import math
import random
import sys

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


def size_arg(s):
    mul = {"k": KB, "m": MB, "g": GB, "t": GB * 1024}.get(s[-1].lower(), 1)
    return int(float(s[:-1]) * mul) if mul != 1 else int(s, 0)


def sampler(kind, rng, lo, hi):
    if kind == "loguniform":
        a, b = math.log(lo), math.log(hi + 1)
        return lambda: min(hi, max(lo, int(math.exp(rng.uniform(a, b)))))
    if kind == "small":
        hi2 = min(hi, MB)
        a, b = math.log(lo), math.log(hi2 + 1)
        return lambda: min(hi2, max(lo, int(math.exp(rng.uniform(a, b)))))
    if kind == "uniform":
        return lambda: rng.randint(lo, hi)
    if kind == "pow2":
        a, b = int(math.log2(lo)), int(math.log2(hi))
        return lambda: 1 << rng.randint(a, b)
    if kind == "repeated":  # few distinct sizes, as a model with fixed shapes
        sizes = []
        h = rng.choice([768, 1024, 2048, 4096])
        for b in (1, 2, 4, 8):
            for s in (128, 512, 1024, 2048):
                sizes += [b * s * h * 2, b * s * 4 * h * 2, b * s * 4]
        sizes += [h * h * 2, 4 * h * h * 2, h * 2, h * 4, 4, 8, 16, 1024]
        sizes = [x for x in sizes if lo <= x <= hi] or [lo]
        return lambda: rng.choice(sizes)
    if kind == "boundary":  # sizes at and around the allocator's thresholds
        pts = [
            512,
            1024,
            MB,
            2 * MB,
            10 * MB,
            20 * MB,
            32 * MB,
            64 * MB,
            128 * MB,
            200 * MB,
            256 * MB,
            512 * MB,
            GB,
        ]
        pts = [p for p in pts if lo <= p <= hi]

        def f():
            p = rng.choice(pts)
            d = rng.choice(
                [0, 1, -1, 511, 512, 513, -511, -512, -513, MB, -MB, MB + 1, MB - 512, -MB - 1]
            )
            return max(lo, min(hi, p + d))

        return f
    if kind == "mixed":
        subs = [sampler(k, rng, lo, hi) for k in ("loguniform", "repeated", "boundary", "small")]
        return lambda: rng.choice(subs)()
    raise SystemExit(f"unknown --dist {kind}")


def header(out, args):
    skip = {"cmd", "func"}
    out.append(
        "# gen_trace.py "
        + args.cmd
        + " "
        + " ".join(f"{k}={v}" for k, v in sorted(vars(args).items()) if k not in skip)
    )


def gen_random(args):
    rng = random.Random(args.seed)
    out = []
    header(out, args)
    sample = sampler(args.dist, rng, args.min, args.max)
    if args.hold:
        out.append("h 1")
    if args.fraction is not None:
        out.append(f"m {args.fraction}")
    live = []  # (id, size, stream)
    live_bytes = 0
    nid = 0
    phase_target = args.live_cap
    n = 0
    while n < args.ops:
        # Let the number of live blocks wander, so that pools fill and drain.
        if args.phases and n % max(1, args.ops // args.phases) == 0:
            phase_target = rng.randint(max(1, args.live_cap // 10), args.live_cap)
        r = rng.random()
        if r < args.empty_prob:
            out.append("c")
        elif args.hold and r < args.empty_prob + args.event_prob:
            k = rng.random()
            s = rng.randrange(args.streams)
            if k < 0.2:
                out.append("e *")
            elif k < 0.6:
                out.append(f"e {s}")
            else:
                out.append(f"e {s} {rng.randint(1, 4)}")
        elif live and args.streams > 1 and rng.random() < args.record_prob:
            i = rng.randrange(len(live))
            out.append(f"r {live[i][0]} {rng.randrange(args.streams)}")
        else:
            over = len(live) >= phase_target or (args.live_bytes and live_bytes > args.live_bytes)
            p_alloc = 0.25 if over else 0.55
            if len(live) >= args.live_cap:
                p_alloc = 0.0
            if not live or rng.random() < p_alloc:
                sz = sample()
                st = rng.randrange(args.streams) if rng.random() < args.side_prob else 0
                out.append(f"a {nid} {sz} {st}")
                live.append((nid, sz, st))
                live_bytes += sz
                nid += 1
            else:
                k = rng.random()
                if k < args.lifo:
                    i = len(live) - 1
                elif k < args.lifo + args.fifo:
                    i = 0
                else:
                    i = rng.randrange(len(live))
                b = live[i]
                live[i] = live[-1] if i != len(live) - 1 else live[i]
                live.pop()
                live_bytes -= b[1]
                out.append(f"f {b[0]}")
        n += 1
    if args.drain:
        rng.shuffle(live)
        for b in live:
            out.append(f"f {b[0]}")
        out.append("e *")
        out.append("c")
    return out


# Limits of the allocator's defaults.
EDGES = [512, 1024, *(m * MB for m in (1, 2, 8, 10, 12, 19, 20, 22, 40))]


def edge_sampler(rng, lo, hi, marks):
    """Sizes at and just around marks (bytes)."""
    marks = [m for m in marks if lo <= m <= hi] or [lo]
    deltas = [
        0,
        0,
        1,
        -1,
        511,
        512,
        -512,
        -513,
        MB,
        -MB,
        MB + 512,
        -MB + 512,
        2 * MB,
        -2 * MB,
        2 * MB - 1,
        -2 * MB + 1,
    ]
    return lambda: max(lo, min(hi, rng.choice(marks) + rng.choice(deltas)))


def full_trace(
    seed,
    ops,
    capacity,
    streams=0,
    records="one",
    pools=False,
    settings=(),
    marks=(),
    fraction=None,
    bad_fraction=False,
    torch=None,
    classes=(),
    restores=True,
    expandable=False,
):
    """A random script with every kind of op (private pools only on request). The
    seed also determines its character: sizes, number of live blocks, pressure,
    streams, event holding.

    Omitted is what the real binary asserts on, or does in an order that depends
    on heap addresses: record_stream, and more than one free of a recorded block, during
    a capture (until 2.12: while a pool is recorded to), C meanwhile, use_on_oom of a pool
    without uses, and record_stream of blocks in pools with checkpoints.

    streams   0: drawn, 1 to 4
    records   none; one: all record_stream ops name the same stream (the order in
              which blocks come back is then independent of hash maps); many
    pools     with the ops for private pools: B, E, P, U, N, C, V, R, L, G
    restores  with checkpoints of private pools (false: the memory of pools in use
              may be returned, so that the real binary loses track)
    expandable  whether segments may be expandable: pools then keep their users,
              because the real binary miscounts what it returns
    settings  strings for the op 'o' (none: no such op)
    marks     sizes of special interest (limits of the configuration), in bytes
    fraction  first op: m FRACTION
    torch     only ops that this release has (oraclelib.Release; default: those of 2.11)
    classes   names for the op 'T' (none: no such op)
    """
    rng = random.Random(f"{seed}/{ops}/{capacity}")
    out = []

    def since(name):
        return torch is None or not torch.before(name)

    # A pool scope is like a graph capture: event processing is put off.
    scopes_capture = torch is None or torch.before("2.13")
    ns = streams or rng.choice([1, 1, 2, 3, 4])
    hi = max(64 * KB, min(int(capacity * rng.choice([0.03, 0.1, 0.3, 0.6])), 4 * GB))
    subs = [
        sampler(k, rng, 1, hi)
        for k in ("loguniform", "loguniform", "repeated", "boundary", "small", "pow2")
    ]
    subs.append(edge_sampler(rng, 1, hi, [*EDGES, *marks]))
    if marks:
        subs.append(edge_sampler(rng, 1, hi, marks))
    chosen = rng.sample(subs, rng.randint(1, 3))
    live_cap = rng.choice([8, 25, 60, 150, 400])
    live_bytes = (
        int(capacity * rng.choice([0.3, 0.6, 0.9, 1.1, 1.5])) if rng.random() < 0.8 else 1 << 62
    )
    rec_stream = rng.randrange(ns + 1) if records == "one" else None
    p_rec = 0 if records == "none" else rng.choice([0, 0.02, 0.06, 0.15])
    hold = p_rec > 0 and rng.random() < 0.6
    side = rng.choice([0.05, 0.3, 1.0])
    lifo, fifo = rng.choice([(0.3, 0.1), (0.8, 0.05), (0.0, 0.7), (0.0, 0.0)])
    rare = rng.choice([0.2, 1.0, 3.0])
    weights = {
        "c": 0.4,
        "m": 0.3,
        "t": 0.15,
        "u": 0.2,
        "x": 0.4,
        "k": 0.15,
        "K": 0.1,
        "s": 0.1,
        "S": 0.15,
        "p": 0.15,
        "y": 0.25,
        "skip": 0.2,
        "zero": 0.2,
        "huge": 0.15,
        "e": 4.0 if hold else 0.2,
        "h": 0.3 if p_rec else 0.02,
        "o": 0.8 if settings else 0,
        "pool": 1.0 if pools else 0,
        "use_on_oom": 0.3 if pools and since("2.8") else 0,
        "no_split": 0.15 if pools and since("2.10") else 0,
        "empty": 0.3 if pools and since("2.8") else 0,
        "spill": 0.6 if pools and since("2.8") else 0,
        "tree": 2.5 if pools and restores else 0,
        "capture": 0.6 if pools and since("2.13") else 0,
        "class": 0.6 if classes else 0,
    }
    if fraction is None:
        weights["m"] *= rng.choice([0, 0, 1])
    steady = {"e", "o", "pool", "use_on_oom", "no_split", "empty", "spill", "class"}
    steady |= {"tree", "capture"}
    rares = [(k, w * (1 if k in steady else rare) / 100) for k, w in weights.items() if w]
    total_rare = sum(w for _, w in rares)
    if hold:
        out.append("h 1")
    if fraction is not None:
        out.append(f"m {fraction}")
    live = []  # [id, size, recorded]
    where = {}  # id -> index in live
    freed = []
    used = 0
    nid = 0
    begun, uses, next_pool = [], {}, 1  # pools now recording; open uses of pools; next id
    on_oom, released = set(), []  # pools with use_on_oom; pools without uses, oldest first
    trees = {}  # pools with checkpoints -> [name, ids with sizes] of each
    pool_of = {}  # id -> its pool, if that has checkpoints
    captures, names = 0, 0  # captures under way; checkpoints so far
    deferred = False  # whether a free is put off until the capture ends
    target = live_cap

    def drop(i):
        nonlocal used
        b = live[i]
        last = live.pop()
        if i < len(live):
            live[i] = last
            where[last[0]] = i
        del where[b[0]]
        used -= b[1]
        if b[0] not in pool_of:  # a checkpoint may bring it back
            freed.append(b[0])
        return b[0]

    def alloc(size, st=None):
        nonlocal nid, used
        if freed and rng.random() < 0.1:
            i = freed.pop(rng.randrange(len(freed)))
        else:
            i = f"b{nid}"
            nid += 1
        if st is None:
            st = rng.randrange(ns) if rng.random() < side else 0
        out.append(f"a {i} {size} {st}" if st or rng.random() < 0.9 else f"a {i} {size}")
        target = begun[-1 if since("2.10") else 0] if begun else None
        if target in trees:
            pool_of[i] = target
        revive(i, size)
        return i

    def revive(i, size):
        nonlocal used
        where[i] = len(live)
        live.append([i, size, False])
        used += size

    def idle_pools():
        return [p for p in uses if p not in begun and p not in trees]

    def new_pool():
        nonlocal next_pool
        p = next_pool
        next_pool += 1
        if rng.random() < 0.3 and since("2.10"):
            out.append(f"N {p}")
        return p

    def begin(p):
        uses[p] = uses.get(p, 0) + 1
        begun.append(p)
        out.append(f"B {p}")

    def end():
        out.append(f"E {begun.pop()}")

    def use_on_oom(p, on):
        if not on and not since("2.11"):
            return  # there is no such call
        out.append(f"U {p} {on}")
        (on_oom.add if on else on_oom.discard)(p)

    def release(p):
        """In the order of torch.cuda.MemPool's destructor, which ends with C."""
        if expandable:
            return
        if uses[p] == 1 and p in on_oom:
            if not since("2.11"):
                return  # an assertion at the next OOM: the pool stays registered
            use_on_oom(p, 0)
        out.append(f"P {p}")
        uses[p] -= 1
        if not uses[p]:
            del uses[p]
            if p in trees and rng.random() < 0.3:
                restore(p)  # refused
            trees.pop(p, None)
            released.append(p)
            if not begun and not captures and rng.random() < 0.4 and since("2.8"):
                out.append(f"C {p}")

    def ids_in(p):
        return [b[:2] for b in live if pool_of.get(b[0]) == p]

    def save(p):
        nonlocal names
        names += 1
        out.append(f"V {p} c{names}")
        trees[p].append((f"c{names}", ids_in(p)))

    def restore(p):
        """A checkpoint: its blocks are live, no other ones of the pool. The real binary first frees
        all blocks of the pool in an order that depends on heap addresses, and peaks with it."""
        name, then = rng.choice(trees[p])
        out.append(f"R {name}")
        if p not in uses:
            return
        for i, _ in ids_in(p):
            drop(where[i])
        for i, size in then:
            revive(i, size)
        out.append("k")

    def tree():
        """What torch.compile does with its trees of CUDA graphs: each recording continues from a
        checkpoint of an earlier one."""
        if trees and rng.random() < 0.7:
            p = rng.choice(list(trees))
        else:
            p = new_pool()
            trees[p] = []
        if trees[p] and rng.random() < 0.6:
            restore(p)
        if p in begun or len(begun) > 1 or rng.random() < 0.2:
            return
        if trees[p] and rng.random() < 0.1 and not expandable:
            for _ in range(uses[p]):
                release(p)
            return
        begin(p)
        st = rng.randrange(ns)
        sizes = rng.choice(chosen)
        for _ in range(rng.randint(1, 12)):
            mine = ids_in(p)
            if mine and rng.random() < 0.4:
                out.append(f"f {drop(where[rng.choice(mine)[0]])}")
            else:
                alloc(min(sizes(), capacity // 16), st)
        if rng.random() < 0.9:
            end()
        save(p)
        if rng.random() < 0.5:
            mine = [i for i, _ in ids_in(p)]
            out.append(" ".join(["L", str(p), *mine[: rng.choice([len(mine)] * 3 + [1])]]))

    def spill():
        """A pool with use_on_oom and free memory, then requests like that memory
        that the default pool may have no room for."""
        idle = idle_pools()
        p = rng.choice(idle) if idle and rng.random() < 0.5 else new_pool()
        st = rng.randrange(ns)
        size = max(rng.choice(chosen)(), rng.choice(chosen)())
        begin(p)
        mine = [alloc(size, st) for _ in range(rng.randint(1, 3))]
        end()
        if p not in on_oom:
            use_on_oom(p, 1)
        for i in mine:
            if rng.random() < 0.8:
                out.append(f"f {drop(where[i])}")
        if rng.random() < 0.7:
            out.append("x 1")
        for _ in range(rng.randint(1, 3)):
            alloc(rng.randint(size // 2, size), st)

    while len(out) < ops:
        if len(out) % max(1, ops // 8) == 0:
            target = rng.randint(max(1, live_cap // 8), live_cap)
        r = rng.random()
        if r < total_rare:
            for k, w in rares:
                r -= w
                if r < 0:
                    break
            if k in "ckKsSpy":
                if k != "c" or not begun or since("2.8"):  # an assertion of 2.6 and 2.7
                    out.append(k)
            elif k == "m":
                out.append(
                    f"m {rng.choice([1.5, -0.5])}"
                    if bad_fraction and rng.random() < 0.3
                    else f"m {rng.choice([1.0, 0.9, 0.75, 0.5, round(rng.uniform(0.05, 1), 4)])}"
                )
            elif k == "t":
                out.append(f"t {int(capacity * rng.choice([1, 1, 0.5, 0.75, 0.9, 1.25]))}")
            elif k == "u":
                out.append(f"u {int(capacity * rng.choice([0, 0, 0.1, 0.3, 0.6]))}")
            elif k == "x":
                out.append(f"x {rng.choice([1, 1, 1, 2, 3])}")
            elif k == "skip":
                i = rng.choice(freed) if freed and rng.random() < 0.7 else "never"
                out.append(f"f {i}" if rng.random() < 0.7 else f"r {i} 1")
            elif k == "zero":
                alloc(0)
            elif k == "huge":
                alloc(
                    rng.choice(
                        [
                            capacity,
                            capacity * 2 + 1,
                            1 << 40,
                            capacity - 20 * MB + 1 if capacity > 40 * MB else capacity,
                        ]
                    )
                )
            elif k == "e":
                v = rng.random()
                s = rng.randrange(ns + 1)
                out.append(
                    "e *" if v < 0.3 else f"e {s}" if v < 0.6 else f"e {s} {rng.randint(1, 4)}"
                )
            elif k == "h":
                out.append(f"h {rng.randint(0, 1)}")
            elif k == "o":
                out.append(f"o {rng.choice(settings)}")
            elif k == "pool":
                v = rng.random()
                idle = idle_pools()
                if begun and v < 0.5:
                    end()
                elif idle and v < 0.75:
                    release(rng.choice(idle))
                elif len(begun) < 2:
                    begin(rng.choice(idle) if idle and rng.random() < 0.5 else new_pool())
            elif k == "use_on_oom":
                plain = [p for p in uses if p not in trees]
                if plain:
                    p = rng.choice(plain)
                    use_on_oom(p, 0 if p in on_oom and rng.random() < 0.8 else 1)
            elif k == "no_split":
                if uses:
                    out.append(f"N {rng.choice(list(uses))}")
            elif k == "empty":
                if not begun and not captures:
                    recent = released[-3:]
                    any_pool = rng.randint(1, next_pool)  # in use, gone or not yet made: no effect
                    p = rng.choice(recent) if recent and rng.random() < 0.8 else any_pool
                    out.append(f"C {p}")
            elif k == "spill":
                if not begun:
                    spill()
            elif k == "tree":
                tree()
            elif k == "capture":
                if captures:
                    captures -= 1
                    out.append("G 0")
                else:
                    captures += 1
                    out.append("G 1")
            elif k == "class":
                out.append(f"T {rng.randrange(ns)} {rng.choice(classes)}".rstrip())
            continue
        capturing = captures or (begun and scopes_capture)
        if live and rng.random() < p_rec and not capturing:
            b = rng.choice(live)
            if b[0] in pool_of:
                continue
            b[2] = True
            out.append(
                f"r {b[0]} {rec_stream if rec_stream is not None else rng.randrange(ns + 1)}"
            )
            continue
        over = len(live) >= target or used > live_bytes
        if not live or (rng.random() < (0.25 if over else 0.55) and len(live) < live_cap):
            alloc(rng.choice(chosen)())
            deferred = deferred and capturing
        else:
            v = rng.random()
            i = len(live) - 1 if v < lifo else 0 if v < lifo + fifo else rng.randrange(len(live))
            if capturing and live[i][2]:
                if deferred:
                    continue  # two of them would come back in hash order
                deferred = True
            out.append(f"f {drop(i)}")
    while begun:
        end()
    out += ["G 0"] * captures
    captures = 0
    if pools and rng.random() < 0.5:
        for p in list(uses):
            for _ in range(uses[p]):
                release(p)
    if rng.random() < 0.4:
        ids = [b[0] for b in live]
        rng.shuffle(ids)
        out += [f"f {i}" for i in ids]
        if pools and rng.random() < 0.5 and since("2.8"):
            out += [f"C {p}" for p in released[-4:]]
        if rng.random() < 0.5:
            out += ["e *", "c"]
    return out


def gen_full(args):
    out = []
    header(out, args)
    marks = [size_arg(m) for m in args.marks.split(",") if m]
    return out + full_trace(
        args.seed,
        args.ops,
        args.capacity,
        args.streams,
        args.records,
        args.pools,
        args.settings or (),
        marks,
        args.fraction,
    )


def gen_transformer(args):
    """Training steps of a decoder: parameters and optimizer state stay, saved
    activations are freed in reverse, temporaries are short-lived, gradients
    live until the optimizer step. Sequence length may vary per iteration."""
    rng = random.Random(args.seed)
    out = []
    header(out, args)
    if args.fraction is not None:
        out.append(f"m {args.fraction}")
    nid = 0

    def alloc(sz, st=0):
        nonlocal nid
        out.append(f"a {nid} {int(sz)} {st}")
        nid += 1
        return nid - 1

    def free(i):
        out.append(f"f {i}")

    h, L, B, V, E = args.hidden, args.layers, args.batch, args.vocab, args.elt
    heads = max(1, h // 64)
    params = []
    per_layer = [3 * h * h, 3 * h, h * h, h, 4 * h * h, 4 * h, 4 * h * h, h, h, h, h, h]
    for _ in range(L):
        for p in per_layer:
            params.append((alloc(p * E), p))
    params.append((alloc(V * h * E), V * h))
    opt = []
    for it in range(args.iters):
        S = (
            args.seq
            if not args.vary
            else rng.choice(
                [
                    args.seq // 2,
                    args.seq * 3 // 4,
                    args.seq,
                    args.seq - rng.randint(0, args.seq // 4),
                ]
            )
        )
        T = B * S
        saved = []
        ids = [alloc(T * 8), alloc(T * 8)]
        x = alloc(T * h * E)
        for _ in range(L):
            sv = [x]
            mean, rstd = alloc(T * 4), alloc(T * 4)
            ln = alloc(T * h * E)
            sv += [mean, rstd, ln]
            qkv = alloc(T * 3 * h * E)
            sv.append(qkv)
            if args.flash:
                lse = alloc(B * heads * S * 4)
                att = alloc(T * h * E)
                sv += [lse, att]
            else:
                sc = alloc(B * heads * S * S * E)
                pr = alloc(B * heads * S * S * E)
                free(sc)
                att = alloc(T * h * E)
                sv += [pr, att]
            proj = alloc(T * h * E)
            x2 = alloc(T * h * E)
            free(proj)
            m2, r2 = alloc(T * 4), alloc(T * 4)
            ln2 = alloc(T * h * E)
            ff = alloc(T * 4 * h * E)
            act = alloc(T * 4 * h * E)
            down = alloc(T * h * E)
            sv += [x2, m2, r2, ln2, ff, act]
            x = alloc(T * h * E)
            free(down)
            saved.append(sv)
            if args.streams > 1 and rng.random() < args.record_prob:
                out.append(f"r {x} {rng.randrange(1, args.streams)}")
        logits = alloc(T * V * E)
        lsm = alloc(T * V * 4)
        free(logits)
        loss = alloc(4)
        # backward
        g = alloc(T * V * E)
        free(lsm)
        grads = [alloc(V * h * E)]
        gx = alloc(T * h * E)
        free(g)
        free(x)
        for sv in reversed(saved):
            for p in per_layer:
                grads.append(alloc(p * E))
            g1 = alloc(T * 4 * h * E)
            g2 = alloc(T * 4 * h * E)
            free(g1)
            g3 = alloc(T * h * E)
            free(g2)
            g4 = alloc(T * 3 * h * E)
            if not args.flash:
                s1 = alloc(B * heads * S * S * E)
                s2 = alloc(B * heads * S * S * E)
                free(s1)
                free(s2)
            g5 = alloc(T * h * E)
            free(g4)
            free(g3)
            free(gx)
            gx = g5
            for b in reversed(sv):
                free(b)
        free(gx)
        free(loss)
        for i in ids:
            free(i)
        # optimizer: state on the first step, temporaries each step
        if it == 0:
            for _, p in params:
                opt.append(alloc(p * 4))
                opt.append(alloc(p * 4))
        for _, p in params:
            t1 = alloc(p * 4)
            t2 = alloc(p * 4)
            free(t1)
            free(t2)
        for gr in grads:
            free(gr)
        if args.empty_every and (it + 1) % args.empty_every == 0:
            out.append("c")
    return out


def gen_hot(args):
    out = []
    header(out, args)
    for _ in range(args.pairs):
        out.append(f"a 0 {args.size} 0")
        out.append("f 0")
    return out


def gen_mix(args):
    """args.live live blocks; each step frees a random one and allocates anew."""
    rng = random.Random(args.seed)
    out = []
    header(out, args)
    sample = sampler(args.dist, rng, args.min, args.max)
    for i in range(args.live):
        out.append(f"a {i} {sample()} 0")
    for _ in range(args.pairs - args.live):
        i = rng.randrange(args.live)
        out.append(f"f {i}")
        out.append(f"a {i} {sample()} 0")
    for i in range(args.live):
        out.append(f"f {i}")
    return out


def gen_frag(args):
    """Rounds: fill with n blocks, free every other one (holes), allocate
    slightly larger ones that do not fit the holes, then small ones that do,
    free all in random order."""
    rng = random.Random(args.seed)
    out = []
    header(out, args)
    nid = 0
    pairs = 0
    while pairs < args.pairs:
        base = rng.choice([64 * KB, 256 * KB, 900 * KB, 2 * MB, 5 * MB, 12 * MB])
        n = args.live
        a = []
        for _ in range(n):
            out.append(f"a {nid} {base + rng.randint(0, base // 8)} 0")
            a.append(nid)
            nid += 1
        for i in a[::2]:
            out.append(f"f {i}")
        keep = a[1::2]
        b = []
        for _ in range(n // 4):
            out.append(f"a {nid} {base + base // 4 + rng.randint(0, base // 8)} 0")
            b.append(nid)
            nid += 1
        for _ in range(n // 2):
            out.append(f"a {nid} {max(1, base // 2 - rng.randint(0, base // 8))} 0")
            b.append(nid)
            nid += 1
        rest = keep + b
        rng.shuffle(rest)
        for i in rest:
            out.append(f"f {i}")
        pairs += n + n // 4 + n // 2
    return out


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sp = ap.add_subparsers(dest="cmd", required=True)
    p = sp.add_parser("random")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--ops", type=int, default=10000)
    p.add_argument(
        "--dist", default="loguniform", help="loguniform uniform small pow2 repeated boundary mixed"
    )
    p.add_argument("--min", type=size_arg, default=1)
    p.add_argument("--max", type=size_arg, default=GB)
    p.add_argument("--streams", type=int, default=1)
    p.add_argument(
        "--side-prob",
        type=float,
        default=0.5,
        help="chance that an allocation picks a random stream (else 0)",
    )
    p.add_argument("--record-prob", type=float, default=0.0)
    p.add_argument(
        "--hold", action="store_true", help="events stay pending until 'e' ops complete them"
    )
    p.add_argument("--event-prob", type=float, default=0.05)
    p.add_argument("--live-cap", type=int, default=300)
    p.add_argument(
        "--live-bytes",
        type=size_arg,
        default=0,
        help="start freeing above this many live bytes; above the capacity: forces OOM, retries",
    )
    p.add_argument("--phases", type=int, default=10)
    p.add_argument("--empty-prob", type=float, default=0.0)
    p.add_argument("--fraction", type=float, default=None)
    p.add_argument("--lifo", type=float, default=0.3)
    p.add_argument("--fifo", type=float, default=0.1)
    p.add_argument("--drain", action="store_true")
    p.set_defaults(func=gen_random)
    p = sp.add_parser("full")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--ops", type=int, default=1000)
    p.add_argument(
        "--capacity",
        type=size_arg,
        default=4 * GB,
        help="what the device will have (FAKE_TOTAL_BYTES)",
    )
    p.add_argument("--streams", type=int, default=0)
    p.add_argument("--records", default="one", choices=["none", "one", "many"])
    p.add_argument("--pools", action="store_true")
    p.add_argument("--settings", action="append", help="a string for the op 'o' (repeatable)")
    p.add_argument("--marks", default="", help="sizes of interest, e.g. 64m,100m")
    p.add_argument("--fraction", type=float, default=None)
    p.set_defaults(func=gen_full)
    p = sp.add_parser("transformer")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--iters", type=int, default=10)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--hidden", type=int, default=768)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--vocab", type=int, default=50257)
    p.add_argument("--elt", type=int, default=2)
    p.add_argument("--flash", action="store_true")
    p.add_argument("--vary", action="store_true", help="vary the sequence length")
    p.add_argument("--streams", type=int, default=1)
    p.add_argument("--record-prob", type=float, default=0.0)
    p.add_argument("--empty-every", type=int, default=0)
    p.add_argument("--fraction", type=float, default=None)
    p.set_defaults(func=gen_transformer)
    for name, fn in (("hot", gen_hot), ("mix", gen_mix), ("frag", gen_frag)):
        p = sp.add_parser(name)
        p.add_argument("--pairs", type=int, default=1000000 if name == "hot" else 500000)
        p.add_argument("--seed", type=int, default=0)
        p.add_argument("--size", type=size_arg, default=4096)
        p.add_argument("--live", type=int, default=1000)
        p.add_argument("--dist", default="loguniform")
        p.add_argument("--min", type=size_arg, default=1)
        p.add_argument("--max", type=size_arg, default=64 * MB)
        p.set_defaults(func=fn)
    args = ap.parse_args()
    sys.stdout.write("\n".join(args.func(args)) + "\n")


if __name__ == "__main__":
    main()
