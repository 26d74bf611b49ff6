"""Read the services of docker-compose.yml, and replace the variables in its texts by factors."""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from stampede.paths import COMPOSE_FILE

_VARIABLE = re.compile(r"\$\{(\w+)(?:(:?)-([^}]*))?\}")


@cache
def services() -> dict[str, dict[str, Any]]:
    """Return the services by name, with the variables in their texts."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))["services"]
    return found


@cache
def variables_of(service: str) -> frozenset[str]:
    """Return the names of the variables that a service reads."""
    return frozenset(found[1] for found in _VARIABLE.finditer(json.dumps(services()[service])))


def image_of(service: str, factors: Mapping[str, str]) -> str:
    """Return the name of a service's image, e.g. stampede/gunicorn:27.0.1."""
    return filled(services()[service]["image"], factors)


def filled(text: str, factors: Mapping[str, str]) -> str:
    """Return a text of docker-compose.yml whose variables are replaced by factors, or else by their defaults.

    An empty factor has the default of ``${NAME:-default}``, and stays empty with ``${NAME-default}``.
    """

    def value(found: re.Match[str]) -> str:
        name, colon, default = found.groups(default="")
        given = factors.get(name)
        return default if given is None or (colon and not given) else given

    return _VARIABLE.sub(value, text)
