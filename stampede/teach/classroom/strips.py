"""The runs of a whole class: what each laptop measured of the same claims and published figures.

Nothing here tells whose laptop it is. A laptop has a number, and words come from the lab's own files, or from at least
two laptops: words that only one laptop has may be somebody's own.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal, NamedTuple

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


class OwnExperiment(NamedTuple):
    """What the lab's own file says of an experiment. ``claims`` has the words of each claim by ``claim_key``.

    ``step``: the step of the lesson that measures the experiment; empty: none.
    """

    title: str
    question: str
    claims: Mapping[str, str]
    variants: frozenset[str]
    step: str = ""


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

    def counts(handed: SubmittedRun) -> tuple[bool, int, str]:
        """Of several runs of an experiment, one that was completed counts, then the most variants, then the newest."""
        return handed.run.outcome == "completed", len(handed.run.variants), handed.run.began

    chosen = [{handed.run.experiment: handed for handed in sorted(runs, key=counts)} for runs in submissions if runs]

    def key(runs: Mapping[str, SubmittedRun]) -> tuple[int, list[str]]:
        return min(handed.run.cores for handed in runs.values()), sorted(handed.manifest for handed in runs.values())

    return [Laptop(number, runs) for number, runs in enumerate(sorted(chosen, key=key), start=1)]


def strips(laptops: Iterable[Laptop], experiment: str, own: OwnExperiment) -> list[Strip]:
    """Return the strips of an experiment: its claims, those that answer its question first, then published figures.

    A published figure that a claim is about has no strip of its own, because it is on the strip of the claim.
    """
    claims: dict[str, list[Strip]] = {}
    figures: dict[str, list[Strip]] = {}
    for laptop in laptops:
        if handed := laptop.runs.get(experiment):
            for found, strips_of in ((claims, _claims), (figures, _figures)):
                for key, strip in strips_of(laptop.number, handed):
                    found.setdefault(key, []).append(strip)
    made = [_strip(words, all_of) for key, all_of in claims.items()
            if (words := own.claims.get(key) or _shared(all_of))]  # fmt: skip
    places = {words: place for place, words in enumerate(own.claims.values())}
    made.sort(key=lambda strip: places.get(strip.says, len(places)))
    made.sort(key=lambda strip: _ROLES.get(strip.claim.role if strip.claim else None, 2))
    shown = {_key(strip.quantity) for strip in made if strip.claim and strip.quantity and not strip.claim.relative_to}
    return made + [
        _strip("", all_of)
        for key, all_of in figures.items()
        if key not in shown and (len(all_of) > 1 or key.partition(" ")[0] in own.variants)
    ]


def _strip(words: str, all_of: Sequence[Strip]) -> Strip:
    """Return the strip of all laptops, made of the strips of each."""
    return replace(
        all_of[0],
        says=words,
        dots=[dot for strip in all_of for dot in strip.dots],
        predicted=[value for strip in all_of for value in strip.predicted],
        published=next((strip.published for strip in all_of if strip.published is not None), None),
    )


def _shared(all_of: Iterable[Strip]) -> str | None:
    """Return the words that most laptops have, if at least two have them."""
    said = {(dot.laptop, strip.says) for strip in all_of for dot in strip.dots}
    (most, times), *_ = Counter(words for _, words in said).most_common(1)
    return most if times > 1 else None


def _claims(laptop: int, handed: SubmittedRun) -> Iterator[tuple[str, Strip]]:
    run, summary, _ = handed
    for said, row in zip(run.claims, summary.claims, strict=True):
        claim = said.with_load(run.loads[0].name)
        dot = Dot(laptop, row.measured, row.verdict, run.cores, cpu_mode(run, claim.value.load or ""), row.suspect)
        predicted, published = (_of_claim(summary, claim, word) for word in ("predicted", "published"))
        theory = [] if predicted is None else [predicted]
        yield claim_key(claim), Strip(said.says, claim.value, row.stat, row.unit, claim, [dot], theory, published)


def claim_key(claim: Claim) -> str:
    """Return a text that is the same for claims that compare the same values with the same bound."""
    return " / ".join(map(_key, claim.quantities)) + f" {claim.bound}"


def _key(quantity: Quantity) -> str:
    return f"{quantity.variant} {quantity.load} {quantity.request_class} {quantity.metric} {quantity.stat}"


def _of_claim(summary: Summary, claim: Claim, word: str) -> float | None:
    """Return what is ``predicted`` or ``published`` of a claim's value, or of the ratio of its two values."""
    values = [_of(summary, quantity, word) for quantity in claim.quantities]
    match values:
        case [float(value)]:
            return value
        case [float(value), float(other)] if other:
            return value / other
        case _:
            return None


def _of(summary: Summary, asked: Quantity, word: str) -> float | None:
    row = summary.row(asked.variant, asked.load, asked.request_class, asked.metric, asked.stat)
    return None if row is None else row.predicted if word == "predicted" else row.published


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
            predicted = _of(summary, quantity, "predicted")
            theory = [] if predicted is None else [predicted]
            yield _key(quantity), Strip("", quantity, figure.stat, figure.unit, None, [dot], theory, figure.published)


def cpu_mode(run: Run, load: str) -> Mode:
    """Return how the requests of a load pass their time."""
    cpu = next((load_record.settings.get("CPU") for load_record in run.loads if load_record.name == load), None)
    return "hold" if cpu == "hold" else "burn" if cpu == "burn" else "sleep"
