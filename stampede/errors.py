"""The errors that a user can correct."""


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
