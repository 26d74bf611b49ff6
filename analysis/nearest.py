"""Which names a mistaken name may have meant."""

from collections.abc import Iterable


def nearest_first(name: str, known: Iterable[str]) -> str:
    """Return the known names, those that resemble ``name`` first, as one line of text."""
    from difflib import get_close_matches  # noqa: PLC0415  # only when something is wrong

    names = set(known)
    near = get_close_matches(name, sorted(names), n=max(1, len(names)), cutoff=0.6)
    return ", ".join(near + sorted(names - set(near)))
