"""The pytest plugin with a PyTorch for CUDA, on the simulated GPU.

pip install WHEEL torch pytest pytest-xdist && pytest python/tests/test_gpu_memory.py
"""

import importlib.metadata
import json
import re
import unittest
from pathlib import Path

import pytest
from coalesce import testing

pytest_plugins = "pytester"

README = Path(__file__).resolve().parents[1] / "README.md"

TESTS = """
import multiprocessing
import os
import subprocess
import sys

import pytest
import torch

def mebibytes(n):
    return torch.empty(n << 20, dtype=torch.uint8, device="cuda")

def in_process(n):
    mebibytes(n)

def forked(n):
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    mebibytes(n)

@pytest.mark.limit_gpu_memory("100 MiB", kind="requested")
def test_small():
    mebibytes(40)

@pytest.mark.limit_gpu_memory("50 MiB")
def test_large():
    held = [mebibytes(20) for _ in range(3)]

@pytest.mark.limit_gpu_memory("42 MB")
def test_reserves():
    held = [mebibytes(1), mebibytes(40)]

@pytest.mark.limit_gpu_waste(10)
def test_wastes():
    mebibytes(2)

@pytest.mark.limit_gpu_memory("25 MiB")
class TestClass:
    @pytest.mark.parametrize("n", [20, 26])
    def test_each(self, n):
        mebibytes(n)

    @pytest.mark.limit_gpu_memory("26 MiB")
    def test_own(self):
        mebibytes(26)

@pytest.fixture(scope="class")
def shared():
    return torch.empty(30 << 20, dtype=torch.uint8, device="cuda")

class TestFixtures:
    @pytest.mark.parametrize("n", [20, 24])
    def test_their_tensors_count(self, n, shared, gpu_memory):
        mebibytes(n)
        assert gpu_memory.is_simulated
        peak = gpu_memory.peak_requested_bytes
        assert peak == gpu_memory.peak_allocated_bytes == (30 + n) << 20
        first, second = gpu_memory.holders()
        assert (first.requested_bytes, first.blocks, first.function) == (30 << 20, 1, "shared")
        assert (second.requested_bytes, second.blocks) == (n << 20, 1)
        assert gpu_memory.snapshot()["device_traces"]

def test_resets_peaks():
    mebibytes(60)
    torch.cuda.reset_peak_memory_stats()

def test_spawns():
    process = multiprocessing.get_context("spawn").Process(target=in_process, args=(70,))
    process.start()
    process.join()
    assert process.exitcode == 0

def test_runs_a_program():
    code = "import torch; torch.empty(80 << 20, dtype=torch.uint8, device='cuda')"
    subprocess.run([sys.executable, "-c", code], check=True)

def test_forks():
    forked(22)

def test_kills():
    code = "import os, torch; torch.empty(9 << 20, dtype=torch.uint8, device='cuda'); os.kill(os.getpid(), 9)"
    mebibytes(20)
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9

@pytest.mark.limit_gpu_memory("2 MiB", kind="requested")
def test_multiplies():
    torch.empty(1024, 1024, device="cuda") @ torch.empty(1024, 8, device="cuda")

def test_reads():
    ids = torch.tensor([3, 4], device="cuda")
    assert ids.sum().item() == 7
    assert torch.ones(2, device="cuda").sum().item() == 2

@pytest.mark.real_gpu
def test_computes():
    assert torch.ones(2, device="cuda").sum().item() == 2

def test_runs_out_of_memory():
    mebibytes(24)
    mebibytes(1 << 20)

@pytest.mark.limit_gpu_memory("many")
def test_typed_wrongly():
    pass

@pytest.mark.limit_gpu_memory
def test_lacks_a_limit():
    pass

@pytest.mark.limit_gpu_leaks("1 MiB", kind="requested")
def test_has_an_unknown_keyword():
    pass

@pytest.mark.limit_gpu_memory("1 MiB", kind="requested")
@pytest.mark.limit_gpu_memory("1 GiB")
def test_has_limits_of_two_kinds():
    mebibytes(2)

KEPT = []

@pytest.mark.limit_gpu_leaks("1 MiB")
def test_leaks():
    KEPT.append(mebibytes(2))
"""
# A product keeps a workspace, until 2.15 requests it anew for each.
RELEASE = tuple(map(int, importlib.metadata.version("torch").split(".")[:2]))
WORKSPACE = ["* MiB  (workspace of cuBLAS) (*)"] if RELEASE < (2, 15) else []
SAID = [
    "GPU memory: on a simulated l4, PyTorch *",
    "*ERROR at teardown of test_leaks*",
    "2.00 MiB that the test requested lives after it, above the limit of 1.00 MiB (simulated l4)",
    "* 2.00 MiB  test_memory.py:10 in mebibytes: return torch.empty(*) (1 block)",
    "*_ test_large _*",
    "60.00 MiB reserved at its peak, 10.00 MiB above the limit of 50.00 MiB (simulated l4)",
    "Reason: the program. Its tensors request 60.00 MiB, so that no allocator could stay below *",
    "Largest holders (requested, at the peak)",
    "* 60.00 MiB  test_memory.py:10 in mebibytes: return torch.empty(*) (3 blocks)",
    "*_ test_reserves _*",
    "42.00 MiB reserved at its peak, * above the limit of 40.05 MiB (simulated l4)",
    "*_ test_wastes _*",
    "90.0 % waste, above the limit of 10 %: 20.00 MiB reserved for 2.00 MiB requested (*",
    "Reason: the allocator. Of 20.00 MiB that it reserved, tensors request 2.00 MiB; beside *",
    "*_ TestClass.test_each?26? _*",
    "*_ test_multiplies _*",
    *WORKSPACE,
    "*_ test_reads _*",
    ">       assert torch.ones(2, *",
    "*- GPU memory -*",
    "The GPU is simulated and computes nothing: these lines read zeros, or *",
    "  *test_memory.py:92 (1×)",
    "*_ test_runs_out_of_memory _*",
    ">       mebibytes(1 << 20)",
    "*- GPU memory -*",
    "The request alone is larger than the device: 1.00 TiB of 22.03 GiB. *",
    "*_ test_typed_wrongly _*",
    "@pytest.mark.limit_gpu_memory: 'many': expected an amount such as '12 GiB' or '500 MB'",
    "@pytest.mark.limit_gpu_memory: expected limit_gpu_memory(LIMIT, ?, kind='reserved')",
    "@pytest.mark.limit_gpu_leaks: expected limit_gpu_leaks(LIMIT)",
    "2.00 MiB requested at its peak, 1.00 MiB above the limit of 1.00 MiB (simulated l4)",
    "19 tests used the GPU (simulated l4)",
    "test_memory.py::test_kills: processes that are not counted, as they were killed or had not *: 1",
    "    reserved   requested  test",
    "   80.00 MiB   80.00 MiB  test_memory.py::test_runs_a_program",
    "   70.00 MiB   70.00 MiB  test_memory.py::test_spawns",
    "   60.00 MiB   60.00 MiB  test_memory.py::test_large",
    "   60.00 MiB   60.00 MiB  test_memory.py::test_resets_peaks",
    "and 9 more",
    "FAILED test_memory.py::test_large - Failed: 60.00 MiB reserved at its peak, *",
]


@pytest.fixture
def run(pytester, monkeypatch):
    """Runs pytest in a process of its own, with nothing of this run."""
    for name in ("PYTHONPATH", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    return lambda *arguments: pytester.runpytest_subprocess("-p", "no:cacheprovider", *arguments)


def peaks(path):
    return {
        test: [it[f"peak_{kind}_bytes"] for kind in ("requested", "allocated", "reserved")]
        for test, it in json.loads(Path(path).read_text())["tests"].items()
    }


def test_each_test_is_measured_alone_or_in_workers(pytester, run):
    pytester.makepyfile(test_memory=TESTS)
    outcomes = dict(passed=11, failed=11, skipped=1, errors=1)
    alone = run("--gpu-memory", "--gpu-memory-json=alone.json", "--gpu-memory-device=l4")
    alone.assert_outcomes(**outcomes)
    alone.stdout.fnmatch_lines(SAID)
    workers = run("-n2", "--gpu-memory-json=workers.json", "--gpu-memory-device=l4")
    workers.assert_outcomes(**outcomes)
    assert peaks("alone.json") == peaks("workers.json")
    tests = json.loads(Path("alone.json").read_text())["tests"]
    processes = {
        test: [tests[f"test_memory.py::test_{test}"][name] for name in ("processes", "unreported")]
        for test in ("spawns", "kills", "forks")
    }
    assert processes == {"spawns": [1, 0], "kills": [1, 1], "forks": [0, 0]}


def test_a_crash_loses_the_figures_of_one_test_only(pytester, run):
    pytester.makepyfile(
        test_crash="""
        import os
        import torch

        def test_first():
            torch.zeros(5, device="cuda")

        def test_dies():
            torch.zeros(5, device="cuda")
            os.abort()

        def test_last():
            torch.zeros(5, device="cuda")
        """
    )
    run("-n1", "--gpu-memory-json=out.json").assert_outcomes(passed=2, failed=1)
    assert list(peaks("out.json")) == ["test_crash.py::test_first", "test_crash.py::test_last"]


MODEL = """
import torch

class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(1024, 1024, device="cuda")

    def forward(self, x):
        hidden = torch.relu(self.inner(x))
        return x + hidden
"""
TRAIN = """
import torch
from model import Block

def test_train():
    blocks = torch.nn.Sequential(*(Block() for _ in range(4)))
    blocks(torch.zeros(256, 1024, device="cuda")).mean().backward()
"""
KEPT = MODEL.replace("        return x", "        self.kept = hidden * 2\n        return x")


def test_growth_against_the_baseline_names_the_line(pytester, run):
    pytester.makepyfile(model=MODEL, test_train=TRAIN)
    baseline = "--gpu-memory-baseline=memory.txt"
    pytester.makepyfile(test_others="def test_fails(): assert 0\ndef test_needs_no_gpu(): pass")
    result = run(baseline, "--gpu-memory-update")
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["memory.txt accepts what 1 test requested, but not 1 test that failed or did not run"]
    )
    Path("test_others.py").write_text("def test_needs_no_gpu(): pass")
    result = run(baseline)
    result.assert_outcomes(passed=2)
    result.stdout.no_fnmatch_line("memory.txt*")
    run(baseline, "--gpu-memory-device=l4").stdout.fnmatch_lines(
        ["memory.txt has no line for PyTorch * on l4, so nothing was compared"]
    )
    Path("test_others.py").unlink()
    pytester.makepyfile(model="# A line more, so that all others move.\n" + KEPT)
    result = run(baseline)
    result.assert_outcomes(failed=1)
    grown = "+4.00 MiB (+4,194,304 bytes)"
    result.stdout.fnmatch_lines(
        [
            f"{grown} above what memory.txt accepts: * requested at its peak (simulated h100)",
            f"{grown}  model.py:12 in forward: self.kept = hidden * 2 (0 → 4 blocks)",
            f"{grown}  category *",
        ]
    )
    limit = "import pytest\npytestmark = pytest.mark.limit_gpu_memory('30 MiB')\n"
    pytester.makepyfile(test_train=limit + TRAIN)
    run(baseline).stdout.fnmatch_lines(
        [
            "*MiB reserved at its peak, * above the limit of 30.00 MiB (simulated h100)",
            f"{grown} above what memory.txt accepts: * requested at its peak",
            f"{grown}  model.py:12 in forward: *",
            "Reason: the program. *",
        ]
    )
    pytester.makepyfile(test_train=TRAIN)
    run(baseline, "--gpu-memory-update").assert_outcomes(passed=1)
    pytester.makepyfile(model=MODEL)
    result = run(baseline)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["memory.txt: 1 test needs less than accepted (PyTorch *"])


def test_values_explain_no_failure_of_memory(pytester, run):
    pytester.makepyfile(
        """
        import pytest
        import torch

        @pytest.mark.limit_gpu_memory("1 MiB")
        def test_reads():
            assert torch.ones(2, device="cuda").sum().item() == 0
        """
    )
    result = run("--gpu-memory")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["2.00 MiB reserved at its peak, 1.00 MiB above the limit of *"])
    result.stdout.no_fnmatch_line("The GPU is simulated*")


def test_a_plugin_that_imports_torch_early_is_refused(pytester, run):
    # PyTorch itself cannot be imported here without NVIDIA's packages.
    pytester.makepyfile(early="import sys, types; sys.modules['torch'] = types.ModuleType('torch')")
    result = run("-p", "early", "--gpu-memory")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*PyTorch was imported before the simulated GPU was there; *"])


def test_the_examples_of_the_readme(pytester, run):
    section = README.read_text().partition("## Tests of GPU memory")[2].partition("\n## ")[0]
    examples = re.findall(r"```python\n# (test_\w+)\.py\n(.*?)```", section, re.DOTALL)
    assert len(examples) == 4
    for name, text in examples:
        pytester.path.joinpath(f"{name}.py").write_text(text)
    result = run("--gpu-memory", "-rA")
    assert result.ret == 0
    for name, _ in examples:
        result.stdout.fnmatch_lines([f"PASSED {name}.py::*"])


testing.prepare("l4")


class UnitTest(testing.GpuMemory, unittest.TestCase):
    def test_a_block_within_its_limit_passes_and_another_is_explained(self):
        import torch

        with self.limit_gpu_memory("20 MiB"):
            torch.empty(20 << 20, dtype=torch.uint8, device="cuda")
        with self.assertRaisesRegex(
            AssertionError, r"22.00 MiB reserved at its peak, 2.00 MiB abov"
        ):
            with self.limit_gpu_memory("20 MiB"):
                torch.empty(22 << 20, dtype=torch.uint8, device="cuda")
