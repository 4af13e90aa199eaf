"""Checks that PyTorch's own tools read the snapshots that coalesce writes and find its figures in
them.

    cargo build --release
    $(scripts/conformance/setup-torch.sh | tail -n 1) scripts/conformance/snapshots/viz.py \\
        --coalesce target/release/coalesce [TRACE...]

Each trace (default: two of workloads/traces) is written as a snapshot under several allocators.
Then torch.cuda._memory_viz reads it, and the sums of the segments and the history must equal
the figures of `coalesce replay`. Ends with a line `N passed, M failed`."""

import argparse
import contextlib
import io
import json
import os
import pickle
import subprocess
import sys
import tempfile

from torch.cuda import _memory_viz as viz

ROOT = os.path.dirname(os.path.abspath(__file__)) + "/../../.."
TRACES = ["example_interleaved_free", "gpt2_small_amp_foreach"]
RUNS = [
    ("pytorch", ""),
    ("pytorch", "expandable_segments:True"),
    ("pytorch", "max_split_size_mb:64,roundup_power2_divisions:4"),
    ("rmm_pool", ""),
    ("gmlake", ""),
    ("direct", ""),
]


def add_up(snapshot):
    """The peaks of reserved and requested memory, from the history alone."""
    sign = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
    reserved = requested = 0
    peaks = [0, 0]
    live = {}
    for e in snapshot["device_traces"][0]:
        action = e["action"]
        reserved += sign.get(action, 0) * e["size"]
        if action == "alloc":
            assert e["addr"] not in live, "handed out twice"
            live[e["addr"]] = e["size"]
            requested += e["size"]
        elif action == "free_completed":
            requested -= live.pop(e["addr"])
        peaks = [max(peaks[0], reserved), max(peaks[1], requested)]
    return peaks, reserved, live


def check(coalesce, trace, policy, conf, folder):
    path = os.path.join(folder, "snapshot.pickle")
    how = ["--policy", policy, "--conf", conf]
    subprocess.run([coalesce, "convert", trace, path, *how], check=True)
    said = json.loads(subprocess.check_output([coalesce, "replay", trace, "--json", *how]))
    with open(path, "rb") as f:
        snapshot = pickle.load(f)

    (peak_reserved, peak_requested), reserved, live = add_up(snapshot)
    assert peak_reserved == said["peak_reserved_bytes"], (
        peak_reserved,
        said["peak_reserved_bytes"],
    )
    if policy == "pytorch":  # elsewhere a free counts when it is requested
        assert peak_requested == said["peak_requested_bytes"]
    segments = snapshot["segments"]
    assert reserved == sum(s["total_size"] for s in segments)
    held = {b["address"] for s in segments for b in s["blocks"] if b["state"] == "active_allocated"}
    assert held <= live.keys()

    stats = viz.segsum(snapshot)
    assert f"segments: {len(segments)}\n" in stats, stats
    assert f"total_reserved: {viz.Bytes(reserved)}\n" in stats, stats
    entries = snapshot["device_traces"][0]
    assert f"{len(entries)} entries\n" in viz.trace(snapshot)
    assert viz.trace_plot(snapshot) and viz.segment_plot(snapshot)
    lines = viz.segments(snapshot, format_flamegraph=str).splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == reserved
    assert bool(viz.memory(snapshot, format_flamegraph=str)) == bool(segments)
    with contextlib.redirect_stdout(io.StringIO()):
        assert viz.compare(segments, segments, format_flamegraph=str) == ""
    return path


def check_verbs(path):
    """The same from the command line, where the file is opened by PyTorch itself."""
    for verb in ("stats", "trace", "trace_plot", "segment_plot"):
        command = [sys.executable, "-m", "torch.cuda._memory_viz", verb, path]
        if verb.endswith("plot"):
            command += ["-o", path + ".html"]
        subprocess.run(command, check=True, capture_output=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--coalesce", required=True)
    parser.add_argument("traces", nargs="*")
    args = parser.parse_args()
    traces = args.traces or [f"{ROOT}/workloads/traces/{name}.csv.gz" for name in TRACES]
    passed = failed = 0
    for trace in traces:
        for policy, conf in RUNS:
            with tempfile.TemporaryDirectory() as folder:
                try:
                    path = check(args.coalesce, trace, policy, conf, folder)
                    if (policy, conf) == RUNS[0]:
                        check_verbs(path)
                    passed += 1
                except (AssertionError, subprocess.CalledProcessError) as error:
                    failed += 1
                    print(f"FAIL {os.path.basename(trace)} {policy} {conf}: {error!r}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
