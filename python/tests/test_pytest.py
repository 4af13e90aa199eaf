"""The pytest plugin where no PyTorch can use a GPU. test_gpu_memory.py has the rest."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from coalesce import _brief, compare_tests
from coalesce._tests import _baseline, _figures, _files, _holders, _limits

pytest_plugins = "pytester"

README = Path(__file__).resolve().parents[1] / "README.md"
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


def test_an_interrupted_run_is_incomplete(pytester):
    pytester.makepyfile("def test_passes(): pass")
    run(pytester, "--gpu-memory-json=out.json")
    assert json.loads(Path("out.json").read_text())["complete"] is True
    pytester.makepyfile("def test_passes(): pass\ndef test_stops(): raise KeyboardInterrupt")
    update = ("--gpu-memory-baseline=memory.txt", "--gpu-memory-update")
    result = run(pytester, "--gpu-memory-json=out.json", *update)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(["memory.txt is unchanged, as *"])
    assert not Path("memory.txt").exists()
    assert json.loads(Path("out.json").read_text())["complete"] is False


def test_what_is_typed_wrongly_is_named(pytester):
    pytester.makepyfile(TEST)
    line = "2.11 h100 5 7 test_a\n"
    for name, text in {
        "bad.txt": "# a comment\n2.11 h100 12 test_a\n",
        "twice.txt": f"{line}2.12 h100 5 7 test_a\n{line}",
        "unmerged.txt": f"{line}<<<<<<< HEAD\n{line}=======\n{line}>>>>>>> theirs\n",
        "latin.txt": f"{line}# café\n",
    }.items():
        pytester.path.joinpath(name).write_text(text, encoding="latin-1")
    pytester.path.joinpath("folder").mkdir()
    for arguments, error in {
        ("--gpu-memory-update",): "*needs --gpu-memory-baseline FILE",
        ("--gpu-memory-device=l5",): "*unknown GPU 'l5'; expected one of a10, a100, *",
        ("--gpu-memory-baseline=bad.txt",): "*bad.txt:2: expected PyTorch, device, requested, *",
        ("--gpu-memory-baseline=twice.txt",): "*twice.txt: lines 1 and 3 are both for test_a with "
        "PyTorch 2.11 on h100; remove one",
        ("--gpu-memory-baseline=unmerged.txt",): "*unmerged.txt:2: git left a conflict here; *",
        ("--gpu-memory-baseline=latin.txt",): "*: latin.txt: expected a text in UTF-8",
        ("--gpu-memory-baseline=folder",): "*: folder: expected a file",
        ("--gpu-memory-baseline=/dev/full",): "*: /dev/full: expected a file",
        ("--gpu-memory-baseline=./no.txt",): "*: ./no.txt: no such file; --gpu-memory-update "
        "writes it",
        ("--gpu-memory-baseline=no/memory.txt", "--gpu-memory-update"): "*: no/memory.txt: there "
        "is no folder */no",
        ("--gpu-memory-json=folder",): "*--gpu-memory-json: folder: is a folder; expected a file",
        ("--gpu-memory-json=no/memory.json",): "*no/memory.json: there is no folder */no",
    }.items():
        result = run(pytester, *arguments)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([error])


def test_links_pipes_and_devices_stay(tmp_path):
    file, link, pipe = (tmp_path / name for name in ("file", "link", "pipe"))
    link.symlink_to("file")
    _files.write(link, "first")
    _files.write(link, "second")
    assert (link.is_symlink(), file.read_text()) == (True, "second")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    _files.write(pipe, "written")
    assert os.read(reader, 100) == b"written"
    os.close(reader)
    assert pipe.is_fifo()
    with pytest.raises(OSError, match="No space left"):
        _files.write(Path("/dev/full"), "never")
    assert Path("/dev/full").is_char_device()


def test_a_file_that_cannot_be_written_fails_the_run_and_hides_no_test(pytester):
    pytester.makepyfile("def test_passes(): pass")
    for more in ([], ["-n", "1"]):
        result = run(pytester, "--gpu-memory-json=/dev/full", *more)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.assert_outcomes(passed=1)
        result.stdout.fnmatch_lines(["/dev/full was not written: No space left on device"])
        result.stdout.no_fnmatch_line("*Traceback*")


def test_amounts():
    assert [_brief.amount(it) for it in (0, 1, 1023, MIB)] == [
        "0 bytes",
        "1 byte",
        "1023 bytes",
        "1.00 MiB",
    ]
    amounts = {"12 GiB": 12 << 30, "12g": 12 << 30, "1.5MiB": 3 * MIB // 2, "2 GB": 2 * 10**9}
    for text, expected in {**amounts, "0 B": 0, "7": 7, 9: 9}.items():
        assert _limits.parse(text) == expected
    for wrong in ("12 TiBs", "-1", "", "1.2.3", -1, True, None, 1.5):
        with pytest.raises(ValueError, match="expected an amount such as '12 GiB'"):
            _limits.parse(wrong)


def test_waste_is_a_part():
    for percent in (0, 12.5, 100):
        assert _limits.WasteLimit.of(percent).percent == percent
    for wrong in (-1, 100.5, float("nan")):
        with pytest.raises(ValueError, match="expected a number from 0 to 100, in percent"):
            _limits.WasteLimit.of(wrong)


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
    unused = {**AFTER, "peak_requested_bytes": 0, "peak_reserved_bytes": 0}
    failed = {**AFTER, "outcome": "failed"}
    said = _baseline.Baseline(path).update(report(b=AFTER, a=BEFORE, failed=failed, unused=unused))
    assert said == [f"{path} accepts what 2 tests requested"]
    rows = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    assert rows == ["2.11 h100 2,097,152 4,194,304 a", "2.11 h100 3,145,728 4,194,304 b"]
    baseline = _baseline.Baseline(path)
    here = _baseline.Conditions("2.11", "h100")
    assert baseline.accepts("a", here, BEFORE)
    assert baseline.accepts("new", here, AFTER)
    assert baseline.accepts("a", here._replace(torch="2.12"), AFTER)
    assert not baseline.accepts("a", here, AFTER)
    said = baseline.growth("a", here, AFTER)
    assert said.startswith(
        f"+1.00 MiB (+1,048,576 bytes) above what {path} accepts: 3.00 MiB requested"
    )
    grown = "+1.00 MiB (+1,048,576 bytes)  m.py:6 in forward: self.kept = x (0 → 1 block)"
    assert said.splitlines()[-1] == grown
    # On a real GPU, libraries choose workspaces by what they measure.
    more = {**BEFORE, "peak_requested_bytes": 2 * MIB + 1}
    assert not baseline.accepts("a", here, more)
    assert baseline.growth("a", here, more).startswith("+1 byte above")
    assert baseline.accepts("a", here, {**more, "is_simulated": False})
    baseline.report_path.write_text("{")
    damaged = baseline.growth("a", here, AFTER)
    assert _baseline.Baseline(path).update(report(b=AFTER)) == [
        f"{path} accepts what 1 test requested",
        f"{path}.json was damaged, and is written anew",
    ]
    assert f"What grew is unknown, as {path}.json is damaged.\nLargest holders" in damaged
    # Without the report beside the file, the largest holders are said.
    baseline.report_path.unlink()
    *_, unknown, _, largest, _ = baseline.growth("a", here, AFTER).splitlines()
    assert unknown == f"What grew is unknown, as {path}.json does not have the test."
    assert largest == "    2.00 MiB  m.py:5 in forward: x = a(x) (2 blocks)"


def test_the_table_for_a_pull_request(tmp_path, capsys):
    hostile = "test_x[`@all` | <img>\n]"
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    _figures.save(paths[0], report(test_a=BEFORE, test_b=AFTER, test_old=AFTER))
    _figures.save(paths[1], report(test_a=AFTER, test_b=AFTER, **{hostile: AFTER}))
    compare_tests.main([str(path) for path in paths])
    *_, changed, new = lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "Tests: 1 needs more, 1 is equal, 1 is new, 1 is gone."
    assert changed.startswith("| `test_a` | 2.00 MiB (4.00 MiB reserved) | 3.00 MiB (4.00 MiB ")
    assert changed.endswith("m.py:6 in forward: self.kept = x (0 → 1 block)` |")
    assert new.startswith("| `test_x['@all' ¦ <img>\\u{a}]` | new | 3.00 MiB ")


def test_the_file_that_is_wrong_is_named(tmp_path):
    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    _figures.save(paths[0], report(test_a=BEFORE))
    no_report = "after.json: expected a file of pytest --gpu-memory-json"
    for wrong in ("[]", "[" * 100_000, "\x00", json.dumps({"format": 1, "tests": {}})):
        paths[1].write_text(wrong)
        with pytest.raises(SystemExit, match=no_report):
            compare_tests.main([str(path) for path in paths])
    for wrong in (
        {},
        [],
        {**BEFORE, "peak_requested_bytes": "2"},
        {**BEFORE, "peak_requested_bytes": 10**400},
        {**BEFORE, "holders": [["m.py:3"]]},
        {**BEFORE, "categories": 3},
    ):
        _figures.save(paths[1], report(test_a=wrong))
        with pytest.raises(SystemExit, match="after.json: the entry of 'test_a' has another form"):
            compare_tests.main([str(path) for path in paths])
    paths[1].unlink()
    with pytest.raises(SystemExit, match="after.json: no such file"):
        compare_tests.main([str(path) for path in paths])


@pytest.mark.skipif(not shutil.which("cc"), reason="no C compiler is installed")
def test_the_recipe_of_the_readme_for_other_languages(tmp_path, monkeypatch):
    text = README.read_text(encoding="utf-8")
    program, commands = re.findall("```c\n(.*?)```.*?```sh\n(.*?)```", text, re.DOTALL)[0]
    (tmp_path / "peak.c").write_text(program)
    monkeypatch.setenv("PATH", os.path.dirname(sys.executable), prepend=os.pathsep)
    done = subprocess.run(["sh", "-c", commands], cwd=tmp_path, stdout=subprocess.PIPE)
    printed = done.stdout.decode().strip()
    assert re.fullmatch(r'"reserved_bytes\.all\.peak":\d+', printed)
    assert f"this prints `{printed}`" in text
