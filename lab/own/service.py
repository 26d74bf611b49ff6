"""The file that describes somebody's own service: the application, how it is served, and what people ask of it."""

import re
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from analysis.classes import Asked, AskedClasses
from analysis.model import Model
from analysis.nearest import nearest_first
from lab.errors import WrongUse
from lab.experiment.file import read_yaml
from lab.experiment.messages import line_of

CALLABLE_PATTERN = r"^[A-Za-z_]\w*(\.\w+)*:[A-Za-z_]\w*(\.\w+)*(\(\))?$"
NEEDS_A_FILE = "make try SERVICE=my-service.yaml; make init FOLDER=path/of/the/application writes such a file"


class Application(Model):
    """The application: its folder, its callable, and what it needs."""

    folder: Path
    callable: str
    requirements: Path | None = None
    environment: dict[str, str] = Field({})
    env_file: Path | None = None

    @field_validator("callable")
    @classmethod
    def _names_a_callable(cls, value: str) -> str:
        if not re.fullmatch(CALLABLE_PATTERN, value):
            raise ValueError(f"{value!r} must name a module and a callable, such as app:app or shop.wsgi:application")
        return value


class Served(Model):
    """How gunicorn serves the application today."""

    gunicorn: str = Field("27.0.1", pattern=r"^[0-9]+(\.[0-9]+)*$")
    worker_class: Literal["gthread", "sync"] = "gthread"
    workers: int = Field(ge=1, le=64)
    threads: int = Field(1, ge=1, le=256)
    worker_connections: int = Field(1000, ge=1, le=65535)
    memory_mib: int = Field(512, ge=64)

    @model_validator(mode="after")
    def _sync_has_no_threads(self) -> Self:
        if self.worker_class == "sync" and self.threads > 1:
            raise ValueError("workers of the class sync have no threads; choose worker_class: gthread, or threads: 1")
        return self

    @property
    def major(self) -> int:
        """The first number of gunicorn's release."""
        return int(self.gunicorn.split(".")[0])

    @property
    def slots(self) -> int:
        """How many requests all workers together serve at the same time."""
        return self.workers * self.threads


class OwnService(Model):
    """The whole file."""

    application: Application
    served: Served
    requests: AskedClasses


def read_own_service(path: Path) -> OwnService:
    """Read and check the description of an own service. Raise WrongUse with the place of the first mistake.

    Relative paths start at the folder of the file.
    """
    document, values = read_yaml(path)
    try:
        service = OwnService.model_validate(values)
    except ValidationError as error:
        first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
        place = first["loc"]
        where = ".".join(map(str, place))
        at = f"{path.name}:{line_of(document, place)}: {where}" if where else path.name
        raise WrongUse(f"{at}: {_says(first['type'], first)}", hint=_EXAMPLE) from None
    application = service.application
    base = path.resolve().parent
    paths = {
        name: base / value
        for name in ("folder", "requirements", "env_file")
        if (value := getattr(application, name)) is not None
    }
    if "requirements" in paths:
        paths["requirements"] = paths["folder"] / application.requirements
    for name, there in paths.items():
        if not (there.is_dir() if name == "folder" else there.is_file()):
            line = line_of(document, ("application", name))
            what = "folder" if name == "folder" else "file"
            raise WrongUse(f"{path.name}:{line}: application.{name}: there is no {what} {there}", hint=_EXAMPLE)
    return service.model_copy(update={"application": application.model_copy(update=paths)})


def _says(kind: str, first: object) -> str:
    assert isinstance(first, dict)
    if kind == "extra_forbidden":
        of = OwnService if len(first["loc"]) == 1 else _PARTS.get(str(first["loc"][0]), Asked)
        known = list(of.model_fields)
        return f"unknown key; there are {nearest_first(str(first['loc'][-1]), known)}"
    if kind == "missing":
        return "missing key"
    if kind == "value_error":
        return str(first["ctx"]["error"])
    if kind == "string_pattern_mismatch" and first["loc"][-1] == "path":
        return f"{first['input']!r} must be the path of a request, such as /items?page=2"
    return f"{first['input']!r}: {str(first['msg']).lower()}"


_PARTS: dict[str, type[Model]] = {"application": Application, "served": Served}
_EXAMPLE = "docs/your-service.md has an example of such a file."
