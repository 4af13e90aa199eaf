"""The pytest plugin where no PyTorch can use a GPU. test_gpu_memory.py has the rest."""

import json
import sys

import pytest
from coalesce import compare_tests
from coalesce._tests import _baseline, _holders, _limits

pytest_plugins = "pytester"

MIB = 1 << 20


@pytest.fixture(autouse=True)
def without_torch(monkeypatch):
    # As an import of a package that is not installed.
    monkeypatch.setitem(sys.modules, "torch", None)


TEST = """
import pytest

@pytest.mark.limit_gpu_memory("1 GiB")
def test_limited():
    pass

def test_other():
    pass
"""
CPU_TORCH = "import types\ncuda = types.SimpleNamespace(is_available=lambda: False)"
CPU_VERSION = "__version__, cuda, hip = '2.11.0+cpu', None, None"


def run(pytester, *arguments):
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-rs", *arguments)


def test_markers_do_nothing_without_an_option(pytester):
    pytester.makepyfile(TEST)
    result = run(pytester, "--strict-markers")
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("*GPU memory*")


def test_without_torch_the_limited_tests_are_skipped(pytester, monkeypatch):
    pytester.makepyfile(TEST)
    pytester.makepyfile(sitecustomize="import sys; sys.modules['torch'] = None")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
    for more in ([], ["-n", "2"]):
        result = run(pytester, "--gpu-memory", *more)
        result.assert_outcomes(passed=1, skipped=1)
        result.stdout.fnmatch_lines(["not measured: PyTorch is not installed"])


def test_a_torch_for_the_cpu_is_named(pytester):
    pytester.mkpydir("torch").joinpath("version.py").write_text(CPU_VERSION)
    pytester.path.joinpath("torch", "__init__.py").write_text(CPU_TORCH)
    pytester.makepyfile("import torch\n" + TEST)
    result = run(pytester, "--gpu-memory")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["not measured: PyTorch 2.11.0+cpu is built for the CPU alone; *"])
    result = run(pytester, "--gpu-memory-simulate")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--gpu-memory-simulate: PyTorch 2.11.0+cpu is built for the CPU *"]
    )


def test_a_machine_without_the_simulated_gpu_is_named(pytester, monkeypatch):
    monkeypatch.setenv("COALESCE_STANDINS", str(pytester.path))
    pytester.mkpydir("torch").joinpath("version.py").write_text("__version__ = '2.11.0'")
    pytester.makepyfile(TEST)
    result = run(pytester, "--gpu-memory")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["not measured: the simulated GPU is not installed; *"])


def test_what_is_typed_wrongly_is_named(pytester):
    pytester.makepyfile(TEST)
    pytester.path.joinpath("bad.txt").write_text("# a comment\n2.11 h100 12 test_a\n")
    for arguments, error in {
        ("--gpu-memory-update",): "*needs --gpu-memory-baseline FILE",
        ("--gpu-memory-device=l5",): "*unknown GPU 'l5'; expected one of a10, a100, *",
        ("--gpu-memory-baseline=bad.txt",): "*bad.txt:2: expected PyTorch, device, requested, *",
    }.items():
        result = run(pytester, *arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([error])


def test_amounts():
    amounts = {"12 GiB": 12 << 30, "12g": 12 << 30, "1.5MiB": 3 * MIB // 2, "2 GB": 2 * 10**9}
    for text, expected in {**amounts, "0 B": 0, "7": 7, 9: 9}.items():
        assert _limits.parse(text) == expected
    for wrong in ("12 TiBs", "-1", "", "1.2.3", -1, True, None, 1.5):
        with pytest.raises(ValueError, match="expected an amount such as '12 GiB'"):
            _limits.parse(wrong)


def snapshot(*events):
    """The history of a device that held a block of 5 bytes, requested by a.py:1, from the start."""
    frames = [{"filename": "a.py", "line": 1, "name": "main"}]
    block = {"address": 1, "requested_size": 5, "state": "active_allocated", "frames": frames}
    live = {1: block}
    trace = []
    for action, address, size, line in events:
        frames = [{"filename": "a.py", "line": line, "name": "main"}]
        trace.append({"action": action, "addr": address, "size": size, "frames": frames})
        if action == "alloc":
            live[address] = {**block, "address": address, "requested_size": size, "frames": frames}
        elif action == "free_completed":
            del live[address]
    segment = {"device": 0, "blocks": [*live.values(), {**block, "state": "inactive"}]}
    return {"segments": [segment], "device_traces": [trace]}


def test_holders_at_the_peak_include_what_is_older():
    frees = [("free_requested", 2, 7, 9), ("free_completed", 2, 7, 9)]
    found = snapshot(("alloc", 2, 7, 3), *frees, ("alloc", 2, 6, 4), ("alloc", 3, 2, 4))
    lines = {it.place: (it.requested_bytes, it.blocks) for it in _holders.at_peak(found)}
    assert lines == {"a.py:4": (8, 2), "a.py:1": (5, 1)}
    assert [it.place for it in _holders.left(found)] == ["a.py:4"]
    # A block that was freed within the history: where it was requested is forgotten.
    found = snapshot(("free_completed", 1, 5, 2), ("alloc", 2, 1, 3))
    assert [it.place for it in _holders.at_peak(found)] == ["(requested before)"]


def entry(requested, *holders):
    peaks = {"peak_requested_bytes": requested, "peak_reserved_bytes": 4 * MIB}
    return {**peaks, "outcome": "passed", "is_simulated": True, "holders": list(holders)}


def report(**tests):
    return {"format": 1, "torch": "2.11.0+cu130", "device": "h100", "tests": tests}


BEFORE = entry(2 * MIB, ["m.py:3", "forward", "x = a(x)", 2 * MIB, 2])
# The line moved, and a new one holds more.
AFTER = entry(
    3 * MIB,
    ["m.py:5", "forward", "x = a(x)", 2 * MIB, 2],
    ["m.py:6", "forward", "self.kept = x", MIB, 1],
)


def test_a_baseline_has_one_line_for_each_test_and_accepts_it(tmp_path):
    path = tmp_path / "memory.txt"
    _baseline.Baseline(path).update(
        report(b=AFTER, a=BEFORE, failed={**AFTER, "outcome": "failed"})
    )
    rows = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert rows == ["2.11 h100 2,097,152 4,194,304 a", "2.11 h100 3,145,728 4,194,304 b"]
    baseline = _baseline.Baseline(path)
    here = _baseline.Conditions("2.11", "h100")
    assert baseline.accepts("a", here, BEFORE)
    assert baseline.accepts("new", here, AFTER)
    assert baseline.accepts("a", here._replace(torch="2.12"), AFTER)
    assert not baseline.accepts("a", here, AFTER)
    said = baseline.growth("a", here, AFTER)
    assert "requested 3.00 MiB at its peak, +1.00 MiB (+1,048,576 bytes) above" in said
    grown = "+1.00 MiB (+1,048,576 bytes)  m.py:6 in forward: self.kept = x (0 → 1 block)"
    assert said.splitlines()[-1] == grown
    # On a real GPU, libraries choose workspaces by what they measure.
    more = {**BEFORE, "peak_requested_bytes": 2 * MIB + 1}
    assert not baseline.accepts("a", here, more)
    assert baseline.accepts("a", here, {**more, "is_simulated": False})
    # Without the report beside the file, the largest holders are said.
    baseline.report_path.unlink()
    *_, unknown, _, largest, _ = baseline.growth("a", here, AFTER).splitlines()
    assert unknown == "What grew is unknown, as memory.txt.json does not have the test."
    assert largest == "    2.00 MiB  m.py:5 in forward: x = a(x) (2 blocks)"


def test_the_table_for_a_pull_request(tmp_path, capsys):
    hostile = "test_x[`@all` | <img>\n]"
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    _baseline.save(paths[0], report(test_a=BEFORE, test_b=AFTER, test_old=AFTER))
    _baseline.save(paths[1], report(test_a=AFTER, test_b=AFTER, **{hostile: AFTER}))
    compare_tests.main([str(path) for path in paths])
    *_, changed, new = lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "Tests: 1 need more, 1 are equal, 1 are new, 1 are gone."
    assert changed.startswith("| `test_a` | 2.00 MiB (4.00 MiB reserved) | 3.00 MiB (4.00 MiB ")
    assert changed.endswith("m.py:6 in forward: self.kept = x (0 → 1 block)` |")
    assert new.startswith("| `test_x['@all' ¦ <img>\\u{a}]` | new | 3.00 MiB ")
    paths[1].write_text(json.dumps({"format": 1, "tests": {"test_a": {}}}))
    with pytest.raises(SystemExit, match="coalesce: one of the files has an entry of another form"):
        compare_tests.main([str(path) for path in paths])
    paths[1].write_text("[]")
    with pytest.raises(SystemExit, match="after.json: expected a file of pytest --gpu-memory-json"):
        compare_tests.main([str(path) for path in paths])
