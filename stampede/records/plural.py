"""Nouns beside numbers: 1 trial, 2 trials."""


def plural(count: int, noun: str, many: str = "") -> str:
    """Return a number of things, e.g. 1 trial, 2 trials or, with another word for ``many``, 2 batches."""
    return f"{count} {noun_for(count, noun, many)}"


def noun_for(count: int, noun: str, many: str = "") -> str:
    """Return the noun for a number of things, e.g. trial or trials."""
    return noun if count == 1 else many or f"{noun}s"
