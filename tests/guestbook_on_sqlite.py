"""Django's settings for the guest book in the file that ``GUESTBOOK`` names; ``LOCKED`` is what its lock answers."""

import os
import sqlite3
from typing import Any

from django.db.backends.signals import connection_created
from guestbook.settings import *  # noqa: F403  # all but the database

DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.environ["GUESTBOOK"], "HOST": "in-a-file"},
}


def _lock(connection: Any, **_: Any) -> None:
    """Give SQLite the function of MariaDB that only one server at a time migrates by."""
    database: sqlite3.Connection = connection.connection
    database.create_function("GET_LOCK", 2, lambda _name, _within_s: int(os.environ.get("LOCKED", "1")))


connection_created.connect(_lock)
