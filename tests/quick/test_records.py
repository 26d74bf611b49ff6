"""Records that cannot be read, or that ask for what nobody measures, and small words of records."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stampede.pipeline import derive_summary
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.folder import BadRun, read_run, read_summary
from stampede.records.model import name_from
from stampede.records.traffic import in_seconds, traffic_of_settings
from stampede.records.words import noun_for, plural
from tests.synthetic import Request, make_run
from tools.same_results import compare_results

FEW = [Request(overhead_ms=n, sent_s=n / 10) for n in range(1, 21)]
P50 = Quantity(variant="one", load="mix", request_class="light", metric="overhead", stat="p50")
KNOWN = "It is quick"


def changed(path: Path, change: Callable[[Any], None]) -> None:
    """Change the values of a JSON file."""
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values, indent=2) + "\n")


def today(folder: Path) -> Path:
    """Write a run as this version does, and return its folder."""
    published = [Published(variant="one", load="mix", request_class="light", metric="overhead", stats={"p50": 50})]
    claims = [Claim(says=KNOWN, value=P50, at_most=1000)]
    return make_run(folder, {"one": FEW}, claims=claims, published=published, times=2)


def takes(takes_s: Any) -> dict[str, Any]:
    """Return the traffic of a load whose requests take so long."""
    return {"traffic": {"classes": {"user": {"users": 1, "work": [{"takes_s": takes_s}]}}}}


def test_a_run_whose_requests_took_no_time_is_read(tmp_path: Path) -> None:
    run = today(tmp_path)
    changed(run / "run.json", lambda values: values["loads"][0].update(takes({"least": 0.0, "most": 0.0})))

    [load] = read_run(run).loads

    assert load.traffic == traffic_of_settings(
        "users.js", {"USERS": "1", "DELAY_MIN_S": "0", "DELAY_MAX_S": "0", "PAUSE_S": "0"}
    )


@pytest.mark.parametrize(
    ("asks", "why"),
    [
        ({"metric": "queue_time"}, "p50 queue_time, which this version does not measure"),
        ({"stat": "p50_of_max"}, "p50_of_max overhead, which this version does not measure"),
        ({"load": "tide"}, "the load tide, which the run does not have"),
    ],
)
def test_a_run_that_asks_for_what_nobody_measures_is_refused(tmp_path: Path, asks: dict[str, str], why: str) -> None:
    run = today(tmp_path)
    changed(run / "run.json", lambda values: values["claims"][0]["value"].update(asks))
    with pytest.raises(BadRun, match=f"{tmp_path} asks for {why}"):
        derive_summary(run)


def test_results_are_compared_value_by_value(tmp_path: Path) -> None:
    run = today(tmp_path / "today")
    derive_summary(run)
    other = tmp_path / "other.json"
    values = json.loads((run / "summary.json").read_text())
    values["rows"][0] |= {"measured": 3.5, "pooled": True}
    values["rows"][1] |= {"stat": "p12"}
    other.write_text(json.dumps(values))
    measured = read_summary(run).rows[0].measured

    assert compare_results(run, run) == []
    assert compare_results(run, other) == [
        f"rows.one mix light overhead min.measured: 3.5 became {measured}",
        "rows.one mix light overhead min.pooled is gone",
        "rows.one mix light overhead p12 is gone",
        "rows.one mix light overhead avg is new",
    ]


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda values: values.update({"trials": "many"}), "trials: "),
        (lambda values: values["loads"][0].update({"settings": 3}), "loads.0.settings: "),
        (lambda values: values["claims"][0].pop("value"), "claims.0.value: "),
        (lambda values: values.update({"schema": "two"}), "has schema two; this version reads schema 2"),
        (lambda values: values["host"].update({"gpu": "none"}), "host.gpu: "),
        (lambda values: values["loads"][0].update({"kind": "tide"}), "loads.0.kind: "),
        (lambda values: values["claims"][0].update({"at_most": None}), "claims.0: "),
        (
            lambda values: values["loads"][0].update(takes({"least": -1, "most": 0})),
            "takes_s.least: -1 must be",
        ),
    ],
)
def test_a_record_that_lacks_what_this_version_needs_is_refused_with_the_place(
    tmp_path: Path, change: Callable[[Any], None], place: str
) -> None:
    run = today(tmp_path)
    changed(run / "run.json", change)

    with pytest.raises(BadRun) as caught:
        read_run(run)

    assert str(caught.value).startswith(f"{run}/run.json")
    assert place in str(caught.value)


def test_small_words_are_what_they_should_be() -> None:
    assert [name_from(text, "home") for text in ("GET /Orders/{id}?all", "/")] == ["get-orders-id-all", "home"]
    assert [plural(count, "trial") for count in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
    assert [noun_for(count, "worker") for count in (1, 2)] == ["worker", "workers"]
    assert [in_seconds(duration) for duration in ("90s", "5m")] == [90, 300]
