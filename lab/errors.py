"""What the lab tells a user who has to do something about it."""


class LabError(Exception):
    """A problem that the user can mend: what happened with which value, and a way out."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class WrongUse(LabError):
    """The command, the experiment file or a name in it is wrong; nothing was measured."""


class Misplaced(ValueError):
    """Something wrong with a part of what is being checked. ``place`` leads to that part, key by key."""

    def __init__(self, message: str, *place: str | int) -> None:
        super().__init__(message)
        self.place = place
