"""The runs of a whole class: what each laptop measured of the same claims and published figures.

Nothing here tells whose laptop it is. A laptop has a number, and words come from the lab's own files.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, NamedTuple

from stampede.experiment.model import Experiment
from stampede.records.claims import Claim, Quantity
from stampede.records.run import Run
from stampede.records.summary import Summary

Mode = Literal["sleep", "hold", "burn"]
"""How requests pass their time: they sleep, hold the interpreter lock, or really compute."""
_ROLES = {"answer": 0, "cure": 1, None: 2}
_VERDICTS = (
    "reproduced",
    "differs by the floor",
    "not reproduced",
    "contradicted",
    "not measured in a short run",
    "undecided",
    "invalid",
)


class SubmittedRun(NamedTuple):
    """A run that somebody handed in, with its results. ``manifest`` is the hash of its manifest."""

    run: Run
    summary: Summary
    manifest: str


@dataclass(frozen=True)
class Laptop:
    """What one laptop has handed in: the run of each experiment. ``number`` tells nothing of whose laptop it is."""

    number: int
    runs: Mapping[str, SubmittedRun]

    @property
    def name(self) -> str:
        """The name of the laptop on the page."""
        return f"laptop-{self.number}"


class Dot(NamedTuple):
    """What one laptop says of a claim or a published figure. ``value``: None: it has no number.

    ``suspect``: the verdict rests on a suspect trial.
    """

    laptop: int
    value: float | None
    verdict: str
    cores: int
    cpu_mode: Mode
    suspect: bool = False


@dataclass(frozen=True)
class Strip:
    """One number of all laptops: of a claim, or of a published figure if ``claim`` is None.

    ``stat`` is a statistic or, for a staircase, which answer of a burst it is for. ``predicted`` has what theory
    predicts for each laptop, because a prediction depends on the settings of a run.
    """

    says: str
    quantity: Quantity | None
    stat: str
    unit: str
    claim: Claim | None
    dots: Sequence[Dot]
    predicted: Sequence[float]
    published: float | None

    @property
    def values(self) -> dict[int, float]:
        """The number of each laptop that has one."""
        return {dot.laptop: dot.value for dot in self.dots if dot.value is not None}

    @property
    def median(self) -> float | None:
        """The median of all laptops."""
        return median(self.values.values()) if self.values else None

    @property
    def verdicts(self) -> dict[str, int]:
        """How many laptops have each verdict: the most frequent first, and of equally frequent ones the best first."""
        found = Counter(dot.verdict for dot in self.dots)
        ordered = sorted(found, key=lambda verdict: (-found[verdict], _VERDICTS.index(verdict)))
        return {verdict: found[verdict] for verdict in ordered}

    @property
    def most(self) -> str:
        """The verdict of most laptops."""
        return next(iter(self.verdicts))


def number_laptops(submissions: Iterable[Sequence[SubmittedRun]]) -> list[Laptop]:
    """Return the laptops, those with the fewest cores first, in an order that does not depend on names."""
    chosen = []
    for handed in filter(None, submissions):
        # of several runs of an experiment, one that was completed counts, then the most variants, then the newest
        best_last = sorted(handed, key=lambda of: (of.run.outcome == "completed", len(of.run.variants), of.run.began))
        runs = {of.run.experiment: of for of in best_last}
        key = min(of.run.cores for of in runs.values()), sorted(of.manifest for of in runs.values())
        chosen.append((key, runs))
    return [Laptop(number, runs) for number, (_, runs) in enumerate(sorted(chosen, key=lambda of: of[0]), start=1)]


def strips(laptops: Iterable[Laptop], experiment: str, own: Experiment) -> list[Strip]:
    """Return the strips of an experiment: its claims, those that answer its question first, then published figures.

    ``own`` is what the lab's own file says of it. A published figure that a claim is about has no strip of its own,
    because it is on the strip of the claim.
    """
    load = next(iter(own.all_loads))
    words_of = {_key(*claim.with_load(load).quantities) + claim.bound: claim.says for claim in own.claims}
    published = {f"{of.variant} {of.load or load} {of.request_class} {of.metric}" for of in own.published}
    claims: dict[str, list[Strip]] = {}
    figures: dict[str, list[Strip]] = {}
    for laptop in laptops:
        if handed := laptop.runs.get(experiment):
            for found, strips_of in ((claims, _claims), (figures, _figures)):
                for key, strip in strips_of(laptop.number, handed):
                    found.setdefault(key, []).append(strip)
    made = [_joined(words, claims[key]) for key, words in words_of.items() if key in claims]
    made.sort(key=lambda strip: _ROLES.get(strip.claim.role if strip.claim else None, 2))
    shown = {_key(strip.quantity) for strip in made if strip.claim and strip.quantity and not strip.claim.relative_to}
    return made + [
        _joined("", all_of)
        for key, all_of in figures.items()
        if key not in shown and key.rpartition(" ")[0] in published
    ]


def _joined(words: str, all_of: Sequence[Strip]) -> Strip:
    return replace(
        all_of[0],
        says=words,
        dots=[dot for strip in all_of for dot in strip.dots],
        predicted=[value for strip in all_of for value in strip.predicted],
        published=next((strip.published for strip in all_of if strip.published is not None), None),
    )


def _claims(laptop: int, handed: SubmittedRun) -> Iterator[tuple[str, Strip]]:
    run, summary, _ = handed
    for said, row in zip(run.claims, summary.claims, strict=True):
        claim = said.with_load(run.loads[0].name)
        dot = Dot(laptop, row.measured, row.verdict, run.cores, cpu_mode(run, claim.value.load or ""), row.suspect)
        theory, published = (_known(summary, claim.quantities, word) for word in ("predicted", "published"))
        strip = Strip(said.says, claim.value, row.stat, row.unit, claim, [dot], theory, next(iter(published), None))
        yield _key(*claim.quantities) + claim.bound, strip


def _key(*quantities: Quantity) -> str:
    """Return a text that is the same for the same quantities."""
    return " / ".join(f"{of.variant} {of.load} {of.request_class} {of.metric} {of.stat}" for of in quantities)


def _known(summary: Summary, quantities: Iterable[Quantity], word: str) -> list[float]:
    """Return what is ``predicted`` or ``published`` of a value, or of the ratio of two values; empty: nothing is."""
    rows = [summary.row(of.variant, of.load, of.request_class, of.metric, of.stat) for of in quantities]
    match [row and getattr(row, word) for row in rows]:
        case [float(value)]:
            return [value]
        case [float(value), float(other)] if other:
            return [value / other]
        case _:
            return []


def _figures(laptop: int, handed: SubmittedRun) -> Iterator[tuple[str, Strip]]:
    """Yield the most telling figure of each published row."""
    run, summary, _ = handed
    for row in summary.published:
        if row.figures:
            times = [figure for figure in row.figures if figure.unit == "ms"]
            figure = max(times, key=lambda figure: figure.published) if times else row.figures[0]
            quantity = Quantity.model_construct(  # the steps of a staircase (1st, 2nd …) are no statistics
                variant=row.variant, load=row.load, request_class=row.request_class, metric=row.metric, stat=figure.stat
            )
            dot = Dot(laptop, figure.measured, figure.verdict, run.cores, cpu_mode(run, row.load), row.suspect)
            theory = _known(summary, [quantity], "predicted")
            yield _key(quantity), Strip("", quantity, figure.stat, figure.unit, None, [dot], theory, figure.published)


def cpu_mode(run: Run, load: str) -> Mode:
    """Return how the requests of a load pass their time."""
    cpu = next((load_record.settings.get("CPU") for load_record in run.loads if load_record.name == load), None)
    return "hold" if cpu == "hold" else "burn" if cpu == "burn" else "sleep"
