"""Which known names a mistyped name may stand for."""


def nearest_first(name: str, known: list[str]) -> str:
    """Return the known names as one line of text; names that resemble ``name`` come first."""
    from difflib import get_close_matches  # noqa: PLC0415  # needed only for an error message

    near = get_close_matches(name, known, n=len(known), cutoff=0.6)
    return ", ".join(near + sorted(set(known) - set(near)))
