"""Does at lines of a program what a schedule says, without a change of the program.

A schedule is a file that `coalesce advise RECORDING --json=FILE` writes, if it found one. It names
lines by file, function and number. Python tells when they are executed: through sys.monitoring from
3.12 on, which costs nothing elsewhere in the program, and through sys.settrace before, which makes
each call slower.

Something is done before a statement or after it: when the same function goes on with another one,
or ends.
"""

import ast
import dis
import json
import linecache
import os
import sys
import threading


def read(path):
    """Returns the settings to start with and the remedies of a file.

    Raises OSError if it cannot be read, ValueError if it has no schedule.
    """
    with open(path, encoding="utf-8") as file:
        advice = json.load(file)
    schedule = advice.get("in_time") if isinstance(advice, dict) else None
    if schedule is None:
        raise ValueError(f"{path} has no schedule: `coalesce advise` found none that is worth it")
    without = [remedy["phase"] for remedy in schedule["remedies"] if remedy["at"] is None]
    if without:
        raise ValueError(
            f"{path}: the recording has no stacks, so that no line is known for {without[0]}"
        )
    return schedule["conf"], schedule["remedies"]


class Follower:
    """Follows the lines of a program. `perform(index, is_begin)` is called before and after a
    statement, with the number of its remedy, at the times that the remedy names.
    """

    def __init__(self, remedies, perform):
        self._remedies = remedies
        self._perform = perform
        self._of_code = {}
        self._counts = [0] * len(remedies)
        self._inside = threading.local()

    def start(self):
        """Follows all code from here on, also the functions that are running."""
        if hasattr(sys, "monitoring"):
            self._monitor()
        else:
            self._trace()

    def statements(self, code):
        """Returns the statements in a code object at which something is to be done: (index, first
        line, last line).
        """
        found = self._of_code.get(code)
        if found is None:
            name = os.path.basename(code.co_filename)
            lines = None
            found = []
            for index, remedy in enumerate(self._remedies):
                at = remedy["at"]
                file = os.path.basename(at["file"].replace("\\", "/"))
                if (name, code.co_name) != (file, at["function"]):
                    continue
                if lines is None:
                    lines = {line for _, line in dis.findlinestarts(code)}
                if at["line"] in lines:
                    found.append((index, *_statement(code.co_filename, at["line"])))
            self._of_code[code] = found
        return found

    def line(self, code, number):
        """A line of a function is about to be executed; None if the function ends."""
        inside = vars(self._inside).setdefault("statements", set())
        for index, first, last in self.statements(code):
            is_in = number is not None and first <= number <= last
            if is_in and index not in inside:
                inside.add(index)
                self._counts[index] += 1
                if self._is_wanted(index):
                    self._perform(index, True)
            elif not is_in and index in inside:
                inside.discard(index)
                if self._is_wanted(index):
                    self._perform(index, False)

    def _is_wanted(self, index):
        every = self._remedies[index].get("every")
        count = self._counts[index]
        return count == 1 if every is None else count % every == 0

    def _monitor(self):
        monitoring = sys.monitoring
        events = monitoring.events
        free = (tool for tool in (4, 3) if monitoring.get_tool(tool) is None)
        tool = next(free, None)
        if tool is None:
            raise RuntimeError(
                "other tools use all of sys.monitoring, so that no schedule can be followed"
            )
        monitoring.use_tool_id(tool, "coalesce_torch")
        local = events.LINE | events.PY_RETURN

        def begin(code, offset):
            if self.statements(code):
                monitoring.set_local_events(tool, code, local)
            return monitoring.DISABLE

        def line(code, number):
            self.line(code, number)

        def end(code, *_):
            if self._of_code.get(code):
                self.line(code, None)

        monitoring.register_callback(tool, events.PY_START, begin)
        monitoring.register_callback(tool, events.LINE, line)
        monitoring.register_callback(tool, events.PY_RETURN, end)
        monitoring.register_callback(tool, events.PY_UNWIND, end)
        monitoring.set_events(tool, events.PY_START | events.PY_UNWIND)
        for frame in _running():
            begin(frame.f_code, 0)

    def _trace(self):
        def local(frame, event, _):
            if event in ("line", "return"):
                self.line(frame.f_code, frame.f_lineno if event == "line" else None)
            return local

        def call(frame, event, argument):
            return local if self.statements(frame.f_code) else None

        threading.settrace(call)
        sys.settrace(call)
        for frame in _running():
            if self.statements(frame.f_code):
                frame.f_trace = local


def _running():
    """The frames of the program that are being executed in this thread."""
    frame = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _statement(file, line):
    """Returns the first and the last line of the statement that a line belongs to; of a compound
    one, those before its body.
    """
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return line, line
    found = (line, line)
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        last = body[0].lineno - 1 if body else node.end_lineno
        if node.lineno <= line <= last:
            found = (node.lineno, last)
    return found


def configured():
    """Returns what read returns for the schedule that COALESCE_TORCH_ALLOC names; None if it names
    none.
    """
    parts = os.environ.get("COALESCE_TORCH_ALLOC", "").split(";")
    pairs = dict(part.strip().partition("=")[::2] for part in parts)
    path = pairs.get("schedule")
    return None if path is None else read(path.strip())


def follow(conf, remedies):
    """Follows a schedule from here on.

    Raises RuntimeError if Python offers no way to follow lines.
    """
    if conf:
        _set(conf)
    opened = {}

    def perform(index, is_begin):
        import torch

        remedy = remedies[index]
        act = remedy["act"]
        if act == "prime" and is_begin:
            torch.empty(remedy["bytes"], dtype=torch.uint8, device="cuda")
        elif act == "empty_cache" and not is_begin:
            torch.cuda.empty_cache()
        elif act == "settings" and is_begin:
            _set(remedy["conf"])
        elif act == "settings" and remedy["then"] is not None:
            _set(remedy["then"])
        elif act == "pool" and is_begin:
            if index not in opened:
                arguments = {"no_split": True} if remedy["no_split"] else {}
                opened[index] = [torch.cuda.MemPool(**arguments), None]
            opened[index][1] = torch.cuda.use_mem_pool(opened[index][0])
            opened[index][1].__enter__()
        elif act == "pool":
            opened[index][1].__exit__(None, None, None)

    Follower(remedies, perform).start()


def _set(conf):
    import torch

    change = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    (change or torch.cuda.memory._set_allocator_settings)(conf)
