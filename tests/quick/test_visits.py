"""stampede.evaluate.metrics.visits and what is made of it: visits of a page, counted by hand."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from stampede.evaluate.metrics import MetricName, Statistic, visits
from stampede.evaluate.metrics.by_class import TIME_FAMILY
from stampede.evaluate.metrics.visits import Visit, measured_capacity_per_s
from stampede.evaluate.read.rows import UnreadablePoints
from stampede.pipeline import derive_summary
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.folder import read_run
from stampede.records.run import LoadRecord, Run, VariantRecord
from stampede.records.summary import Summary
from stampede.records.traffic import rates_per_s
from stampede.report.markdown import markdown
from tests.in_memory import conclude, judged, measure, measured_cells, opened_trial, page_of, printed, trial_of
from tests.synthetic import BEGAN, Request, database_seen, make_run, make_trial, point, run_record, visit, write_points
from tests.wrong import listed

CLIMB = {"FIRST_PER_S": "100", "LAST_PER_S": "400", "STEP_S": "2", "TIMEOUT_STEPS": "2", "USERS_MAX": "900"}
"""Three steps of two seconds: 100, 200 and 400 visits/s, of which the first has number 0, 200 and 600."""
FULL = "database error 1040: Too many connections"
OVERLOAD = LoadRecord(
    name="mix", script="visits.js", kind="visits", loop="open", duration="6s", settings=CLIMB,
    database={"max_connections": 50}, overloads=True,
)  # fmt: skip
STEADY = OVERLOAD.model_copy(update={"settings": {"STEP_S": "2"}, "overloads": False})
WITHOUT = STEADY.model_copy(update={"database": None})
KEY = ("one", "mix", 1)


def climbing(*failed: int, of: int = 101) -> list[Request]:
    """Return so many visits in each step of two seconds, of one request each, of which so many fail when they post."""
    return [
        Request(20, 0, "post" if place < failures else "newest", sent_s=2 * step + 2 * place / of,
                visit=f"{(0, 200, 600)[step] + place}", error=FULL if place < failures else None, status=503)
        for step, failures in enumerate(failed)
        for place in range(of)
    ]  # fmt: skip


def summary(requests: list[Request], load: LoadRecord = STEADY, **changed: Any) -> tuple[Run, Summary]:
    """Return a run of one trial of one variant, and what follows from its visits."""
    run = run_record(["one"], loads=[load], **changed)
    return run, conclude(run, measured_cells(requests, visits.FAMILY, load=load))


def test_the_rate_of_visits_climbs_in_steps() -> None:
    """From 10 to 20 in four steps each is 1.26 times the one before: 12.6 and 15.9 are rounded."""
    slow = CLIMB | {"FIRST_PER_S": "10", "LAST_PER_S": "20", "STEP_S": "30"}
    steady = CLIMB | {"FIRST_PER_S": "3", "LAST_PER_S": "3"}

    assert [rates_per_s(CLIMB, f"{s}s") for s in (1, 3, 6, 7)] == [[100], [100], [100, 200, 400], [100, 200, 400]]
    assert [rates_per_s(slow, "2m"), rates_per_s(steady, "4s")] == [[10, 13, 16, 20], [3, 3]]
    assert [rates_per_s(settings, "6s") for settings in ({"STEP_S": "2"}, {"USERS": "4"})] == [[], []]


def test_a_visit_is_its_requests_from_the_first_sent_to_the_last_answered() -> None:
    """The second fails with its post, the third is never answered, and the last should have posted."""
    unanswered = [*visit("3", 2, took_ms=(20,)), Request(request_class="post", visit="3", sent_s=2.5, answered=False)]
    requests = visit("1") + visit("2", 1, took_ms=(20, 40), error=FULL) + unanswered + visit("4", 3, took_ms=(1000,))

    with opened_trial(requests) as (database, trial):
        assert visits.read_visits(database, KEY) == [
            (1, 60.45, False), (2, 60.3, True), (3, 20.15, True), (4, 1000.15, True),
        ]  # fmt: skip
        assert trial.requests.posts == {"1": True, "2": False, "3": False}


def test_times_are_of_visits_that_succeeded_and_failures_are_counted_beside_them() -> None:
    """Of 30, 40, 50 and 60 ms; a fifth visit fails at once, too large a share for p90, which needs ten besides."""
    requests = [one for n in range(4) for one in visit(f"{n}", n, took_ms=(10 + 10 * n, 10, 10))]
    requests += visit("bad", 9, took_ms=(1,), error="status 503")

    rows = {(row.metric, row.stat): row for row in summary(requests)[1].rows}

    expected = {"min": 30.45, "avg": 45.45, "p25": 37.95, "p50": 45.45, "p75": 52.95, "max": 60.45}
    assert {stat: rows["visit", stat].measured for stat in expected} == pytest.approx(expected)
    assert ("visit", "p90") not in rows
    told = {key: (row.measured, row.unit, row.n) for key, row in rows.items() if key[0] == "visits_failed"}
    assert told == {("visits_failed", "share"): (0.2, "share", 5), ("visits_failed", "count"): (1, "visits", 5)}
    assert (rows["visit", "p50"].unit, rows["visit", "p50"].n) == ("ms", 4)


@pytest.mark.parametrize("load", [WITHOUT, OVERLOAD.model_copy(update={"database": None})], ids=["steady", "climb"])
def test_a_load_without_visits_has_none(load: LoadRecord) -> None:
    """It needs no database either."""
    assert measure([Request()], visits.FAMILY, load=load) == {}
    assert judged(trial_of([Request()]), load=load) == ("valid", [])


@pytest.mark.parametrize(
    ("failed", "capacity"),
    [((1, 1, 2), 200), ((0, 2, 0), 100), ((2, 0, 0), 0), ((101, 101, 101), 0), ((0, 0, 0), None), ((1, 1, 1), None),
     ((0, 0), None)],
)  # fmt: skip
def test_the_capacity_is_the_largest_rate_up_to_which_fewer_than_one_in_a_hundred_fails(
    failed: tuple[int, ...], capacity: float | None
) -> None:
    """Of 101 visits in each step one may fail. A climb that ends before visits fail shows no capacity.

    Neither does a rate that does not climb.
    """
    found, steady = (measure(climbing(*failed), visits.FAMILY, load=load) for load in (OVERLOAD, STEADY))

    assert found.get((None, "capacity", "per_second")) == capacity
    assert (None, "capacity", "per_second") not in steady


def test_the_capacity_can_be_measured_before_the_run_ends(tmp_path: Path) -> None:
    write_points(tmp_path / "points.json.gz", climbing(1, 1, 2))

    assert measured_capacity_per_s(tmp_path, KEY, CLIMB, "6s") == 200


def test_the_number_of_a_visit_says_its_step_whenever_it_came() -> None:
    """200 are due in the first step and 400 in the second; what has no number is in none."""
    numbers = 0, 199, 200, 599, 600, 9999, None

    found = visits.by_level([Visit(number, 1, failed=False) for number in numbers], [100, 200, 400], 2)

    assert found == [(100, 2, 0), (200, 2, 0), (400, 2, 0)]


@pytest.mark.parametrize(
    ("requests", "dropped", "settings", "message"),
    [
        ([Request()], 0, CLIMB, "no visit was made"),
        ([], 0, CLIMB, "no visit was made"),
        (visit("1"), 0, {"STEP_S": "2"}, "the rate of visits does not climb"),
        (visit("1"), 0, CLIMB, "400 visits a second are too few to fail, raise last_per_s"),
        (visit("1"), 2, CLIMB, "the load generator dropped 2 visits"),
    ],
)
def test_a_trial_without_a_capacity_says_why(
    tmp_path: Path, requests: list[Request], dropped: int, settings: dict[str, str], message: str
) -> None:
    """What was due and never made might have failed. Without points, there is no capacity either."""
    if settings == CLIMB:
        with pytest.raises(UnreadablePoints, match=rf"^{tmp_path} has no points\.json\.gz$"):
            measured_capacity_per_s(tmp_path, KEY, CLIMB, "6s")
    write_points(tmp_path / "points.json.gz", requests)
    with gzip.open(tmp_path / "points.json.gz", "at") as points:
        points.writelines([json.dumps(point("dropped_iterations", BEGAN, 1, "page", {})) + "\n"] * dropped)

    with pytest.raises(ValueError, match=f"^{message}$"):
        measured_capacity_per_s(tmp_path, KEY, settings, "6s")


def test_the_errors_of_every_trial_that_can_be_trusted_are_told(tmp_path: Path) -> None:
    """Of why requests failed, the most frequent reason comes first."""
    timed_out = visit("late", 5, took_ms=(20, 30, 900), error="request timeout")
    make_run(tmp_path, {"one": climbing(0, 2, 4, of=4) + timed_out}, loads=[OVERLOAD], trials=2)
    make_trial(tmp_path, "one", 2, climbing(0, 1, 0, of=4), k6_exit_code=107)

    found = derive_summary(tmp_path)

    assert [(one.variant, one.trial, one.request_class, one.error, one.requests) for one in found.errors] == [
        ("one", 1, "post", FULL, 6), ("one", 1, "newest", "request timeout", 1),
    ]  # fmt: skip


TEN = [one for n in range(1, 11) for one in visit(f"{n}", n)]
LATE = visit("late", 12, took_ms=(20, 30), error="request timeout")
TOLD = [f"{n}" for n in range(1, 11)]


def test_what_a_database_says_is_a_doubt_unless_it_is_the_finding() -> None:
    """A row that is lost or too many makes a trial invalid, and so does a database that nobody observed."""
    rows = [
        TOLD, TOLD[1:], TOLD[4:], TOLD[3:], TOLD[2:8], [*TOLD[:1], *TOLD[2:8]], [*TOLD, "7"], [*TOLD, "7", "8", "8"],
        [*TOLD, "x"], [*TOLD, "x", ""], [*TOLD, "late"],
    ]  # fmt: skip
    others: list[tuple[LoadRecord, dict[str, Any]]] = [
        (STEADY, database_seen(TOLD)),
        (STEADY, database_seen([*TOLD, "old"], before=["old"])),
        (STEADY, {"after": {"database-1": None}}),
        (STEADY, database_seen(TOLD, refused=1)),
        (OVERLOAD, database_seen(TOLD, refused=3)),
    ]

    def told(requests: list[Request], load: LoadRecord, seen: dict[str, Any]) -> str:
        verdict, reasons = judged(trial_of(requests), load=load, **seen)
        return f"{verdict}: {'; '.join(one for one in reasons if 'post requests failed' not in one)}"

    assert listed([
        *(told(TEN + LATE, OVERLOAD, database_seen(those)) for those in rows), *(told(TEN, *other) for other in others),
    ]) == snapshot("""\
valid:
invalid: 1 row is lost: visit 1
invalid: 4 rows are lost: visits 1, 2, 3, …
invalid: 3 rows are lost: visits 1, 2, 3
invalid: 4 rows are lost: visits 1, 2, 9, …
invalid: 3 rows are lost: visits 2, 9, 10
invalid: 1 row is doubled: visit 7
invalid: 2 rows are doubled: visits 7, 8
invalid: 1 row belongs to no visit
invalid: 2 rows belong to no visit
valid: 1 row was written for visits that were told of a failure
valid:
invalid: the database had 1 row before the load; 1 row belongs to no visit
invalid: the database was not observed after the load: nobody knows which rows were written; database-1 was
    not observed after the load
suspect: the database refused 1 connection
valid: the database refused 3 connections
""")  # fmt: skip


def shown(run: Run, found: Summary, title: str) -> list[str]:
    """Return the lines of one table on a terminal of 80 columns."""
    text = printed(run, found)
    return [line.rstrip() for line in text[text.index(title) :].split("\n\n")[0].splitlines()]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Summary]:
    """A run of two trials of two variants: one serves everybody, the other nobody in the first trial."""
    folder = tmp_path_factory.mktemp("two")
    names = ("threads", "processes-by-the-dozen")
    numbers = ("0", "1", "200", "201")  # two are due in the first step
    good = [one for n, number in enumerate(numbers) for one in visit(number, n)]
    bad = [one for n, number in enumerate(numbers) for one in visit(number, n, took_ms=(20, 30), error=FULL)]
    ill = good[:6] + visit("200", 2, took_ms=(20, 5000), error="request timeout") + visit("201", 3, error="status 502")
    make_run(
        folder, {names[0]: good, names[1]: bad}, loads=[OVERLOAD], trials=2,
        variants=[VariantRecord(name=name, workers=2, settings={"name": name}) for name in names],
    )  # fmt: skip
    make_trial(folder, names[0], 2, good)
    make_trial(folder, names[1], 2, ill)
    return read_run(folder), derive_summary(folder)


def test_visits_have_the_tables_of_their_metrics(two: tuple[Run, Summary]) -> None:
    """Of the second variant half of the second trial's four visits succeed."""
    assert shown(*two, "Visit, ms") == snapshot(
        ["Visit, ms", "variant             p50  visits", "threads  measured  60.5       8"]
    )
    assert shown(*two, "Visits failed") == snapshot(
        [
            "Visits failed",
            "variant                                  share    count  visits",
            "threads                 measured          0.00        0       8",
            "processes-by-the-dozen  measured  1.0 and 0.50  4 and 2       8",
        ]
    )
    assert shown(*two, "Capacity") == snapshot(
        [
            "Capacity, visits/s",
            "variant                             per second  answered",
            "processes-by-the-dozen  measured  0.00 and 100        13",
            "no value of this quantity: threads",
            "measured: the median over trials, with its 95 % interval; of fewer than 3",
            "trials, and if the interval reaches 100 times beyond all values, what each trial",
            "measured; numbers that are equal are shown once",
            "answered: how many requests of all trials were answered",
            "left out: min; --table prints a table with all columns",
        ]
    )


def test_why_requests_failed_has_a_table(two: tuple[Run, Summary]) -> None:
    """Four, and none in the second trial, are two; one, and none in the first, is half a request."""
    assert shown(*two, "Why requests failed") == [
        "Why requests failed, median of 2 trials",
        "variant                 request  error                                  requests",
        "processes-by-the-dozen  post     database error 1040: Too many                 2",
        "                                 connections",
        "                        newest   status 502                                 0.50",
        "                        post     request timeout                            0.50",
    ]


def test_what_was_published_of_visits_stands_above_what_was_measured() -> None:
    of_visits = Published(variant="one", metric="visit", stats={"min": 71.8, "avg": 4199})

    lines = shown(*summary(TEN, published=[of_visits]), "Visit, ms")

    assert [line.split()[:3] for line in lines[2:]] == [["one", "published", "4199"], ["measured", "60.5", "60.5"]]


def test_the_tables_are_in_the_report_and_in_markdown(two: tuple[Run, Summary], tmp_path: Path) -> None:
    """Tables without anything to show are left out."""
    page, text = page_of(tmp_path, *two), markdown(*two).replace("\\", "")
    for told in ("<caption>Visit, ms</caption>", "<caption>Why requests failed, median of 2 trials</caption>"):
        assert told in page
    assert f"| processes-by-the-dozen | post | {FULL} | 2 |" in text

    without = summary([Request()], WITHOUT)
    for told in (printed(*without), markdown(*without), page_of(tmp_path, *without)):
        assert not re.search("Visit|Why requests failed", told)


def test_of_many_reasons_the_rarest_are_counted_together(tmp_path: Path) -> None:
    """A connection that breaks may name its port, which is another one each time."""
    failed = [Request(sent_s=n, error=f"read tcp 10.0.0.2:{n}: reset") for n in range(40000, 40010)]
    load = WITHOUT.model_copy(update={"overloads": True})
    found = derive_summary(make_run(tmp_path, {"one": failed + failed[:2]}, loads=[load]))

    lines = shown(read_run(tmp_path), found, "Why requests failed")

    assert [line.split() for line in lines[2:5]] == [
        ["one", "light", "read", "tcp", "10.0.0.2:40000:", "reset", "2"],
        ["light", "read", "tcp", "10.0.0.2:40001:", "reset", "2"],
        ["light", "read", "tcp", "10.0.0.2:40002:", "reset", "1"],
    ]
    assert len(lines) == 2 + 8 + 1
    assert lines[-1].split() == ["2", "other", "reasons", "2"]


def claimed(metric: MetricName, stat: Statistic) -> Claim:
    """Return a claim about the only variant."""
    return Claim(says="It is so", value=Quantity(variant="one", metric=metric, stat=stat), at_most=1)


@pytest.mark.parametrize(
    ("requests", "load", "metric", "stat", "reason"),
    [
        (TEN, STEADY, "visit", "p99", "p99 needs 100 visits a trial; there were 10 at most"),
        (TEN + LATE, STEADY, "visit", "p99", "9.1% of the visits failed, too many to leave out of p99"),
        (LATE, OVERLOAD, "visit", "max", "100.0% of the visits failed, too many to leave out of max"),
        *((requests, load, metric, stat, f"nothing was seen that {metric} could be computed from")
          for requests, load, metric, stat in (
              (TEN, STEADY, "capacity", "per_second"), ([Request()], WITHOUT, "visit", "p50"),
              ([Request()], WITHOUT, "database_connections", "max"))),
    ],
)  # fmt: skip
def test_a_claim_that_the_visits_do_not_carry_says_why(
    requests: list[Request], load: LoadRecord, metric: MetricName, stat: Statistic, reason: str
) -> None:
    [claim] = summary(requests, load, claims=[claimed(metric, stat)])[1].claims

    assert (claim.verdict, claim.measured, claim.reason) == ("undecided", None, reason)


def test_a_claim_about_connections_is_told_in_connections() -> None:
    run = run_record(["one"], loads=[STEADY], claims=[claimed("database_connections", "max")])
    found = conclude(run, measured_cells(TEN, TIME_FAMILY, visits.FAMILY, load=STEADY, **database_seen(TOLD)))

    assert (found.claims[0].verdict, found.claims[0].unit, found.claims[0].measured) == ("undecided", "connections", 5)
    assert "5 connections" in markdown(run, found)
    assert shown(run, found, "Database connections")[0] == "Database connections"
