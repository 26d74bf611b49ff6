"""The base classes of the models of experiment files and of records, and the type of names."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""The name of an experiment, a variant or a load. It also names folders and containers."""


class Model(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


METRICS_OF_SCHEMA_1 = {"beside_free_thread": "avoidable_wait"}
"""Metrics that files of schema 1 name otherwise, and their names today."""


class Record(BaseModel):
    """A frozen record read back from a file that an older or newer version may have written.

    Keys that this version does not know are kept, and they are written again with the record. Metrics may have the
    names of schema 1.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _rename(cls, values: Any) -> Any:  # noqa: ANN401  # any JSON value
        """Give the metrics of schema 1 the names of today."""
        if isinstance(values, dict) and (metric := METRICS_OF_SCHEMA_1.get(str(values.get("metric")))):
            return values | {"metric": metric}
        return values
