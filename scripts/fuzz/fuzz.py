#!/usr/bin/env python3
"""Fuzzes the readers, and what is printed of their files, with libFuzzer.

    fuzz.py [TARGET...]      all targets, or these, one after the other
    fuzz.py --seconds 3600   time for each; default 60; 0 only builds
    fuzz.py --list           lists them

A target fails if it panics, takes memory out of proportion to its input, or needs more than 10
seconds for one input. Inputs that fail are kept where `cargo test` tries them again. Ctrl-C ends
the current target; its findings are kept. Status 1 if one failed. Needs Rust and a C++ compiler.
"""

import argparse
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHECKOUT = HERE.parents[1]

# Limits for one input. The targets themselves limit memory more strictly.
TIMEOUT_S = 10
RSS_LIMIT_MB = 1024

# Instrumentation for libFuzzer, all of it on stable Rust.
INSTRUMENTED = [
    "--cfg=fuzzing",
    "--cfg=fuzzing_libfuzzer",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
]


# The packages by folder. Each depends only on packages above it.
PACKAGES = {
    "allocator": "coalesce-alloc",
    "workloads": "coalesce-workloads",
    "benches/advisor": "coalesce-advisor",
}


@dataclass(frozen=True)
class Target:
    """A test of a test binary `fuzz`."""

    name: str
    package: str
    test: str
    # The initial inputs, in the package's tests.
    examples: str
    # The longest input, in bytes.
    max_len: int
    # The name of the words of its format.
    words: str

    def folder(self) -> Path:
        """The folder of inputs that made the test fail."""
        name = self.test.replace("::", "__")
        return CHECKOUT / self.package / "tests/fuzz/__fuzz__" / name / "crashes"


def read(name: str, examples: str, max_len: int) -> list[Target]:
    """The targets of a format: its reader, and what is printed of its files."""
    test = f"{name}::any_bytes"
    reader = Target(name, "workloads", test, examples, max_len, name)
    examples = f"../../../workloads/tests/{examples}"
    printed = Target(f"{name}-printed", "benches/advisor", test, examples, max_len, name)
    return [reader, printed]


TARGETS = [
    *read("snapshot", "fixtures", 8192),
    *read("trace", "fuzz/examples/trace", 4096),
    *read("binary", "fuzz/examples/binary", 4096),
    *read("rmm", "fuzz/examples/rmm", 4096),
    *read("minimalloc", "fuzz/examples/minimalloc", 2048),
    Target("profile", "workloads", "profile::any_bytes", "fuzz/examples/profile", 4096, "profile"),
    Target("settings", "allocator", "any_bytes", "fuzz/examples", 1024, "settings"),
]


class Stop(Exception):
    """The targets cannot be run."""


def build_folder() -> Path:
    command = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
    said = subprocess.run(command, cwd=CHECKOUT, check=True, stdout=subprocess.PIPE).stdout
    return Path(json.loads(said)["target_directory"]) / "fuzz"


def built(packages: set[str], folder: Path) -> dict[str, Path]:
    """Builds the packages' test binaries `fuzz` with instrumentation. Returns them by package."""
    rustc = subprocess.run(["rustc", "-vV"], check=True, stdout=subprocess.PIPE, text=True).stdout
    host = re.search(r"^host: (.*)$", rustc, re.MULTILINE)
    if host is None:
        raise Stop("rustc -vV does not print its host")
    env = dict(os.environ)
    env["RUSTFLAGS"] = " ".join(INSTRUMENTED)
    env["CARGO_PROFILE_TEST_OPT_LEVEL"] = "3"
    env["CARGO_PROFILE_TEST_CODEGEN_UNITS"] = "1"
    command = ["cargo", "test", "--test", "fuzz", "--no-run"]
    # Cargo rebuilds packages when the selection changes, so the lower ones are always selected. The
    # highest takes minutes and is selected only if a target needs it.
    *lower, highest = PACKAGES
    chosen = [*lower, highest] if highest in packages else lower
    for package in chosen:
        command += ["--package", PACKAGES[package]]
    # With --target, build scripts and macros are not instrumented.
    command += ["--target", host[1], "--target-dir", str(folder), "--message-format", "json"]
    run = subprocess.run(command, cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise Stop(f"cannot build {', '.join(chosen)}")
    binaries = {}
    for line in run.stdout.splitlines():
        artifact = json.loads(line)
        if artifact.get("executable") and artifact["target"]["name"] == "fuzz":
            package = Path(artifact["manifest_path"]).parent.relative_to(CHECKOUT)
            binaries[str(package)] = Path(artifact["executable"])
    if set(binaries) != set(chosen):
        raise Stop(f"cargo built {', '.join(binaries)} instead of {', '.join(chosen)}")
    return binaries


def pulse(line: str) -> str | None:
    """The progress in a line of libFuzzer's output, if it has any."""
    found = re.match(r"#(\d+)\s.*cov: (\d+) ft: (\d+) .*corp: (\S+) .*exec/s: (\d+)", line)
    if found is None:
        return None
    runs, edges, _, corpus, rate = found.groups()
    return f"{int(runs):,} runs, {int(rate):,} a second, {edges} edges, corpus {corpus}"


@dataclass(frozen=True)
class Run:
    """A run of a target."""

    target: Target
    binary: Path
    # The folder of the corpus, and the log.
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / f"{self.target.name}.log"

    def libfuzzer(self, arguments: list[str], name: str) -> int:
        """Runs libFuzzer and returns its status."""
        limits = [f"-timeout={TIMEOUT_S}", f"-rss_limit_mb={RSS_LIMIT_MB}"]
        arguments = arguments + limits
        if any(" " in argument for argument in arguments):
            raise Stop("libFuzzer splits its arguments at spaces: no folder name may contain one")
        # The inputs go through a file, which is faster in memory.
        memory = Path("/dev/shm")
        scratch = tempfile.mkdtemp(prefix="coalesce-", dir=memory if memory.is_dir() else None)
        test = self.target.test
        env = {
            **os.environ,
            "BOLERO_TEST_NAME": test,
            "BOLERO_LIBTEST_HARNESS": "1",
            "BOLERO_LIBFUZZER_ARGS": " ".join(arguments),
            "TMPDIR": scratch,
        }
        command = [str(self.binary), test, "--exact", "--nocapture", "--quiet"]
        command += ["--test-threads", "1"]
        try:
            with (
                open(self.log, "ab") as out,
                subprocess.Popen(
                    command, cwd=CHECKOUT, env=env, stdout=out, stderr=subprocess.STDOUT
                ) as process,
            ):
                try:
                    return watch(process, self.log, name)
                except KeyboardInterrupt:
                    # It exits on this signal and prints a summary.
                    process.send_signal(signal.SIGINT)
                    process.wait()
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def look(self, seconds: int) -> list[Path]:
        """Runs until the first input that fails, and returns the inputs."""
        target = self.target
        corpus = self.folder / "corpus" / target.name
        crashes = target.folder()
        self.folder.mkdir(parents=True, exist_ok=True)
        corpus.mkdir(parents=True, exist_ok=True)
        crashes.mkdir(parents=True, exist_ok=True)
        before = set(crashes.iterdir())
        self.log.write_bytes(b"")
        ends = time.monotonic() + seconds
        try:
            while (left := int(ends - time.monotonic())) > 0:
                status = self.libfuzzer(
                    [
                        str(corpus),
                        str(crashes),
                        str(CHECKOUT / target.package / "tests" / target.examples),
                        f"-artifact_prefix={crashes}/",
                        f"-max_total_time={left}",
                        f"-max_len={target.max_len}",
                        f"-dict={HERE / 'words' / target.words}.dict",
                        "-print_final_stats=1",
                        "-reload=0",
                    ],
                    target.name,
                )
                told_slow = ("timeout-", "slow-unit-")
                slow = {crash for crash in crashes.iterdir() if crash.name.startswith(told_slow)}
                for crash in slow - before:
                    # A busy or suspended machine can make any input slow once.
                    if self.libfuzzer([str(crash)], crash.name) == 0:
                        crash.unlink()
                new = sorted(set(crashes.iterdir()) - before)
                if status == 0 or new:
                    return new
                if not slow:
                    raise Stop(f"{target.name} ended with status {status}: see {self.log}")
            return []
        finally:
            # Only failures stay in the checkout.
            for folder in [crashes, crashes.parent, crashes.parent.parent]:
                if not any(folder.iterdir()):
                    folder.rmdir()


def fuzz(run: Run, seconds: int) -> bool:
    """Runs a target and returns whether it passed."""
    target = run.target
    print(f"{target.name}: {seconds} s; {run.log}", flush=True)
    before = processor_time()
    new = run.look(seconds)
    used = processor_time() - before
    print(f"{target.name}: {last_pulse(run.log)}; {used:.0f} s of processor time", flush=True)
    for crash in new:
        print(f"{target.name} FAILED on {crash.relative_to(CHECKOUT)}, which was kept;")
        print(f"  cargo test -p {PACKAGES[target.package]} --test fuzz {target.test}")
    return not new


def processor_time() -> float:
    """Processor seconds of the finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def last_pulse(log: Path) -> str:
    with open(log, "rb") as file:
        file.seek(max(0, log.stat().st_size - 20_000))
        lines = file.read().decode(errors="replace").splitlines()
    return next((said for line in reversed(lines) if (said := pulse(line))), "nothing yet")


def watch(process: subprocess.Popen, log: Path, name: str) -> int:
    """Prints the progress: each minute, or continuously on a terminal."""
    told = time.monotonic()
    while True:
        try:
            status = process.wait(timeout=1)
            break
        except subprocess.TimeoutExpired:
            pass
        if sys.stdout.isatty():
            print(f"\r\x1b[K{name}: {last_pulse(log)}", end="", flush=True)
        elif time.monotonic() - told >= 60:
            told = time.monotonic()
            print(f"{name}: {last_pulse(log)}", flush=True)
    if sys.stdout.isatty():
        print("\r\x1b[K", end="")
    return status


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    by_name = {target.name: target for target in TARGETS}
    if arguments.list:
        print("\n".join(by_name))
        return 0
    unknown = [name for name in arguments.targets if name not in by_name]
    if unknown:
        raise Stop(f"no target {', '.join(unknown)}: {', '.join(by_name)}")
    targets = [by_name[name] for name in arguments.targets or by_name]
    folder = build_folder()
    binaries = built({target.package for target in targets}, folder)
    runs = [Run(target, binaries[target.package], folder) for target in targets]
    survived = [fuzz(run, arguments.seconds) for run in runs]
    return 0 if all(survived) else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except Stop as stop:
        sys.exit(f"fuzz.py: {stop}")
