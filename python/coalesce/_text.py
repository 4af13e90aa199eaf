"""Text from outside, made harmless for a terminal."""

import re

# Controls, the controls of the direction of text, separators of lines, and what XML cannot hold.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufffe\uffff]"
)


def printable(text: str) -> str:
    """The text in one line; what a terminal obeys is its number, as the program prints it."""
    return _UNPRINTABLE.sub(lambda found: f"\\u{{{ord(found[0]):x}}}", text)
