"""Commands that messages name, in the language that the user typed: targets of make, or ``stampede``."""

import os
import shlex
from pathlib import Path

MAKES = "STAMPEDE_TYPED"
"""The Makefile sets this variable to ``make``."""
_TARGETS = {"run": "experiment NAME", "try": "try SERVICE", "report": "report RUN", "lesson": "lesson STEP",
            "setup": "setup", "down": "down"}  # fmt: skip
_FLAGS = ("full", "tables", "page", "solution", "restart")
VALUES = ("variants", "duration", "trials", "until", "predict", "explain", "set")
"""The options that are variables of make: those of the targets of measuring, and of the lesson."""


def typed(*words: str | Path | int) -> str:
    """Return ``stampede WORDS``, or the target of make that does the same if the user typed make."""
    # an ellipsis stands for what the user types
    command, *rest = (word if "…" in word else shlex.quote(word) for word in map(str, words))
    target, _, variable = _TARGETS.get(command, "").partition(" ")
    if os.environ.get(MAKES) != "make" or not target:
        return " ".join(["stampede", command, *rest])
    written, options = ["make", target], iter(rest)
    for word in options:
        if not word.startswith("--"):
            written.append(f"{variable}={word}")
        elif word[2:] in _FLAGS:
            written.append(f"{word[2:].upper()}=1")
        else:
            written.append(f"{word[2:].upper()}={next(options)}")
    return " ".join(written)


def option(name: str, value: str | int = "") -> str:
    """Return an option as the user would type it: ``--trials 5`` or ``TRIALS=5``; without a value, it is a flag."""
    if os.environ.get(MAKES) == "make" and name in (*_FLAGS, *VALUES):
        return f"{name.upper()}={value or 1}"
    return f"--{name} {value}".rstrip()
