"""Settings come from the environment. If a setting is missing or wrong, the client exits before it sends anything.

stampede/experiment/loads/scripts.py declares which values are allowed. The messages are the same as in
k6/lib/settings.js.
"""

import math
import os
import re
import sys
from typing import NoReturn

WRONG_USE = 2
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h))+")


def text(name: str) -> str:
    """Return a setting that must not be empty."""
    value = os.environ.get(name, "")
    if not value:
        _refuse(f"{name} is not set; the .env file beside the script has an example")
    return value


def number(name: str) -> float:
    """Return a number, e.g. ``number("SILENT_S")``."""
    given = text(name)
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        _refuse(f"{name}={given} is not a number")
    return value


def count(name: str) -> int:
    """Return a whole number."""
    value = number(name)
    if value != int(value):
        _refuse(f"{name}={text(name)} is not a whole number")
    return int(value)


def duration_s(name: str) -> float:
    """Return a duration in seconds. It is written as for k6, e.g. ``30s``, ``0.5s`` or ``1m30s``."""
    given = text(name)
    if not _DURATION.fullmatch(given):
        _refuse(f"{name}={given} is not a duration like 30s or 1m30s")
    return sum(float(value) * _UNITS_S[unit] for value, unit in re.findall(r"([\d.]+)(ms|s|m|h)", given))


def address(name: str) -> tuple[str, int]:
    """Return host and port, e.g. ``app`` and 8000 for ``app:8000``."""
    given = text(name)
    host, _, port = given.rpartition(":")
    if not host or not re.fullmatch(r"\d{1,5}", port, re.ASCII) or not 1 <= int(port) <= 65535:
        _refuse(f"{name}={given} is not host:port, e.g. app:8000")
    return host, int(port)


def _refuse(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    sys.exit(WRONG_USE)
