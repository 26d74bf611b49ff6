"""A comparison of two runs or variants: what differs in a sentence, then the tables."""

from collections.abc import Sequence
from math import log

from stampede.evaluate.statistics.compare import FARTHEST, Change, Side
from stampede.evaluate.statistics.stopping import ENOUGH
from stampede.records.words import plural
from stampede.report.tables import Table
from stampede.report.wording import metric_phrase, number, plain_name, unit_suffix

_NOTE = (
    "change: b beside a, as a factor (× more, ÷ less), or as a difference (+ or -) for shares and where a value is 0; "
    "~: the change may be chance; changes smaller than 'smallest' cannot be seen with these trials; if nothing "
    f"differs, at most one comparison in twenty names a difference; a side of fewer than {ENOUGH} trials has its "
    "values, and there is no interval"
)


def comparison_answer(a: Side, b: Side, found: Sequence[Change]) -> str:
    """Return in a sentence what changes most, or that nothing changes by more than chance."""
    told = [row for row in found if row.verdict != "~"]
    if not told:
        return f"No measured value differs by more than chance ({plural(len(found), 'value')} compared)."
    # how far from no change the nearer end of the interval is; a share counts as tenths of a factor of ten
    most = max(
        told, key=lambda row: min(abs(10 * end) if row.of_share else abs(log(end)) for end in (row.low, row.high))
    )
    apart = a.variant != b.variant and a.variant and b.variant
    names = (a.variant, b.variant) if apart else ("a", "b")
    of_a, of_b = (
        f"{number(value)}{unit_suffix(most.unit)} in {name}"
        for value, name in zip((most.a, most.b), names, strict=True)
    )
    between = f": {_interval(most)}" if most.has_interval else ""
    many = "1 measured value differs" if len(told) == 1 else f"{len(told)} of {len(found)} measured values differ"
    load = _load_suffix(most, found)
    what = f"{metric_phrase(most.metric, most.request_class)} {plain_name(most.stat)}{load}"
    return f"{what[0].upper()}{what[1:]}: {of_a}, {of_b}{between}. {many} by more than chance."


def comparison_tables(
    found: Sequence[Change], differs: Sequence[tuple[str, str, str]], *, every: bool = True
) -> list[Table]:
    """Return what differs between two sides; ``every``: also the values that may differ by chance only."""
    tables = []
    if differs:
        tables.append(Table("How they differ", ("setting", "a", "b"), differs, words=3))
    rows = []
    for row in [row for row in found if every or row.verdict != "~"]:
        of_unit = "" if row.unit in ("share", "index") else f", {row.unit}"
        what = f"{metric_phrase(row.metric, row.request_class)} {plain_name(row.stat)}{of_unit}"
        sides = (
            number(middle) if len(values) >= ENOUGH or not values else "; ".join(map(number, values))
            for middle, values in ((row.a, row.of_a), (row.b, row.of_b))
        )
        change = (_interval(row), _change(row, row.smallest)) if row.has_interval else ("–", "–")
        rows.append((row.variant, what + _load_suffix(row, found), *sides, *change, row.verdict))
    if rows:
        head = ("variant", "what", "a", "b", "change", "smallest", "")
        title = "What was measured" if every else "What differs by more than chance"
        tables.append(Table(title, head, rows, words=2, note=_NOTE if every else ""))
    return tables


def _load_suffix(row: Change, found: Sequence[Change]) -> str:
    return f" ({row.load})" if len({each.load for each in found}) > 1 else ""


def _interval(row: Change) -> str:
    """Return from which to which change the interval reaches, the smaller change first if both have one direction."""
    ends = (row.low, row.high) if row.of_share or row.high > 1 else (row.high, row.low)
    return " to ".join(_change(row, end) for end in ends)


def _change(row: Change, value: float) -> str:
    """Return a change as text: ×1.50 or ÷1.50 for a ratio, +0.10 for a difference of shares."""
    if row.of_share:
        return f"{value:+.2f}"
    factor = max(value, 1 / value)
    digits = f"{factor:.0f}+" if log(factor) >= FARTHEST * (1 - 1e-9) else f"{factor:.{2 if factor < 10 else 0}f}"
    return f"{'÷' if value < 1 else '×'}{digits}"
