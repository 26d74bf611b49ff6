"""Records of three generations: of an older version, of this version, and of a version that does not exist yet."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from stampede.evaluate.metrics.unknown import unknown
from stampede.experiment.entries import QuantityEntry
from stampede.pipeline import derive_summary
from stampede.records.checksums import MANIFEST, seal
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.duration import in_seconds
from stampede.records.folder import BadRun, read_run, read_summary, write_record
from stampede.records.model import KEYS_OF_SCHEMA_1, METRICS_OF_SCHEMA_1, name_from
from stampede.records.plural import noun_for, plural
from stampede.verification import compare_results
from tests.conftest import Lab
from tests.synthetic import Request, make_run

FEW = [Request(overhead_ms=n, sent_s=n / 10) for n in range(1, 21)]
P50 = Quantity(variant="one", load="mix", request_class="light", metric="overhead", stat="p50")
KNOWN = "It is quick"
NEW_METRIC = "The queue is short"


def changed(path: Path, change: Callable[[Any], None]) -> None:
    """Change the values of a JSON file."""
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values, indent=2) + "\n")


def of_the_future(values: Any) -> None:  # JSON
    """Make a run.json what a newer version may write."""
    values |= {"schema": 3, "energy": {"joules": 12.5}, "outcome": "completed"}
    values["host"]["gpu"] = "none"
    values["variants"][0]["shards"] = 3
    values["variants"][0]["settings"]["sharding"] = "by user"
    values["loads"][0]["colour"] = "green"
    values["loads"].append(values["loads"][0] | {"name": "tide", "kind": "tide", "script": "tide.js", "loop": "half"})
    value = values["claims"][0]["value"]
    claim = values["claims"][0] | {"says": NEW_METRIC, "value": value | {"metric": "queue_time"}}
    values["claims"] += [
        claim,
        claim | {"says": "Its median is short", "value": value | {"stat": "p50_of_max"}},
        claim | {"says": "It lies between", "value": value, "at_most": None, "between": [1, 2]},
        claim | {"says": "It is high tide", "value": value | {"load": "tide"}, "role": "moral"},
    ]
    values["published"] += [
        values["published"][0] | {"metric": "queue_time"},
        values["published"][0] | {"stats": {"p50": 50, "p50_of_max": 3}},
        values["published"][0] | {"stats": {}, "shape": [1, 2, 3]},
    ]
    values["curve"] = {"over": "workers", "values": [{"metric": "queue_time", "stat": "p99"}]}


def today(folder: Path) -> Path:
    """Write a run as this version does, and return its folder."""
    return make_run(
        folder,
        {"one": FEW},
        claims=[Claim(says=KNOWN, value=P50, at_most=1000)],
        published=[Published(variant="one", load="mix", request_class="light", metric="overhead", stats={"p50": 50})],
        times=2,
    )


def future(folder: Path) -> Path:
    """Write a run as a newer version might do, and return its folder."""
    run = today(folder)
    changed(run / "run.json", of_the_future)
    changed(run / "one" / "mix" / "1" / "trial.json", lambda values: values.update({"schema": 3, "watts": 7}))
    seal(run)
    return run


NOT_KNOWN = [
    "the records have schema 3, and this version reads schema 2: it leaves out what is new",
    "not read by this version: energy, published[3].shape, claims[3].between, variants[0].shards, loads[0].colour, "
    "loads[1].colour, host.gpu in run.json",
    "not read by this version: watts in trial.json",
    "not judged by this version: tide is a load of the kind tide",
    f"not judged by this version: the claim {NEW_METRIC!r} asks for the metric queue_time",
    "not judged by this version: the claim 'Its median is short' asks for the statistic p50_of_max of overhead",
    "not judged by this version: the claim 'It lies between' asks for the key between",
    "not judged by this version: the claim 'It is high tide' asks for a load of the kind tide",
    "not judged by this version: of one, the metric queue_time was published",
    "not judged by this version: of one, the statistic p50_of_max of overhead was published",
    "not judged by this version: of one, the key shape was published",
    "not drawn by this version: the curve asks for the metric queue_time",
]


def test_everything_that_a_newer_version_wrote_is_named_and_not_judged(tmp_path: Path) -> None:
    """The claim and the figures that this version knows have the verdicts that they have without the rest."""
    summary = derive_summary(future(tmp_path / "future"))
    known = derive_summary(today(tmp_path / "today"))

    assert [one for one in summary.validity.reasons if one not in known.validity.reasons] == NOT_KNOWN
    first, *others = summary.claims
    assert first == known.claims[0]
    assert first.verdict == "reproduced"
    assert [(one.verdict, one.measured) for one in others] == [("undecided", None)] * 4
    assert others[0].reason == "not judged by this version: the claim asks for the metric queue_time"
    assert summary.rows == known.rows
    [one, of_metric, of_statistic] = summary.published
    assert one == known.published[0]
    assert (of_metric.verdict, of_metric.suspect) == ("undecided", False)
    assert of_metric.reason == "not judged by this version: the metric queue_time was published"
    verdicts = {figure.stat: figure.verdict for figure in of_statistic.figures}
    assert verdicts == {"p50": known.published[0].figures[0].verdict, "p50_of_max": "undecided"}
    assert [one.missing for one in summary.not_predicted if one.load == "tide"] == []


@pytest.mark.parametrize("command", ["advise", "what-if"])
def test_a_load_that_no_variant_was_measured_under_is_named(lab: Lab, command: str) -> None:
    run = future(lab.results / "made-up" / "20260101T000000Z")

    done = lab.call(command, str(run), "--load", "tide")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: The run measured no variant under tide.\n\nhint: --load …, one of mix\n"


def test_a_record_that_is_written_again_keeps_what_this_version_does_not_know(tmp_path: Path) -> None:
    run = future(tmp_path)
    before = json.loads((run / "run.json").read_text())

    write_record(run / "run.json", read_run(run))

    assert keeps(before, json.loads((run / "run.json").read_text()))


def keeps(old: Any, new: Any) -> bool:
    """Whether everything in old JSON values is in new ones; further keys may be there."""
    if isinstance(old, dict):
        return all(key in new and keeps(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return len(old) == len(new) and all(map(keeps, old, new))
    return bool(old == new)


def test_results_of_two_schemas_have_equal_values(tmp_path: Path) -> None:
    """Each key and metric of schema 1 is compared with the key and metric that took its place."""
    run = today(tmp_path / "today")
    derive_summary(run)
    old = json.loads((run / "summary.json").read_text())
    old["schema"] = 1
    for name, after in KEYS_OF_SCHEMA_1.items():
        for rows in [old["rows"], old["workers"], old["errors"], old["published"], [old]]:
            for row in rows:
                if after in row:
                    row[name] = row.pop(after)
    for row in old["rows"]:
        row["metric"] = {today: name for name, today in METRICS_OF_SCHEMA_1.items()}.get(row["metric"], row["metric"])
    older = tmp_path / "older.json"
    older.write_text(json.dumps(old))

    assert compare_results(run, older) == []

    old["rows"][0] |= {"measured": 3.5, "colour": "green"}
    older.write_text(json.dumps(old))
    measured = read_summary(run).rows[0].measured

    assert compare_results(run, older) == [f"rows[0].measured: 3.5 became {measured}", "rows[0].colour is gone"]


@pytest.mark.parametrize("wrong", ["both names", "neither"])
def test_a_key_of_schema_1_is_read_for_ever(wrong: str) -> None:
    """A key with its old and with its new name is a mistake, which a strict model refuses."""
    claimed = {"variant": "one", "request": "light", "metric": "beside_free_thread", "stat": "share"}

    assert QuantityEntry.model_validate(claimed) == QuantityEntry(
        variant="one", request_class="light", metric="avoidable_wait", stat="share"
    )
    with pytest.raises(ValidationError):
        QuantityEntry.model_validate(claimed | ({"request_class": "heavy"} if wrong == "both names" else {"asks": "x"}))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (lambda values: values.update({"trials": "many"}), "trials: "),
        (lambda values: values["loads"][0].update({"settings": 3}), "loads.0.settings: "),
        (lambda values: values["claims"][0].pop("value"), "claims.0.value: "),
        (lambda values: values.update({"schema": "two"}), "has schema two"),
    ],
)
def test_a_record_that_lacks_what_this_version_needs_is_refused_with_the_place(
    tmp_path: Path, change: Callable[[Any], None], place: str
) -> None:
    run = future(tmp_path)
    changed(run / "run.json", change)

    with pytest.raises(BadRun) as caught:
        read_run(run)

    assert str(caught.value).startswith(f"{run}/run.json")
    assert place in str(caught.value)


def test_nothing_is_unknown_in_a_run_of_this_version(tmp_path: Path) -> None:
    assert [*unknown(read_run(today(tmp_path)))] == []


def test_what_if_answers_although_the_results_folder_cannot_be_written(lab: Lab) -> None:
    """The page has no place, so only the tables are there. Root may write everywhere, so a file is in the way."""
    run = make_run(lab.results / "made-up" / "20260101T000000Z", {"one": FEW})
    changed(run / "run.json", lambda values: values["variants"][0]["settings"].update({"threads": 2}))
    (lab.results / "what-if.html").mkdir()

    done = lab.call("what-if", str(run))

    assert done.returncode == 0
    assert "made-up, one, trial 1: 20 requests, replayed" in done.stdout
    assert "There is no page of lanes: " in done.stderr


def test_a_run_without_a_manifest_can_still_be_read(tmp_path: Path, lab: Lab) -> None:
    run = today(tmp_path / "run")
    (run / MANIFEST).unlink(missing_ok=True)
    copy = shutil.copytree(run, lab.results / "made-up" / "copy")

    assert lab.call("power", str(copy)).returncode == 0


def test_a_text_makes_a_name() -> None:
    assert name_from("GET /Orders/{id}?all", "home") == "get-orders-id-all"
    assert name_from("/", "home") == "home"


def test_a_noun_has_the_number_of_its_things() -> None:
    assert [plural(count, "trial") for count in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
    assert [noun_for(count, "worker") for count in (1, 2)] == ["worker", "workers"]


def test_durations_are_in_seconds_or_minutes() -> None:
    assert [in_seconds(duration) for duration in ("90s", "5m")] == [90, 300]
