"""The kinds of settings that a script of k6/ or clients/ may have, and which values each kind allows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

from pydantic import ValidationError

from stampede.records.classes import LOAD_CLASSES, OWN_CLASSES, Login
from stampede.records.mistakes import Kind, reason_in_json
from stampede.records.words import nearest_first

ANSWER_WITHIN_S = 60
"""How long k6 waits for the answer to one request."""
HOUR_S = 3600
GIVES_UP = f"k6 gives up a request after {ANSWER_WITHIN_S} s"


@dataclass(frozen=True)
class Number:
    """A setting that is a number from ``least`` to ``most``; ``why`` gives the reason for ``most``.

    The ``example`` of a setting is its value when somebody starts the script by hand.
    """

    example: float
    least: float
    most: float = inf
    why: str = ""
    whole: bool = False

    @property
    def allowed(self) -> str:
        """What a value must be, in words."""
        kind = "a whole number" if self.whole else "a number"
        bounds = f", at least {self.least:g}" if self.most == inf else f" from {self.least:g} to {self.most:,.10g}"
        return kind + bounds

    def problem(self, value: float | str) -> str | None:
        """Return what is wrong with a value; None if the value is allowed."""
        if isinstance(value, str):
            return f"{value!r} must be {self.allowed}"
        if not self.least <= value <= self.most or (self.whole and value != int(value)):
            return f"{value:,.15g} must be {self.allowed}{f': {self.why}' if self.why and value > self.most else ''}"
        return None


@dataclass(frozen=True)
class Word:
    """A setting that is one of a few words. ``needs`` holds the further settings that each word requires."""

    example: str
    needs: Mapping[str, Mapping[str, Number]]

    @property
    def allowed(self) -> str:
        """What a value must be, in words."""
        return f"one of {', '.join(self.needs)}"

    def problem(self, value: float | str) -> str | None:
        """Return what is wrong with a value; None if the value is allowed."""
        there = nearest_first(str(value), list(self.needs))
        return None if value in self.needs else f"{value!r} must be one of {there}"


@dataclass(frozen=True)
class Described:
    """A setting that is JSON of a kind, which ``read`` reads (stampede/records/classes.py)."""

    example: str
    kind: Kind
    read: Callable[[str], object]
    allowed: str

    def problem(self, value: float | str) -> str | None:
        """Return what is wrong with a value; None if the value is allowed."""
        if not isinstance(value, str):
            return f"{value!r} must be {self.allowed}"
        try:
            self.read(value)
        except ValidationError as error:
            whole = "" if error.errors()[0]["loc"] else f"; it must be {self.allowed}"
            return reason_in_json(error, self.kind, value) + whole
        except ValueError as error:
            return str(error)
        return None


def _read_classes(value: str) -> None:
    for name, described in LOAD_CLASSES.validate_json(value).items():
        if described.longest_s > ANSWER_WITHIN_S or (described.timeout_s or 0) > ANSWER_WITHIN_S:
            takes_s = described.timeout_s or described.longest_s
            raise ValueError(f"{name}: a request takes {takes_s:g} s, but {GIVES_UP}")


LOAD_CLASSES_OF_THE_LAB = Described(
    '{"light": {"users": 5, "takes_s": {"least": 0, "most": 1}}, "heavy": {"users": 2, "takes_s": 10}}', LOAD_CLASSES,
    _read_classes, 'JSON of classes by name, e.g. {"page": {"users": 5, "takes_s": 0.1}}',
)  # fmt: skip
"""A setting that describes the classes of requests of a load."""


def own_classes(example: str) -> Described:
    """Return a setting that describes what somebody's own application is asked for."""
    like = 'JSON of classes by name, e.g. {"page": {"path": "/", "users": 5}}'
    return Described(example, OWN_CLASSES, OWN_CLASSES.validate_json, like)


LOGIN = Described(
    "", Login, Login.model_validate_json, 'JSON of a request, e.g. {"path": "/login", "body": "user=ada"}'
)
"""A setting that describes how users log in to somebody's own application."""


def count(example: int) -> Number:
    """Return a setting that is a number of users or requests. How many k6 can send depends on its containers."""
    return Number(example, 1, whole=True)


def delay_s(example: float) -> Number:
    """Return a setting that is how long a request sleeps."""
    return Number(example, 0, ANSWER_WITHIN_S, GIVES_UP)


def rounds(example: int, wait_ms: float, cpu_ms: float) -> dict[str, Number]:
    """Return the settings of requests that wait and compute in turns."""
    most_ms = ANSWER_WITHIN_S * 1000
    return {
        "rounds": Number(example, 1, most_ms, GIVES_UP, whole=True),
        "wait_ms": Number(wait_ms, 0, most_ms, GIVES_UP),
        "cpu_ms": Number(cpu_ms, 0, most_ms, GIVES_UP),
    }
