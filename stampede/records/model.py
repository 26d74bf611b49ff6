"""The base classes of the models of experiment files and of records, and the type of names."""

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
ADDRESS_PATTERN = r"^https?://"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""The name of an experiment, a variant or a load. It also names folders and containers."""


def name_from(text: str, otherwise: str) -> str:
    """Return the name that a text makes, of small letters, digits and hyphens; ``otherwise``, if nothing remains."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or otherwise


KEYS_OF_SCHEMA_1 = {
    "request": "request_class",
    "asked_ms": "service_time_ms",
    "steps": "completion_times",
    "visit_steps": "rate_steps",
}
"""Keys of records, and columns of requests.parquet, that files of schema 1 call otherwise; and their names today."""
METRICS_OF_SCHEMA_1 = {"beside_free_thread": "avoidable_wait"}
"""Metrics that files of schema 1 call otherwise, and their names today."""


class Model(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Record(BaseModel):
    """A frozen record read back from a file that an older or newer version may have written.

    Keys and metrics of schema 1 get the names of today. Keys that this version does not know are kept, and they are
    written again with the record.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, values: Any) -> Any:  # noqa: ANN401  # any JSON value
        """Give the keys and the metric of schema 1 the names of today."""
        if not isinstance(values, dict):
            return values
        old = [key for key, today in KEYS_OF_SCHEMA_1.items() if key in values and today in cls.model_fields]
        metric = METRICS_OF_SCHEMA_1.get(str(values.get("metric")))
        if not (old or metric) or any(KEYS_OF_SCHEMA_1[key] in values for key in old):
            return values  # or both names: the old one is an unknown key
        renamed = {KEYS_OF_SCHEMA_1.get(key, key) if key in old else key: value for key, value in values.items()}
        if metric and "metric" in cls.model_fields:
            renamed["metric"] = metric
        return renamed


class TrialPart(Record):
    """What is said of one trial, or of a part of one: a variant under a load, and the number of the trial."""

    variant: str
    load: str
    trial: int

    @property
    def key(self) -> tuple[str, str, int]:
        """The trial's variant, load and number."""
        return self.variant, self.load, self.trial
