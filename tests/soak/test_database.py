"""Visits to a guest book on real containers: databases that grow, and migrations that are missing or not applied."""

import pytest

from tests.conftest import Lab, copy_lab
from tests.engine.test_database import reasons, spoil, why_failed


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The variants whose loads never begin, or end when the database does."""
    lab = copy_lab(tmp_path_factory.mktemp("spoilt"))
    spoil(lab)
    lab.edit("stampede/run/trial/observing.py", "OBSERVED_WITHIN_S = 60", "OBSERVED_WITHIN_S = 5")
    done = lab.run("run", "spoilt", "--variants", "outgrown,not-migrated,not-applied,hung", "--jobs", "4")
    assert done.returncode == 1, done.stderr
    return lab


def test_a_database_that_outgrows_its_limit(spoilt: Lab) -> None:
    assert why_failed(spoilt, "outgrown") == (
        "mariadb needed more memory than its limit of 768 MiB, which mem_limit of mariadb in docker-compose.yml sets"
    )


def test_a_model_without_its_migration_does_not_start(spoilt: Lab) -> None:
    why = why_failed(spoilt, "not-migrated")

    assert why.startswith("the servers did not become healthy: gunicorn said:\n")
    assert "A migration is missing, the models have changed since the last one:" in why
    assert "Add field place to entry" in why


def test_a_migration_that_was_not_applied_is_what_the_health_check_says(spoilt: Lab) -> None:
    assert "migrations are not applied: guestbook.0001_initial" in why_failed(spoilt, "not-applied")


def test_of_a_database_that_hangs_nobody_knows_the_rows_and_nobody_waits_for_ever(spoilt: Lab) -> None:
    assert "the database was not observed after the load: nobody knows which rows were written" in reasons(
        spoilt, "hung"
    )
