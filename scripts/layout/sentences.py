#!/usr/bin/env python3
"""Draws sentences at random from the documentation, comments, help texts and messages, to review.

    sentences.py                         ten sentences
    sentences.py --count 20 --seed 7     the same twenty each time, while the texts are the same
    sentences.py scripts allocator/src   of these files and folders only

A sentence that needs a second reading is rewritten: subject first, one thought, no words that only
its author knows. Sentences come from Markdown pages, and from comments and strings of Rust, Python
and shell programs. Each is printed with its file and line. Without `--seed`, the seed is random.
"""

import argparse
import io
import random
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
# A shorter one is a name or a heading.
WORDS = 5

# A line of prose with its number.
Line = tuple[int, str]

FENCE = re.compile(r"^\s*(```|~~~)")
# Tables, code, HTML and pictures.
NO_PROSE = re.compile(r"^(\s*\||    \S|\s*<|\s*!\[)")
# A heading, an item of a list and an empty line end a paragraph.
BREAK = re.compile(r"^\s*(#+ |[-*] |\d+\. |$)")
END = re.compile(r"(?<=[.:?!])\s+(?=[A-Z`*\"\[])")


def paragraphs(lines: list[Line]) -> Iterator[list[Line]]:
    """The paragraphs of text in Markdown, without code and tables."""
    paragraph: list[Line] = []
    is_code = False
    for number, text in lines:
        is_fence = FENCE.match(text)
        is_code ^= bool(is_fence)
        if is_fence or is_code or NO_PROSE.match(text) or BREAK.match(text):
            yield paragraph
            paragraph = []
        if not (is_fence or is_code or NO_PROSE.match(text)):
            paragraph.append((number, re.sub(BREAK, "", text, count=1)))
    yield paragraph


def sentences(paragraph: list[Line]) -> Iterator[Line]:
    """The sentences of a paragraph, each with the line on which it begins."""
    starts, text = [], ""
    for number, line in paragraph:
        starts.append((len(text), number))
        text += line.strip() + " "
    begin = 0
    for part in END.split(text):
        begin = text.index(part, begin)
        sentence = part.strip()
        if len(re.findall(r"[a-z]{2,}", sentence)) >= WORDS:
            yield max(number for start, number in starts if start <= begin), sentence


def blocks(lines: list[Line]) -> Iterator[list[Line]]:
    """Groups of consecutive lines."""
    block: list[Line] = []
    for line in lines:
        if block and line[0] != block[-1][0] + 1:
            yield block
            block = []
        block.append(line)
    yield block


def comments(lines: list[Line], marker: str) -> Iterator[list[Line]]:
    """The comments that begin with a marker, each of which may have several lines."""
    found = [(number, re.match(rf"\s*{marker} ?(.*)", text)) for number, text in lines]
    yield from blocks([(number, match[1]) for number, match in found if match])


def of_rust(text: str, lines: list[Line]) -> Iterator[list[Line]]:
    yield from comments(lines, "//[/!]?(?!/)")
    code = re.sub(r"//.*", lambda comment: " " * len(comment[0]), text)
    for literal in re.finditer(r'"((?:[^"\\]|\\.)*)"', code, re.DOTALL):
        first = code.count("\n", 0, literal.start()) + 1
        said = re.sub(r"\\\n\s*", "\n", literal[1]).replace("\\n", "\n")
        yield [(first + at, line) for at, line in enumerate(said.split("\n"))]


def of_python(text: str) -> Iterator[list[Line]]:
    notes = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            notes.append((token.start[0], token.string.lstrip("# ")))
        elif token.type == tokenize.STRING:
            said = token.string.strip("rbf'\"").split("\n")
            yield [(token.start[0] + at, line) for at, line in enumerate(said)]
    yield from blocks(notes)


def prose(file: Path) -> Iterator[list[Line]]:
    """What a person reads in a file."""
    if file.suffix not in (".md", ".rs", ".py", ".toml", ".yml", ""):
        return
    text = file.read_text(errors="replace")
    lines = list(enumerate(text.split("\n"), 1))
    if file.suffix == ".md":
        yield lines
    elif file.suffix == ".rs":
        yield from of_rust(text, lines)
    elif file.suffix == ".py":
        yield from of_python(text)
    elif file.suffix in (".toml", ".yml") or text.startswith("#!") and "sh" in lines[0][1]:
        yield from comments(lines, "#(?!!)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("paths", nargs="*", help="files and folders; otherwise everything")
    parser.add_argument("--count", type=int, default=10, help="how many sentences (10)")
    parser.add_argument("--seed", type=int, help="a number that selects the sentences")
    args = parser.parse_args()
    seed = random.randrange(1_000_000) if args.seed is None else args.seed
    command = ["git", "-C", CHECKOUT, "ls-files", "-z", "--", *map(str, args.paths)]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    found = [
        (f"{name}:{line}", sentence)
        for name in filter(None, names)
        for block in prose(CHECKOUT / name)
        for paragraph in paragraphs(block)
        for line, sentence in sentences(paragraph)
    ]
    drawn = random.Random(seed).sample(found, min(args.count, len(found)))
    print(f"seed {seed}: {len(drawn)} of {len(found)} sentences")
    for place, sentence in drawn:
        print(f"- {sentence}\n  ({place})")


if __name__ == "__main__":
    main()
