"""A comparison of two runs or variants on a terminal of 80 columns."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from analysis.report.words import number, of_requests, words
from analysis.statistics.compare import Change
from analysis.statistics.stopping import ENOUGH

MEANING = (
    "change: the interval of b divided by a (×), or of b minus a (+ or -) for shares and where a value is 0; ~: the "
    "change may be chance; changes smaller than 'smallest' cannot be seen with these trials. If nothing differs, at "
    f"most one comparison in twenty names a difference. A side of fewer than {ENOUGH} trials has its values, and there "
    "is no interval."
)
_STYLE = {"higher": "yellow", "lower": "cyan", "~": "dim"}


def comparison(
    names: tuple[str, str], found: Iterable[Change], differs: Iterable[tuple[str, str, str]]
) -> RenderableType:
    """Return what differs between two sides, as tables: how they were measured, and what was measured."""
    setup = _table(f"a: {names[0]}\nb: {names[1]}\n\nHow they differ")
    for name in ("", "a", "b"):
        setup.add_column(name, overflow="fold")
    for line in differs:
        setup.add_row(*map(Text, line))
    if not setup.rows:
        setup.add_row("in nothing that was recorded", "", "")
    table = _table("What was measured")
    table.add_column("variant", overflow="fold")
    table.add_column("what")
    for name in ("a", "b", "change", "smallest", ""):
        table.add_column(name, justify="right", no_wrap=name != "change")
    above = ""
    for one in found:
        style = _STYLE[one.verdict]
        name, above = "" if one.variant == above else one.variant, one.variant
        values = _side(one.a, one.of_a), _side(one.b, one.of_b), *_certainty(one), one.verdict
        table.add_row(Text(name), Text(_what(one)), *(Text(value, style=style) for value in values))
    return Group(setup, Text(), table, Text(MEANING, style="dim"))


def _what(one: Change) -> str:
    unit = "" if one.unit in ("share", "index") else f", {one.unit}"
    return f"{of_requests(one.metric, one.request)} {words(one.stat)}{unit} ({one.load})"


def _side(middle: float, values: Sequence[float]) -> str:
    return number(middle) if len(values) >= ENOUGH or not values else "; ".join(map(number, values))


def _certainty(one: Change) -> tuple[str, str]:
    """Return the interval of a change, and the smallest change that is more than chance; –: too few trials."""
    if not one.has_interval:
        return number(None), number(None)
    return f"{_change(one, one.low)} to {_change(one, one.high)}", _change(one, one.smallest)


def _change(one: Change, value: float) -> str:
    """Return a change as text: x 1.50 for a ratio, +0.10 for a difference of shares."""
    return f"{value:+.2f}" if one.of_share else f"×{value:.2f}"


def _table(title: str) -> Table:
    return Table(
        title=Text(title), box=None, title_justify="left", title_style="bold", header_style="dim", pad_edge=False
    )
