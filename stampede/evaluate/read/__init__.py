"""Readers of a trial's raw files: the points of its requests (rows), and the state of its containers (observation)."""

from typing import Any

Key = tuple[str, str, int]
"""A variant, a load and the number of a trial."""
Cell = tuple[str, str, str | None]
"""A variant, a load and a class of request; None: all classes."""
OF_TRIAL = "variant = $variant AND load = $load AND trial = $trial"
"""The SQL condition for the rows of one trial; ``of_trial`` returns its parameters."""
CLIENT = "points-client"
"""The generator that is a script of clients/. It sends to the server, or through the balancer. Others are k6."""


def of_trial(key: Key) -> dict[str, Any]:
    """Return the parameters of ``OF_TRIAL``."""
    return dict(zip(("variant", "load", "trial"), key, strict=True))
