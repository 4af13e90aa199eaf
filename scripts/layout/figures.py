#!/usr/bin/env python3
"""Checks that figures in the prose of pages of results are from the record, or name their source.

A figure is a number with a unit, a number of thousands, or a number of some (`9 of 80`).
`coalesce report --splice` makes those between marks (benches/src/report/figures.rs). A comment
names the others and their source, in the same paragraph or item, or in a paragraph of its own for
the whole page:

    A page costs 24 µs. <!-- not spliced: 24 µs (an H200, GPU.md) -->

Tables and code are left out.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [f"results/{name}.md" for name in ("FINDINGS", "BIAS", "WASTE", "METHODOLOGY")]
PAGES += ["allocator/QUILT.md", "allocator/USING_QUILT.md"]

NUMBER = r"\d[\d,]*(?:\.\d+)?"
WORDS = (
    "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fourteen|fifteen"
    "|sixteen|seventeen|eighteen|nineteen|twenty"
)
FIGURE = re.compile(
    rf"{NUMBER} ?(?:%|(?:points?|[KMGT]iB|[nµm]?s|times)\b)|× ?{NUMBER}"
    rf"|\b(?:{NUMBER}|{WORDS}|none|half) of (?:the )?(?:{NUMBER}|{WORDS})\b|\b\d+(?:,\d\d\d)+",
    re.IGNORECASE,
)
LEFT_OUT = re.compile(
    r"^```.*?^```|^ *\|[^\n]*|<!-- = .*?<!-- = -->|<!-- (?!not spliced: )[^>]*-->"
    r"|`[^`]*`|\]\([^)]*\)",
    re.MULTILINE | re.DOTALL,
)
COMMENT = re.compile(r"<!-- not spliced: (.*?\(.*\)) -->", re.DOTALL)


def figures(text):
    return set(FIGURE.findall(" ".join(text.split())))


def complaints(page):
    text = LEFT_OUT.sub("…", page)
    blocks = re.split(r"\n\s*\n|\n(?= *(?:[-*]|\d+\.) )", text)
    named = [figures(" ".join(COMMENT.findall(block))) for block in blocks]
    prose = [COMMENT.sub("", block) for block in blocks]
    of_page = set().union(*(names for names, rest in zip(named, prose) if not rest.strip()))
    for names, rest in zip(named, prose):
        found = figures(rest)
        start = " ".join(rest.split())[:90]
        for figure in sorted(found - names - of_page):
            yield f"'{figure}' is neither spliced nor named in a comment: {start}"
        if rest.strip():
            for figure in sorted(names - found):
                yield f"a comment names '{figure}', which its paragraph does not have"
    for figure in sorted(of_page - figures(" ".join(prose))):
        yield f"a comment names '{figure}', which the page does not have"


def main():
    all_complaints = [
        f"{page}: {complaint}"
        for page in PAGES
        for complaint in complaints((ROOT / page).read_text())
    ]
    print("\n".join(all_complaints) or "figures: each is spliced or has a source")
    sys.exit(bool(all_complaints))


if __name__ == "__main__":
    main()
