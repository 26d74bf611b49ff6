"""The results of a run: the models of summary.json. Other modules compute them."""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, Literal, Self

from pydantic import Field

from stampede.records.claims import Quantity
from stampede.records.model import Model, TrialPart

Verdict = Literal["valid", "suspect", "invalid"]
ClaimVerdict = Literal["reproduced", "not reproduced", "undecided", "invalid"]
FigureVerdict = Literal[
    "reproduced", "differs by the floor", "contradicted", "not measured in a short run", "undecided", "invalid"
]
ArticleVerdict = Literal["same", "partly the same", "different", "undecided"]
"""The verdicts on the order of an article's variants, and on its conclusion."""


class TrialValidity(TrialPart):
    """The verdict on one trial. ``notes`` are those of the ``reasons`` that are findings, and no doubt about the trial.

    ``classes`` has the classes of request whose figures are invalid although the trial is not, each with the reason.
    """

    verdict: Verdict
    reasons: list[str]
    notes: list[str] = Field([], exclude_if=lambda value: not value)
    classes: dict[str, str] = Field({}, exclude_if=lambda value: not value)

    @property
    def doubts(self) -> list[str]:
        """The reasons to doubt the trial."""
        return [reason for reason in self.reasons if reason not in self.notes]

    @property
    def is_trusted(self) -> bool:
        """Whether the trial contributes numbers, though perhaps not for each class of request."""
        return self.verdict != "invalid"

    def rejects(self, request_class: str | None) -> str | None:
        """Return why the figures of a class of request are invalid in this trial; None: they are not."""
        return self.classes.get(request_class) if request_class else None


def suspect_trials(trials: Iterable[TrialValidity], of: str = "") -> str:
    """Return how many of these trials are suspect, such as 3 of 5 trials are suspect; empty: none is."""
    verdicts = [trial.verdict for trial in trials]
    count, whose = verdicts.count("suspect"), f" of {of}" if of else ""
    if len(verdicts) == 1:
        return f"the only trial{whose} is suspect" if count else ""
    return f"{count} of {len(verdicts)} trials{whose} {'is' if count == 1 else 'are'} suspect" if count else ""


class Validity(Model):
    """The verdict on a run: that on its worst trial. ``of_run`` are the reasons that are about no single trial.

    ``notes`` are those of the ``reasons`` that are findings, and no doubt about the run.
    """

    verdict: Verdict
    reasons: list[str]
    of_run: list[str] = Field([], exclude_if=lambda value: not value)
    notes: list[str] = Field([], exclude_if=lambda value: not value)

    @property
    def doubts(self) -> list[str]:
        """The reasons to doubt the run, without the notes."""
        return [reason for reason in self.reasons if reason not in self.notes]


class Estimate(Model):
    """One number with its doubt, as published, predicted and measured: from ``n`` rows in ``trials`` trials.

    ``request_class`` is None for all classes together. ``measured`` is the median of ``values``, by the trial's number,
    and ``low`` and ``high`` are the ends of its 95 % interval; None: there is none. ``pooled``: single trials have too
    few requests for the percentile, so it is that of the requests of all trials together, and ``values`` is empty.
    In 95 of 100 simulated runs, the median lies between ``predicted_low`` and ``predicted_high``.
    """

    variant: str
    load: str
    request_class: str | None
    metric: str
    stat: str
    unit: str
    published: float | None
    predicted: float | None
    predicted_low: float | None = None
    predicted_high: float | None = None
    measured: float | None
    low: float | None
    high: float | None
    n: int
    trials: int
    values: dict[int, float] = Field({})
    pooled: bool = Field(default=False, exclude_if=lambda value: not value)

    @property
    def median(self) -> float | None:
        """The median over trials; None: nothing was measured, or the measured value is pooled."""
        return None if self.pooled else self.measured

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the measured value; None: there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)

    @property
    def quantity(self) -> Quantity:
        """What it is the number of."""
        return Quantity(
            variant=self.variant, load=self.load, request_class=self.request_class, metric=self.metric, stat=self.stat
        )


class WorkerRow(TrialPart):
    """How many requests of a class a worker answered, by how many connections (0: the server cannot tell)."""

    request_class: str | None
    worker: str
    requests: int
    share: float
    connections: int


class CounterRow(TrialPart):
    """The counters of one worker in one trial, counted during the load. Workers that died meanwhile are included."""

    worker: str
    counts: dict[str, int]


class ClaimRow(Model):
    """A claim with its measured value and verdict. ``reason`` says why it is undecided or invalid.

    ``suspect``: the verdict rests on a suspect trial, and ``doubt`` is the main reason to doubt this trial.
    ``trials_needed`` is about how many trials decide; None: nothing was measured, or the value is too near the bound.
    """

    says: str
    stat: str
    verdict: ClaimVerdict
    measured: float | None
    low: float | None
    high: float | None
    bound: str
    unit: str
    reason: str | None
    suspect: bool = False
    doubt: str | None = Field(None, exclude_if=lambda value: value is None)
    trials_needed: int | None = None

    @property
    def decided(self) -> bool:
        """Whether the claim is reproduced or not reproduced."""
        return self.verdict in ("reproduced", "not reproduced")


class PublishedFigure(Model):
    """One published figure and the measured figure. ``ratio`` is the measured divided by the published figure.

    ``stat`` is a statistic or, for a staircase, which answer of a burst the figure is for: 1st, 2nd, 3rd … ``pooled``:
    ``measured`` is the percentile of the requests of all trials together, because single trials have too few.
    """

    stat: str
    unit: str
    published: float
    measured: float | None
    low: float | None
    high: float | None
    ratio: float | None
    trials: int = 0
    verdict: FigureVerdict
    pooled: bool = Field(default=False, exclude_if=lambda value: not value)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval of the measured figure; None: there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


class PublishedRow(Model):
    """Published figures of one metric with their common verdict.

    ``reason``, ``suspect`` and ``doubt`` are those of ClaimRow. ``completion_times``: the figures are the response
    times of a burst, in order of completion.
    """

    variant: str
    load: str
    request_class: str | None
    metric: str
    completion_times: bool = False
    divided_by: float = 1
    within: float
    verdict: FigureVerdict
    reason: str | None
    suspect: bool = False
    doubt: str | None = Field(None, exclude_if=lambda value: value is None)
    figures: list[PublishedFigure]


class Reversal(Model):
    """Two variants in another order than published: ``larger`` has the larger figure only in the article."""

    load: str
    request_class: str | None
    metric: str
    stat: str
    larger: str
    smaller: str


class ArticleOrder(Model):
    """In how many of the pairs of variants that can be told apart the order is as published."""

    verdict: ArticleVerdict
    pairs: int
    agree: int
    reversals: list[Reversal]


class ArticleConclusion(Model):
    """How many of the claims about variants with published figures hold, fail, and are undecided or invalid."""

    verdict: ArticleVerdict
    claims: int
    hold: int
    fail: int
    undecided: int


class ArticleFigures(Model):
    """How many published figures are within the tolerance, within it but for the floor, and so on.

    ``short``: the run had too few requests for them.
    """

    within: int
    floor: int
    contradicted: int
    short: int
    undecided: int
    invalid: int

    @property
    def count(self) -> int:
        """How many figures were published."""
        return self.within + self.floor + self.contradicted + self.short + self.undecided + self.invalid


class Floor(Model):
    """How much more a request costs in the article than in this run, while nobody waits, computed from ``variants``.

    ``ms`` is how much more the median request costs, and ``p90_ms`` the request that nine of ten cost less than.
    ``request_class``: None for all classes together.
    """

    load: str
    request_class: str | None
    metric: str
    ms: float
    p90_ms: float
    variants: list[str]


class Article(Model):
    """An article judged as a whole. ``conclusion`` is None if no claim is about its variants alone."""

    order: ArticleOrder
    conclusion: ArticleConclusion | None
    figures: ArticleFigures
    floors: list[Floor]


class CompletionTimesRow(Model):
    """The response times of a burst in ms, in order of completion, as published and measured.

    ``low`` and ``high`` are the intervals of the medians over trials; None: there are fewer than two trials. They are
    shorter than ``measured`` if only one trial has the last steps, because requests failed in the others.
    """

    variant: str
    load: str
    published: list[float] | None
    predicted: list[float] | None = None
    measured: list[float]
    low: list[float] | None
    high: list[float] | None


class NotPredicted(Model):
    """A variant under a load that theory cannot simulate, and which mechanism is missing."""

    variant: str
    load: str
    missing: str


class ErrorRow(TrialPart):
    """How many requests of one class failed for one reason in one trial."""

    request_class: str
    error: str
    requests: int


class TrialClocks(TrialPart):
    """The clocks of a trial whose containers ran on several machines, by the hosts of its containers.

    When a clock showed the third number (epoch seconds), it was the first number of seconds ahead of the lab's; it
    gained the second number of seconds in every second.
    """

    hosts: dict[str, tuple[float, float, float]]


class Summary(Model):
    """All results of one run.

    ``completion_times`` has rows only if requests came in bursts.
    ``errors`` says why requests of trusted trials failed, the most frequent error first. ``round_s`` is
    about how many seconds it took to measure every variant once under every load. ``clocks`` has rows only for trials
    whose containers ran on several machines. ``article`` is the verdict on the article; None: it published no figures.
    """

    experiment: str
    round_s: float = 0.0
    validity: Validity
    trials: list[TrialValidity]
    rows: list[Estimate]
    workers: list[WorkerRow] = Field([])
    counters: list[CounterRow] = Field([])
    claims: list[ClaimRow]
    published: list[PublishedRow] = Field([])
    article: Article | None = Field(None, exclude_if=lambda value: value is None)
    differences: list[Any] = Field([], exclude=True)  # earlier releases wrote these three
    waves: list[Any] = Field([], exclude=True)
    rate_steps: list[Any] = Field([], exclude=True)
    completion_times: list[CompletionTimesRow] = Field([])
    errors: list[ErrorRow] = Field([])
    not_predicted: list[NotPredicted] = Field([])
    clocks: list[TrialClocks] = Field([], exclude_if=lambda value: not value)

    def row(self, variant: str, load: str | None, request_class: str | None, metric: str, stat: str) -> Estimate | None:
        """Return the row of a quantity; None: there is none. ``load`` may be None if the run has only one load."""
        rows, found = self._rows_by_quantity
        if rows is not self.rows:  # a copy with other rows has the index of its model
            del self.__dict__["_rows_by_quantity"]
            _, found = self._rows_by_quantity
        return found.get((variant, load, request_class, metric, stat))

    def first_trials(self, load: str) -> dict[str, int]:
        """Return the number of each variant's first trusted trial."""
        trusted = [(trial.variant, trial.trial) for trial in self.trials if trial.load == load and trial.is_trusted]
        return dict(sorted(trusted, reverse=True))

    def request_classes(self, variant: str, load: str | None = None) -> list[str]:
        """Return the classes of requests of a variant in order, under one load or (None) under all."""
        mine = (row for row in self.rows if row.variant == variant and load in (None, row.load))
        return sorted({row.request_class for row in mine if row.request_class})

    @cached_property
    def _rows_by_quantity(self) -> tuple[list[Estimate], dict[tuple[str, str | None, str | None, str, str], Estimate]]:
        return self.rows, {
            (row.variant, load, row.request_class, row.metric, row.stat): row
            for row in self.rows
            for load in (row.load, None)
        }

    @classmethod
    def of_nothing(cls, experiment: str) -> Self:
        """Return the summary of a run that has no trials."""
        valid = Validity(verdict="valid", reasons=[])
        return cls(experiment=experiment, validity=valid, trials=[], rows=[], claims=[])
