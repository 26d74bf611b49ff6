"""analysis.validity: a failed measurement says so itself."""

from pathlib import Path
from typing import Any

import pytest

from analysis.derive import derive
from analysis.run_folder import BadRun, Git, Image
from tests.synthetic import Request, make_run, make_trial

FINE = [Request(sent_s=n / 10) for n in range(200)]


def judged(tmp_path: Path, requests: list[Request] | None = None, **trial: Any) -> tuple[str, list[str]]:
    """Return the verdict on a run of one trial and the trial's own reasons."""
    make_run(tmp_path, {"one": FINE})
    make_trial(tmp_path, "one", 1, FINE if requests is None else requests, **trial)
    summary = derive(tmp_path)
    return summary.validity.verdict, summary.trials[0].reasons


def test_a_good_trial_is_valid_without_reasons(tmp_path: Path) -> None:
    assert judged(tmp_path) == ("valid", [])


@pytest.mark.parametrize(
    ("trial", "verdict", "reason"),
    [
        ({"k6_exit_code": 107}, "invalid", "k6 ended with exit code 107"),
        ({"k6_exit_code": None}, "invalid", "k6 ended with exit code None"),
        ({"k6_exit_code": 99}, "valid", "a threshold of the load script was crossed (k6 exit code 99)"),
        ({"outcome": "interrupted", "reason": "interrupted at noon"}, "invalid", "interrupted: interrupted at noon"),
        ({"outcome": "failed", "reason": "nginx said: no"}, "invalid", "failed: nginx said: no"),
        ({"busy_before": 0.5}, "suspect", "the machine was 50% busy before the load began"),
        ({"busy_during": 0.9}, "suspect", "the machine was 90% busy during the load"),
        ({"steal_during": 0.03}, "suspect", "other machines of this host took 3.0% of the processor time"),
    ],
)
def test_a_trial_is_judged_by_its_record(tmp_path: Path, trial: dict[str, Any], verdict: str, reason: str) -> None:
    assert judged(tmp_path, **trial) == (verdict, [reason])


@pytest.mark.parametrize(
    ("failed", "verdict", "reason"),
    [
        (2, "valid", "2 of 200 light requests failed (status 502)"),
        (3, "suspect", "3 of 200 light requests failed (status 502)"),
        (200, "invalid", "all 200 light requests failed (status 502)"),
    ],
)
def test_a_trial_is_judged_by_its_failures(tmp_path: Path, failed: int, verdict: str, reason: str) -> None:
    requests = [Request(error="status 502")] * failed + FINE[failed:]

    assert judged(tmp_path, requests) == (verdict, [reason])


def test_few_requests_that_all_fail_do_not_vanish_among_many_that_do_not(tmp_path: Path) -> None:
    requests = [*FINE, Request(request="heavy", error="request timeout"), Request(request="heavy", answered=False)]

    verdict, [reason] = judged(tmp_path, requests)

    assert verdict == "invalid"
    assert reason.startswith("all 2 heavy requests failed (")


def test_a_trial_without_requests_is_invalid(tmp_path: Path) -> None:
    assert judged(tmp_path, []) == ("invalid", ["no request was sent"])


def test_a_planned_trial_that_left_nothing_is_invalid(tmp_path: Path) -> None:
    run = make_run(tmp_path, {"one": FINE}, order=[["one", "mix", "1"], ["two", "mix", "1"]], outcome="interrupted")

    summary = derive(run)

    assert summary.validity.verdict == "invalid"
    assert summary.validity.reasons[0] == "two: invalid: not measured: the run was interrupted before"


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        ({}, "one trial of each variant: there is no interval, and another run may differ"),
        ({"outcome": "running"}, "the run did not end: its process was killed, or it is still at work"),
        ({"git": Git(commit="1" * 40, dirty=True)}, "the lab's own files had uncommitted changes"),
        (
            {"images": [Image(name="grafana/k6:1.8.1", id="sha256:1", stand_in="Go module proxy")]},
            "stand-in base images were used: grafana/k6:1.8.1 (Go module proxy)",
        ),
    ],
)
def test_a_run_says_what_to_keep_in_mind(tmp_path: Path, run: dict[str, Any], reason: str) -> None:
    summary = derive(make_run(tmp_path, {"one": FINE}, **run))

    assert summary.validity.verdict == "valid"
    assert reason in summary.validity.reasons


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "{folder} has no run.json"),
        ("{", "{folder}/run.json cannot be read: Expecting property name enclosed in double quotes: line 1 column 2"),
        ("[]", "{folder}/run.json has schema None; this version reads schema 1"),
        ('{"schema": 0}', "{folder}/run.json has schema 0; this version reads schema 1"),
        ('{"schema": 1}', "{folder}/run.json: experiment: Field required"),
    ],
)
def test_a_folder_that_is_not_a_run_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_text(content)

    with pytest.raises(BadRun) as caught:
        derive(tmp_path)

    assert str(caught.value).startswith(message.format(folder=tmp_path))
