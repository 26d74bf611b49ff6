"""The runs of a whole class: what each laptop measured of the same claims, and who differs.

Nothing here tells whose laptop it is. A laptop has a number, and words come from the lab's own files.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import median
from typing import NamedTuple

from stampede.evaluate.metrics import unit
from stampede.experiment.model import Experiment
from stampede.records.claims import Claim
from stampede.records.summary import Summary
from stampede.teach.classroom.submissions import Submission, SubmittedRun
from stampede.teach.lesson.notes import Bar

_ROLES = ("answer", "cure", None)
_VERDICTS = ("reproduced", "not reproduced", "undecided", "invalid")
FEW = 5
"""With fewer values than this, no value is called far from the others."""
FAR = 3.5
"""A value is far from the median from this many robust standard deviations on (Iglewicz and Hoaglin 1993)."""
NEAR = {"ms": 20.0, "share": 0.02, "index": 0.02}
"""Differences up to this, in the unit of the value, are not called far, however close the other values are."""
NEAR_RATIO = 1.25
"""Nor are values that differ from the median by less than this factor."""


@dataclass(frozen=True)
class Laptop:
    """What one laptop has handed in: the run of each experiment, and the numbers of its lesson, each with its step.

    ``number`` tells nothing of whose laptop it is.
    """

    number: int
    runs: Mapping[str, SubmittedRun]
    predictions: Sequence[tuple[str, Bar]] = ()

    @property
    def name(self) -> str:
        """The name of the laptop on the page."""
        return f"laptop-{self.number}"


class Dot(NamedTuple):
    """What one laptop says of a claim. ``value``: None: it has no number.

    ``computes`` is the setting CPU of the load: ``hold``, ``burn``, or empty if requests sleep. ``suspect``: the
    verdict rests on a suspect trial.
    """

    laptop: int
    value: float | None
    verdict: str
    cores: int
    computes: str = ""
    suspect: bool = False


@dataclass
class Strip:
    """The number of a claim, as all laptops measured it.

    ``predicted`` has what theory predicts for each laptop, because a prediction depends on the settings of a run.
    """

    claim: Claim
    dots: list[Dot] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)
    published: float | None = None

    @property
    def unit(self) -> str:
        """The unit of the number."""
        return "ratio" if self.claim.relative_to else unit(self.claim.value.metric, self.claim.value.stat)

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

    @property
    def far(self) -> set[int]:
        """The laptops whose value is far from the median, on logarithms if all values are positive."""
        values = self.values
        if len(values) < FEW:
            return set()
        scaled = all(value > 0 for value in values.values())
        places = {laptop: log(value) if scaled else value for laptop, value in values.items()}
        middle, plain = median(places.values()), median(values.values())
        spread = 1.4826 * median(abs(place - middle) for place in places.values())
        far = set()
        for laptop, place in places.items():
            low, high = sorted((abs(values[laptop]), abs(plain)))
            is_near = values[laptop] * plain >= 0 and high <= NEAR_RATIO * low
            is_near |= abs(values[laptop] - plain) <= NEAR.get(self.unit, 0.0)
            if abs(place - middle) > FAR * spread and not is_near:
                far.add(laptop)
        return far


def number_laptops(submissions: Iterable[Submission]) -> list[Laptop]:
    """Return the laptops, those with the fewest cores first, in an order that does not depend on names."""
    chosen = []
    for submission in submissions:
        # of several runs of an experiment, one that was completed counts, then the most variants, then the newest
        best_last = sorted(
            (handed for _, handed in submission.runs),
            key=lambda of: (of.run.outcome == "completed", len(of.run.variants), of.run.began),
        )
        runs = {of.run.experiment: of for of in best_last}
        key = min(of.run.cores for of in runs.values()), sorted(of.manifest for of in runs.values())
        chosen.append((key, runs, submission.predictions))
    in_order = sorted(chosen, key=lambda of: of[0])
    return [Laptop(number, runs, predictions) for number, (_, runs, predictions) in enumerate(in_order, start=1)]


def strips(laptops: Iterable[Laptop], experiment: str, own: Experiment) -> list[Strip]:
    """Return the strips of an experiment's claims, those that answer its question first.

    ``own`` is what the lab's own file says of it; what a run says of other claims is not shown.
    """
    load = next(iter(own.all_loads))
    claims = [claim.with_load(load) for claim in sorted(own.claims, key=lambda claim: _ROLES.index(claim.role))]
    made = {_key(claim): Strip(claim) for claim in claims}
    for laptop in laptops:
        if not (handed := laptop.runs.get(experiment)):
            continue
        run, summary, _ = handed
        for said, row in zip(run.claims, summary.claims, strict=True):
            claim = said.with_load(run.loads[0].name)
            if not (strip := made.get(_key(claim))):
                continue
            cpu = next((of.settings.get("CPU", "") for of in run.loads if of.name == claim.value.load), "")
            strip.dots.append(Dot(laptop.number, row.measured, row.verdict, run.cores, cpu, row.suspect))
            if (predicted := _known(claim, summary, "predicted")) is not None:
                strip.predicted.append(predicted)
            if strip.published is None:
                strip.published = _known(claim, summary, "published")
    return [strip for strip in made.values() if strip.dots]


def _key(claim: Claim) -> tuple[object, ...]:
    """Return what is the same for claims on the same quantities with the same bound, whatever they say."""
    quantities = [(of.variant, of.load, of.request_class, of.metric, of.stat) for of in claim.quantities]
    return *quantities, claim.bound


def _known(claim: Claim, summary: Summary, word: str) -> float | None:
    """Return what is ``predicted`` or ``published`` of a value, or of the ratio of two values; None: nothing is."""
    rows = [summary.row(of.variant, of.load, of.request_class, of.metric, of.stat) for of in claim.quantities]
    match [row and getattr(row, word) for row in rows]:
        case [float(value)]:
            return value
        case [float(value), float(other)] if other:
            return value / other
        case _:
            return None
