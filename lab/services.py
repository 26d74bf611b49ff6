"""docker-compose.yml as it is written: its services, with factors in the place of variables where that is asked for."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml

from lab.paths import COMPOSE_FILE

_VARIABLE = re.compile(r"\$\{(\w+)(?::?-([^}]*))?\}")


@cache
def services() -> dict[str, dict[str, Any]]:
    """Return the services by name."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))["services"]
    return found


def image_of(service: str, factors: Mapping[str, str]) -> str:
    """Return the name of a service's image, e.g. stampede/gunicorn:27.0.1."""
    return filled(services()[service]["image"], factors)


def filled(text: str, factors: Mapping[str, str]) -> str:
    """Return a text with factors, or what docker-compose.yml says by default, in the place of its variables."""
    return _VARIABLE.sub(lambda found: factors.get(found[1]) or found[2] or "", text)
