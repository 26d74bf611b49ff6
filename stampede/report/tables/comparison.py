"""The tables of a comparison of two runs or variants."""

from collections.abc import Iterable, Sequence

from stampede.evaluate.statistics.compare import Change
from stampede.evaluate.statistics.stopping import ENOUGH
from stampede.report.tables import Table
from stampede.report.wording import metric_phrase, number, plain_name


def comparison_tables(
    names: tuple[str, str], found: Iterable[Change], differs: Sequence[tuple[str, str, str]]
) -> tuple[Table, Table]:
    """Return what differs between two sides: how they were measured, and what was measured."""
    setup = Table(
        f"a: {names[0]}\nb: {names[1]}\n\nHow they differ", ("setting", "a", "b"),
        differs or [("in nothing that was recorded", "", "")], words=3,
    )  # fmt: skip
    rows = [
        (
            row.variant, _quantity(row), _side(row.a, row.of_a), _side(row.b, row.of_b),
            f"{_change(row, row.low)} to {_change(row, row.high)}" if row.has_interval else "–",
            _change(row, row.smallest) if row.has_interval else "–", row.verdict,
        )
        for row in found
    ]  # fmt: skip
    head = ("variant", "what", "a", "b", "change", "smallest", "")
    note = (
        "change: the interval of b divided by a (×), or of b minus a (+ or -) for shares and where a value is 0; "
        "~: the change may be chance; changes smaller than 'smallest' cannot be seen with these trials; if nothing "
        f"differs, at most one comparison in twenty names a difference; a side of fewer than {ENOUGH} trials has its "
        "values, and there is no interval"
    )
    return setup, Table("What was measured", head, rows, words=2, note=note)


def _quantity(row: Change) -> str:
    unit = "" if row.unit in ("share", "index") else f", {row.unit}"
    return f"{metric_phrase(row.metric, row.request_class)} {plain_name(row.stat)}{unit} ({row.load})"


def _side(middle: float, values: Sequence[float]) -> str:
    return number(middle) if len(values) >= ENOUGH or not values else "; ".join(map(number, values))


def _change(row: Change, value: float) -> str:
    """Return a change as text: ×1.50 for a ratio, +0.10 for a difference of shares."""
    return f"{value:+.2f}" if row.of_share else f"×{value:.2f}"
