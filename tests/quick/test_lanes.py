"""stampede.report.timeline: the lanes hold every request, where and when it was served."""

from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from stampede.evaluate.read.trial_data import derive_rows
from stampede.evaluate.verdict.validity import judge_trials
from stampede.predict.lanes import LaneRequest, load_lanes
from stampede.records.claims import Claim, Quantity
from stampede.records.folder import read_run, trial_folders
from stampede.records.run import LoadRecord, VariantRecord
from stampede.records.summary import Summary
from stampede.report.timeline import load as timeline
from stampede.report.timeline.load import LoadTimeline
from stampede.report.timeline.trial import thread_rows
from tests.apart import Machine, set_apart
from tests.synthetic import BEGAN, Request, make_run, make_trial, observation

WAITING = [
    Request(service_time_ms=5000, overhead_ms=0, worker="box:10"),
    Request(service_time_ms=100, overhead_ms=4000, waits_ms=4000, sent_s=1, worker="box:10"),
    Request(service_time_ms=100, overhead_ms=0, sent_s=2, request_class="heavy", worker="box:9"),
]
PATIENT = [Request(service_time_ms=5000, overhead_ms=0, worker="box:7"), Request(sent_s=1, worker="box:8")]


def variants(*names: str, workers: int = 2, threads: int | None = 1) -> list[VariantRecord]:
    """Return variants of so many workers and threads."""
    return [VariantRecord(name=name, workers=workers, settings={"threads": threads, "name": name}) for name in names]


def shown(folder: Path) -> list[LoadTimeline]:
    """Return the lanes of a run."""
    run = read_run(folder)
    with derive_rows(folder, run, trial_folders(folder), {}) as (rows, trials):
        known = {"trials": judge_trials(run, trials), "clocks": [
            trial.raw.clocks.record(trial.key) for trial in trials if trial.raw.clocks
        ]}  # fmt: skip
        summary = Summary.of_nothing(run.experiment).model_copy(update=known)
        return [timeline.load_timeline(run, lanes) for lanes in load_lanes(rows, folder, run, summary)]


def of_one(folder: Path, requests: list[Request], **of: Any) -> dict[str, Any]:
    """Return the lanes of a run that has a single load and a single variant, with these requests."""
    return of_run(make_run(folder, {"one": requests}, variants=variants("one", **of)))


def of_run(run: Path) -> dict[str, Any]:
    """Return the lanes of a run that has a single load and a single variant."""
    [load] = shown(run)
    [trial] = load.measured
    return trial.to_json()


def times_ms(trial: dict[str, Any]) -> list[tuple[float, float, float, float]]:
    """Return when each request was sent, when its work began and ended, and when it was answered, in ms."""
    requests = trial["requests"]
    sent = [tenths / 10 for tenths in accumulate(requests["sent"])]
    rest = zip(requests["wait"], requests["work"], requests["back"], strict=True)
    return [
        (at, at + wait / 10, at + (wait + work) / 10, at + (wait + work + back) / 10)
        for at, (wait, work, back) in zip(sent, rest, strict=True)
    ]


def test_lanes_hold_each_request_at_its_worker(tmp_path: Path) -> None:
    """Workers are counted in the order of forking: process 9 before process 10."""
    trial = of_one(tmp_path, WAITING)

    assert [worker["name"] for worker in trial["workers"]] == ["worker 1", "worker 2"]
    assert trial["requests"]["worker"] == [1, 1, 0]
    assert [trial["classes"][place] for place in trial["requests"]["class"]] == ["light", "light", "heavy"]
    assert [(sent, began) for sent, began, *_ in times_ms(trial)] == [(0, 0), (1000, 5000), (2000, 2000)]
    assert [answered for *_, answered in times_ms(trial)] == pytest.approx([5000.2, 5100.2, 2100.2], abs=0.11)


def test_lanes_say_when_a_worker_was_blocked_and_who_waited(tmp_path: Path) -> None:
    [load] = shown(make_run(tmp_path, {"uneven": WAITING, "even": PATIENT}, variants=variants("uneven", "even")))

    uneven = load.trials[0]
    assert [sum(turns[1::2]) / 10_000 for turns in uneven.blocked or []] == pytest.approx([0, 5.0], abs=0.2)
    assert (uneven.avoidable, uneven.answered) == (1, 3)
    assert load.title == (
        "With uneven, 1 of 3 requests, all light, waited while another worker had a free thread; with even, none"
    )
    assert load.alt == (
        "uneven: 1 of 3 requests waited while another worker had a free thread, the longest for 3.9 s. "
        "even: no request waited while another worker had a free thread."
    )
    assert load.table.rows == [
        ("uneven", "worker 1", "1", "0.00 s", "0.00 s"),
        ("uneven", "worker 2", "2", "4.0 s", "5.0 s"),
        ("even", "worker 1", "1", "0.00 s", "4.9 s"),
        ("even", "worker 2", "1", "0.00 s", "0.00 s"),
    ]


def test_slow_requests_have_the_first_colour_whichever_class_is_sent_first(tmp_path: Path) -> None:
    requests = [Request(request_class=name, service_time_ms=ms, sent_s=at)
                for at, (name, ms) in enumerate([("quick", 5), ("slow", 900), ("none", 0)])]  # fmt: skip
    [load] = shown(make_run(tmp_path, {"one": requests}))

    assert load.colours == [("slow", "#e69f00"), ("quick", "#0072b2"), ("none", "#009e73")]
    assert load.asked == {"quick": "0.01 s", "slow": "0.90 s"}


def test_of_threads_that_nobody_knows_nothing_is_said_of_free_threads(tmp_path: Path) -> None:
    [load] = shown(make_run(tmp_path, {"one": WAITING}, variants=variants("one", threads=None)))

    assert load.trials[0].blocked is None
    assert load.title == "Which worker served each request, and which requests waited"
    assert [line[4] for line in load.table.rows] == ["–", "–"]


def test_a_worker_has_a_row_for_each_thread_and_one_that_served_nothing_is_there(tmp_path: Path) -> None:
    trial = of_one(tmp_path, WAITING, workers=3, threads=4)

    assert trial["of_threads"]
    assert [(worker["name"], worker["rows"]) for worker in trial["workers"]] == [
        ("worker 1", 4), ("worker 2", 4), ("idle worker 1", 4),
    ]  # fmt: skip


def test_an_event_loop_has_a_row_for_each_request_under_way(tmp_path: Path) -> None:
    """The synthetic requests all have thread 9, so three requests at once are not three threads."""
    at_once = [Request(service_time_ms=1000, sent_s=at) for at in (0, 0.1, 0.2, 1.5)]
    trial = of_one(tmp_path, at_once, workers=1, threads=None)

    assert not trial["of_threads"]
    assert [worker["rows"] for worker in trial["workers"]] == [3]
    assert trial["requests"]["row"] == [0, 1, 2, 0]


def test_a_request_that_failed_has_no_worker_and_keeps_its_reason(tmp_path: Path) -> None:
    failed = Request(sent_s=1, error="status 503", service_time_ms=40, overhead_ms=0)
    cut_off = Request(sent_s=3, answered=False)
    trial = of_one(tmp_path, [*PATIENT, failed, cut_off])

    assert trial["requests"]["worker"] == [0, 1, -1, -1]
    assert [trial["requests"]["errors"][place] for place in trial["requests"]["error"] if place >= 0] == [
        "status 503", "no answer before the end of the run",
    ]  # fmt: skip
    assert trial["says"].endswith("; 2 of 4 requests failed")


@pytest.mark.parametrize("ahead_s", [0, -500])
def test_stalls_of_the_called_service_are_told_within_the_load_by_the_labs_clock(
    tmp_path: Path, ahead_s: float
) -> None:
    """Also if the service runs on another machine, whose clock is wrong."""
    run, began = make_run(tmp_path, {"one": WAITING}, variants=variants("one")), BEGAN.timestamp()
    folder = run / "one" / "mix" / "1"
    stalls = [(began + 1.5, began + 2.5), (began + 60, began + 65)]
    (folder / "api-1.before.txt").write_text(observation("api", stalls=[]))
    (folder / "api-1.after.txt").write_text(observation("api", stalls=stalls))
    if ahead_s:
        hosts = sorted({one.worker.rpartition(":")[0] for one in WAITING})
        set_apart(folder, {"k6-1": Machine(generators=["points"]), "web-1": Machine(hosts, ahead_s=99),
                           "api-1": Machine(hosts=["api"], ahead_s=ahead_s)})  # fmt: skip

    assert of_run(run)["stalls"] == pytest.approx([15_000, 10_000], abs=20 if ahead_s else 0)


@pytest.mark.parametrize(
    ("first", "shown_too"),
    [(Request(service_time_ms=10, worker="box:7"), []), (Request(service_time_ms=9000, worker="box:8"), [1])],
    ids=["ended before", "under way"],
)
def test_of_many_requests_those_around_the_longest_wait_and_those_under_way_then_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Request, shown_too: list[int]
) -> None:
    many = [
        first,
        *(Request(service_time_ms=10, overhead_ms=0, sent_s=at / 10, worker="box:7") for at in range(1, 100)),
    ]
    many[70] = Request(service_time_ms=10, overhead_ms=300, waits_ms=300, sent_s=7.0, worker="box:7")
    monkeypatch.setattr(timeline, "MOST", 20)

    [load] = shown(make_run(tmp_path, {"one": many}, variants=variants("one")))

    trial = load.measured[0].to_json()
    assert list(accumulate(trial["requests"]["number"])) == [*shown_too, *range(61, 81)]
    assert trial["window"] == [0 if shown_too else 60_000, 79_000]
    assert sum(worker["served"] for worker in trial["workers"]) == 100, "the table is of all requests"


def test_a_new_thread_takes_the_row_that_was_free_longest_if_all_threads_have_rows() -> None:
    """A pool of two ends a thread and starts another: three threads in all, but never more than two at once."""
    rows = [
        LaneRequest("light", at, at, at + 1, at + 1, 0, 1000, "box:7", thread, None)
        for at, thread in ((0.0, 1), (0.5, 2), (20.0, 3), (20.5, 2))
    ]

    assert thread_rows(rows, 2) == ([0, 1, 0, 1], True)
    assert thread_rows(rows, None) == ([0, 1, 2, 1], True)


@pytest.mark.parametrize(("times", "shown_trials"), [(2, [2]), (1, [])])
def test_the_first_trial_that_can_be_trusted_is_shown(tmp_path: Path, times: int, shown_trials: list[int]) -> None:
    run = make_run(tmp_path, {"one": PATIENT}, variants=variants("one"), times=times)
    make_trial(run, "one", 1, PATIENT, outcome="failed", reason="nginx said: no")

    assert [load.measured[0].trial for load in shown(run)] == shown_trials


def test_the_variants_of_the_answer_and_of_the_cure_come_first(tmp_path: Path) -> None:
    names = ("a", "b", "c", "d")
    p50 = {name: Quantity(variant=name, metric="overhead", stat="p50", load="mix") for name in names}
    claims = [
        Claim(says="It is so", value=p50["b"], at_most=1),
        Claim(says="It helps", value=p50["a"], at_most=1, role="cure"),
        Claim(says="It hurts", value=p50["d"], at_most=1, role="answer"),
    ]
    [load] = shown(make_run(tmp_path, dict.fromkeys(names, PATIENT), variants=variants(*names), claims=claims))

    assert [load.trials[place].variant for place in load.pair] == ["d", "a"]


def test_each_load_has_lanes_and_the_load_of_the_first_claim_is_first(tmp_path: Path) -> None:
    loads = [LoadRecord(name=name, script="mix.js", duration="9s", settings={}) for name in ("other", "mix")]
    p50 = Quantity(variant="one", load="mix", metric="overhead", stat="p50")
    claims = [Claim(says="It is so", value=p50, at_most=1)]
    run = make_run(tmp_path, {"one": PATIENT}, variants=variants("one"), loads=loads, claims=claims)

    assert [load.title for load in shown(run)] == ["Which worker served each request, and which requests waited (mix)"]
