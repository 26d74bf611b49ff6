"""The base of the models that experiment files and results are made of, and the names in them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""The name of an experiment, a variant or a load: it becomes the name of a folder and of containers."""


class Model(BaseModel):
    """A frozen record that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True)
