"""Every doubt is provoked for real, once: on real containers, and the lab says which number cannot be believed."""

from typing import Any

import pytest

from tests.containers.conftest import Spoilt, content


def of_the_lab(reasons: list[str]) -> list[str]:
    """Return the reasons that are not about what else this machine does while it is tested."""
    others = ("the machine was ", "something waited ", "other machines ", "the load generator waited ")
    return [reason for reason in reasons if not reason.startswith(others)]


def only(reasons: list[str], start: str) -> str:
    [found] = [reason for reason in reasons if reason.startswith(start)]
    return found


def counted_by(spoilt: Spoilt, variant: str) -> dict[str, Any]:
    worker = f":{spoilt.killed_worker}"
    [row] = [one for one in spoilt.summary["counters"] if one["variant"] == variant and one["worker"].endswith(worker)]
    return dict(row["counts"])


def test_nothing_is_doubted_when_nothing_is_wrong(spoilt: Spoilt) -> None:
    """The control: the same load without any trouble, while all others have it."""
    verdict, reasons = spoilt.judged("fine")

    assert verdict in ("valid", "suspect")
    assert of_the_lab(reasons) == []
    assert spoilt.exit_code == 1


def test_a_request_that_has_no_row_is_missed_by_nginx_and_the_workers(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("uncounted")

    assert verdict == "invalid"
    sent = int(reasons[0].split()[3])
    assert reasons[0] == (
        f"the counts disagree: {sent} requests were sent and {sent} answered, the balancer served {2 * sent}"
    )
    assert any(" answers name worker " in reason for reason in reasons)


def test_an_answer_that_names_the_wrong_worker_is_seen_by_that_workers_own_count(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("lying")

    assert verdict == "invalid"
    assert any(" answers name worker " in reason and ":77, which counted 0" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("which", "verdict", "start", "end"),
    [
        ("too-many", "invalid", "the load generator dropped ", "% of what it should have sent"),
        ("starved", "suspect", "the load generator waited for a processor ", ""),
        ("dawdling", "suspect", "Little's law does not hold: ", ""),
        ("throttled", "suspect", "gunicorn-1 was kept from computing by its limit for ", ""),
        # one thread that takes no connection while it is busy, and a queue of one
        ("overflowing", "suspect", "the listen queue of gunicorn-1 was full for ", " connections"),
    ],
)
def test_what_a_load_generator_or_a_server_lacks(
    spoilt: Spoilt, which: str, verdict: str, start: str, end: str
) -> None:
    judged, reasons = spoilt.judged(which)

    assert judged == verdict
    assert only(reasons, start).endswith(end)


def test_a_worker_that_is_killed_and_replaced(spoilt: Spoilt) -> None:
    verdict, reasons = spoilt.judged("worker-killed")

    assert verdict == "invalid"
    assert f"gunicorn-1 lost worker {spoilt.killed_worker} during the load" in reasons
    assert only(reasons, "gunicorn-1 started worker ")


def test_what_a_killed_worker_counted_is_kept(spoilt: Spoilt) -> None:
    """Its attempts to accept are in the trial's files and in the summary, though the trial is invalid."""
    counted = counted_by(spoilt, "worker-killed")

    assert counted["accept_attempts"] >= counted["accepted"] + counted["accept_failures"] > 0
    said = spoilt.lab.latest("spoilt") / "worker-killed" / "users" / "1" / "gunicorn-1.after.txt"
    assert f"==> worker {spoilt.killed_worker} <==" in said.read_text()


@pytest.mark.parametrize("variant", ["process-of-k6-killed", "k6-killed"])
def test_a_load_generator_that_is_killed(spoilt: Spoilt, variant: str) -> None:
    verdict, [reason, *_] = spoilt.judged(variant)

    assert verdict == "invalid"
    assert reason.startswith("failed: k6 ended with exit code 137: ")
    assert (spoilt.lab.latest("spoilt") / variant / "killed" / "1" / "points.json.gz").exists()


@pytest.mark.parametrize(("variant", "service"), [("server-killed", "gunicorn"), ("balancer-killed", "nginx")])
def test_a_container_that_is_killed(spoilt: Spoilt, variant: str, service: str) -> None:
    verdict, [reason, *_] = spoilt.judged(variant)

    assert verdict == "invalid"
    assert reason == f"failed: {service} ended during the load with exit code 137"
    assert (spoilt.lab.latest("spoilt") / variant / "users" / "1" / "requests.parquet").exists()


def test_a_run_of_an_older_schema_is_left_as_it_is(spoilt: Spoilt) -> None:
    """Also by a new run beside it."""
    assert "Closed the record" not in spoilt.said
    assert content(spoilt.lab.results / "spoilt" / "20200102T030405Z") == spoilt.older


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ("one-socket", "hold 1 listening socket, not a socket of their own each"),
        ("two-sockets", "hold 2 listening sockets, not one socket that all share"),
    ],
)
def test_another_accept_model_than_the_variants(spoilt: Spoilt, variant: str, reason: str) -> None:
    verdict, reasons = spoilt.judged(variant)

    assert verdict == "invalid"
    assert of_the_lab(reasons) == [f"the workers of gunicorn-1 {reason}"]


def test_a_client_that_refuses_its_settings(spoilt: Spoilt) -> None:
    """The trial measured k6's requests beside nobody, which is not what was asked for."""
    verdict, reasons = spoilt.judged("client-refuses")

    assert verdict == "invalid"
    assert reasons[0] == (
        "failed: the client ended with exit code 2: SILENT_FOR_S is not set; the .env file beside the script has an "
        "example"
    )


def test_a_machine_short_of_processor_time(spoilt: Spoilt) -> None:
    _, reasons = spoilt.judged("squeezed")

    assert only(reasons, "something waited for a processor during ").endswith("% of the load")
    assert any(
        reason.startswith("the machine was ") and reason.endswith("% busy during the load") for reason in reasons
    )


def test_a_clock_that_is_set(spoilt: Spoilt) -> None:
    """No test may set the clock of somebody's machine: the lab's own reading of it jumps instead."""
    verdict, reasons = spoilt.judged("squeezed")

    assert verdict == "invalid"
    assert reasons[0] == "the clock was set by +3.50 s during the load"
