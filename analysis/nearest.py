"""Which names a mistaken name may have meant."""


def nearest_first(name: str, known: list[str]) -> str:
    """Return the known names, those that resemble ``name`` first, as one line of text."""
    from difflib import get_close_matches  # noqa: PLC0415  # only when something is wrong

    near = get_close_matches(name, known, n=len(known), cutoff=0.6)
    return ", ".join(near + sorted(set(known) - set(near)))
