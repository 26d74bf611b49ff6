"""The base classes of the models of experiment files and of records, and the type of names."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""The name of an experiment, a variant or a load. It also names folders and containers."""


class Model(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Record(BaseModel):
    """A frozen record read back from a file that an older or newer version may have written.

    Keys that this version does not know are kept, and they are written again with the record.
    """

    model_config = ConfigDict(extra="allow", frozen=True)
