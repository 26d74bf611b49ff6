"""What the lab tells a user who has to do something about it."""

from analysis.nearest import nearest_first

__all__ = ["LabError", "WrongUse", "nearest_first"]


class LabError(Exception):
    """A problem that the user can mend: what happened with which value, and a way out."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WrongUse(LabError):
    """The command, the experiment file or a name in it is wrong; nothing was measured."""
