"""Nouns beside numbers: 1 trial, 2 trials."""


def plural(count: int, noun: str) -> str:
    """Return a number of things, e.g. 1 trial or 2 trials."""
    return f"{count} {noun_for(count, noun)}"


def noun_for(count: int, noun: str) -> str:
    """Return the noun for a number of things, e.g. trial or trials."""
    return noun if count == 1 else f"{noun}s"
