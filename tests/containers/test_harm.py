"""No experiment harms the machine: what outgrows its limit ends by name, and the machine answers meanwhile."""

import pytest

from tests.containers.conftest import Spoilt
from tests.spoilt import ANSWERS_WITHIN_S, ENDS_WITHIN_S


def why_ended(spoilt: Spoilt, variant: str, load: str) -> str:
    """Return why a trial failed. Its load, of two minutes, ended early, perhaps before all others had begun."""
    lasted_s = spoilt.record(variant, load).seconds.load or 0.0
    assert lasted_s < ENDS_WITHIN_S
    return spoilt.why_failed(variant, load)


@pytest.mark.parametrize(
    ("variant", "load", "says"),
    [
        ("k6-outgrows", "users", "k6 needed more memory than its limit of 64 MiB, which "
         "stampede/experiment/loads/script.py computes from users, the rate and the duration"),
        ("server-outgrows", "users", "gunicorn needed more memory than its limit of 300 MiB, which the variant's "
         "memory_mib sets"),
        ("client-outgrows", "beside-a-client", "client needed more memory than its limit of 256 MiB, which mem_limit "
         "of client in docker-compose.yml sets"),
    ],
)  # fmt: skip
def test_what_outgrows_its_limit_ends_by_name(spoilt: Spoilt, variant: str, load: str, says: str) -> None:
    assert why_ended(spoilt, variant, load) == says


def test_a_server_that_outgrows_its_limit_before_it_is_ready(spoilt: Spoilt) -> None:
    """Its workers are killed and started anew for ever; nobody waits until the health check gives up."""
    took = spoilt.record("start-outgrows").seconds

    assert took.load is None
    assert took.up is not None
    assert took.up < ENDS_WITHIN_S
    assert spoilt.why_failed("start-outgrows") == (
        "gunicorn needed more memory than its limit of 64 MiB, which the variant's memory_mib sets"
    )


def test_the_machine_answers_while_containers_outgrow_their_limits(spoilt: Spoilt) -> None:
    assert 0 < spoilt.unanswered_s < ANSWERS_WITHIN_S
