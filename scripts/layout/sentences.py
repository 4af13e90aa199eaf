#!/usr/bin/env python3
"""Prints sentences picked at random from the documentation, comments and messages, to review.

    sentences.py             ten sentences
    sentences.py 30 --seed 7

A sentence comes from a Markdown page, or from a doc comment, a comment or a string of a Rust file.
The seed is printed, so that a selection can be repeated.
"""

import argparse
import random
import re
import subprocess
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
WORDS = 5


def paragraphs(file: Path) -> list[str]:
    """The prose of a file: comments and strings of Rust, paragraphs of Markdown."""
    text = file.read_text()
    if file.suffix == ".rs":
        comments = re.findall(r"(?:^ *//[/!]? ?.*\n)+", text, re.MULTILINE)
        prose = [re.sub(r"^ *//[/!]? ?", "", comment, flags=re.MULTILINE) for comment in comments]
        prose = [re.sub(r"```.*?```", "", comment, flags=re.DOTALL) for comment in prose]
        code = re.sub(r"^ *//.*\n", "", text, flags=re.MULTILINE)
        prose += re.findall(r'"((?:[^"\\\n]|\\.)*)"', code)
    else:
        prose = [re.sub(r"```.*?```|^(?:\||    |<).*\n", "", text, flags=re.DOTALL | re.MULTILINE)]
    return [paragraph for block in prose for paragraph in re.split(r"\n\s*\n", block)]


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph that are long enough to judge."""
    parts = re.split(r"(?<=[.:])\s+(?=[A-Z`*])", " ".join(paragraph.split()))
    return [part for part in parts if len(re.findall(r"[a-z]{2,}", part)) >= WORDS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    args = parser.parse_args()
    command = ["git", "-C", str(CHECKOUT), "ls-files", "*.rs", "*.md"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    found = [
        (name, sentence)
        for name in names
        for paragraph in paragraphs(CHECKOUT / name)
        for sentence in sentences(paragraph)
    ]
    print(f"seed {args.seed}: {args.count} of {len(found)} sentences")
    for name, sentence in random.Random(args.seed).sample(found, min(args.count, len(found))):
        print(f"- {sentence}\n  ({name})")


if __name__ == "__main__":
    main()
