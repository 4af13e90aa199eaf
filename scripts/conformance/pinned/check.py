#!/usr/bin/env python3
"""Compares a program with PyTorch's allocator of pinned memory on seeded random scripts.

    PY=$(../setup-torch.sh --torch 2.13)
    ./check.py --python $PY --candidate "coalesce script" --torch 2.13

The candidate gets the script on standard input, and the flags `--pinned --torch RELEASE` after its own. A
difference is shown as conformance.py shows it, with a reduced script. Last line: "N passed, M failed"; status 1
if M > 0.

    --python PATH        a python with PyTorch above the simulated CUDA
    --torch RELEASE      its release; default 2.11
    --seeds A..B         seeds, or random:N, which prints those drawn (default random:1000000)
    --seconds S          start no script after S seconds; default 60
    --ops N              operations per script (default 300)
    --configs a,b,...    names or shell patterns; --list shows them
    --script FILE        run one script instead
"""

import argparse
import fnmatch
import json
import os
import random
import shlex
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "gen")]
from conformance import differ, show_difference, shrink
from oraclelib import Progress, Release, clean_env, parse_seeds, settings_since

KB, MB = 1 << 10, 1 << 20
REGISTER = "pinned_use_cuda_host_register:True,pinned_num_register_threads:4"
THREAD = "pinned_use_background_threads:True"
LIMITS = [
    "pinned_max_round_threshold_mb:1",
    "pinned_max_round_threshold_mb:4,pinned_max_cached_size_mb:6",
    "pinned_max_cached_size_mb:1",
    "pinned_max_cached_size_mb:3",
    "pinned_max_round_threshold_mb:6,pinned_max_cached_size_mb:2",
    "pinned_use_cuda_host_register:False",
]


class Config:
    """conf: settings at the start; settings: strings for the op `o`; graphs: whether graphs are captured;
    has_thread: whether another thread processes events. Then an operation takes milliseconds, and scripts are short."""

    def __init__(self, name, conf="", settings=(), graphs=False, most=16 * MB, since="2.6"):
        self.name, self.conf, self.settings, self.graphs = name, conf, settings, graphs
        self.most = most  # pages of registered memory are touched
        texts = [conf, *settings]
        self.has_thread = any(THREAD in text for text in texts)
        known = [settings_since(text) for text in texts]
        self.since = max([since, *known, "2.11" if graphs else since], key=Release.order)


CONFIGS = [
    Config("default"),
    Config("register", REGISTER, most=MB),
    Config("thread", THREAD),
    # Until 2.7, memory is returned by the function that belongs to the present setting, which CUDA refuses.
    Config(
        "runtime",
        settings=[REGISTER, "pinned_use_cuda_host_register:False"],
        most=MB,
        since="2.8",
    ),
    Config("runtime-thread", settings=[THREAD, "pinned_use_background_threads:False"]),
    Config("reserve", "pinned_reserve_segment_size_mb:4"),
    Config("reserve-register", "pinned_reserve_segment_size_mb:1," + REGISTER, most=MB),
    Config("reserve-later", settings=["pinned_reserve_segment_size_mb:2"]),
    Config("round", LIMITS[0]),
    Config("round-cached", LIMITS[1]),
    Config("cached", LIMITS[3], settings=LIMITS[2:4]),
    Config("cached-reserve", "pinned_reserve_segment_size_mb:8," + LIMITS[2]),
    Config("runtime-limits", settings=[*LIMITS, REGISTER], most=8 * MB),
    Config("graphs", graphs=True),
    Config("graphs-limits", LIMITS[0], settings=LIMITS, graphs=True),
    Config("graphs-thread", THREAD, graphs=True),
]
STREAMS = 6


class Script:
    """A random script. Sizes come from a few, so that blocks are used again."""

    def __init__(self, config, seed, n):
        self.rng = random.Random(f"{config.name}/{seed}")
        self.config = config
        self.lines = [f"o {config.conf}"] if config.conf else []
        self.live, self.n_ids = [], 0
        self.capture, self.graphs, self.n_pools = None, [], 0
        self.sizes = [self.size() for _ in range(self.rng.randint(2, 12))]
        # Few or many uses, few or many live blocks.
        self.uses = self.rng.choice([0, 0.5, 2, 8])
        self.most_live = self.rng.choice([3, 10, 40])
        if self.rng.random() < 0.7:
            self.lines.append("h 1")
        for _ in range(n // 4 if config.has_thread else n):
            self.step()
        if self.capture:
            self.lines.append(f"E {self.capture}")
        self.lines += ["e *", "c"]

    def size(self):
        rng = self.rng
        size = rng.choice([0, 1, 100, 4 * KB, 100 * KB, MB, 3 * MB, 5 * MB, self.config.most])
        return max(0, min(self.config.most, int(size * rng.choice([1, 1, 0.6, 1.1])) + rng.choice([-1, 0, 0, 1])))

    def step(self):
        rng, config = self.rng, self.config
        weights = {
            "a": 8 if len(self.live) < self.most_live else 1,
            "f": 6 if self.live else 0,
            "r": self.uses * 4 if self.live else 0,
            "e": 3,
            "h": 0.3,
            "y": 0.2 if not self.capture else 0,
            "c": 0.3,
            "k": 0.2,
            "K": 0.2,
            "o": 0.5 if config.settings else 0,
            "B": 1 if config.graphs and not self.capture else 0,
            "E": 1 if self.capture else 0,
            "P": 0.5 if self.graphs and not self.capture else 0,
        }
        op = rng.choices(list(weights), list(weights.values()))[0]
        if op == "B":
            # The beginning of a capture waits for the default stream in some releases.
            self.lines.append("e 0")
        self.lines.append(" ".join([op, *getattr(self, f"op_{op}", list)()]))

    def op_a(self):
        self.live.append(str(self.n_ids))
        self.n_ids += 1
        size = self.size() if self.rng.random() < 0.1 else self.rng.choice(self.sizes)
        return self.live[-1], str(size)

    def op_f(self):
        return [self.live.pop(self.rng.randrange(len(self.live)))]

    def op_r(self):
        return self.rng.choice(self.live), str(self.rng.randrange(STREAMS))

    def op_e(self):
        stream = self.rng.choice(["*", *map(str, range(STREAMS))])
        return [stream] if stream == "*" else [stream, str(self.rng.randint(1, 4))]

    def op_h(self):
        return [str(self.rng.randrange(2))]

    def op_o(self):
        return [self.rng.choice(self.config.settings)]

    def op_B(self):
        # A pool that all graphs left may not be used again.
        used = [pool for pool in self.graphs if self.rng.random() < 0.5]
        if used:
            self.capture = self.rng.choice(used)
        else:
            self.n_pools += 1
            self.capture = str(self.n_pools)
        self.graphs.append(self.capture)
        return [self.capture]

    def op_E(self):
        pool, self.capture = self.capture, None
        return [pool]

    def op_P(self):
        return [self.graphs.pop(self.rng.randrange(len(self.graphs)))]


class Both:
    """PyTorch and the candidate. `wait` is how long PyTorch's other thread gets to process events."""

    def __init__(self, python, candidate, release):
        self.real = subprocess.Popen(
            [*shlex.split(python), os.path.join(HERE, "real.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=clean_env(),
        )
        self.candidate = [*shlex.split(candidate), "--pinned", *release.flags()]

    def __call__(self, lines, has_thread):
        # A race with the other thread, which polls all the time, is lost now and then: another attempt decides.
        for wait in (0.001, 0.003, 0.01, 0.02, 0.05):
            results = self.once(lines, wait)
            if not has_thread or not differ(results):
                break
        return results

    def once(self, lines, wait):
        self.real.stdin.write(json.dumps([lines, wait]) + "\n")
        self.real.stdin.flush()
        text = "".join(line + "\n" for line in lines)
        own = subprocess.run(
            self.candidate, input=text, capture_output=True, text=True, env=clean_env()
        )
        return [json.loads(self.real.stdout.readline()), (own.returncode, own.stdout, own.stderr)]


def main():
    ap = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ap.add_argument("--python", required=True)
    ap.add_argument("--candidate", required=True)
    ap.add_argument("--torch", type=Release, default=Release(Release.DEFAULT))
    ap.add_argument("--seeds", default="random:1000000")
    ap.add_argument("--seconds", type=float, default=60)
    ap.add_argument("--ops", type=int, default=300)
    ap.add_argument("--configs", default="*")
    ap.add_argument("--script")
    ap.add_argument("--max-failures", type=int, default=3)
    ap.add_argument("--list", action="store_true")
    a = ap.parse_args()
    known = [c for c in CONFIGS if not a.torch.before(c.since)]
    configs = [c for c in known if any(fnmatch.fnmatch(c.name, p) for p in a.configs.split(","))]
    if a.list or not configs:
        print("\n".join(f"{c.name:18} {c.conf or '-'}" for c in known))
        return not a.list
    both = Both(a.python, a.candidate, a.torch)
    if a.script:
        with open(a.script) as f:
            results = both(f.read().splitlines(), has_thread=True)
        print(results[0][1], end="")
        show_difference(results)
        return differ(results)
    progress = Progress(0, "scripts")
    passed = failed = ops = 0
    for seed in parse_seeds(a.seeds):
        for config in configs:
            if progress.seconds() >= a.seconds:
                break
            lines = Script(config, seed, a.ops).lines
            results = both(lines, config.has_thread)
            ops += len(lines)
            if not differ(results):
                passed += 1
                continue
            failed += 1
            print(f"FAIL {config.name} seed={seed}", flush=True)
            if failed > a.max_failures:
                continue
            show_difference(results)

            def fails(part, config=config):
                results = both(part, config.has_thread)
                return results[0][0] == 0 and differ(results)

            small = shrink(lines, fails)
            print(f"  shrunk from {len(lines)} to {len(small)} ops:")
            print("".join(f"      {line}\n" for line in small[:40]), end="")
            show_difference(both(small, config.has_thread), 3)
        if progress.seconds() >= a.seconds:
            break
    print(f"{ops} ops in {progress.seconds():.1f} s, last seed {seed}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
