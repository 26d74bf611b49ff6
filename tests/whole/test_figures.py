"""stampede.report.figures: pictures show what was counted by hand, and are left out where there is nothing to show."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import duckdb
import pytest

from stampede.evaluate.metrics import MetricName, Statistic
from stampede.pipeline import derive_summary
from stampede.records.claims import Curve, Measure, Published
from stampede.records.folder import read_run
from stampede.records.run import LoadKind, LoadRecord, Run, VariantRecord
from stampede.records.summary import Estimate, Summary
from stampede.report.figures.curves import load_curve, setting_curve
from stampede.report.figures.drawing import svg
from stampede.report.figures.requests import staircase, worst_and_best
from tests.synthetic import Request, make_run, make_trial

PATIENT = [
    Request(service_time_ms=5000, overhead_ms=0, worker="box:7"),
    Request(service_time_ms=100, overhead_ms=0, sent_s=1, worker="box:8"),
]


def variants(*names: str, workers: int = 2, threads: int = 1) -> list[VariantRecord]:
    """Return variants of so many workers and threads."""
    return [VariantRecord(name=name, workers=workers, settings={"threads": threads, "name": name}) for name in names]


_DRAWN: set[str] = set()


def as_dict(chart: alt.TopLevelMixin, kind: str) -> dict[str, Any]:
    """Return what a picture is drawn from. Drawing takes much longer, so only the first picture of a kind is drawn."""
    if kind not in _DRAWN:
        _DRAWN.add(kind)
        assert svg(chart).startswith("<svg")
    drawn: dict[str, Any] = chart.to_dict()
    return drawn


def values_of(panel: dict[str, Any], drawn: dict[str, Any], layer: int) -> list[dict[str, Any]]:
    """Return what one layer of a panel shows; what all layers, or panels, share lies above them."""
    data = panel["layer"][layer].get("data") or panel.get("data") or drawn["data"]
    values: list[dict[str, Any]] = data.get("values") or drawn["datasets"].get(data.get("name"), [])
    return values


PICTURES: dict[str, Callable[[duckdb.DuckDBPyConnection, Run, Summary], alt.TopLevelMixin | None]] = {
    "staircase": lambda rows, run, summary: staircase(rows, run, summary, "mix"),
}


def chart_of(run: Path, picture: str) -> alt.TopLevelMixin | None:
    """Return a picture of a run's bursts or visits."""
    summary = derive_summary(run)
    with duckdb.connect() as database:
        database.read_parquet(f"{run}/*/mix/*/requests.parquet").create_view("requests")
        return PICTURES[picture](database, read_run(run), summary)


def drawn_of(run: Path, picture: str) -> dict[str, Any]:
    """Return what a picture of a run's bursts or visits is drawn from."""
    chart = chart_of(run, picture)
    assert chart is not None
    return as_dict(chart, picture)


def of_burst(size: int | None, **settings: str) -> list[LoadRecord]:
    """Return a load that sends so many requests at once; None: requests before and after one that kills its worker."""
    at_once = {"BURST": str(size)} if size else {}
    kind: LoadKind = "burst" if size else "crash"
    return [LoadRecord(name="mix", script=f"{kind}.js", kind=kind, duration="60s", settings=at_once | settings)]


def stair(drawn: dict[str, Any], place: int) -> list[tuple[int, str, float, float]]:
    """Return the marks of a panel: which request, what became of it, from and to which second."""
    panel = drawn["vconcat"][place]
    return [
        (mark["place"], mark["kind"], round(mark["from"], 2), round(mark["to"], 2))
        for layer in range(len(panel["layer"]))
        for mark in values_of(panel, drawn, layer)
    ]


def served_at(*waits_s: float, workers: int = 1, at_s: float = 0) -> list[Request]:
    """Return requests of a second that are sent at once and begun so late, by so many workers in turn."""
    return [
        Request(1000 * wait_s, 1000, waits_ms=1000 * wait_s, worker=f"box:{7 + place % workers}", sent_s=at_s)
        for place, wait_s in enumerate(waits_s)
    ]


def test_a_staircase_shows_who_waited_and_who_was_served_in_order_of_completion(tmp_path: Path) -> None:
    """Of the first burst; a request that failed has a cross, and one that was never answered ends where all do."""
    two = [*served_at(0), Request(400, 100, error="status 502"), Request(answered=False)]
    steps = Published(variant="one", metric="response_time", completion_times=[222000, 555000, 666000], divided_by=222)
    run = make_run(
        tmp_path, {"one": served_at(1, 0, 2) + served_at(5, 5, 5, at_s=20), "two": two},
        variants=variants("one", "two", workers=1), published=[steps],
        loads=of_burst(None, BEFORE="1", CRASH_AFTER_S="0.5", AFTER="1"),
    )  # fmt: skip

    drawn = drawn_of(run, "staircase")

    work, published = "a worker is at work on it", "answered, as published"
    assert stair(drawn, 0) == [
        (1, "it waits", 0, 1), (2, "it waits", 0, 2), (3, "it waits", 0, 3),
        (1, work, 0, 1), (2, work, 1, 2), (3, work, 2, 3),
        (1, published, 1, 1), (2, published, 2.5, 2.5), (3, published, 3, 3),
    ]  # fmt: skip
    assert stair(drawn, 1) == [
        (1, "it waits", 0, 0.5), (2, "it waits", 0, 1), (3, "it waits", 0, 1), (2, work, 0, 1),
        (1, "refused or failed", 0.5, 0.5), (3, "refused or failed", 1, 1),
    ]  # fmt: skip
    assert [panel["title"]["text"] for panel in drawn["vconcat"]] == [
        "one: the first answer after 1.00 s, the last after 3.00 s",
        "two: the first answer after 1.00 s, the last after 1.00 s, 2 of 3 refused or failed",
    ]
    assert drawn["title"]["text"] == (
        "One of 3 requests kills its worker: how long each waits, and when a worker is at work on it"
    )
    assert drawn["title"]["subtitle"] == (
        "first burst of each variant, invalid trials left out; each row is a request, in order of completion; "
        "published ÷ 222"
    )


@pytest.mark.parametrize(
    ("workers", "kinds"),
    [
        (2, {"worker 1 is at work", "worker 2 is at work", "it waits"}),
        (9, {"a worker is at work on it", "it waits"}),
    ],
)
def test_a_staircase_tells_workers_apart_as_far_as_there_are_colours(
    tmp_path: Path, workers: int, kinds: set[str]
) -> None:
    several = served_at(*[0] * 9, workers=workers)
    run = make_run(tmp_path, {"one": several}, variants=variants("one", workers=workers), loads=of_burst(9))

    drawn = drawn_of(run, "staircase")

    assert {kind for _, kind, *_ in stair(drawn, 0)} == kinds
    legend = drawn["vconcat"][0]["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert legend == ["it waits", *sorted(kinds - {"it waits"})]


def test_there_is_no_staircase_of_trials_that_cannot_be_trusted(tmp_path: Path) -> None:
    run = make_run(tmp_path, {"one": served_at(0, 1)}, loads=of_burst(2))
    make_trial(run, "one", 1, served_at(0, 1), outcome="failed", reason="nginx said: no")

    assert chart_of(run, "staircase") is None


def loads(*settings: dict[str, str], script: str = "users.js") -> list[LoadRecord]:
    """Return loads with such settings, named by their place."""
    return [
        LoadRecord(name=f"load-{place}", script=script, duration="9s", settings=one)
        for place, one in enumerate(settings)
    ]


def row(variant: str, load: str, metric: MetricName, stat: Statistic, **values: float | None) -> Estimate:
    """Return a row of all requests together, of five trials."""
    rest: dict[str, float | None] = {"published": None, "predicted": None, "measured": None, "low": None, "high": None}
    return Estimate(
        variant=variant, load=load, request_class=None, metric=metric, stat=stat, unit="", n=5, trials=5, values={},
        **(rest | values),
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
    summary = derive_summary(tmp_path).model_copy(update={"rows": rows})

    chart = load_curve(run, summary)

    assert isinstance(chart, alt.VConcatChart)
    drawn = as_dict(chart, "across")
    assert drawn["title"]["text"] == "What changes with users"
    assert drawn["title"]["subtitle"] == "1 trial; diamonds are published"
    assert [len(one["hconcat"]) for one in drawn["vconcat"]] == [2, 2]

    def points(server: int, panel: int, layer: int) -> list[tuple[str, int, float]]:
        values = values_of(drawn["vconcat"][server]["hconcat"][panel], drawn, layer)
        return sorted((one["series"], one["setting"], one["value"]) for one in values)

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

    assert load_curve(run, derive_summary(tmp_path)) is None


@pytest.mark.parametrize(
    ("picture", "requests", "load", "workers"),
    [
        ("staircase", served_at(0, 1), of_burst(None), 1),
        ("staircase", served_at(0, 1), of_burst(51), 1),
    ],
    ids=["no burst", "a large burst"],
)
def test_there_is_no_picture_of_what_is_not_there(
    tmp_path: Path, picture: str, requests: list[Request], load: list[LoadRecord], workers: int
) -> None:
    run = make_run(tmp_path, {"one": requests}, loads=load, variants=variants("one", workers=workers))

    assert chart_of(run, picture) is None


@pytest.mark.parametrize(
    ("slow", "title"),
    [
        (100, "One light request in a hundred waits 900 ms or more with slow, 1.0 ms with fast"),
        (50, "One light request in ten waits 900 ms or more with slow, 1.0 ms with fast"),
        (5, "How long light requests waited"),
    ],
)
def test_the_title_names_a_percentile_that_all_variants_have(tmp_path: Path, slow: int, title: str) -> None:
    """Without that, the variants that wait the longest, and so send the fewest requests, would be left out."""
    both = {"fast": [Request(overhead_ms=1)] * 100, "slow": [Request(overhead_ms=900)] * slow}
    make_run(tmp_path, both, variants=variants("fast", "slow"))
    summary = derive_summary(tmp_path)

    assert worst_and_best(summary, "mix", "light") == title


def served_by(first: int, second: int, overhead_ms: float = 1) -> list[Request]:
    """Return requests that two workers served, so many each; two in a hundred wait."""
    return [
        Request(
            overhead_ms=overhead_ms if number % 50 == 0 else 1,
            worker=f"box:{7 if number < first else 8}",
            sent_s=number,
        )
        for number in range(first + second)
    ]


@pytest.fixture
def of_two_trials(tmp_path: Path) -> Path:
    """Two variants, each measured twice: one has even shares and long waits, the other the opposite."""
    both = {"uneven": served_by(80, 20), "even": served_by(50, 50, overhead_ms=900)}
    make_run(tmp_path, both, trials=2, variants=variants("uneven", "even"))
    make_trial(tmp_path, "uneven", 2, served_by(10, 90))
    make_trial(tmp_path, "even", 2, served_by(40, 60, overhead_ms=1800))
    return tmp_path


def test_a_curve_has_a_dot_for_each_trial_and_theorys_line(of_two_trials: Path) -> None:
    run = read_run(of_two_trials)
    each = [
        one.model_copy(update={"settings": {"threads": threads}}) for threads, one in enumerate(run.variants, start=2)
    ]
    curve = Curve(over="threads", values=[Measure(request_class="light", metric="overhead", stat="p50")])

    summary = derive_summary(of_two_trials)
    rows = [
        row.model_copy(update={"predicted": 7.0}) if (row.metric, row.stat) == ("overhead", "p50") else row
        for row in summary.rows
    ]

    def drawn(of: Summary) -> tuple[dict[str, Any], dict[str, Any]]:
        picture = setting_curve(run.model_copy(update={"variants": each, "curve": curve}), of, "mix")
        assert picture
        found = as_dict(picture, "curve")
        return found["hconcat"][0], found

    panel, whole = drawn(summary)
    assert sorted(one["setting"] for one in values_of(panel, whole, 3)) == [2, 2, 3, 3]
    assert len(panel["layer"]) == 4
    panel, whole = drawn(summary.model_copy(update={"rows": rows}))
    assert sorted((one["setting"], one["value"]) for one in values_of(panel, whole, 4)) == [(2, 7), (3, 7)]
    explained = "median of 2 trials; bars show the range of the trials; dots are trials; theory's line is dashed"
    assert whole["title"]["subtitle"] == explained
    rows = [row.model_copy(update={"published": 9.0}) for row in rows]
    panel, whole = drawn(summary.model_copy(update={"rows": rows}))
    assert sorted((one["setting"], one["value"]) for one in values_of(panel, whole, 5)) == [(2, 9), (3, 9)]
    assert whole["title"]["subtitle"] == f"{explained}; diamonds are published"
