"""The rows of a summary: what was published, predicted and measured of each quantity, beside each other."""

from collections.abc import Iterator

from stampede.evaluate.metrics import unit
from stampede.evaluate.metrics.simulated import Predictions
from stampede.evaluate.statistics import intervals
from stampede.evaluate.statistics.results import CompletionTimes, Results
from stampede.evaluate.statistics.stopping import LEAST
from stampede.records.summary import CompletionTimesRow, DifferenceRow, Row


def figure_rows(results: Results, predictions: Predictions) -> Iterator[Row]:
    """Yield each quantity that was measured or published. If nothing was measured, also yield what is predicted."""
    measured = any(figure.draws for figure in results.figures.values())
    for quantity, figure in results.figures.items():
        cell, key = (quantity.variant, quantity.load or "", quantity.request_class), (quantity.metric, quantity.stat)
        published, predicted = results.published.get(quantity), predictions.values.get((cell, *key))
        if not (figure.draws or figure.pooled) and published is None and (measured or not predicted):
            continue
        low, high = figure.interval or (None, None)
        row = Row(
            **dict(quantity),
            unit=unit(*key),
            published=published,
            predicted=predicted.median if predicted else None,
            predicted_low=predicted.low if predicted else None,
            predicted_high=predicted.high if predicted else None,
            measured=figure.median,
            low=low,
            high=high,
            n=figure.n,
            trials=len(figure.draws),
            values={trial: draw.value for trial, draw in figure.draws.items()},
            by_clocks={trial: draw.clocks for trial, draw in figure.draws.items() if draw.clocks} or None,
        )
        yield row.model_copy(update={**figure.pooled._asdict(), "pooled": True}) if figure.pooled else row


def completion_times_rows(results: Results, predictions: Predictions) -> Iterator[CompletionTimesRow]:
    """Yield the completion times that were measured or published, in the experiment's order."""
    published = {
        (entry.variant, entry.load): entry.expected_completion_times
        for entry, _ in results.entries
        if entry.completion_times
    }
    for load in results.run.loads:
        for variant in results.run.variants:
            cell = variant.name, load.name
            if load.has_small_bursts and (cell in results.completion_times or cell in published):
                times = results.completion_times.get(cell, CompletionTimes())
                yield CompletionTimesRow(
                    variant=variant.name,
                    load=load.name,
                    published=published.get(cell),
                    predicted=[step.median for step in predictions.completion_times.get(cell, [])] or None,
                    measured=[*times.measured],
                    low=[interval[0] for interval in times.intervals if interval] or None,
                    high=[interval[1] for interval in times.intervals if interval] or None,
                )


def difference_rows(results: Results) -> Iterator[DifferenceRow]:
    """Yield the differences between a run's two variants, for each statistic that both have from two or more trials."""
    first, second = (variant.name for variant in results.run.variants)
    of_first = [quantity for quantity in results.figures if quantity.variant == first]
    for quantity in sorted(of_first, key=lambda quantity: quantity.load or ""):
        a, b = results.figures[quantity], results.figures.get(quantity.model_copy(update={"variant": second}))
        if a.median is None or b is None or b.median is None or min(len(a.draws), len(b.draws)) < LEAST:
            continue
        low, high = intervals.of_difference([*b.draws.values()], [*a.draws.values()])
        yield DifferenceRow(
            load=quantity.load or "",
            request_class=quantity.request_class,
            metric=quantity.metric,
            stat=quantity.stat,
            unit=unit(quantity.metric, quantity.stat),
            a=a.median,
            b=b.median,
            low=low,
            high=high,
            smallest=max(abs(low), abs(high)),
            trials=min(len(a.draws), len(b.draws)),
        )
