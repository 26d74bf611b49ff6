"""The verdict on an article as a whole: the order of its variants, its conclusion, and its figures.

A request through the article's stack may cost some milliseconds more, whatever the variant: its floor is higher. A
figure that differs by no more than the floor does not contradict the article, and neither does a percentile for which
the run was too short.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, groupby
from math import isclose
from statistics import median
from typing import NamedTuple

from stampede.evaluate.metrics import METRICS
from stampede.evaluate.metrics.avoidable_wait import AVOIDABLE_WAIT
from stampede.evaluate.metrics.failures import FAILURES
from stampede.evaluate.metrics.metric import failures_allowed, percentile
from stampede.evaluate.metrics.times import OVERHEAD
from stampede.evaluate.metrics.visits import VISITS_FAILED
from stampede.evaluate.statistics.stopping import LEAST, Interval
from stampede.records.claims import Quantity
from stampede.records.run import Run
from stampede.records.summary import (
    Article,
    ArticleConclusion,
    ArticleFigures,
    ArticleOrder,
    ArticleVerdict,
    ClaimRow,
    Floor,
    PublishedFigure,
    PublishedRow,
    Reversal,
    Row,
)

WAITED_MS = 10.0
"""Nobody waits in a variant if nine of ten requests lose at most this much more than the fastest request."""
WAITED_SHARE = 0.05
"""Nobody waits in a variant if fewer requests than this share wait avoidably."""


class Circumstances(NamedTuple):
    """What sets this run apart from an article without contradicting the article.

    ``short`` has the published percentiles for which this run had too few requests.
    """

    floors: Sequence[Floor] = ()
    short: Collection[Quantity] = ()

    def floor_ms(self, of: Quantity) -> float:
        """Return the floor that applies to a figure; 0: no floor is known, or it moves no such figure.

        Above the median, it is that of the p90, because the cost of a request varies. Standard deviations have none.
        """
        of_figure = (of.load, of.request_class, of.metric)
        floor = next((each for each in self.floors if (each.load, each.request_class, each.metric) == of_figure), None)
        if floor is None or of.stat == "stdev":
            return 0.0
        q = 0.0 if of.stat == "min" else percentile(of.stat)
        return floor.ms if q is not None and q <= 50 else floor.p90_ms


def circumstances(rows: Iterable[Row]) -> Circumstances:
    """Return what sets a run apart from its article, given the measured rows beside the published figures."""
    by_quantity = {_quantity(row): row for row in rows}
    published = [row for row in by_quantity.values() if row.published is not None]
    short = [_quantity(row) for row in published if _lacks_requests(row, by_quantity)]
    return Circumstances([*_floors(published, by_quantity)], short)


_Rows = Mapping[Quantity, Row]


def _quantity(row: Row, metric: str | None = None, stat: str | None = None) -> Quantity:
    """Return what a row is of, or another statistic of the same variant, load and class of request."""
    return Quantity(
        variant=row.variant, load=row.load, request_class=row.request_class, metric=metric or row.metric,
        stat=stat or row.stat,
    )  # fmt: skip


def _lacks_requests(row: Row, rows: _Rows) -> bool:
    """Whether a percentile is missing because there were too few requests or visits, and not because many failed."""
    if row.measured is not None or percentile(row.stat) is None:
        return False
    fewest = rows.get(_quantity(row, stat="max"))  # the statistic that needs a single request
    failures = VISITS_FAILED if METRICS[row.metric].sample == "visits" else FAILURES
    failed = rows.get(_quantity(row, failures.name, "share"))
    most = max(failed.values.values(), default=0.0) if failed else 0.0
    return fewest is not None and fewest.measured is not None and most < failures_allowed(row.stat)


def _floors(published: Iterable[Row], rows: _Rows) -> Iterator[Floor]:
    """Yield the floor of each metric of times, for each load and class of request that has published figures.

    The floor is the published p50 minus the measured p50, and the same of the p90, in the variants in which nobody
    waits: the median over these variants. A class without such a variant gets the floor of the other classes under the
    same load, because the requests of all classes go through the same stack.
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


def _floor_of_variant(p50: Row, rows: _Rows) -> tuple[float, float] | None:
    """Return published minus measured p50 and p90 in ms; None: requests wait, here or in the article, or may wait."""
    p90 = rows.get(_quantity(p50, stat="p90"))
    if p90 is None or None in (p50.published, p50.median, p90.published, p90.median):
        return None
    published, measured = (p50.published or 0.0, p90.published or 0.0), (p50.median or 0.0, p90.median or 0.0)
    waits = published[1] - published[0] > WAITED_MS or _requests_wait(p50, rows)
    return None if waits else (published[0] - measured[0], published[1] - measured[1])


def _requests_wait(row: Row, rows: _Rows) -> bool:
    """Whether more than a few requests of a variant wait, or nobody can tell."""
    asked = ((AVOIDABLE_WAIT, "share"), (OVERHEAD, "min"), (OVERHEAD, "p90"))
    found = [rows.get(_quantity(row, metric.name, stat)) for metric, stat in asked]
    share, least, most = (each.median if each else None for each in found)
    if share is None or least is None or most is None:
        return True
    return share >= WAITED_SHARE or most - least > WAITED_MS


def judge_article(
    run: Run, claims: Sequence[ClaimRow], published: Sequence[PublishedRow], floors: Sequence[Floor]
) -> Article | None:
    """Return the verdict on an article; None: no figure is published. ``claims`` are in the order of the run."""
    if not published:
        return None
    verdicts = [figure.verdict for row in published for figure in row.figures]
    return Article(
        order=_order(published),
        conclusion=_conclusion(run, claims, {row.variant for row in published}),
        figures=ArticleFigures(
            within=verdicts.count("reproduced"),
            floor=verdicts.count("differs by the floor"),
            contradicted=verdicts.count("contradicted"),
            short=verdicts.count("not measured in a short run"),
            undecided=verdicts.count("undecided"),
            invalid=verdicts.count("invalid"),
        ),
        floors=[*floors],
    )


class _Compared(NamedTuple):
    """A published figure of a variant beside the measured figure, to be compared with other variants."""

    variant: str
    within: float
    figure: PublishedFigure


def _order(published: Sequence[PublishedRow]) -> ArticleOrder:
    """Return how many pairs of variants are in the same order here as in the article.

    A pair is two variants with the same published statistic of the same metric, load and class of request. It counts if
    both sides tell the variants apart: the published figures and the measured figures differ by more than the
    tolerance, and the intervals do not overlap, for which each variant needs two trials. So a tie decides nothing.
    """
    pairs, reversals = 0, []
    for (load, request_class, metric, stat), group in groupby(_by_quantity(published), key=lambda found: found[0]):
        for a, b in combinations([compared for _, compared in group], 2):
            here, there = _measured_order(a, b), _published_order(a, b)
            pairs += bool(here and there)
            if here and there and here != there:
                larger, smaller = (a, b) if there > 0 else (b, a)
                reversals.append(
                    Reversal(
                        load=load, request_class=request_class or None, metric=metric, stat=stat,
                        larger=larger.variant, smaller=smaller.variant,
                    )
                )  # fmt: skip
    return ArticleOrder(
        verdict=_verdict(pairs - len(reversals), len(reversals)), pairs=pairs,
        agree=pairs - len(reversals), reversals=reversals,
    )  # fmt: skip


def _by_quantity(published: Sequence[PublishedRow]) -> list[tuple[tuple[str, str, str, str], _Compared]]:
    """Return the figures of all variants with what they are of; those of the same quantity are neighbours."""
    found = {
        (row.load, row.request_class or "", row.metric, figure.stat, row.variant): _Compared(
            row.variant, row.within, figure
        )
        for row in published
        for figure in row.figures
    }
    return sorted(((key[:4], compared) for key, compared in found.items()), key=lambda compared: compared[0])


def _published_order(a: _Compared, b: _Compared) -> int:
    """Return 1 if the first figure is the larger one as published, -1 if it is the smaller one; 0: it is a tie."""
    return _sign(a.figure.published, b.figure.published, max(a.within, b.within))


def _measured_order(a: _Compared, b: _Compared) -> int:
    """Return the same of the measured figures; 0 also if the trials do not tell them apart."""
    first, second = a.figure, b.figure
    if first.measured is None or second.measured is None or min(first.trials, second.trials) < LEAST:
        return 0
    if not first.interval or not second.interval or _overlap(first.interval, second.interval):
        return 0
    return _sign(first.measured, second.measured, max(a.within, b.within))


def _overlap(a: Interval, b: Interval) -> bool:
    return a[0] <= b[1] and b[0] <= a[1]


def _sign(a: float, b: float, within: float) -> int:
    smaller, larger = sorted(map(abs, (a, b)))
    tie = a * b >= 0 and (larger <= smaller * (1 + within) or isclose(larger, smaller * (1 + within)))
    return 0 if tie else 1 if a > b else -1


def _conclusion(run: Run, claims: Sequence[ClaimRow], variants: set[str]) -> ArticleConclusion | None:
    """Return which claims hold that compare nothing but variants with published figures; None: there is no such claim.

    An undecided claim neither holds nor fails, and neither does an invalid one.
    """
    about = [row.verdict for claim, row in zip(run.claims, claims, strict=True) if claim.variants <= variants]
    if not about:
        return None
    holds, fails = about.count("reproduced"), about.count("not reproduced")
    return ArticleConclusion(
        verdict=_verdict(holds, fails), claims=len(about), hold=holds, fail=fails, undecided=len(about) - holds - fails
    )


def _verdict(agree: int, disagree: int) -> ArticleVerdict:
    if not agree and not disagree:
        return "undecided"
    return "partly the same" if agree and disagree else "same" if agree else "different"
