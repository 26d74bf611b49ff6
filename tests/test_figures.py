"""analysis.figures: pictures show what was counted by hand, and are left out where there is nothing to show."""

from pathlib import Path
from typing import Any

import altair as alt
import duckdb
import pytest

from analysis import figures
from analysis.derive import derive
from analysis.quantities import Metric, Statistic
from analysis.run_folder import LoadRecord, VariantRecord, read_run
from analysis.summary import Row
from tests.synthetic import BEGAN, Request, make_run, observation

Marks = list[tuple[str, str | None, float, float | None]]

WAITING = [
    Request(asked_ms=5000, overhead_ms=0, worker="box:7"),
    Request(asked_ms=100, overhead_ms=4000, waits_ms=4000, sent_s=1, worker="box:7"),
]
PATIENT = [
    Request(asked_ms=5000, overhead_ms=0, worker="box:7"),
    Request(asked_ms=100, overhead_ms=0, sent_s=1, worker="box:8"),
]


def variants(*names: str, workers: int = 2, threads: int = 1) -> list[VariantRecord]:
    """Return variants of so many workers and threads."""
    return [VariantRecord(name=name, workers=workers, settings={"threads": threads, "name": name}) for name in names]


def moments(run: Path) -> dict[str, Any] | None:
    """Return the picture of a run's load."""
    summary = derive(run)
    assert {one.verdict for one in summary.trials} <= {"valid", "suspect"}, summary.trials
    with duckdb.connect() as database:
        database.read_parquet(f"{run}/*/mix/*/requests.parquet").create_view("requests")
        chart = figures.moments(database, run, read_run(run), summary, "mix")
        if chart:
            assert figures.svg(chart).startswith("<svg")
        return chart.to_dict() if isinstance(chart, alt.VConcatChart) else None


def shown(drawn: dict[str, Any], place: int = 0) -> Marks:
    """Return the marks of the variant in this place: what, in which lane, from and to which second."""
    return [
        (mark["kind"], mark.get("lane"), mark["from"], mark.get("to"))
        for layer in drawn["vconcat"][place]["layer"]
        for mark in layer["data"].get("values") or drawn["datasets"].get(layer["data"].get("name"), [])
    ]


def test_a_lane_shows_when_its_worker_was_busy_and_when_somebody_waited_for_it(tmp_path: Path) -> None:
    drawn = moments(make_run(tmp_path, {"uneven": WAITING, "even": PATIENT}, variants=variants("uneven", "even")))

    assert drawn is not None
    uneven, even = drawn["vconcat"]
    assert shown(drawn, 0) == [
        ("all its threads were busy", "worker 1", 0, pytest.approx(5.1, abs=0.01)),
        ("somebody waits here while another worker has a free thread", "worker 1", 1, 5),
    ]
    assert [kind for kind, *_ in shown(drawn, 1)] == ["all its threads were busy"] * 2
    assert [panel["title"]["text"] for panel in (uneven, even)] == [
        "uneven: 1 of 2 requests waited so, the longest for 4000 ms", "even: nobody waited so",
    ]  # fmt: skip
    assert uneven["layer"][1]["encoding"]["y"]["scale"]["domain"] == ["worker 1", "worker 2"]
    assert drawn["title"]["text"] == "Who waited beside a free thread"


def test_there_is_no_picture_when_nobody_waited(tmp_path: Path) -> None:
    assert moments(make_run(tmp_path, {"even": PATIENT}, variants=variants("even"))) is None


def test_there_is_no_picture_of_workers_whose_threads_nobody_knows(tmp_path: Path) -> None:
    assert moments(make_run(tmp_path, {"one": WAITING})) is None


def test_requests_that_failed_have_a_lane_and_stalls_a_background(tmp_path: Path) -> None:
    """Of 200 failures within 0.1 s those are drawn that can be told apart; the second stall is after the load."""
    failed = [Request(request="heavy", sent_s=2 + n / 2000, error="status 503") for n in range(200)]
    answered = [Request(request="heavy", asked_ms=10, sent_s=4)]
    began = BEGAN.timestamp()
    run = make_run(tmp_path, {"one": PATIENT + failed + answered}, variants=variants("one"))
    (run / "one" / "mix" / "1" / "api-1.before.txt").write_text(observation("api", stalls=[]))
    stalls = [(began + 1.5, began + 2.5), (began + 60, began + 65)]
    (run / "one" / "mix" / "1" / "api-1.after.txt").write_text(observation("api", stalls=stalls))

    drawn = moments(run)

    assert drawn is not None
    [panel] = drawn["vconcat"]
    assert panel["title"]["text"] == "one: nobody waited so, 200 refused or failed"
    assert [mark for mark in shown(drawn) if mark[0] == "the api stalls"] == [("the api stalls", None, 1.5, 2.5)]
    crosses = [at for kind, lane, at, _ in shown(drawn) if (kind, lane) == ("refused or failed", "refused or failed")]
    assert 2 <= len(crosses) <= 6
    assert crosses[0] == 2


def test_a_lane_never_has_more_marks_than_can_be_told_apart(tmp_path: Path) -> None:
    """Four thousand short requests, each of which makes another wait for a quarter of it."""
    long = [
        Request(asked_ms=240, overhead_ms=wait, waits_ms=wait, sent_s=n / 2 + late, worker="box:7")
        for n in range(2000)
        for late, wait in ((0, 0), (0.18, 64.5))
    ]
    run = make_run(tmp_path, {"one": long}, variants=variants("one"))

    drawn = moments(run)

    assert drawn is not None
    marks = shown(drawn)
    for kind in ("all its threads were busy", "somebody waits here while another worker has a free thread"):
        assert 1 <= sum(mark[0] == kind for mark in marks) <= 430


def test_of_many_workers_those_are_shown_for_which_most_was_waited_and_the_idlest(tmp_path: Path) -> None:
    requests = [
        Request(asked_ms=asked, overhead_ms=wait, waits_ms=wait, sent_s=sent, worker=f"box:{pid}")
        for pid in range(10, 20)
        for asked, wait, sent in ((1000, 0, 0), (100, 1000 - pid, pid / 1000))
    ]
    run = make_run(tmp_path, {"one": requests}, variants=variants("one", workers=12))
    served = {pid: 2 * (pid < 20) for pid in range(10, 22)}
    for when, counts in (("before", dict.fromkeys(served, 0)), ("after", served)):
        (run / "one" / "mix" / "1" / f"server-1.{when}.txt").write_text(observation(served=counts))

    drawn = moments(run)

    assert drawn is not None
    [panel] = drawn["vconcat"]
    lanes = panel["layer"][1]["encoding"]["y"]["scale"]["domain"]
    assert lanes == [*(f"worker {place}" for place in range(1, 8)), "worker 12"]
    assert panel["title"]["text"].endswith("; 8 of 12 workers are shown")


def loads(*settings: dict[str, str], script: str = "users.js") -> list[LoadRecord]:
    """Return loads with such settings, named by their place."""
    return [
        LoadRecord(name=f"load-{place}", script=script, duration="9s", settings=one)
        for place, one in enumerate(settings)
    ]


def row(variant: str, load: str, metric: Metric, stat: Statistic, **values: float | None) -> Row:
    """Return a row of all requests together, of five trials."""
    rest: dict[str, float | None] = {"published": None, "predicted": None, "measured": None, "low": None, "high": None}
    return Row(
        variant=variant, load=load, request=None, metric=metric, stat=stat, unit="", n=5, trials=5, **(rest | values),
    )  # fmt: skip


def test_what_loads_differ_in_is_the_axis_and_each_server_has_a_row(tmp_path: Path) -> None:
    """Two variants of one server and one of another, under two and eight users; one figure is published."""
    kinds = {"a": "uwsgi", "b": "uwsgi", "c": "gunicorn-sync"}
    variants = [VariantRecord(name=name, workers=1, settings={"server": kind}) for name, kind in kinds.items()]
    of_users = loads({"USERS": "8", "CPU": "hold"}, {"USERS": "2", "CPU": "hold"})
    run = read_run(make_run(tmp_path, dict.fromkeys(kinds, PATIENT)))
    run = run.model_copy(update={"loads": of_users, "variants": variants})
    rows = [
        row(name, load, "throughput", "per_second", measured=served, low=served - 1, high=served + 1)
        for name in kinds
        for load, served in (("load-0", 40), ("load-1", 20))
    ]
    rows.append(row("a", "load-1", "response_time", "p99", published=120))
    summary = derive(tmp_path).model_copy(update={"rows": rows})

    chart = figures.across_loads(run, summary)

    assert isinstance(chart, alt.VConcatChart)
    assert figures.svg(chart).startswith("<svg")
    drawn = chart.to_dict()
    assert drawn["title"]["text"] == "What changes with users"
    assert [len(one["hconcat"]) for one in drawn["vconcat"]] == [2, 2]

    def points(server: int, panel: int, layer: int) -> list[tuple[str, int, float]]:
        drawn_panel = drawn["vconcat"][server]["hconcat"][panel]
        data = drawn_panel["layer"][layer].get("data") or drawn_panel["data"]  # what all layers share lies above them
        values = data.get("values") or drawn["datasets"][data["name"]]
        return sorted((one["variant"], one["setting"], one["value"]) for one in values)

    assert points(0, 0, 2) == [("a", 2, 20), ("a", 8, 40), ("b", 2, 20), ("b", 8, 40)]
    assert points(0, 1, 3) == [("a", 2, 120)]
    assert points(1, 0, 2) == [("c", 2, 20), ("c", 8, 40)]


@pytest.mark.parametrize(
    "others",
    [
        loads({"USERS": "2"}),
        loads({"USERS": "2"}, {"USERS": "2"}),
        loads({"USERS": "2", "PAUSE_S": "1"}, {"USERS": "4", "PAUSE_S": "2"}),
        loads({"USERS": "2"}, {"USERS": "many"}),
        loads({"USERS": "0"}, {"USERS": "4"}),
        [*loads({"USERS": "2"}), *loads({"USERS": "4"}, script="arrivals.js")],
    ],
    ids=["one", "the same", "two differences", "a word", "zero", "two scripts"],
)
def test_loads_that_do_not_differ_in_one_number_have_no_axis(tmp_path: Path, others: list[LoadRecord]) -> None:
    run = read_run(make_run(tmp_path, {"one": PATIENT})).model_copy(update={"loads": others})

    assert figures.across_loads(run, derive(tmp_path)) is None
