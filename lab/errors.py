"""The errors that a user can correct."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class LabError(Exception):
    """A problem that the user can correct: ``message`` says what happened with which value, ``hint`` the way out."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WrongUse(LabError):
    """The command, the experiment file or a name in it is wrong; nothing was measured."""


class Misplaced(ValueError):
    """A part of an experiment is wrong. ``place`` holds the keys that lead from what is being checked to the part."""

    def __init__(self, message: str, *place: str | int) -> None:
        super().__init__(message)
        self.place = place


def reason_of(error: "ValidationError") -> str:
    """Return the first thing that is wrong with the values of a model, in the words of its validator."""
    first = error.errors()[0]
    return str(first.get("ctx", {}).get("error", first["msg"]))
