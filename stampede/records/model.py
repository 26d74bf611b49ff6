"""The base classes of the models of experiment files and of records, and the type of names."""

import re
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
ADDRESS_PATTERN = r"^https?://"
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
"""The name of an experiment, a variant or a load. It also names folders and containers."""


def name_from(text: str, otherwise: str) -> str:
    """Return the name that a text makes, of small letters, digits and hyphens; ``otherwise``, if nothing remains."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or otherwise


class Model(BaseModel):
    """A frozen record that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class TrialPart(Model):
    """What is said of one trial, or of a part of one: a variant under a load, and the number of the trial."""

    variant: str
    load: str
    trial: int

    @property
    def key(self) -> tuple[str, str, int]:
        """The trial's variant, load and number."""
        return self.variant, self.load, self.trial
