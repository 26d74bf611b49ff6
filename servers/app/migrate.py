"""Apply the migrations to the database before the server starts, or say why they cannot be applied."""

import os
import sys
from io import StringIO

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "guestbook.settings")

import django
from django.core.management import call_command
from django.db import Error, connection

WITHIN_S = 60


def main() -> str | None:
    """Apply all migrations, one server at a time. Return an error message, or None on success."""
    django.setup()
    host = connection.settings_dict["HOST"]
    changes = StringIO()
    try:
        call_command("makemigrations", check_changes=True, dry_run=True, stdout=changes)
    except SystemExit:
        return f"A migration is missing, the models have changed since the last one:\n{changes.getvalue()}"
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT GET_LOCK('migrate', %s)", [WITHIN_S])  # the first of several servers migrates
            if cursor.fetchone() != (1,):
                return f"Another server has not ended migrating the database {host} within {WITHIN_S} s."
        call_command("migrate", verbosity=0)
    except Error as error:
        return f"The database {host} cannot be migrated: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main())
