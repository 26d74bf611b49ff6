"""How bursts were sent, and which visits posted a form: what validity and metrics both need of a trial's rows."""

from typing import TYPE_CHECKING, NamedTuple

from stampede.evaluate.read import CLIENT, OF_TRIAL, Key, of_trial

if TYPE_CHECKING:
    import duckdb

POST = "post"
"""The class of the request that writes a row."""

# k6 numbers the requests of each virtual user, so only the order of sending tells which requests make up a burst.
BURSTS = f"""
WITH numbered AS (
    SELECT *, ((row_number() OVER (ORDER BY sent, id, generator) - 1) // $size + 1)::INTEGER AS burst
    FROM requests WHERE {OF_TRIAL} AND generator <> '{CLIENT}'),
bursts AS (SELECT *, count(*) OVER (PARTITION BY burst) = $size AS whole FROM numbered)
"""  # noqa: S608  # made of constants
"""The rows of one trial as the view ``bursts``: which burst a request belongs to, and whether the burst is whole."""


class Sending(NamedTuple):
    """How the bursts of a trial were sent.

    In ``early`` of the ``bursts`` bursts, a request was answered before the burst's last request was sent. The last
    burst has ``in_last`` requests.
    """

    bursts: int
    early: int
    in_last: int


class Posts(NamedTuple):
    """The visits of a trial that posted a form, and the visits whose post succeeded."""

    sent: frozenset[str] = frozenset()
    succeeded: frozenset[str] = frozenset()


def sending(database: "duckdb.DuckDBPyConnection", key: Key, size: int) -> Sending:
    """Return how the bursts of a trial were sent; a refused connection does not count as an answer."""
    query = """
        SELECT count(*), count(*) FILTER (WHERE first_answered <= last_sent), coalesce(arg_max(requests, burst), 0)
        FROM (SELECT burst, count(*) AS requests, max(sent) AS last_sent,
                  min(answered) FILTER (WHERE status > 0) AS first_answered FROM bursts GROUP BY burst)
    """
    [row] = database.execute(f"{BURSTS} {query}", of_trial(key) | {"size": size}).fetchall()
    return Sending(*row)


def posts(database: "duckdb.DuckDBPyConnection", key: Key) -> Posts:
    """Return which visits of a trial posted a form, and which of these posts succeeded."""
    query = (
        f"SELECT visit, error IS NULL FROM requests WHERE {OF_TRIAL} AND visit IS NOT NULL AND request_class = $post"  # noqa: S608
    )
    told = dict(database.execute(query, of_trial(key) | {"post": POST}).fetchall())
    return Posts(frozenset(told), frozenset(visit for visit, succeeded in told.items() if succeeded))
