"""How two runs, or two variants, differ: which changes are more than chance, and how large the others may be.

All changes of one comparison together are wrong in at most one of twenty comparisons in which nothing differs
(Bonferroni). Each trial is one draw; the trials of the two sides may vary differently (Welch 1947).
"""

from collections.abc import Iterator, Sequence
from itertools import product
from math import exp, isclose, log, sqrt
from pathlib import Path
from statistics import fmean, median, variance
from typing import Literal, NamedTuple

from stampede.evaluate.metrics import METRICS
from stampede.evaluate.statistics.stopping import ENOUGH, LEAST
from stampede.records.run import Run
from stampede.records.summary import Estimate, Summary, TrialValidity, suspect_trials

ERROR = 0.05
"""The share of comparisons, of which nothing differs, that may name a change."""

FARTHEST = log(1000)
"""The end of an interval is never farther than this: ratios of two trials may reach to hundreds of digits."""


class Side(NamedTuple):
    """One side of a comparison. ``variant``: only this variant; None: all variants that both sides have."""

    name: str
    run: Run
    summary: Summary
    variant: str | None = None


class Change(NamedTuple):
    """How one statistic changes. ``low`` and ``high`` are the interval of b divided by a, or of b minus a for shares.

    ``smallest`` is the smallest change, as a ratio or a share, that these trials would have told from chance. The
    verdict is ``~`` if the change may be chance. ``of_a`` and ``of_b`` have the value of each trial.
    """

    variant: str
    load: str
    request_class: str | None
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


def obstacles(a: Side, b: Side) -> Iterator[str]:
    """Yield why two sides cannot be compared; nothing: they can."""
    cells = [*_cells(a, b)]
    if not cells:
        yield f"{a.name} and {b.name} have no variant and load in common"
    for side, trials in _compared_trials(a, b):
        invalid = sum(trial.verdict == "invalid" for trial in trials)
        if cells and len({trial.trial for trial in trials if trial.is_trusted}) < LEAST:
            yield f"{side.name} has fewer than two trusted trials, and one trial does not show how far trials differ"
        elif invalid:
            yield f"{invalid} of {len(trials)} trials of {side.name} are invalid"
    for name in dict.fromkeys(load for *_, load in cells):
        of_a, of_b = a.run.load(name), b.run.load(name)
        if of_a.loop != of_b.loop:
            loops = [f"{'a' if load.loop == 'closed' else 'an'} {load.loop} loop" for load in (of_a, of_b)]
            yield f"{name} is {loops[0]} in {a.name} and {loops[1]} in {b.name}"
        elif of_a.script != of_b.script:
            yield f"{name} is sent by {of_a.script} in {a.name} and by {of_b.script} in {b.name}"
        if of_a.settings.get("CPU") != of_b.settings.get("CPU"):
            ways = [f"CPU={load.settings.get('CPU', 'no')}" for load in (of_a, of_b)]
            yield f"requests of {name} compute in another way: {ways[0]} in {a.name}, {ways[1]} in {b.name}"
    if a.run.method != b.run.method:
        methods = f"{a.name} was measured by method {a.run.method} and {b.name} by method {b.run.method}"
        yield f"{methods} (see Method in CHANGELOG.md)"


def suspect_sides(a: Side, b: Side) -> Iterator[str]:
    """Yield how many trials of each side are suspect, and why the first of them is."""
    for side, trials in _compared_trials(a, b):
        if counted := suspect_trials(trials, of=side.name):
            yield f"{counted}: {next(trial.reasons[0] for trial in trials if trial.verdict == 'suspect')}"


def have_common(a: Side, b: Side) -> bool:
    """Whether there is anything to compare: a variant of each side, under a load that both sides have."""
    return any(_cells(a, b))


def _compared_trials(a: Side, b: Side) -> Iterator[tuple[Side, list[TrialValidity]]]:
    for place, side in enumerate((a, b)):
        cells = {(cell[place], cell[2]) for cell in _cells(a, b)}
        yield side, [trial for trial in side.summary.trials if (trial.variant, trial.load) in cells]


def _cells(a: Side, b: Side) -> Iterator[tuple[str, str, str]]:
    """Yield the variant of a, the variant of b, and the load, for everything to be compared."""
    loads = [load.name for load in a.run.loads if load.name in {theirs.name for theirs in b.run.loads}]
    known = [{variant.name for variant in side.run.variants} for side in (a, b)]
    if a.variant or b.variant:
        pairs = [(a.variant or b.variant or "", b.variant or a.variant or "")]
    else:
        pairs = [(variant.name, variant.name) for variant in a.run.variants]
    for (of_a, of_b), load in product(pairs, loads):
        if of_a in known[0] and of_b in known[1]:
            yield of_a, of_b, load


def changes(a: Side, b: Side) -> list[Change]:
    """Return how the statistics change that both sides have from two or more trials."""
    pairs = []
    for of_a, of_b, load in _cells(a, b):
        for metric, stat in ((known, stat) for known in METRICS.values() for stat in known.comparable):
            classes = a.summary.request_classes(of_a, load)
            for request_class in [*classes] if len(classes) == 1 and not metric.of_all else [*classes, None]:
                mine = a.summary.row(of_a, load, request_class, metric.name, stat)
                their = b.summary.row(of_b, load, request_class, metric.name, stat)
                if mine and their and min(len(mine.values), len(their.values)) >= LEAST:
                    pairs.append((of_a if of_a == of_b else f"{of_a} | {of_b}", mine, their))
    confidence = 1 - ERROR / max(1, len(pairs))
    return [_change(variant, mine, their, confidence) for variant, mine, their in pairs]


def _change(variant: str, a: Estimate, b: Estimate, confidence: float) -> Change:
    of_a, of_b = ([*row.values.values()] for row in (a, b))
    of_share = a.unit in ("share", "index") or min(*of_a, *of_b) <= 0
    scale = float if of_share else log
    scaled = [[*map(scale, side)] for side in (of_a, of_b)]
    error, degrees = welch(*scaled)
    change, reach = fmean(scaled[1]) - fmean(scaled[0]), student(confidence, degrees) * error
    low, high = change - reach, change + reach
    same = isclose(change, 0, abs_tol=1e-12)
    verdict: Literal["lower", "higher", "~"] = "~" if same else "higher" if low > 0 else "lower" if high < 0 else "~"
    if not of_share:
        low, high, reach = (exp(max(-FARTHEST, min(end, FARTHEST))) for end in (low, high, reach))
    told = a.model_dump(include={"load", "request_class", "metric", "stat", "unit"})
    return Change(
        variant=variant, **told, a=median(of_a), b=median(of_b), of_share=of_share, low=low, high=high, smallest=reach,
        verdict=verdict, of_a=of_a, of_b=of_b,
    )  # fmt: skip


def welch(a: list[float], b: list[float]) -> tuple[float, float]:
    """Return the standard error of the difference of two means, and its degrees of freedom (Welch 1947).

    Values that do not vary at all have an error of 0, and as many degrees of freedom as the smaller side.
    """
    parts = [variance(side) / len(side) for side in (a, b)]
    if not sum(parts):
        return 0.0, min(len(a), len(b)) - 1
    degrees = sum(parts) ** 2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    return sqrt(sum(parts)), degrees


def student(confidence: float, degrees: float) -> float:
    """Return the t beyond which, on both sides together, 1 - ``confidence`` of Student's distribution lies."""
    from scipy.special import stdtrit  # noqa: PLC0415  # takes a quarter of a second

    return float(stdtrit(degrees, (1 + confidence) / 2))


def what_differs(a: Side, b: Side) -> Iterator[tuple[str, str, str]]:
    """Yield what else differs between two sides: its name, and its value on each side."""
    setups = []
    for place, run in enumerate((a.run, b.run)):
        host = run.host
        found: dict[str, object] = {
            "machine": f"{host.cpu}, {host.cores} cores, {host.memory_gib} GiB",
            "machines": run.measured_on if run.machines else "–",
            "kernel": host.kernel,
            "engine": f"{host.engine}, Compose {host.compose}",
            "lab": run.git.commit[:12] if run.git else "not a git checkout",
            "trials": run.trials,
            "side by side": run.jobs,
        }
        programs = {f"{image.name}: {name}": of for image in run.images for name, of in image.programs.items()}
        found |= dict(sorted(programs.items()))
        for cell in _cells(a, b):
            called, name, load = cell[0], cell[2], run.load(cell[2])
            found |= {f"{called}: {key}": of for key, of in run.variant(cell[place]).settings_in_words.items()}
            found |= {f"{name}: {key}": of for key, of in {"duration": load.duration, **load.described}.items()}
            further = ("generators", "api", "database", "client", "relative")
            found |= {f"{name}: {key}": getattr(load, key) or "–" for key in further}
        setups.append(found)
    for name in {**setups[0], **setups[1]}:
        of_a, of_b = (str(setup.get(name, "–")) for setup in setups)
        if of_a != of_b:
            yield name, of_a, of_b


def parse_side(text: str) -> tuple[Path, str | None]:
    """Return the folder and the variant that ``FOLDER`` or ``FOLDER:VARIANT`` names."""
    folder, colon, variant = text.rpartition(":")
    return (Path(folder), variant) if colon and not Path(text).exists() else (Path(text), None)
