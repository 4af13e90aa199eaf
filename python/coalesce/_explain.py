"""explain(): what the text of an out-of-memory error proves."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple, Union

from . import _program
from ._program import CoalesceError


@dataclass(frozen=True)
class Explanation:
    """What the figures in a text prove. A recording tells more."""

    verdict: str
    """The most important sentence."""
    situation: Optional[str]
    """Why the first request in the text failed, such as `fragmentation`, `own_limit` or `too_much`;
    None if the text reports no failed request."""
    sentences: Tuple[str, ...]
    """What is proved, the most important sentence first."""
    command: Optional[str]
    """The shell command that may help; None if the figures indicate none."""
    text: str = field(repr=False)
    """What `coalesce advise` prints."""
    json: Dict[str, Any] = field(repr=False, compare=False)
    """What `coalesce advise --json` prints; `coalesce schema explanation` describes it."""

    def __str__(self) -> str:
        return self.text


def explain(what: Union[BaseException, str]) -> Explanation:
    """Says what the text of an out-of-memory error proves.

    what: the error, or any text with it, such as the end of a log, torch.cuda.memory_summary() or
        the output of nvidia-smi.

    Raises CoalesceError if the text has no memory figures.
    """
    text = f"{type(what).__name__}: {what}" if isinstance(what, BaseException) else what
    with tempfile.TemporaryDirectory(prefix="coalesce-") as folder:
        path = Path(folder, "text")
        path.write_text(text, encoding="utf-8", errors="replace")
        output = _program.run("advise", [path], {})
    found = output.json
    parts = [*found["failures"], *found["states"]]
    sentences = [sentence for part in parts for sentence in part["sentences"]] + found["remarks"]
    return Explanation(
        verdict=sentences[0],
        situation=found["failures"][0]["situation"] if found["failures"] else None,
        sentences=tuple(sentences),
        command=found["command"],
        text=output.text,
        json=found,
    )


def at_death(error: BaseException) -> List[str]:
    """The most important sentence on an error, nothing if it has no figures or the program is not
    installed: a training dies of its own error, not of ours."""
    try:
        return [explain(error).verdict]
    except (CoalesceError, OSError):
        return []
