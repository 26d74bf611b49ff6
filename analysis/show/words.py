"""Numbers, names and verdicts as words: the same on the terminal, in Markdown and in the report."""

from analysis.metrics import METRICS, TIME_STATISTICS, WHOLE_UNITS
from analysis.metrics.beside_free_thread import BESIDE_FREE_THREAD
from analysis.record import Run
from analysis.result import ClaimRow, DifferenceRow, PublishedFigure, PublishedRow, Row


def of_median(run: Run) -> str:
    """Return what a title adds where its numbers are medians over trials."""
    return f", median of {run.trials} trials" if run.trials > 1 else ""


def seconds(value: float | None) -> str:
    """Return seconds with two decimals."""
    return number(None) if value is None else f"{value:.2f}"


def published_what(run: Run, row: PublishedRow) -> str:
    """Return what a published row is about in words."""
    steps = ", in order of completion" if row.steps else ""
    by = f", published{divided(row.divided_by)}" if row.divided_by != 1 else ""
    return f"{row.variant}{of_load(run, row.load)}: {of_requests(row.metric, row.request)}{steps}{by}"


def divided(by: float) -> str:
    """Return what is added to the word for a published figure that was divided; nothing where it was not."""
    return "" if by == 1 else f" ÷ {by:g}"


def published_figures(row: PublishedRow) -> str:
    """Return how many figures of a published row are as near as stated, and how far off each of the others is."""
    off = ", ".join(f"{words(one.stat)} {_ratio(one)}" for one in row.figures if one.verdict != "reproduced")
    near = sum(one.verdict == "reproduced" for one in row.figures)
    return f"{near} of {len(row.figures)} within {100 * row.within:g} %" + (f": {off}" if off else "")


def _ratio(figure: PublishedFigure) -> str:
    """Return measured divided by published; of an undecided figure also the ends of its interval."""
    if figure.ratio is None:
        return number(None)
    ratio = _ratio_number(figure.ratio)
    if figure.verdict != "undecided" or figure.low is None or figure.high is None:
        return ratio
    low, high = figure.low / figure.published, figure.high / figure.published
    return f"{ratio} ({_ratio_number(low)} to {_ratio_number(high)})"


def _ratio_number(value: float) -> str:
    """Return a ratio with the digits that tell it from 1, however small it is."""
    return number(value) if abs(value) >= 10 else f"{value:.2f}" if abs(value) >= 0.1 else f"{value:.2g}"


def what(row: DifferenceRow) -> str:
    """Return the quantity in words, with its unit."""
    return f"{words(row.metric)} {words(row.stat)}, {row.unit}"


SMALLEST = "b - a: 95 % interval of the difference; what is not larger than the smallest may be chance"
MEANING = "reproduced: the measured value keeps the bound; it need not equal what was published"
WITHIN = (
    "reproduced: every figure, with its interval, is within that share of the published one; "
    "behind a statistic stands measured / published"
)
INTERVAL = "low and high: 95 % bootstrap interval of the median over trials"


def claim_value(claim: ClaimRow) -> str:
    """Return what was measured for a claim, with its statistic and unit."""
    if claim.measured is None:
        return number(None)
    if claim.unit in ("share", "ratio", "index"):
        return number(claim.measured)
    stat = f"{claim.stat} " if claim.stat in TIME_STATISTICS else ""
    return f"{stat}{number(whole(claim.unit, claim.measured))} {claim.unit}"


def claim_interval(claim: ClaimRow) -> str:
    """Return the interval of what was measured for a claim, e.g. 1.2 to 3.4; empty for one trial."""
    return "" if claim.low is None else f"{number(claim.low)} to {number(claim.high)}"


def number(value: float | None) -> str:
    """Return a value with the digits that matter: none after the point from 100 on, two below 1; a whole one as is."""
    if value is None:
        return "–"
    if isinstance(value, int):
        return str(value)
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def percent(share: float) -> str:
    """Return a share in percent, with the digits that tell it from nothing."""
    return f"{share:.1%}" if share == 0 or share >= 0.0005 else "< 0.1%"


def waited_beside(row: Row) -> bool:
    """Return whether a row says that requests waited beside a free thread."""
    return (row.metric, row.stat) == (BESIDE_FREE_THREAD.name, "count") and bool(row.measured)


def words(name: str) -> str:
    """Return the name of a metric or statistic as people write it."""
    return name.replace("_", " ")


def of_requests(metric: str, request: str | None) -> str:
    """Return a metric with the class of request that it is of, where it knows classes."""
    if (declared := METRICS[metric]).of_all:
        return words(metric)
    return declared.called.format(metric=words(metric), requests=request or "all")


def of_load(run: Run, load: str) -> str:
    """Return what a title adds to say which load it is about: nothing where there is one."""
    return f", {load}" if len(run.loads) > 1 else ""


def whole(of_unit: str, value: float | None) -> float | None:
    """Return a count as the whole number that it is; the median of several trials, or an average, may be none."""
    return int(value) if of_unit in WHOLE_UNITS and value is not None and value.is_integer() else value
