"""Scripts and servers that go wrong, side by side on real containers: each trial says what, and spoils no other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.records.folder import read_trial, trial_folder
from tests.conftest import Lab, copy_lab, lab_objects
from tests.spoilt import tell_which, trials

EXPERIMENT = """\
title: Variants whose script or server is broken
question: Does each trial say what went wrong?
load:
  script: heavy-mix.js
  duration: {short: 3s, full: 1m}
  settings: {light_vus: 5, light_delay_max_s: 0.1, heavy_vus: 2, heavy_delay_s: 0.2}
parallel: true
variants:
  sound:       {server: gunicorn-gthread, workers: 1, threads: 8}
  refused:     {server: gunicorn-gthread, workers: 1, threads: 8}
  throws-one:  {server: gunicorn-gthread, workers: 1, threads: 8}
  throws-all:  {server: gunicorn-gthread, workers: 1, threads: 8}
  nowhere:     {server: gunicorn-gthread, workers: 1, threads: 8}
  unhealthy:   {server: gunicorn-gthread, workers: 1, threads: 2, replicas: 2, balance: least_conn}
  never-ready: {server: gunicorn-gthread, workers: 1, threads: 8}
  crossed:     {server: gunicorn-gthread, workers: 1, threads: 8}
  sometimes:   {server: gunicorn-gthread, workers: 1, threads: 8}
claims:
  - says: Nothing waits where nothing is found
    value: {variant: nowhere, request_class: light, metric: overhead, stat: p99}
    at_most: 50
  - says: Nothing waits where something is found sometimes
    value: {variant: sometimes, request_class: light, metric: overhead, stat: p99}
    at_most: 50
"""


def broken(folder: Path) -> Lab:
    """Return a copy of the lab whose script and servers are broken, for each variant in another way."""
    lab = copy_lab(folder)
    (lab.root / "experiments" / "spoilt.yaml").write_text(EXPERIMENT)
    tell_which(
        lab,
        LAB_READY="'never' if name == 'never-ready' else 'ready'",
        LAB_RETRIES="'1' if name == 'never-ready' else '30'",
    )
    lab.edit("docker-compose.yml", "http://127.0.0.1:8000/-/ready", "http://127.0.0.1:8000/-/${LAB_READY:-ready}")
    lab.edit("docker-compose.yml", "retries: 30", "retries: ${LAB_RETRIES:-30}")
    lab.edit("lab/servers/base.py", '"LAB_THREADS": str(', '"LAB_THREADS": "two" if self.replicas > 1 else str(')
    script = "k6/heavy-mix.js"
    lab.edit(script, "number('HEAVY_VUS')", "number(__ENV.WHICH === 'refused' ? 'HEAVIER_VUS' : 'HEAVY_VUS')")
    lab.edit(
        script,
        "  get(name,",
        "  if (__ENV.WHICH === 'throws-all' || (__ENV.WHICH === 'throws-one' && name === 'heavy')) {\n"
        "    throw new Error('broken on purpose');\n  }\n  get(name,",
    )
    lab.edit(
        script,
        "  scenarios:",
        "  thresholds: __ENV.WHICH === 'crossed' ? { http_reqs: ['count<1'] } : {},\n  scenarios:",
    )
    lost = "__ENV.WHICH === 'nowhere' || (__ENV.WHICH === 'sometimes' && Math.random() < 0.2)"
    lab.edit(script, "`/?delay=${delayS}`", f"`/${{{lost} ? 'nowhere' : ''}}?delay=${{delayS}}`")
    return lab


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """All variants, side by side. Most of them would make a run invalid alone."""
    assert lab_objects() == []
    lab = broken(tmp_path_factory.mktemp("failed"))
    done = lab.run("run", "spoilt", "--jobs", "9")
    assert done.returncode == 1, done.stderr
    yield lab
    assert lab_objects() == []


def reason(lab: Lab, variant: str) -> str:
    """Return why a trial failed, from its record; it is invalid."""
    record = read_trial(trial_folder(lab.latest("spoilt"), variant, "heavy-mix", 1))
    assert record.outcome == "failed"
    assert trials(lab)[variant]["verdict"] == "invalid"
    return record.reason or ""


def claims(lab: Lab) -> list[dict[str, Any]]:
    """Return what the summary says of the claims."""
    return list(json.loads((lab.latest("spoilt") / "summary.json").read_text())["claims"])


def test_a_trial_beside_those_that_fail_is_measured(failed: Lab) -> None:
    assert trials(failed)["sound"]["verdict"] in ("valid", "suspect")  # somebody may use the machine meanwhile


def test_a_setting_that_the_script_refuses(failed: Lab) -> None:
    """The lab knows which settings a script has; a script that reads another does not start."""
    assert "k6 ended with exit code 107: " in reason(failed, "refused")
    assert "HEAVIER_VUS is not set; the .env file beside the script has an example" in reason(failed, "refused")


@pytest.mark.parametrize("variant", ["throws-one", "throws-all"])
def test_a_script_that_throws_while_it_runs(failed: Lab, variant: str) -> None:
    """k6 goes on and exits with 0 when an iteration throws, and would leave a load without its heavy requests."""
    assert reason(failed, variant).startswith("the load script threw: ")
    assert "Error: broken on purpose" in reason(failed, variant)


def test_answers_other_than_200_are_failures_and_not_fast_successes(failed: Lab) -> None:
    summary = json.loads((failed.latest("spoilt") / "summary.json").read_text())

    assert {row["measured"] for row in summary["rows"] if row["variant"] == "nowhere"} <= {None}
    assert trials(failed)["nowhere"]["verdict"] == "invalid"
    assert trials(failed)["nowhere"]["reasons"][0].endswith(" requests failed (status 404)")


def test_a_server_that_never_becomes_healthy_shows_its_last_words_and_spoils_no_other(failed: Lab) -> None:
    assert "the servers did not become healthy: gunicorn said:\n" in reason(failed, "unhealthy")
    assert "ValueError: invalid literal for int() with base 10: 'two'" in reason(failed, "unhealthy")
    assert trials(failed)["sound"]["verdict"] in ("valid", "suspect")


def test_a_server_that_runs_and_is_never_ready_shows_what_the_health_check_saw(failed: Lab) -> None:
    assert reason(failed, "never-ready").endswith(
        "the health check last said: curl: (22) The requested URL returned error: 404\n"
        '{"error": "no such path: /-/never"}'
    )


def test_what_is_a_finding_or_a_doubt_is_no_failure(failed: Lab) -> None:
    """A crossed threshold is a note, and some answers other than 200 make a trial suspect."""
    crossed, sometimes = trials(failed)["crossed"], trials(failed)["sometimes"]

    assert crossed["verdict"] in ("valid", "suspect")  # somebody may use the machine meanwhile
    assert "a threshold of the load script was crossed (k6 exit code 99)" in crossed["reasons"]
    assert sometimes["verdict"] == "suspect"
    assert any(reason.endswith("light requests failed (status 404)") for reason in sometimes["reasons"])
    assert [claim["verdict"] for claim in claims(failed)] == ["invalid", "undecided"]
