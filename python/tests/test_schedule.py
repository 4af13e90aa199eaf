#!/usr/bin/env python3
"""Tests that a schedule is followed at the lines of a program."""

import importlib.util
import json
import os
import runpy
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = importlib.util.spec_from_file_location(
    "schedule", os.path.join(HERE, "..", "coalesce_torch", "_schedule.py")
)
schedule = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(schedule)

PROGRAM = """\
def load(log):
    log.append("load")


def train(log):
    if len(log) > 30:
        raise ValueError
    log.append("train")


def main(log):
    load(log)
    for step in range(4):
        train(
            log,
        )
        log.append("after")


main(LOG)
"""


def remedy(line, function="main", **times):
    return {
        "act": "empty_cache",
        "at": {"file": "/a/program.py", "line": line, "function": function},
        **times,
    }


class Schedules(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.addCleanup(sys.settrace, None)

    def run_with(self, remedies, log=()):
        """What the program and its schedule do."""
        path = os.path.join(self.folder, "program.py")
        with open(path, "w") as file:
            file.write(PROGRAM)
        log = list(log)
        follower = schedule.Follower(
            remedies, lambda index, begins: log.append(("begin" if begins else "end", index))
        )
        follower.start()
        try:
            runpy.run_path(path, {"LOG": log})
        except ValueError:
            log.append("failed")
        finally:
            sys.settrace(None)
            if hasattr(sys, "monitoring"):
                sys.monitoring.set_events(4, 0)
                sys.monitoring.free_tool_id(4)
        return log

    def test_something_is_done_around_a_statement_each_time(self):
        step = [("begin", 0), "train", ("end", 0), "after"]
        self.assertEqual(self.run_with([remedy(14, every=1)]), ["load"] + 4 * step)

    def test_only_the_times_that_count(self):
        first = ["load", ("begin", 0), "train", ("end", 0), "after"] + 3 * ["train", "after"]
        self.assertEqual(self.run_with([remedy(14, first=None)]), first)
        third = (
            ["load"]
            + 2 * ["train", "after"]
            + [("begin", 0), "train", ("end", 0), "after", "train", "after"]
        )
        self.assertEqual(self.run_with([remedy(14, every=3)]), third)

    def test_other_lines_functions_and_files_do_not_count(self):
        others = [remedy(14, "train", every=1), remedy(3, every=1)]
        others.append({"at": {"file": "other.py", "line": 14, "function": "main"}, "every": 1})
        self.assertEqual(self.run_with(others), ["load"] + 4 * ["train", "after"])

    def test_a_statement_ends_with_its_function(self):
        log = self.run_with([remedy(12, every=1), remedy(14, every=1)], log=30 * ["before"])
        ends = ["load", ("end", 0), ("begin", 1), ("end", 1), "failed"]
        self.assertEqual(log, 30 * ["before"] + [("begin", 0)] + ends)

    def test_a_file_without_a_schedule_is_refused(self):
        path = os.path.join(self.folder, "advice.json")
        for advice, message in (({"format": 2}, "has no schedule"), ([], "has no schedule")):
            with open(path, "w") as file:
                json.dump(advice, file)
            with self.assertRaisesRegex(ValueError, message):
                schedule.read(path)


if __name__ == "__main__":
    unittest.main()
