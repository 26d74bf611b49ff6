"""Tables of what was published, predicted and measured, of failures and bursts."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from stampede.evaluate.metrics import METRICS, MetricName
from stampede.evaluate.metrics.metric import PRINTED, Metric
from stampede.records.run import Run
from stampede.records.summary import Estimate, Summary
from stampede.records.words import plural
from stampede.report.spread import COUNTED, INTERVAL, POOLED, is_certain, line_ends, word_list
from stampede.report.tables import Table
from stampede.report.wording import (
    capitalised,
    divisor_suffix,
    load_suffix,
    metric_phrase,
    number,
    plain_name,
    whole_number,
)


def quantity_tables(run: Run, summary: Summary) -> Iterator[Table]:
    """Yield the tables of each load by metric, and of each metric the most frequent class of request first.

    There is a table for everything that was published or claimed, and for the metrics whose declarations say so.
    """
    for load in run.loads:
        rows = [row for row in summary.rows if row.load == load.name]
        by_frequency = sorted((row for row in rows if row.metric == "overhead"), key=lambda row: row.n)
        frequency = {None: 0} | {row.request_class: row.n for row in by_frequency}
        classes = sorted(frequency, key=lambda name: (name is None, -frequency[name], name or ""))
        claimed = [part for claim in run.claims for part in claim.quantities if part.load in (None, load.name)]
        wanted = {(row.metric, row.request_class) for row in rows if row.published is not None}
        wanted |= {(quantity.metric, quantity.request_class) for quantity in claimed}
        for metric in METRICS.values():
            for request_class in classes:
                found = [row for row in rows if (row.metric, row.request_class) == (metric.name, request_class)]
                shown = metric.shown == "always" or (
                    metric.shown == "if not 0"
                    and any(row.measured for row in found if row.stat == next(iter(metric.units)))
                )
                shown &= not load.crashes and metric.of_all == (request_class is None)
                shown &= not (metric.is_of_times and load.has_tabled_bursts)  # these have a table of every request
                if found and ((metric.name, request_class) in wanted or shown):
                    table = _quantity_table(run, summary, load.name, metric, request_class, found)
                    if len(frequency.keys() - {None}) == 1:  # then nobody needs the name of the class
                        table = replace(table, title=table.title.replace(f" of {request_class} ", " of ", 1))
                    if table.rows:
                        yield table


def legend(run: Run, tables: Iterable[Table]) -> list[str]:
    """Return what the lines of tables of quantities mean, each a sentence without a capital letter and a full stop."""
    kinds = {row[1] for table in tables for row in table.rows}
    at_once = max(min(run.jobs, len(run.variants_under(load.name))) for load in run.loads)
    variants = f"{at_once} variants side by side" if at_once > 1 else "one variant at a time"
    predicted = f"predicted: what theory says of {variants}" + (f" on {plural(run.cores, 'core')}" if run.cores else "")
    return (
        [INTERVAL, COUNTED] * (run.trials > 1 and "measured" in kinds)
        + [POOLED] * ("pooled" in kinds)
        + [predicted] * ("predicted" in kinds)
    )


def _quantity_table(
    run: Run, summary: Summary, load: str, metric: Metric, request_class: str | None, rows: Sequence[Estimate]
) -> Table:
    """Return a table of a metric; each variant has the lines that have a figure, from published to pooled."""
    published = {row.stat for row in rows if row.published is not None}
    stats = [stat for stat in metric.units if stat in PRINTED or stat in published or not metric.is_of_times]
    names = [variant.name for variant in run.variants_under(load)]
    lines: list[tuple[str, ...]] = []
    for name in names:
        asked = (summary.row(name, load, request_class, metric.name, stat) for stat in stats)
        mine = {row.stat: row for row in asked if row}
        n = str(max((row.n for row in mine.values()), default=0))
        by = divisor_suffix(_divided_by(run, name, load, metric.name, request_class, completion_times=False))
        figures = {
            f"published{by}": {stat: _count(row.unit, row.published) for stat, row in mine.items()},
            "predicted": {stat: _count(row.unit, row.predicted) for stat, row in mine.items()},
            "measured": {stat: _measured_cell(row) for stat, row in mine.items() if not row.pooled},
            "pooled": {stat: _measured_cell(row) for stat, row in mine.items() if row.pooled},
        }
        for word, cells in figures.items():
            if any(cell != number(None) for cell in cells.values()):
                counted = n if word in ("measured", "pooled") else ""
                lines.append((name, word, *(cells.get(stat, number(None)) for stat in stats), counted))
    title, units = metric_phrase(metric.name, request_class), {metric.units[stat] for stat in stats}
    of_unit = "".join(f", {unit}" for unit in units if len(units) == 1 and unit not in title.split())
    title = f"{capitalised(title)}{of_unit}{load_suffix(run, load)}"
    several = [f"{plain_name(stat)}{', ms' * (len(units) > 1 and metric.units[stat] == 'ms')}" for stat in stats]
    has = {row.variant for row in rows if row.measured is not None}
    lacking = [name for name in names if name not in has]
    note = f"no value of this quantity: {word_list(lacking)}" if has and lacking else ""
    head = ("variant", "", *several, "visits" if metric.sample == "visits" else "answered")
    return Table(title, head, lines, words=2, note=note).without_gaps()


def _count(of_unit: str, value: float | None) -> str:
    return number(whole_number(of_unit, value))


def _measured_cell(row: Estimate) -> str:
    """Return a value, and below it its interval; or what each trial measured. Equal numbers are shown once."""
    shown = _count(row.unit, row.measured)
    if row.measured is None:
        return shown
    ends = [_count(row.unit, end) for end in line_ends(row)]
    if {*ends} == {shown}:
        return shown
    if is_certain(row):
        return f"{shown}\n{' to '.join(ends)}"
    return word_list([_count(row.unit, of) for of in row.values.values()])


def _divided_by(
    run: Run, variant: str, load: str, metric: MetricName, request_class: str | None, *, completion_times: bool
) -> float:
    """Return the number by which the published figures of a line were divided; 1 if they were not."""
    wanted = (variant, metric, request_class, completion_times)
    for row in run.published:
        says = (row.variant, row.metric, row.request_class, bool(row.completion_times))
        if says == wanted and row.load in (None, load):
            return row.divided_by
    return 1


def stairs_tables(run: Run, summary: Summary) -> Iterator[Table]:
    """Yield the staircases of each load that has small bursts: when the 1st, 2nd … answer came, in seconds."""
    for load in run.loads:
        rows = [row for row in summary.completion_times if row.load == load.name]
        if not rows or not load.has_tabled_bursts or load.crashes:
            continue
        lines = []
        for row in rows:
            by = _divided_by(run, row.variant, load.name, "response_time", None, completion_times=True)
            for word, times_ms in (
                (f"published{divisor_suffix(by)}", row.published), ("predicted", row.predicted),
                ("measured", row.measured),
            ):  # fmt: skip
                if times_ms:
                    lines.append((row.variant, word, "  ".join(f"{time_ms / 1000:.2f}" for time_ms in times_ms)))
        if lines:
            title = f"Response times in seconds, in order of completion{load_suffix(run, load.name)}"
            yield Table(title, ("variant", "", "1st to last"), lines, words=3)


def counting_tables(run: Run, summary: Summary) -> Iterator[Table]:
    """Yield the tables of failures and of staircases."""
    yield from errors_tables(run, summary)
    yield from stairs_tables(run, summary)


def errors_tables(run: Run, summary: Summary) -> Iterator[Table]:
    """Yield a table of why requests failed under each load: medians over trusted trials, the most frequent first."""
    of_trials = f", median of {run.trials} trials" if run.trials > 1 else ""
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
            yield Table(f"Why requests failed{load_suffix(run, load.name)}{of_trials}", head, lines, words=3)


_ERRORS = 8
"""The most reasons that are listed for a variant under a load. There may be many, because errors may name ports."""
