"""The application's pool of connections to its database: SQLAlchemy's QueuePool with PyMySQL.

``LAB_DATABASE`` is the host of the database. ``LAB_POOL_SIZE``, ``LAB_MAX_OVERFLOW`` and ``LAB_POOL_TIMEOUT_S`` are the
settings of the pool.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

import workload
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

_POOL = create_engine(
    f"mysql+pymysql://lab:lab@{os.environ['LAB_DATABASE']}/guestbook",
    pool_size=int(os.environ["LAB_POOL_SIZE"]),
    max_overflow=int(os.environ["LAB_MAX_OVERFLOW"]),
    pool_timeout=float(os.environ["LAB_POOL_TIMEOUT_S"]),
)


class NoConnection(workload.Failure):
    """The pool or the database gave no connection; the message is SQLAlchemy's."""

    status = HTTPStatus.INTERNAL_SERVER_ERROR


@contextmanager
def taken() -> Iterator[Connection]:
    """Take a connection from the pool, and return it. Raise NoConnection if there is none in time, or if it fails."""
    try:
        with _POOL.connect() as connection:
            yield connection
    except (PoolTimeoutError, DBAPIError) as error:
        raise NoConnection(" ".join(str(error.args[0]).split())) from None


def query(connection: Connection, takes_s: float) -> None:
    """Ask the database for something that takes it ``takes_s``."""
    connection.execute(text("SELECT SLEEP(:takes_s)"), {"takes_s": takes_s})
