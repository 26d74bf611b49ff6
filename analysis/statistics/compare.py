"""How two runs, or two variants, differ: which differences are more than chance, and how large the others may be.

All differences of one comparison together are wrong in at most one of twenty comparisons in which nothing differs
(Bonferroni). Each trial is one draw; the trials of the two sides may vary differently (Welch 1947).
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import exp, isclose, log, sqrt
from pathlib import Path
from statistics import fmean, median, variance
from typing import Literal, NamedTuple

import numpy as np

from analysis.metrics import METRICS, MetricName, Statistic
from analysis.records.run import LoadRecord, Run
from analysis.records.summary import Row, Summary
from analysis.statistics.deciding import ENOUGH, LEAST

ERROR = 0.05
"""The share of comparisons, of which nothing differs, that may name a difference."""

_COMPARED: tuple[tuple[MetricName, Statistic], ...] = (
    ("overhead", "p50"), ("overhead", "p90"), ("overhead", "p99"), ("throughput", "per_second"),
    ("avoidable_wait", "share"), ("requests_by_worker", "largest_share"), ("failures", "share"),
    ("visit", "p50"), ("visit", "p99"), ("visits_failed", "share"), ("burst", "total"),
)  # fmt: skip


_FARTHEST = log(1000)
"""The end of an interval is never farther than this: ratios of two trials may reach to hundreds of digits."""


class Side(NamedTuple):
    """One side of a comparison. ``variant``: only this variant; None: all variants that both sides have."""

    name: str
    run: Run
    summary: Summary
    variant: str | None = None


class Difference(NamedTuple):
    """How one statistic differs. ``low`` and ``high`` are the interval of b divided by a, or of b minus a for shares.

    ``smallest`` is the smallest change, as a ratio or a share, that these trials would have told from chance. The
    verdict is ``~`` if the change may be chance. ``of_a`` and ``of_b`` have the value of each trial.
    """

    variant: str
    load: str
    request: str | None
    metric: str
    stat: str
    unit: str
    a: float
    b: float
    of_share: bool
    low: float
    high: float
    smallest: float
    verdict: Literal["lower", "higher", "~"]
    of_a: Sequence[float] = ()
    of_b: Sequence[float] = ()

    @property
    def has_interval(self) -> bool:
        """Whether both sides have enough trials for an interval that tells a reader anything."""
        return min(len(self.of_a), len(self.of_b)) >= ENOUGH


def obstacles(one: Side, other: Side) -> Iterator[str]:
    """Yield why two sides cannot be compared; nothing: they can."""
    cells = [*_cells(one, other)]
    if not cells:
        yield f"{one.name} and {other.name} have no variant and load in common"
    asked = [{(mine, load) for mine, _, load in cells}, {(its, load) for _, its, load in cells}]
    for side, compared in zip((one, other), asked, strict=True):
        trials = [trial for trial in side.summary.trials if (trial.variant, trial.load) in compared]
        invalid = sum(trial.verdict == "invalid" for trial in trials)
        if cells and len({trial.trial for trial in trials if trial.verdict != "invalid"}) < LEAST:
            yield f"{side.name} has fewer than two trusted trials, and one trial does not show how far trials differ"
        elif invalid:
            yield f"{invalid} of {len(trials)} trials of {side.name} are invalid"
    for name in dict.fromkeys(load for *_, load in cells):
        mine, theirs = one.run.load(name), other.run.load(name)
        if mine.loop != theirs.loop:
            yield f"{name} is {_a(mine)} in {one.name} and {_a(theirs)} in {other.name}"
        elif mine.script != theirs.script:
            yield f"{name} is sent by {mine.script} in {one.name} and by {theirs.script} in {other.name}"
        if mine.settings.get("CPU") != theirs.settings.get("CPU"):
            of_one, of_other = (f"CPU={load.settings.get('CPU', 'no')}" for load in (mine, theirs))
            yield f"requests of {name} compute in another way: {of_one} in {one.name}, {of_other} in {other.name}"
    if one.run.method != other.run.method:
        yield (
            f"{one.name} was measured by method {one.run.method} and {other.name} by method {other.run.method} "
            "(see Method in CHANGELOG.md)"
        )


def doubts(one: Side, other: Side) -> Iterator[str]:
    """Yield how many trials of each side are suspect, and why the first of them is."""
    cells = [*_cells(one, other)]
    for place, side in enumerate((one, other)):
        compared = {(cell[place], cell[2]) for cell in cells}
        trials = [trial for trial in side.summary.trials if (trial.variant, trial.load) in compared]
        if suspect := [trial for trial in trials if trial.verdict == "suspect"]:
            yield f"{len(suspect)} of {len(trials)} trials of {side.name} are suspect: {suspect[0].reasons[0]}"


def have_common(one: Side, other: Side) -> bool:
    """Whether there is anything to compare: a variant of each side, under a load that both sides have."""
    return bool([*_cells(one, other)])


def _a(load: LoadRecord) -> str:
    return {"closed": "a closed loop", "open": "an open loop"}.get(load.loop, f"of the loop {load.loop}")


def _cells(one: Side, other: Side) -> Iterator[tuple[str, str, str]]:
    """Yield the variant of one side, the variant of the other side, and the load, for everything to be compared."""
    loads = [load.name for load in one.run.loads if load.name in {theirs.name for theirs in other.run.loads}]
    known = [{variant.name for variant in side.run.variants} for side in (one, other)]
    if one.variant or other.variant:
        pairs = [(one.variant or other.variant or "", other.variant or one.variant or "")]
    else:
        pairs = [(variant.name, variant.name) for variant in one.run.variants]
    for (mine, its), load in product(pairs, loads):
        if mine in known[0] and its in known[1]:
            yield mine, its, load


def differences(one: Side, other: Side) -> list[Difference]:
    """Return how the statistics of two sides differ that both sides have from two or more trials."""
    pairs = [*_pairs(one, other)]
    confidence = 1 - ERROR / max(1, len(pairs))
    return [_difference(variant, a, b, confidence) for variant, a, b in pairs]


def _pairs(one: Side, other: Side) -> Iterator[tuple[str, Row, Row]]:
    rows = {(row.variant, row.load, row.request, row.metric, row.stat): row for row in other.summary.rows}
    for mine, its, load in _cells(one, other):
        called = mine if mine == its else f"{mine} | {its}"
        for metric, stat in _COMPARED:
            for row in one.summary.rows:
                if (row.variant, row.load, row.metric, row.stat) != (mine, load, metric, stat):
                    continue
                their = rows.get((its, load, row.request, metric, stat))
                alike = row.request is None and not METRICS[metric].of_all and _has_one_class(one.summary, mine, load)
                if their and min(len(row.values), len(their.values)) >= LEAST and not alike:
                    yield called, row, their


def _has_one_class(summary: Summary, variant: str, load: str) -> bool:
    """Return whether all requests of a variant are of one class, so that rows of all requests say nothing more."""
    return len({row.request for row in summary.rows if (row.variant, row.load) == (variant, load) and row.request}) == 1


def _difference(variant: str, one: Row, other: Row, confidence: float) -> Difference:
    a, b = [*one.values.values()], [*other.values.values()]
    least = min(*a, *b, *_by_clocks(one, 0), *_by_clocks(other, 0))
    of_share = one.unit in ("share", "index") or least <= 0
    change, reach = _change(a, b, confidence, of_share=of_share)
    low, high = change - reach, change + reach
    if one.by_clocks or other.by_clocks:  # the clocks may be wrong in opposite ways on the two sides
        for end in (0, 1):
            farthest, by = _change(_by_clocks(one, 1 - end), _by_clocks(other, end), confidence, of_share=of_share)
            low, high = min(low, farthest - by), max(high, farthest + by)
        reach = max(change - low, high - change)
    if not of_share:
        low, high, reach = (exp(max(-_FARTHEST, min(end, _FARTHEST))) for end in (low, high, reach))
    nothing = 0 if of_share else 1
    same = isclose(change, 0, abs_tol=1e-12)
    return Difference(
        variant=variant,
        load=one.load,
        request=one.request,
        metric=one.metric,
        stat=one.stat,
        unit=one.unit,
        a=median(a),
        b=median(b),
        of_share=of_share,
        low=low,
        high=high,
        smallest=reach,
        verdict="~" if same else "higher" if low > nothing else "lower" if high < nothing else "~",
        of_a=a,
        of_b=b,
    )


def _change(a: list[float], b: list[float], confidence: float, *, of_share: bool) -> tuple[float, float]:
    """Return the change from a to b, on logarithms unless the values are shares, and how far its interval reaches."""
    scaled = [a, b] if of_share else [[log(value) for value in side] for side in (a, b)]
    error, degrees = welch(*scaled)
    return fmean(scaled[1]) - fmean(scaled[0]), student(confidence, degrees) * error


def _by_clocks(row: Row, end: int) -> list[float]:
    """Return the values of all trials by the clocks that give the least (0) or the most (1)."""
    return [(row.by_clocks or {}).get(trial, (value, value))[end] for trial, value in row.values.items()]


def welch(one: list[float], other: list[float]) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom (Welch 1947).

    Values that do not vary at all have an error of 0, and as many degrees of freedom as the smaller side.
    """
    parts = [variance(side) / len(side) for side in (one, other)]
    error = sqrt(sum(parts))
    if not error:
        return 0.0, min(len(one), len(other)) - 1
    return error, sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (one, other), strict=True)
    )


def student(confidence: float, degrees: float) -> float:
    """Return the t beyond which, on both sides together, 1 - ``confidence`` of Student's distribution lies."""
    angles = np.linspace(0, np.pi / 2, 20_001)  # t = sqrt(degrees) * tan(angle) makes the whole axis a quarter circle
    density = np.cos(angles) ** (degrees - 1)
    passed = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return float(sqrt(degrees) * np.tan(np.interp(confidence * passed[-1], passed, angles)))


def what_differs(one: Side, other: Side) -> Iterator[tuple[str, str, str]]:
    """Yield what else differs between two sides: its name, and its value on each side."""
    for name, mine, theirs in dict.fromkeys(_described(one, other)):
        if mine != theirs:
            yield name, mine, theirs


def _described(one: Side, other: Side) -> Iterator[tuple[str, str, str]]:
    runs = one.run, other.run

    def both(name: str, *values: object) -> tuple[str, str, str]:
        return name, str(values[0]), str(values[1])

    yield both("machine", *(f"{run.host.cpu}, {run.host.cores} cores, {run.host.memory_gib} GiB" for run in runs))
    yield both("machines", *(run.measured_on if run.machines else "–" for run in runs))
    yield both("kernel", *(run.host.kernel for run in runs))
    yield both("engine", *(f"{run.host.engine}, Compose {run.host.compose}" for run in runs))
    yield both("lab", *(run.git.commit[:12] if run.git else "not a git checkout" for run in runs))
    yield both("trials", *(run.trials for run in runs))
    yield both("side by side", *(run.jobs for run in runs))
    programs = [{f"{image.name}: {name}": version for image in run.images for name, version in image.programs.items()}
                for run in runs]  # fmt: skip
    for name in sorted({*programs[0], *programs[1]}):
        yield both(name, *(found.get(name, "–") for found in programs))
    for mine, its, load in _cells(one, other):
        settings = one.run.variant(mine).settings, other.run.variant(its).settings
        for key in {**settings[0], **settings[1]}:
            yield both(f"{mine}: {key}", *(found.get(key, "–") for found in settings))
        loads = one.run.load(load), other.run.load(load)
        yield both(f"{load}: duration", *(found.duration for found in loads))
        for key in {**loads[0].settings, **loads[1].settings}:
            yield both(f"{load}: {key}", *(found.settings.get(key, "–") for found in loads))
        for key in ("generators", "api", "database", "client", "relative"):
            yield both(f"{load}: {key}", *(getattr(found, key) or "–" for found in loads))


def side(text: str) -> tuple[Path, str | None]:
    """Return the folder and the variant that ``FOLDER`` or ``FOLDER:VARIANT`` names."""
    folder, colon, variant = text.rpartition(":")
    return (Path(folder), variant) if colon and not Path(text).exists() else (Path(text), None)
