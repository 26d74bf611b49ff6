"""Tables of visits, and of why requests failed."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import NamedTuple

from stampede.evaluate.metrics import MetricName, Statistic
from stampede.records.plural import plural
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.tables import Table
from stampede.report.wording import load_suffix, median_suffix, number, percent, whole_number


class _Column(NamedTuple):
    name: str
    metric: MetricName
    stat: Statistic
    shown: Callable[[float | None], str]


def _count(of_unit: str, value: float | None) -> str:
    return number(whole_number(of_unit, value))


_COLUMNS = (
    _Column("capacity", "capacity", "per_second", partial(_count, "visits")),
    _Column("failed", "visits_failed", "share", percent),
    *(_Column(stat, "visit", stat, number) for stat in ("min", "p50", "avg", "max")),
    _Column("rows", "rows_written", "count", partial(_count, "rows")),
)


def visits_tables(run: Run, summary: Summary) -> Iterator[Table]:
    """Yield a table of visits for each load that made visits: failures, times of successful visits, and rows written.

    The figures are medians over trials, but ``visits`` counts the visits of all trials. If the rate does not climb,
    there is a column for the rate; otherwise, if a capacity was found, there is a column for the capacity. If figures
    of a variant were published, they have a line of their own below the variant's line.
    """
    for load in run.loads:
        rows = [row for row in summary.rows if row.load == load.name and row.request_class is None]
        levels = [row for row in summary.rate_steps if row.load == load.name]
        steady = 0 < len(levels) == len({(row.variant, row.trial) for row in levels})
        has_capacity = not steady and any(row.metric == "capacity" for row in rows)
        columns = [column for column in _COLUMNS if column.name != "capacity" or has_capacity]
        lines: list[tuple[str, ...]] = []
        for name in (variant.name for variant in run.variants_under(load.name)):
            failed = summary.row(name, load.name, None, "visits_failed", "share")
            if not failed or failed.median is None:
                continue
            due = [row.per_s for row in levels if row.variant == name]
            rate = [_count("visits", float(median(due))) if due else "–"] * steady
            found = [summary.row(name, load.name, None, column.metric, column.stat) for column in columns]
            shown = [column.shown(row.median if row else None) for column, row in zip(columns, found, strict=True)]
            lines.append((name, str(failed.n), *rate, *shown))
            if any(row.published is not None for row in rows if row.variant == name):
                shown = [
                    column.shown(row.published if row else None) for column, row in zip(columns, found, strict=True)
                ]
                lines.append(("  published", "–", *["–"] * steady, *shown))
        if lines:
            head = ("variant", "visits", *["per s"] * steady, *(column.name for column in columns))
            yield Table(f"Visits, ms{load_suffix(run, load.name)}{median_suffix(run)}", head, lines).without_gaps()


def errors_tables(run: Run, summary: Summary) -> Iterator[Table]:
    """Yield a table of why requests failed under each load, for each variant the most frequent reasons first.

    A count is the median over the trusted trials. A trial in which a reason did not occur counts as zero.
    """
    for load in run.loads:
        lines: list[tuple[str, ...]] = []
        for name in (variant.name for variant in run.variants_under(load.name)):
            mine = [trial for trial in summary.trials if trial.key[:2] == (name, load.name)]
            trials = [trial.trial for trial in mine if trial.is_trusted]
            found: dict[tuple[str, str], Counter[int]] = {}
            for row in summary.errors:
                if (row.variant, row.load) == (name, load.name):
                    found.setdefault((row.request_class, row.error), Counter())[row.trial] = row.requests
            counts = {reason: float(median(by_trial[trial] for trial in trials)) for reason, by_trial in found.items()}
            reasons = sorted(counts, key=lambda reason: (-counts[reason], reason))
            lines += [(name, *reason, _count("requests", counts[reason])) for reason in reasons[:_ERRORS]]
            if rest := reasons[_ERRORS:]:
                others = plural(len(rest), "other reason")
                lines.append((name, "", others, _count("requests", sum(counts[reason] for reason in rest))))
        if lines:
            head = ("variant", "request", "error", "requests")
            yield Table(f"Why requests failed{load_suffix(run, load.name)}{median_suffix(run)}", head, lines, words=3)


_ERRORS = 8
"""The most reasons that are listed for a variant under a load. There may be many, because errors may name ports."""
