"""The pytest plugin: tests of GPU memory, also without a GPU.

    @pytest.mark.limit_gpu_memory("12 GiB")
    def test_training(): ...

It is loaded with pytest, and does nothing without one of its options:

    pytest --gpu-memory
"""

import os
import sys
from pathlib import Path
from typing import Any, Dict, Generator, List, Mapping, Optional

import pytest

from . import _death
from ._explain import at_death
from ._program import CoalesceError
from ._tests import _device, _figures, _files, _limits, _summary
from ._tests._baseline import Baseline, Conditions
from ._tests._holders import Holder
from ._tests._limits import LeakLimit, PeakLimit, WasteLimit
from ._tests._measure import Meter, Usage

MARKERS = {
    "limit_gpu_memory": "(LIMIT, *, kind='reserved'): the test fails if it takes more GPU memory "
    "at its peak; kind is reserved, allocated or requested",
    "limit_gpu_leaks": "(LIMIT): the test fails if more of what it requested lives after it",
    "limit_gpu_waste": "(PERCENT): the test fails if more of the reserved memory is not requested",
    "real_gpu": ": the test needs what a GPU computes, and is skipped on a simulated one",
}
OF_CALL = {"limit_gpu_memory": PeakLimit.of, "limit_gpu_waste": WasteLimit.of}
LIMITS = {**OF_CALL, "limit_gpu_leaks": LeakLimit.of}

# How a run ends that was not interrupted.
ENDS = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)

PLUGIN = "coalesce_gpu_memory"


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("GPU memory", "GPU memory (coalesce)")
    group.addoption(
        "--gpu-memory",
        action="store_true",
        help="measure the GPU memory of tests, check their limits and print the largest tests; "
        "on a simulated GPU if there is none",
    )
    group.addoption("--gpu-memory-json", metavar="FILE", help="also write the figures as JSON")
    group.addoption(
        "--gpu-memory-simulate",
        action="store_true",
        help="use the simulated GPU even if there is one",
    )
    group.addoption(
        "--gpu-memory-device",
        metavar="GPU",
        help="the GPU to simulate, such as h100, a100, rtx4090, l4 or t4 (default: h100)",
    )
    group.addoption(
        "--gpu-memory-baseline",
        metavar="FILE",
        help="a test fails if it requests more than this file accepts",
    )
    group.addoption(
        "--gpu-memory-update",
        action="store_true",
        help="accept what the tests need: write it to the file of --gpu-memory-baseline",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before conftest files and tests import PyTorch."""
    options = early_config.known_args_namespace
    if not any(value for name, value in vars(options).items() if name.startswith("gpu_memory")):
        return
    if options.gpu_memory_update and not options.gpu_memory_baseline:
        raise pytest.UsageError("--gpu-memory-update needs --gpu-memory-baseline FILE")
    simulated = options.gpu_memory_simulate or not _device.has_gpu()
    try:
        baseline = _opened_baseline(options)
        if options.gpu_memory_json:
            name = options.gpu_memory_json
            _files.check_place(Path(os.path.abspath(name)), f"--gpu-memory-json: {name}")
        device = _device.start(options.gpu_memory_device or "h100", simulated=simulated)
    except CoalesceError as error:
        raise pytest.UsageError(f"--gpu-memory: {error}") from None
    if options.gpu_memory_simulate and device.torch and device.lacking:
        raise pytest.UsageError(f"--gpu-memory-simulate: {device.lacking}")
    early_config.pluginmanager.register(Plugin(early_config, device, baseline), PLUGIN)


def _opened_baseline(options: Any) -> Optional[Baseline]:
    """The file of --gpu-memory-baseline. Raises CoalesceError if it is not as it should be."""
    if not options.gpu_memory_baseline:
        return None
    baseline = Baseline(options.gpu_memory_baseline)
    if options.gpu_memory_update:
        baseline.check_place()
    elif not baseline.path.exists():
        raise CoalesceError(f"{baseline.name}: no such file; --gpu-memory-update writes it")
    return baseline


def pytest_configure(config: pytest.Config) -> None:
    for name, text in MARKERS.items():
        config.addinivalue_line("markers", name + text)


class GpuMemory:
    """What the running test has used of the GPU. Amounts are in bytes."""

    def __init__(self, plugin: "Plugin") -> None:
        self._plugin = plugin

    @property
    def is_simulated(self) -> bool:
        """Whether the GPU computes nothing."""
        return self._plugin.device.is_simulated

    @property
    def peak_reserved_bytes(self) -> int:
        """What PyTorch reserved at most, since the call of the test."""
        return self._now().peaks["reserved"]

    @property
    def peak_allocated_bytes(self) -> int:
        """What its blocks in use took at most."""
        return self._now().peaks["allocated"]

    @property
    def peak_requested_bytes(self) -> int:
        """What tensors requested at most."""
        return self._now().peaks["requested"]

    def holders(self) -> List[Holder]:
        """Which lines held the requested memory at the peak so far, the largest first."""
        return self._now(snapshot=True).holders

    def snapshot(self) -> Any:
        """PyTorch's history of the test so far, for coalesce.diff() and coalesce.advise()."""
        return self._now(snapshot=True).snapshot

    def _now(self, *, snapshot: bool = False) -> Usage:
        return self._plugin.meter.now(snapshot=snapshot)


@pytest.fixture
def gpu_memory(request: pytest.FixtureRequest) -> GpuMemory:
    """The GPU memory of this test: its peaks, and who holds it."""
    plugin = request.config.pluginmanager.get_plugin(PLUGIN)
    if plugin is None:
        pytest.skip("GPU memory is measured only with --gpu-memory")
    if plugin.device.lacking:
        pytest.skip(f"GPU memory is not measured: {plugin.device.lacking}")
    return GpuMemory(plugin)


class Plugin:
    """Measures each test, in the process that runs it, and reports all of them."""

    def __init__(
        self, config: pytest.Config, device: _device.Device, baseline: Optional[Baseline]
    ) -> None:
        self.config = config
        self.device = device
        self.baseline = baseline
        self.meter = Meter()
        self.tests: Dict[str, Dict[str, Any]] = {}
        # What is reported of the test that runs now, once its call has ended.
        self._entry: Dict[str, Any] = {}
        # What is said if it fails.
        self._notes: List[str] = []
        # Whether it failed because of its memory, which no value explains.
        self._is_explained = False
        # What the summary says of files that were written.
        self._said: List[str] = []
        options = config.known_args_namespace
        self._json_path = Path(os.path.abspath(options.gpu_memory_json or ""))
        # Whether the holders of every test are wanted.
        self._is_detailed = bool(options.gpu_memory_json or baseline)

    def pytest_report_header(self) -> str:
        torch = f", PyTorch {self.device.torch}" if self.device.torch else ""
        if self.device.lacking:
            return f"GPU memory: not measured: {self.device.lacking}"
        return f"GPU memory: on a {self.device}{torch}"

    def pytest_collection_modifyitems(self, items: List[pytest.Item]) -> None:
        lacking = self.device.lacking
        for item in items:
            if self.device.is_simulated and item.get_closest_marker("real_gpu"):
                item.add_marker(pytest.mark.skip(reason="needs what a GPU computes"))
            elif lacking and any(map(item.get_closest_marker, LIMITS)):
                item.add_marker(pytest.mark.skip(reason=f"GPU memory is not measured: {lacking}"))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._entry, self._notes, self._is_explained = {}, [], False

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        limits = [one for name in OF_CALL for one in _limits_of(item, name)]
        # So that a mistake in it is told even if the test fails.
        _limits_of(item, "limit_gpu_leaks")
        self.meter.begin()
        try:
            result = yield
        except BaseException as error:
            usage = self._end(snapshot=self._is_detailed or _death.is_out_of_memory(error))
            if usage.ooms:
                self._notes.append("\n".join([*at_death(error), *_limits.largest(usage.holders)]))
            raise
        usage = self._end(snapshot=self._is_detailed)
        exceeded = [(it, text) for it in limits if (text := it.problem(usage))]
        problems = [text for _, text in exceeded]
        said = [*problems, *self._growth(item, usage)]
        if problems:
            if usage.snapshot is None:
                usage.snapshot = self.meter.final_snapshot()
            peak = next((it for it, _ in exceeded if isinstance(it, PeakLimit)), None)
            said += _limits.explained(usage, peak)
        if said:
            self._fail(said)
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, Any, Any]:
        result = yield
        # The frames of a failed test hold its tensors. pytest forgets them when the next test runs.
        for name in ("last_exc", "last_type", "last_value", "last_traceback"):
            vars(sys).pop(name, None)
        self.meter.settle()
        if self._entry.get("outcome") != "passed":
            return result
        for limit in _limits_of(item, "limit_gpu_leaks"):
            snapshot = self.meter.now(snapshot=True).snapshot
            leak = limit.problem(snapshot) if snapshot else None
            if leak:
                self._fail([leak])
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: "pytest.CallInfo[None]"
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        entry = self._entry
        if report.when == "call" and entry:
            # Reports travel from the workers of pytest-xdist with their attributes.
            entry["outcome"] = report.outcome
            setattr(report, "gpu_memory", entry)
            if entry["values"] and self.device.is_simulated and not self._is_explained:
                self._notes.append(_summary.of_values(entry["values"]))
            if report.failed:
                report.sections.extend(("GPU memory", note) for note in self._notes)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        entry = getattr(report, "gpu_memory", None)
        if entry is not None:
            self.tests[report.nodeid] = entry
        elif report.failed and report.nodeid in self.tests:
            self.tests[report.nodeid]["outcome"] = "failed"

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(self.config, "workerinput"):
            # A worker of pytest-xdist: the process that started it has the reports of all.
            return
        options = self.config.option
        is_over = session.exitstatus in ENDS and not options.collectonly
        is_complete = is_over and not (session.shouldfail or session.shouldstop)
        report = {**self._report(), "complete": is_complete}
        try:
            if options.gpu_memory_update:
                self._said += self._updated(report, session) if is_over else [self._unchanged()]
        except OSError as error:
            self._unwritten(options.gpu_memory_baseline, error, session)
        try:
            if options.gpu_memory_json:
                _figures.save(self._json_path, report)
        except OSError as error:
            self._unwritten(options.gpu_memory_json, error, session)

    def _unwritten(self, name: str, error: OSError, session: pytest.Session) -> None:
        """Fails the run, but in the summary: pytest must report its tests."""
        self._said.append(f"{name} was not written: {error.strerror or error}")
        session.exitstatus = session.exitstatus or pytest.ExitCode.TESTS_FAILED

    def _updated(self, report: Mapping[str, Any], session: pytest.Session) -> List[str]:
        """Accepts what the tests need, and says so. Raises OSError."""
        if self.baseline is None or self.device.lacking:
            return [self._unchanged()]
        accepted, *others = self.baseline.update(report)
        passed = sum(it["outcome"] == "passed" for it in self.tests.values())
        left = session.testscollected - passed
        if left > 0:
            accepted += f", but not {_limits.counted(left, 'test')} that failed or did not run"
        return [accepted, *others]

    def _unchanged(self) -> str:
        name = self.config.option.gpu_memory_baseline
        why = "nothing was measured" if self.device.lacking else "the run was interrupted"
        return f"{name} is unchanged, as {why}"

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        terminalreporter.section("GPU memory")
        for line in [*self._summary(self._report()), *self._said]:
            terminalreporter.write_line(line)

    def pytest_unconfigure(self) -> None:
        _device.stop(os.getpid())

    def _fail(self, text: List[str]) -> None:
        """Fails the test. The figure comes first, as pytest's summary cuts what is longer."""
        self._is_explained = True
        first, *others = "\n".join(text).split("\n")
        pytest.fail("\n".join([f"{first} ({self.device})", *others]), pytrace=False)

    def _growth(self, item: pytest.Item, usage: Usage) -> List[str]:
        """What is said if the test requests more than the baseline accepts."""
        if self.baseline is None or self.config.option.gpu_memory_update:
            return []
        conditions = Conditions.of({"torch": self.device.torch, **self._entry})
        if self.baseline.accepts(item.nodeid, conditions, self._entry):
            return []
        self._entry.update(usage.replayed())
        return [self.baseline.growth(item.nodeid, conditions, self._entry)]

    def _end(self, *, snapshot: bool) -> Usage:
        """Ends the measurement of a test, and keeps what is reported of it."""
        usage = self.meter.end(snapshot=snapshot)
        self._entry = {
            "device": self.device.name or str(self.device),
            "is_simulated": self.device.is_simulated,
            **{f"peak_{kind}_bytes": usage.peaks[kind] for kind in usage.peaks},
            "failed_requests": usage.ooms,
            "processes": usage.processes,
            "unreported": usage.unreported,
            "values": usage.values,
            "holders": [list(it) for it in _figures.kept(usage.holders)],
            **(usage.replayed() if self.config.option.gpu_memory_update else {}),
        }
        return usage

    def _report(self) -> Dict[str, Any]:
        devices = {it["device"] for it in self.tests.values()}
        return {
            "format": 1,
            "torch": self.device.torch,
            "device": devices.pop() if devices else self.device.name or str(self.device),
            "is_simulated": self.device.is_simulated,
            "tests": dict(sorted(self.tests.items())),
        }

    def _summary(self, report: Dict[str, Any]) -> List[str]:
        if self.device.lacking:
            return [f"not measured: {self.device.lacking}"]
        found = [_summary.used(report), *_summary.unreported(report)]
        if self.config.option.gpu_memory:
            found += _summary.table(report)
        if self.baseline is not None and not self.config.option.gpu_memory_update:
            found += _summary.compared(report, self.baseline)
        return found


def _limits_of(item: pytest.Item, name: str) -> List[Any]:
    """The closest limit of each kind, since a test may limit reserved and requested memory."""
    closest: Dict[Any, Any] = {}
    for marker in item.iter_markers(name):
        try:
            limit = LIMITS[name](*marker.args, **marker.kwargs)  # type: ignore[operator]
        except TypeError:
            wrong = f"expected {name}{MARKERS[name].partition(':')[0]}"
        except ValueError as error:
            wrong = str(error)
        else:
            closest.setdefault(getattr(limit, "kind", None), limit)
            continue
        pytest.fail(f"@pytest.mark.{name}: {wrong}", pytrace=False)
    return list(closest.values())
