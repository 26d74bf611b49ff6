"""Small words of files and messages: numbers of things, names that resemble another, what nobody sees."""

import re

UNPRINTABLE = r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
"""Characters that a terminal or a reader obeys instead of showing them: controls, directions of text, and halves."""
OBEYED = re.compile(rf"(?![\n\t]){UNPRINTABLE}")
"""The same but ends of lines and tabs, which texts of several lines have."""


def nearest_first(name: str, known: list[str]) -> str:
    """Return the known names as one line of text; names that resemble ``name`` come first."""
    from difflib import get_close_matches  # noqa: PLC0415  # needed only for an error message

    near = get_close_matches(name, known, n=len(known), cutoff=0.6)
    return ", ".join(near + sorted(set(known) - set(near)))


def plural(count: int, noun: str, many: str = "") -> str:
    """Return a number of things, e.g. 1 trial, 2 trials or, with another word for ``many``, 2 batches."""
    return f"{count} {noun_for(count, noun, many)}"


def noun_for(count: int, noun: str, many: str = "") -> str:
    """Return the noun for a number of things, e.g. trial or trials."""
    return noun if count == 1 else many or f"{noun}s"
