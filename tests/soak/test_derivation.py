"""stampede.pipeline: the same raw points give the same bytes every time, also where requests or connections tie.

What may differ from one derivation to the next: how Python orders a set of words, how many threads DuckDB has, and
in which order these hand over the rows.
"""

from pathlib import Path

from tests.whole.test_derivation import TWO, Circumstance, assert_same, derive_under

SIX: list[Circumstance] = [*TWO, (1, 2), (2, 4), (4, 3), (5, 8)]


def test_a_run_is_derived_to_the_same_bytes_under_any_circumstances(tmp_path: Path) -> None:
    """Two words that change places with one seed do not with another: the more seeds the better."""
    for derived in derive_under(SIX, tmp_path).values():
        assert_same(derived)
