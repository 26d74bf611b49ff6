"""How records name a measured number: its variant, load, class of request, metric and statistic.

Names of metrics and statistics are text here: ``stampede.experiment.entries`` checks those of an experiment's file, and
``stampede.evaluate.statistics.estimates`` those of a run.
"""

from typing import Literal, Self

from pydantic import Field, FiniteFloat, model_validator

from stampede.records.model import Model


class Measure(Model):
    """A statistic of one metric, for one class of request or for all classes together (None)."""

    request_class: str | None = Field(None, description="The class of request; left out: all classes together.")
    metric: str
    stat: str


class Quantity(Measure):
    """One number of an experiment. ``load`` may be left out if the experiment has only one load."""

    variant: str
    load: str | None = None


class Curve(Model):
    """A picture of how a setting changes statistics: one panel for each statistic, with the setting along the axis."""

    over: str = Field(description="The setting that is drawn along the axis.")
    values: list[Measure] = Field(min_length=1)


class Published(Model):
    """What a source published for one variant: statistics of one metric, requests by worker, or steps of a burst."""

    variant: str
    load: str | None = None
    request_class: str | None = Field(None, description="The class of request; left out: all classes together.")
    metric: str
    stats: dict[str, FiniteFloat] = Field({})
    counts: list[int] = Field(default=[], description="Requests per worker, in any order.")
    completion_times: list[FiniteFloat] = Field(
        default=[], description="The response times of the requests of one burst, in ms, in order of completion."
    )
    divided_by: FiniteFloat = Field(
        1, gt=0, description="How many times shorter the lab's requests are. Published times are divided by it."
    )
    within: FiniteFloat | None = Field(
        None,
        gt=0,
        le=10,
        description="How far the measured figures may be from these, as a share: 0.15; without within, 0.25.",
    )

    @property
    def expected_completion_times(self) -> list[float]:
        """The steps that this lab should measure, in ms."""
        return [step / self.divided_by for step in self.completion_times]


class Claim(Model):
    """A sentence with a test: a measured value, or the ratio of two measured values, is compared with a bound."""

    says: str = Field(description="The claim as a sentence.")
    value: Quantity
    relative_to: Quantity | None = Field(None, description="Divide the value by this value before comparing it.")
    at_least: FiniteFloat | None = Field(None, description="The bound; give this or at_most.")
    at_most: FiniteFloat | None = Field(None, description="The bound; give this or at_least.")
    cores: int | None = Field(
        None, ge=2, description="With fewer cores for the servers on any machine, the claim is undecided."
    )
    role: Literal["answer", "cure"] | None = Field(
        None, description="The report opens with the claims that answer the experiment's question, or name a cure."
    )

    @model_validator(mode="after")
    def _has_a_bound(self) -> Self:
        if (self.at_least is None) == (self.at_most is None):
            raise ValueError("a claim needs exactly one of at_least and at_most")
        return self

    @property
    def variants(self) -> set[str]:
        """The variants that must be measured before this claim has a verdict."""
        return {quantity.variant for quantity in self.quantities}

    @property
    def quantities(self) -> list[Quantity]:
        """The quantities that the claim needs: its value, and the value that it is relative to."""
        return [self.value] + ([self.relative_to] if self.relative_to else [])

    def with_load(self, load: str) -> Self:
        """Return the claim with quantities that name their load; ``load``: the load of those that do not."""
        named = [quantity.model_copy(update={"load": quantity.load or load}) for quantity in self.quantities]
        return self.model_copy(update=dict(zip(("value", "relative_to"), named, strict=False)))

    def expects_failures_of(self, variant: str, load: str, request_class: str) -> bool:
        """Whether this claim says that requests of one class fail in one variant under one load."""
        value = self.value
        return (
            value.metric == "failures"
            and self.at_least is not None
            and value.variant == variant
            and value.load in (None, load)
            and value.request_class in (None, request_class)
        )

    @property
    def bound(self) -> str:
        """The bound in words, e.g. ``>= 1000``."""
        return f"{'>=' if self.at_least is not None else '<='} {self.limit:g}"

    @property
    def limit(self) -> float:
        """The bound as a number."""
        limit = self.at_least if self.at_least is not None else self.at_most
        assert limit is not None
        return limit

    def holds(self, value: float) -> bool:
        """Whether ``value``, in the metric's unit or as a ratio, satisfies the bound."""
        return value >= self.limit if self.at_least is not None else value <= self.limit
