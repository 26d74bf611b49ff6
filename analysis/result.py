"""What a run has shown: the models of summary.json, with nothing that computes them."""

from typing import Literal

from analysis.model import Model

Verdict = Literal["valid", "suspect", "invalid"]
ClaimVerdict = Literal["reproduced", "not reproduced", "undecided", "invalid"]


class TrialValidity(Model):
    """The verdict on one trial. ``reasons`` says why it is not valid, or what to keep in mind although it is."""

    variant: str
    load: str
    trial: int
    verdict: Verdict
    reasons: list[str]


class Validity(Model):
    """The verdict on a run: that of its worst trial, with everything that gives reason to doubt."""

    verdict: Verdict
    reasons: list[str]


class Row(Model):
    """One number as published, predicted and measured. ``n`` rows over ``trials`` trials carry the measured one.

    ``request`` is None for all classes together. ``low`` and ``high`` are the 95 % bootstrap interval of the median
    over trials; None: one trial has none.
    """

    variant: str
    load: str
    request: str | None
    metric: str
    stat: str
    unit: str
    published: float | None
    predicted: float | None
    measured: float | None
    low: float | None
    high: float | None
    n: int
    trials: int


class WorkerRow(Model):
    """How many requests of one class one worker of one trial answered, and which share of them that is.

    ``connections`` is how many connections brought them; 0 where the server cannot tell.
    """

    variant: str
    load: str
    trial: int
    request: str | None
    worker: str
    requests: int
    share: float
    connections: int


class CounterRow(Model):
    """What one worker of one trial counted itself during the load, by name; a worker that died meanwhile, too."""

    variant: str
    load: str
    trial: int
    worker: str
    counts: dict[str, int]


class ClaimRow(Model):
    """A claim with what was measured for it and the verdict. ``reason`` says why there is no plain answer."""

    says: str
    stat: str
    verdict: ClaimVerdict
    measured: float | None
    low: float | None
    high: float | None
    bound: str
    unit: str
    reason: str | None


class PublishedFigure(Model):
    """One published figure beside the measured one. ``ratio`` is measured divided by published.

    ``stat`` is a statistic, or which request of a burst was answered: 1st, 2nd, 3rd …
    """

    stat: str
    unit: str
    published: float
    measured: float | None
    low: float | None
    high: float | None
    ratio: float | None
    verdict: ClaimVerdict


class PublishedRow(Model):
    """Published figures of one metric with their common verdict. ``reason`` says why there is no plain answer.

    ``steps``: the figures are the response times of a burst in order of completion.
    """

    variant: str
    load: str
    request: str | None
    metric: str
    steps: bool = False
    divided_by: float = 1
    within: float
    verdict: ClaimVerdict
    reason: str | None
    figures: list[PublishedFigure]


class StairsRow(Model):
    """The response times of a burst in ms, in order of completion, as published and measured.

    ``low`` and ``high`` are the intervals of the medians over trials; None: one trial has none. They are shorter than
    ``measured`` where a stair is of one trial only, because requests failed in the others.
    """

    variant: str
    load: str
    published: list[float] | None
    measured: list[float]
    low: list[float] | None
    high: list[float] | None


class WaveRow(Model):
    """How many requests of one burst a worker began in one wave: while a request that began at once would be served.

    Waves and bursts are counted from 1.
    """

    variant: str
    load: str
    trial: int
    burst: int
    worker: str
    wave: int
    requests: int


class LevelRow(Model):
    """How many visits came to one trial while ``per_s`` were due in a second, and how many of them failed.

    A trial whose rate does not climb has one such row.
    """

    variant: str
    load: str
    trial: int
    per_s: int
    visits: int
    failed: int


class ErrorRow(Model):
    """How many requests of one class failed for one reason in one trial."""

    variant: str
    load: str
    trial: int
    request: str
    error: str
    requests: int


class DifferenceRow(Model):
    """How far two measurements of the same thing differ: b minus a, with the interval of the difference of medians.

    ``smallest`` is the end of the interval that is farther from zero: what is not larger may be chance.
    """

    load: str
    request: str | None
    metric: str
    stat: str
    unit: str
    a: float
    b: float
    low: float
    high: float
    smallest: float
    trials: int


class Summary(Model):
    """All results of one run.

    ``published`` has the rows that say how near is near enough, ``differences`` has rows only where a variant was
    measured against itself, ``steps`` and ``waves`` where requests came in bursts, ``visit_steps`` where visits came.
    ``errors`` has why requests of trusted trials failed, the most frequent first.
    """

    experiment: str
    validity: Validity
    trials: list[TrialValidity]
    rows: list[Row]
    workers: list[WorkerRow]
    counters: list[CounterRow]
    claims: list[ClaimRow]
    published: list[PublishedRow]
    differences: list[DifferenceRow]
    steps: list[StairsRow]
    waves: list[WaveRow]
    visit_steps: list[LevelRow]
    errors: list[ErrorRow]
