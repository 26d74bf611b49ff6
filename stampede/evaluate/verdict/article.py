"""The verdict on an article as a whole: the order of its variants, its conclusion, and its figures.

A request through the article's stack may cost some milliseconds more, whatever the variant: its floor is higher. A
figure that differs by no more than the floor does not contradict the article, and neither does a percentile for which
the run was too short.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import isclose
from statistics import median
from typing import NamedTuple

from stampede.evaluate.metrics import AVOIDABLE_WAIT, FAILURES, METRICS, OVERHEAD, VISITS_FAILED
from stampede.evaluate.metrics.metric import failures_allowed, percentile
from stampede.evaluate.statistics.stopping import LEAST
from stampede.records import summary
from stampede.records.claims import Quantity
from stampede.records.run import Run
from stampede.records.summary import Article, ArticleVerdict, ClaimRow, Estimate, Floor, PublishedFigure, PublishedRow

WAITED_MS = 10.0
"""Nobody waits in a variant if nine of ten requests lose at most this much more than the fastest request."""
WAITED_SHARE = 0.05
"""Nobody waits in a variant if fewer requests than this share wait avoidably."""


class Circumstances(NamedTuple):
    """What sets this run apart from an article: floors, and published percentiles for which it had too few requests."""

    floors: Sequence[Floor] = ()
    short: Collection[Quantity] = ()

    def floor_ms(self, of: Quantity) -> float:
        """Return the floor of a figure; above the median that of the p90; 0: none is known, or it is a deviation."""
        of_figure = (of.load, of.request_class, of.metric)
        floor = next((each for each in self.floors if (each.load, each.request_class, each.metric) == of_figure), None)
        if floor is None or of.stat == "stdev":
            return 0.0
        q = 0.0 if of.stat == "min" else percentile(of.stat)
        return floor.ms if q is not None and q <= 50 else floor.p90_ms


def circumstances(rows: Iterable[Estimate]) -> Circumstances:
    """Return what sets a run apart from its article, given the measured rows beside the published figures."""
    by_quantity = {row.quantity: row for row in rows}
    published = [row for row in by_quantity.values() if row.published is not None]
    short = []
    for row in published:  # a percentile is missing because of few requests or visits, and not because many failed
        if row.measured is None and percentile(row.stat) is not None:
            needs_one = by_quantity.get(row.quantity.model_copy(update={"stat": "max"}))
            failures = VISITS_FAILED if METRICS[row.metric].sample == "visits" else FAILURES
            failed = by_quantity.get(row.quantity.model_copy(update={"metric": failures.name, "stat": "share"}))
            most = max(failed.values.values(), default=0.0) if failed else 0.0
            if needs_one and needs_one.measured is not None and most < failures_allowed(row.stat):
                short.append(row.quantity)
    return Circumstances([*_floors(published, by_quantity)], short)


def _floors(published: Iterable[Estimate], rows: Mapping[Quantity, Estimate]) -> Iterator[Floor]:
    """Yield the floor of each metric of times, for each load and class of request that has published figures.

    The floor is the median of published minus measured p50, and p90, over the variants in which nobody waits. A class
    without such a variant has the floor of the other classes, whose requests go through the same stack.
    """
    found: dict[tuple[str, str], dict[str | None, dict[str, tuple[float, float]]]] = {}
    for row in published:
        if METRICS[row.metric].is_of_times:
            of_class = found.setdefault((row.load, row.metric), {}).setdefault(row.request_class, {})
            if row.stat == "p50" and (floor := _floor_of_variant(row, rows)) is not None:
                of_class[row.variant] = floor
    for (load, metric), classes in found.items():
        every = [floor for floors in classes.values() for floor in floors.items()]
        for request_class, floors in classes.items():
            if used := [*floors.items()] or every:
                yield Floor(
                    load=load, request_class=request_class, metric=metric,
                    ms=median(floor for _, (floor, _) in used), p90_ms=median(floor for _, (_, floor) in used),
                    variants=[*dict.fromkeys(variant for variant, _ in used)],
                )  # fmt: skip


def _floor_of_variant(p50: Estimate, rows: Mapping[Quantity, Estimate]) -> tuple[float, float] | None:
    """Return published minus measured p50 and p90 in ms; None: requests wait, here or in the article, or may wait."""

    def measured(metric: str, stat: str) -> float | None:
        row = rows.get(p50.quantity.model_copy(update={"metric": metric, "stat": stat}))
        return row.median if row else None

    p90 = rows.get(p50.quantity.model_copy(update={"stat": "p90"}))
    share = measured(AVOIDABLE_WAIT.name, "share")
    least, most = measured(OVERHEAD.name, "min"), measured(OVERHEAD.name, "p90")
    if p90 is None or p50.published is None or p50.median is None or p90.published is None or p90.median is None:
        return None
    if share is None or least is None or most is None or share >= WAITED_SHARE or most - least > WAITED_MS:
        return None
    waits = p90.published - p50.published > WAITED_MS
    return None if waits else (p50.published - p50.median, p90.published - p90.median)


def judge_article(
    run: Run, claims: Sequence[ClaimRow], published: Sequence[PublishedRow], floors: Sequence[Floor]
) -> Article | None:
    """Return the verdict on an article; None: no figure is published. ``claims`` are in the order of the run.

    Its conclusion is that of the claims that compare nothing but variants with published figures; None: there is none.
    """
    if not published:
        return None
    variants = {row.variant for row in published}
    about = [row.verdict for claim, row in zip(run.claims, claims, strict=True) if claim.variants <= variants]
    hold, fail = about.count("reproduced"), about.count("not reproduced")
    verdicts = [figure.verdict for row in published for figure in row.figures]
    conclusion = summary.ArticleConclusion(
        verdict=_verdict(hold, fail), claims=len(about), hold=hold, fail=fail, undecided=len(about) - hold - fail
    ) if about else None  # fmt: skip
    figures = summary.ArticleFigures(
        within=verdicts.count("reproduced"), floor=verdicts.count("differs by the floor"),
        contradicted=verdicts.count("contradicted"), short=verdicts.count("not measured in a short run"),
        undecided=verdicts.count("undecided"), invalid=verdicts.count("invalid"),
    )  # fmt: skip
    return Article(order=_order(published), conclusion=conclusion, figures=figures, floors=[*floors])


def _order(published: Sequence[PublishedRow]) -> summary.ArticleOrder:
    """Return how many pairs of variants are in the same order here as in the article.

    A pair of variants with the same published statistic counts if both sides tell them apart: the published figures and
    the measured ones differ by more than the tolerance, and the intervals of two or more trials do not overlap.
    """
    of_quantity: dict[tuple[str, str, str, str], dict[str, tuple[PublishedFigure, float]]] = {}
    for row in published:
        for figure in row.figures:
            key = (row.load, row.request_class or "", row.metric, figure.stat)
            of_quantity.setdefault(key, {})[row.variant] = figure, row.within
    pairs, reversals = 0, []
    for load, request_class, metric, stat in sorted(of_quantity):
        group = of_quantity[load, request_class, metric, stat]
        for (one, (a, within_a)), (other, (b, within_b)) in combinations(group.items(), 2):
            within = max(within_a, within_b)
            there = _sign(a.published, b.published, within)
            here = 0
            if a.measured is not None and b.measured is not None and min(a.trials, b.trials) >= LEAST:
                apart = a.interval and b.interval and (a.interval[0] > b.interval[1] or b.interval[0] > a.interval[1])
                here = _sign(a.measured, b.measured, within) if apart else 0
            pairs += bool(here and there)
            if here and there and here != there:
                larger, smaller = (one, other) if there > 0 else (other, one)
                about = {"load": load, "request_class": request_class or None, "metric": metric, "stat": stat}
                reversals.append(summary.Reversal(**about, larger=larger, smaller=smaller))
    agree = pairs - len(reversals)
    return summary.ArticleOrder(verdict=_verdict(agree, len(reversals)), pairs=pairs, agree=agree, reversals=reversals)


def _sign(a: float, b: float, within: float) -> int:
    """Return 1 if the first figure is the larger one, -1 if it is the smaller one; 0: it is a tie."""
    smaller, larger = sorted(map(abs, (a, b)))
    tie = a * b >= 0 and (larger <= smaller * (1 + within) or isclose(larger, smaller * (1 + within)))
    return 0 if tie else 1 if a > b else -1


def _verdict(agree: int, disagree: int) -> ArticleVerdict:
    if not agree and not disagree:
        return "undecided"
    return "partly the same" if agree and disagree else "same" if agree else "different"
