"""Scripts and servers that go wrong, side by side on real containers: each trial says what, and spoils no other."""

import pytest

from tests.containers.conftest import Spoilt


def test_a_setting_that_the_script_refuses(spoilt: Spoilt) -> None:
    """The lab knows which settings a script has; a script that reads another does not start."""
    assert "k6 ended with exit code 107: " in spoilt.why_failed("refused")
    assert "MORE_PATHS is not set; the .env file beside the script has an example" in spoilt.why_failed("refused")


@pytest.mark.parametrize("variant", ["throws-one", "throws-all"])
def test_a_script_that_throws_while_it_runs(spoilt: Spoilt, variant: str) -> None:
    """k6 goes on and exits with 0 when an iteration throws, and would leave a load without some of its requests."""
    assert spoilt.why_failed(variant).startswith("the load script threw: ")
    assert "Error: broken on purpose" in spoilt.why_failed(variant)


def test_answers_other_than_200_are_failures_and_not_fast_successes(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("nowhere")

    assert {row["measured"] for row in spoilt.summary["rows"] if row["variant"] == "nowhere"} <= {None}
    assert verdict == "invalid"
    assert reasons[0].endswith(" requests failed (status 404)")


def test_a_server_that_never_becomes_healthy_shows_its_last_words_and_spoils_no_other(spoilt: Spoilt) -> None:
    assert "the servers did not become healthy: gunicorn said:\n" in spoilt.why_failed("unhealthy")
    assert "ValueError: invalid literal for int() with base 10: 'two'" in spoilt.why_failed("unhealthy")
    assert spoilt.judged("fine")[0] in ("valid", "suspect")


def test_a_server_that_runs_and_is_never_ready_shows_what_the_health_check_saw(spoilt: Spoilt) -> None:
    assert spoilt.why_failed("never-ready").endswith(
        "the health check last said: curl: (22) The requested URL returned error: 404\n"
        '{"error": "no such path: /-/never"}'
    )


def test_what_is_a_finding_or_a_doubt_is_no_failure(spoilt: Spoilt) -> None:
    """A crossed threshold is a note, and some answers other than 200 make a trial suspect."""
    crossed, notes = spoilt.judged("crossed")
    sometimes, doubts = spoilt.judged("sometimes")

    assert crossed in ("valid", "suspect")  # somebody may use the machine meanwhile
    assert "a threshold of the load script was crossed (k6 exit code 99)" in notes
    assert sometimes == "suspect"
    assert any(doubt.endswith("user requests failed (status 404)") for doubt in doubts)
    assert [claim["verdict"] for claim in spoilt.summary["claims"]] == ["invalid", "undecided"]
