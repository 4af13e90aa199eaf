"""The answer and the settings as a few lines of HTML, which a notebook shows and keeps."""

import html
from typing import Any, Dict, List, Optional

UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def amount(count: Optional[int]) -> str:
    if count is None:
        return "not found in time"
    for name, size in UNITS:
        if count >= size:
            return f"{count / size:.2f} {name}"
    return "1 byte" if count == 1 else f"{count} bytes"


def _row(row: Dict[str, Any]) -> str:
    marks = {"current": row["is_present"], "advised": row["is_advised"]}
    cells = [
        row["conf"] or "default settings",
        amount(row["least_capacity_bytes"]),
        amount(row["peak_reserved_bytes"]),
        ", ".join(mark for mark, holds in marks.items() if holds),
    ]
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def html_of(advice: Dict[str, Any], command: Optional[str]) -> str:
    """The answer of `coalesce advise --json`, the command that applies it, and its settings."""
    first, *others = advice["answer"]["sentences"]
    lines: List[str] = [f"<p><strong>{html.escape(first)}</strong></p>"]
    lines += [f"<p>{html.escape(sentence)}</p>" for sentence in others]
    if command is not None:
        lines.append(f"<pre>{html.escape(command)}</pre>")
    titles = ("Settings", "Minimum memory", "Reserved at most", "")
    head = "".join(f"<th>{title}</th>" for title in titles)
    rows = "".join(map(_row, advice["ranking"]))
    lines.append(f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
    return "\n".join(lines)
