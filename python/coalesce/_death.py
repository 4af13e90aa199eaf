"""What is said below the traceback of an out-of-memory error that ends the program."""

import sys
from types import TracebackType
from typing import Callable, Iterator, List, Optional, Type

from ._text import printable

# Returns what is to be said of an error, nothing if nothing is known.
Explain = Callable[[BaseException], List[str]]

# The attribute of an error that holds its lines. A reference from here to the error would keep the
# tensors in its traceback alive.
_LINES = "_coalesce_lines"

_is_hooked = False


def annotate(error: BaseException, explain: Explain) -> None:
    """Adds the lines to the traceback of an out-of-memory error, or below it if Python is older
    than 3.11. Does nothing for other errors."""
    lines = _lines_of(error, explain)
    if lines and hasattr(error, "add_note"):
        error.add_note("\n".join(lines))
        lines.clear()


def speak_at_death(explain: Explain) -> None:
    """Prints the lines if an out-of-memory error ends the process. Only the first call counts."""
    global _is_hooked
    if _is_hooked:
        return
    _is_hooked = True
    previous = sys.excepthook

    def hook(
        kind: Type[BaseException], error: BaseException, traceback: Optional[TracebackType]
    ) -> None:
        previous(kind, error, traceback)
        for line in _lines_of(error, explain):
            print(line, file=sys.stderr, flush=True)

    sys.excepthook = hook


def _lines_of(error: BaseException, explain: Explain) -> List[str]:
    """The lines that are still to be said of an error. An error is explained once."""
    lines: List[str]
    for one in _chain(error):
        if hasattr(one, _LINES):
            lines = getattr(one, _LINES)
            return lines
    cause = next(filter(is_out_of_memory, _chain(error)), None)
    if cause is None:
        return []
    lines = [f"coalesce: {printable(line)}" for line in explain(cause)]
    setattr(error, _LINES, lines)
    return lines


def _chain(error: Optional[BaseException]) -> Iterator[BaseException]:
    """An error, and those that it was raised from or while they were handled."""
    seen = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def is_out_of_memory(error: BaseException) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.cuda.OutOfMemoryError)
