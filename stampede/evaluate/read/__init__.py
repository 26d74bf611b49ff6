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

# k6 numbers the requests of each virtual user, so only the order of sending tells which requests make up a burst.
BURSTS = f"""
WITH bursts AS (
    SELECT *, ((row_number() OVER (ORDER BY sent, id, generator) - 1) // $size + 1)::INTEGER AS burst
    FROM requests WHERE {OF_TRIAL} AND generator <> '{CLIENT}')
"""  # noqa: S608  # made of constants
"""The rows of one trial as the view ``bursts``: which burst a request belongs to."""


def of_trial(key: Key) -> dict[str, Any]:
    """Return the parameters of ``OF_TRIAL``."""
    return dict(zip(("variant", "load", "trial"), key, strict=True))
