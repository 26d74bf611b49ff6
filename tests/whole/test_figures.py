"""stampede.report.figures: pictures show what was counted by hand, and are left out where there is nothing to show."""

from pathlib import Path
from typing import Any

import altair as alt
import duckdb
import pytest

from stampede.evaluate.metrics import MetricName, Statistic
from stampede.pipeline import derive_summary
from stampede.records.claims import Curve, Measure, Published
from stampede.records.folder import read_run
from stampede.records.run import LoadKind, LoadRecord, VariantRecord
from stampede.records.summary import Estimate
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


def as_dict(chart: alt.TopLevelMixin | None) -> dict[str, Any]:
    """Return what a picture is drawn from, which can be drawn."""
    assert chart is not None
    assert svg(chart).startswith("<svg")
    drawn: dict[str, Any] = chart.to_dict()
    return drawn


def values_of(panel: dict[str, Any], drawn: dict[str, Any], layer: int) -> list[dict[str, Any]]:
    """Return what one layer of a panel shows; what all layers, or panels, share lies above them."""
    data = panel["layer"][layer].get("data") or panel.get("data") or drawn["data"]
    values: list[dict[str, Any]] = data.get("values") or drawn["datasets"].get(data.get("name"), [])
    return values


def staircase_of(run: Path) -> alt.TopLevelMixin | None:
    """Return the staircase of a run."""
    summary = derive_summary(run)
    with duckdb.connect() as database:
        database.read_parquet(f"{run}/*/mix/*/requests.parquet").create_view("requests")
        return staircase(database, read_run(run), summary, "mix")


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

    drawn = as_dict(staircase_of(run))

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

    drawn = as_dict(staircase_of(run))

    assert {kind for _, kind, *_ in stair(drawn, 0)} == kinds
    legend = drawn["vconcat"][0]["layer"][0]["encoding"]["color"]["scale"]["domain"]
    assert legend == ["it waits", *sorted(kinds - {"it waits"})]


@pytest.mark.parametrize(
    ("load", "outcome"),
    [(of_burst(2), "failed"), (of_burst(None), "measured"), (of_burst(51), "measured")],
    ids=["no trial that can be trusted", "no burst", "a large burst"],
)
def test_there_is_no_staircase_of_what_is_not_there(tmp_path: Path, load: list[LoadRecord], outcome: str) -> None:
    run = make_run(tmp_path, {"one": served_at(0, 1)}, loads=load, variants=variants("one", workers=1))
    make_trial(run, "one", 1, served_at(0, 1), outcome=outcome, reason="nginx said: no")

    assert staircase_of(run) is None


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


def test_what_loads_differ_in_is_the_axis_and_each_variant_a_line(tmp_path: Path) -> None:
    """Two variants under two and eight users; one figure is published, of one class of requests."""
    of_users = loads({"USERS": "8", "CPU": "hold"}, {"USERS": "2", "CPU": "hold"})
    run = read_run(make_run(tmp_path, {"a": PATIENT, "b": PATIENT})).model_copy(update={"loads": of_users})
    rows = [
        row(name, load, "throughput", "per_second", measured=served, low=served - 1, high=served + 1)
        for name in ("a", "b")
        for load, served in (("load-0", 40), ("load-1", 20))
    ]
    of_all = row("a", "load-1", "response_time", "p99", published=120, measured=9)
    rows.append(of_all.model_copy(update={"request_class": "light"}))

    drawn = as_dict(load_curve(run, derive_summary(tmp_path).model_copy(update={"rows": rows})))

    assert drawn["title"]["text"] == "What changes with users"
    assert drawn["title"]["subtitle"] == "1 trial; diamonds are published"

    def points(panel: int, layer: int) -> list[tuple[str, int, float]]:
        values = values_of(drawn["vconcat"][0]["hconcat"][panel], drawn, layer)
        return sorted((one["series"], one["setting"], one["value"]) for one in values)

    assert points(0, 2) == [("a", 2, 20), ("a", 8, 40), ("b", 2, 20), ("b", 8, 40)]
    assert (points(1, 2), points(1, 3)) == ([], [("a", 2, 120)])


def test_each_server_has_a_row_of_panels_in_which_no_two_lines_look_the_same(tmp_path: Path) -> None:
    """Of twelve lines in one panel, pairs would share their colour and shape."""
    twelve = [
        VariantRecord(name=f"{server}-{place}", workers=2, settings={"threads": 1, "server": server})
        for place in range(6)
        for server in ("gunicorn", "uwsgi")
    ]
    of_users = loads({"USERS": "8"}, {"USERS": "2"})
    run = read_run(make_run(tmp_path, {"one": PATIENT})).model_copy(update={"loads": of_users, "variants": twelve})
    rows = [row(of.name, load.name, *what, measured=9) for of in twelve for load in of_users
            for what in (("throughput", "per_second"), ("response_time", "p99"))]  # fmt: skip

    drawn = as_dict(load_curve(run, derive_summary(tmp_path).model_copy(update={"rows": rows})))

    legends = [panels["hconcat"][0]["layer"][2]["encoding"]["shape"] for panels in drawn["vconcat"]]
    assert [legend["title"] for legend in legends] == ["gunicorn", "uwsgi"]
    assert [len({*legend["scale"]["range"]}) for legend in legends] == [6, 6]
    assert drawn["resolve"]["scale"] == {"color": "independent", "shape": "independent"}


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


def test_a_curve_has_a_dot_for_each_trial_theorys_line_and_what_was_published(tmp_path: Path) -> None:
    both = {"two": PATIENT, "three": PATIENT}
    settings = [VariantRecord(name=name, workers=2, settings={"threads": threads})
                for threads, name in enumerate(both, start=2)]  # fmt: skip
    make_run(tmp_path, both, times=2, variants=settings)
    curve = Curve(over="threads", values=[Measure(request_class="light", metric="overhead", stat="p50")])
    run, summary = read_run(tmp_path).model_copy(update={"curve": curve}), derive_summary(tmp_path)

    def drawn(**known: float) -> tuple[str, list[list[tuple[int, float]]]]:
        """Return the subtitle, and the points of each layer, if the p50 has this prediction or published value."""
        rows = [row.model_copy(update=known if row.stat == "p50" else {}) for row in summary.rows]
        whole = as_dict(setting_curve(run, summary.model_copy(update={"rows": rows}), "mix"))
        panel = whole["vconcat"][0]["hconcat"][0]
        points = [[(one["setting"], one["value"]) for one in values_of(panel, whole, layer)]
                  for layer in range(len(panel["layer"]))]  # fmt: skip
        return whole["title"]["subtitle"], points

    told = "median of 2 trials; bars show the range of the trials; dots are trials"
    subtitle, layers = drawn()
    assert (subtitle, len(layers), [at for at, _ in layers[3]]) == (told, 4, [2, 2, 3, 3])
    subtitle, layers = drawn(predicted=7)
    assert (subtitle, layers[4]) == (f"{told}; theory's line is dashed", [(2, 7), (3, 7)])
    subtitle, layers = drawn(predicted=7, published=9)
    assert (subtitle, layers[5]) == (
        f"{told}; theory's line is dashed; diamonds are published", [(2, 9), (3, 9)]
    )  # fmt: skip
