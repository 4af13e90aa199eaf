"""Runs tests of one of PyTorch's test files in this process; run.py starts it.

    child.py FILE list        prints the tests of the file
    child.py FILE 5 < NAMES   runs the tests named on stdin, one a line; descriptor 5 gets a line of
                              JSON when a test starts and one when it ends

The file runs as the program itself, because some settings are made only then."""

import json
import os
import sys
import time
import types
import unittest


class Report(unittest.TestResult):
    """Writes each outcome when it is known. Stops after a failure: a capture that failed, for one,
    makes later tests of the process fail."""

    def __init__(self, write):
        super().__init__()
        self.write = write

    def startTest(self, test):
        super().startTest(test)
        self.outcome, self.text, self.began = "passed", "", time.monotonic()
        self.write({"test": name_of(test)})

    def stopTest(self, test):
        super().stopTest(test)
        seconds = round(time.monotonic() - self.began, 2)
        outcome = {"outcome": self.outcome, "text": self.text, "seconds": seconds}
        self.write({"test": name_of(test), **outcome})
        if self.outcome == "failed":
            self.stop()

    def failed(self, error):
        kind, value, _ = error
        self.outcome, self.text = "failed", f"{kind.__name__}: {value}"[:2000]

    def addError(self, test, error):
        if isinstance(test, unittest.TestCase):
            self.failed(error)
        else:  # of a whole class, which has no start and no end
            self.write({"class": str(test), "text": str(error[1])[:2000]})

    def addFailure(self, test, error):
        self.failed(error)

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.failed(error)

    def addSkip(self, test, reason):
        self.outcome, self.text = "skipped", reason

    def addExpectedFailure(self, test, error):
        self.outcome = "failed as expected"

    def addUnexpectedSuccess(self, test):
        self.outcome = "passed unexpectedly"


def name_of(test):
    return f"{type(test).__name__}.{test._testMethodName}"


def provide(name, **members):
    """Makes a module for a file that imports it, if it is not installed."""
    try:
        __import__(name)
    except ImportError:
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(members)


def provide_modules():
    class TestCase(unittest.TestCase):
        def assertExpectedInline(self, actual, expect, skip=0):
            self.assertEqual(expect.strip(), actual.strip())

    provide("expecttest", TestCase=TestCase, ACCEPT=False)
    # Of PyTorch's repository, beside its tests.
    for package in ("tools", "tools.stats"):
        provide(package, __path__=[])
    provide("tools.stats.import_test_stats", get_disabled_tests=lambda *arguments: None)


def tests_in(module):
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    pending, tests = [suite], {}
    while pending:
        item = pending.pop()
        if isinstance(item, unittest.TestSuite):
            pending.extend(item)
        else:
            tests[name_of(item)] = item
    return tests


def main():
    path, what = sys.argv[1:]
    names = [] if what == "list" else sys.stdin.read().split()
    sys.path.insert(0, os.path.dirname(path))
    provide_modules()
    sys.argv = [path]
    program = types.ModuleType("__main__")
    program.__file__ = path
    sys.modules["__main__"] = program
    from torch.testing._internal import common_utils

    # What common_utils.run_tests does before it runs the tests of the program.
    getattr(common_utils, "parse_cmd_line_args", lambda: None)()

    called = []

    def run_tests(*arguments):
        called.append(arguments)
        tests = tests_in(program)
        if what == "list":
            print(json.dumps(sorted(tests)))
            return
        to = os.fdopen(int(what), "w", buffering=1)
        report = Report(lambda entry: print(json.dumps(entry), file=to))
        suite = unittest.TestSuite(tests[name] for name in names if name in tests)
        suite.run(report)

    common_utils.run_tests = run_tests
    with open(path) as file:
        code = compile(file.read(), path, "exec")
    exec(code, vars(program))
    if not called:
        run_tests()
    sys.stdout.flush()
    # Without the interpreter's shutdown, which is not what the tests test.
    os._exit(0)


main()
