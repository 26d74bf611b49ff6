"""What the records of a newer version say that this version does not know: it is kept, named and not judged."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from stampede.evaluate.metrics import STATISTICS, unit
from stampede.evaluate.metrics.spread import evenness
from stampede.records.claims import Claim, Measure, Published, Quantity
from stampede.records.model import Record
from stampede.records.run import KINDS, SCHEMA, Run, TrialRecord


def unknown(run: Run, trials: Iterable[TrialRecord] = ()) -> Iterator[str]:
    """Yield a sentence for everything in a run's records that this version does not know; nothing if it knows all."""
    records = [*trials]
    if (newest := max([run.schema_, *(record.schema_ for record in records)])) > SCHEMA:
        yield f"the records have schema {newest}, and this version reads schema {SCHEMA}: it leaves out what is new"
    if keys := [*unknown_keys(run)]:
        yield f"not read by this version: {', '.join(keys)} in run.json"
    if keys := [*dict.fromkeys(key for record in records for key in unknown_keys(record))]:
        yield f"not read by this version: {', '.join(keys)} in trial.json"
    for load in run.loads:
        if load.kind not in KINDS:
            yield f"not judged by this version: {load.name} is a load of the kind {load.kind}"
    for claim in run.claims:
        if what := unknown_in_claim(run, claim):
            yield f"not judged by this version: the claim {claim.says!r} asks for {what}"
    for published in run.published:
        if what := _unknown_in_published(run, published) or ", ".join(_unknown_statistics(published).values()):
            yield f"not judged by this version: of {published.variant}, {what} was published"
    for measure in run.curve.values if run.curve else []:
        if what := unknown_in_measure(measure):
            yield f"not drawn by this version: the curve asks for {what}"


def unknown_keys(record: Record) -> Iterator[str]:
    """Yield the path of every key that this version does not know, e.g. ``claims[2].value.during``."""
    yield from record.model_extra or {}
    for name in type(record).model_fields:
        value = getattr(record, name)
        if isinstance(value, Record):
            yield from (f"{name}.{key}" for key in unknown_keys(value))
        elif isinstance(value, list):
            for place, part in enumerate(value):
                if isinstance(part, Record):
                    yield from (f"{name}[{place}].{key}" for key in unknown_keys(part))


def unknown_in_claim(run: Run, claim: Claim) -> str | None:
    """Return what a claim asks for that this version does not know, e.g. the metric queue_time; None: it knows all.

    A key that this version does not know may change what the claim means, so such a claim cannot be judged either.
    """
    if key := next(unknown_keys(claim), None):
        return f"the key {key}"
    for quantity in claim.quantities:
        if what := unknown_in_measure(quantity) or _unknown_load(run, quantity.load):
            return what
    return None if claim.has_one_bound else "a bound other than at_least or at_most"


class KnownClaim(NamedTuple):
    """A claim whose quantities name their load. ``unknown`` is what this version does not know of it; None: nothing."""

    claim: Claim
    unknown: str | None


def known_claim(run: Run, claim: Claim) -> KnownClaim:
    """Return a claim of a run whose quantities name their load, also if the run has only one."""
    return KnownClaim(claim.with_load(run.loads[0].name), unknown_in_claim(run, claim))


class KnownFigures(NamedTuple):
    """What this version knows of a published entry, which names its load.

    ``figures`` are those that this lab should measure. ``unknown`` has words for each statistic that this version
    cannot judge. ``reason`` is why it can judge nothing of the entry; None: it can judge something.
    """

    entry: Published
    figures: dict[Quantity, float]
    unknown: dict[str, str]
    reason: str | None


def known_entries(run: Run) -> list[KnownFigures]:
    """Return what this version knows of each published entry, for the variants that are part of the run."""
    variants = {variant.name for variant in run.variants}
    return [known_figures(run, entry) for entry in run.published if entry.variant in variants]


def known_figures(run: Run, published: Published) -> KnownFigures:
    """Return which figures of a published entry this version can judge, and why it cannot judge the others."""
    entry = published.model_copy(update={"load": published.load or next((load.name for load in run.loads), None)})
    if reason := _unknown_in_published(run, published):
        return KnownFigures(entry, {}, dict.fromkeys(published.stats, reason), reason)
    figures = {
        Quantity(
            variant=entry.variant, load=entry.load, request_class=entry.request_class, metric=entry.metric, stat=stat
        ): value
        for stat, value in comparable_figures(published).items()
    }
    return KnownFigures(entry, figures, _unknown_statistics(published), None)


def _unknown_in_published(run: Run, published: Published) -> str | None:
    if key := next(unknown_keys(published), None):
        return f"the key {key}"
    if published.metric not in STATISTICS:
        return f"the metric {published.metric}"
    if not (published.stats or published.counts or published.completion_times):
        return f"no figure of {published.metric} that this version knows"
    return _unknown_load(run, published.load)


def _unknown_statistics(published: Published) -> dict[str, str]:
    """Return in words each statistic of a known metric that this version does not know."""
    known, metric = STATISTICS[published.metric], published.metric
    return {stat: f"the statistic {stat} of {metric}" for stat in published.stats if stat not in known}


def comparable_figures(published: Published) -> dict[str, float]:
    """Return the statistics that this lab should measure; for published counts, the statistics of how even they are.

    Statistics that this version does not know are left out.
    """
    return {
        stat: value / published.divided_by if unit(published.metric, stat) == "ms" else value
        for stat, value in (published.stats | evenness(published.counts)).items()
        if stat in STATISTICS.get(published.metric, ())
    }


def unknown_in_measure(measure: Measure) -> str | None:
    """Return the metric or the statistic of a measure in words if this version does not know it."""
    if measure.metric not in STATISTICS:
        return f"the metric {measure.metric}"
    if measure.stat not in STATISTICS[measure.metric]:
        return f"the statistic {measure.stat} of {measure.metric}"
    return None


def _unknown_load(run: Run, name: str | None) -> str | None:
    """Return in words why a load cannot be judged: its kind is unknown, or the run does not have it."""
    load = next((each for each in run.loads if name in (None, each.name)), None)
    if load is None:
        return f"the load {name}, which the run does not have"
    return None if load.kind in KINDS else f"a load of the kind {load.kind}"
