"""evaluate.metrics.waiting: who waited for a busy worker beside a free thread, counted by hand and the slow way."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stampede.evaluate.metrics import waiting
from stampede.evaluate.metrics.families import FAMILIES
from stampede.evaluate.metrics.waiting import Answered, avoidable_waits, recoveries_s, time_in
from stampede.pipeline import derive_summary
from stampede.records.claims import Claim, Quantity
from stampede.records.folder import read_run
from stampede.records.run import VariantRecord
from tests.in_memory import conclude, measure, measured_cells, printed
from tests.synthetic import BEGAN, Request, make_run, observation, run_record

Served = tuple[int, float, float, float]
"""The worker that served a request, when it was sent, began and ended."""


def answered(*served: Served, first: float = 0) -> Answered:
    """Return answered requests of one class."""
    worker, sent, began, ended = (np.array(column) for column in zip(*served, strict=True))
    return Answered(
        workers=[f"box:{place}" for place in range(max(worker) + 1)], classes=["light"],
        first=first, last=first + 99, last_sent=first + 98,
        worker=worker, request_class=np.zeros_like(worker), sent_s=sent * 1.0, began_s=began * 1.0, ended_s=ended * 1.0,
    )  # fmt: skip


def beside_s(*served: Served, workers: int = 2, threads: int = 1) -> list[float]:
    """Return how long each request waited beside a free thread."""
    found: list[float] = avoidable_waits(answered(*served), workers, threads).beside_s.tolist()
    return found


LATE = (0, 0, 0, 5), (0, 1, 5, 6)
"""One thread: the second request is sent at 1 and begins at 5, when the first is done."""
THREE = (0, 0, 0, 5), (1, 0, 0, 5), (0, 1, 5, 6)


@pytest.mark.parametrize(
    ("served", "workers", "threads", "expected"),
    [
        pytest.param(LATE, 2, 1, [0, 4], id="the other worker served nothing"),
        pytest.param(LATE, 1, 1, [0, 0], id="there is no other worker"),
        pytest.param(LATE, 2, 2, [0, 0], id="a thread of its own worker was free all the time"),
        pytest.param(THREE, 2, 1, [0, 0, 0], id="no thread is free"),
        pytest.param(((0, 0, 0, 5), (0, 2, 2, 7), (0, 1, 5, 6)), 2, 2, [0, 0, 3], id="all threads are busy from 2 on"),
        pytest.param(((0, 0, 0, 8), (1, 0, 0, 2), (1, 4, 4, 5), (0, 1, 8, 9)), 2, 1, [0, 0, 0, 5],
                     id="it waits from 1 to 8, and the other worker is busy from 0 to 2 and from 4 to 5"),
        pytest.param(THREE, 3, 1, [0, 0, 4], id="one of several other workers is enough"),
        pytest.param((*THREE, (2, 0, 0, 3)), 3, 1, [0, 0, 2, 0], id="the third worker is busy until 3"),
        pytest.param(((0, 0, 0, 5), (0, 4, 3, 6)), 2, 1, [0, 0], id="a clock lets it begin before it was sent"),
    ],
)  # fmt: skip
def test_waits_beside_a_free_thread_are_those_counted_by_hand(
    served: tuple[Served, ...], workers: int, threads: int, expected: list[float]
) -> None:
    assert beside_s(*served, workers=workers, threads=threads) == expected


def test_a_thread_that_goes_on_to_the_next_request_was_never_free() -> None:
    found = avoidable_waits(answered((0, 0, 0, 2), (0, 0, 2, 4), (0, 0, 4, 5)), 2, 1)

    assert found.beside_s.tolist() == [0, 2, 4]
    assert [one.tolist() for one in found.blocked] == [[[0, 5]]]


def test_a_worker_that_is_replaced_is_surely_free_only_between_its_requests() -> None:
    """The second request waits from 1 to 5. The other worker is known to be there until 1, or until 7."""
    until_1 = (0, 0, 0, 5), (0, 1, 5, 6), (1, 0, 0, 1)
    found = [avoidable_waits(answered(*served), 2, 1, replaced=True).beside_s.tolist()
             for served in (until_1, (*until_1, (1, 6, 6, 7)))]  # fmt: skip

    assert found == [[0, 0, 0], [0, 4, 0, 0]]
    assert beside_s(*until_1) == [0, 4, 0]


def test_while_a_request_waits_for_its_worker_to_start_no_wait_is_taken_off() -> None:
    """The last request waits from 0 to 7. Its worker starts at 5, and is busy until 7; the other is free from 2 on."""
    served = (0, 1, 1, 2), (0, 9, 9, 10), (1, 5, 5, 7), (1, 0, 7, 8)

    assert avoidable_waits(answered(*served), 2, 1, replaced=True).beside_s.tolist() == [0, 0, 0, 2]


def test_waits_of_up_to_50_ms_do_not_count() -> None:
    """49 ms are no wait, 51 are; both are part of the total."""
    served = (0, 0, 0, 3), (0, 1, 3, 8), (0, 5, 8, 9), (0, 8.951, 9, 9.5)
    found = avoidable_waits(answered(*served), 2, 1)
    noticed = avoidable_waits(answered(*served[:-1], (0, 8.949, 9, 9.5)), 2, 1)

    assert waiting.wait_statistics(found.beside_s) == {
        "count": 2, "share": 0.5, "total": pytest.approx(5049), "max": 3000,
    }  # fmt: skip
    assert waiting.wait_statistics(noticed.beside_s)["count"] == 3


@pytest.mark.parametrize(
    ("workers", "threads", "expected"),
    [(2, 1, [0, 4]), (2, None, None), (2, "1", None), (2, True, None), (1, None, [0, 0]), (1, 1, [0, 0])],
)
def test_threads_that_nobody_knows_can_only_be_left_out_of_account_in_a_single_worker(
    workers: int, threads: Any, expected: list[float] | None
) -> None:
    variant = VariantRecord(name="one", workers=workers, settings={"threads": threads})

    found = waiting.waits_of_variant(variant, answered((0, 0, 0, 5), (0, 1, 5, 6)))

    assert (found.beside_s.tolist() if found else None) == expected


def slowly(served: list[Served], workers: int, threads: int) -> list[float]:
    """Return how long each request waited beside a free thread, by looking at every stretch between two events."""
    moments = sorted({moment for _, *times in served for moment in times})
    found = [0.0] * len(served)
    for begin, end in pairwise(moments):
        middle = (begin + end) / 2
        free = {
            worker
            for worker in range(workers)
            if sum(one == worker and began <= middle < ended for one, _, began, ended in served) < threads
        }
        for place, (worker, sent, began, _) in enumerate(served):
            if sent <= middle < began and worker not in free and free:
                found[place] += end - begin
    return found


@st.composite
def loads(draw: st.DrawFn) -> tuple[list[Served], int, int]:
    """Requests of up to three workers in tenths of seconds, so that many events coincide, and their threads."""
    tenths = st.integers(0, 30)
    workers = draw(st.integers(1, 3))
    one = st.tuples(st.integers(0, workers - 1), tenths, tenths, tenths)
    drawn = draw(st.lists(one, min_size=1, max_size=14))
    served = [
        (worker, sent / 10, (sent + waited) / 10, (sent + waited + took) / 10) for worker, sent, waited, took in drawn
    ]
    return served, workers, draw(st.integers(1, 3))


@settings(max_examples=150, deadline=None)
@given(loads())
def test_it_is_what_a_slow_and_simple_count_finds(load: tuple[list[Served], int, int]) -> None:
    served, workers, threads = load

    assert beside_s(*served, workers=workers, threads=threads) == pytest.approx(
        slowly(served, workers, threads), abs=2e-6
    )


@settings(max_examples=100, deadline=None)
@given(loads())
def test_workers_are_blocked_then_and_at_no_other_time(load: tuple[list[Served], int, int]) -> None:
    """Between two events a worker is blocked exactly when it is busy and at least one other worker is not."""
    served, workers, threads = load
    found = avoidable_waits(answered(*served), workers, threads)
    for begin, end in pairwise(sorted({moment for _, *times in served for moment in times})):
        middle = np.array([begin * 0.75 + end * 0.25]), np.array([begin * 0.25 + end * 0.75])
        under_way = [worker for worker, _, began, ended in served if began <= middle[0][0] < ended]
        busy = [under_way.count(worker) >= threads for worker in range(len(found.blocked))]
        for place, segments in enumerate(found.blocked):
            blocked = busy[place] and sum(busy) < workers
            assert bool(time_in(segments, *middle)[0] > 1e-6) == blocked


def test_recovery_lasts_while_there_is_always_somebody_who_waits() -> None:
    """Stalls from 1 to 2 and from 10 to 11: one waits until 2.7, another from 2.5 to 3.1, nobody after the second."""
    requests = answered(
        (0, 1.5, 2.7, 2.8), (0, 1.6, 2.2, 2.3), (0, 2.5, 3.1, 3.2),
        (0, 3.095, 3.104, 3.2),  # not noticed, as it waits for 9 ms
        (0, 3.2, 3.9, 4.0),  # nobody has waited for a tenth of a second before
        (0, 10.5, 10.9, 11.0),  # over before the stall is
        first=1000,
    )  # fmt: skip

    assert list(recoveries_s(requests, [(1001, 1002), (1010, 1011)])) == pytest.approx([1.1, 0])
    longer = answered((0, 1.5, 2.7, 2.8), (0, 2.695, 2.706, 3.1), first=1000)
    assert list(recoveries_s(longer, [(1001, 1002)])) == pytest.approx([0.706])
    assert list(recoveries_s(requests, [])) == []


WAITING = [
    Request(service_time_ms=5000, overhead_ms=0, request_class="heavy", worker="box:7"),
    Request(service_time_ms=100, overhead_ms=4000, waits_ms=4000, sent_s=1, worker="box:7"),
    Request(service_time_ms=100, overhead_ms=0, sent_s=2, worker="box:8"),
    Request(service_time_ms=100, sent_s=2.5, error="status 503"),
]
TWO = VariantRecord(name="one", workers=2, settings={"threads": 1})


def found_of(metric: str, **change: Any) -> dict[str | None, dict[str, float]]:
    """Return what is measured of a metric in a trial of WAITING, by class of request and statistic."""
    found: dict[str | None, dict[str, float]] = {}
    for (request_class, name, stat), value in measure(change.pop("requests", WAITING), *FAMILIES, **change).items():
        if name == metric:
            found.setdefault(request_class, {})[stat] = value
    return found


def test_a_run_says_for_every_class_who_waited() -> None:
    """From 2.0 to 2.1 s the other worker is busy too, 0.15 ms longer by its own clock."""
    light = {"count": 1, "share": 0.5, "total": pytest.approx(3899.85), "max": pytest.approx(3899.85)}

    assert found_of("avoidable_wait", variant=TWO) == {
        "light": light, "heavy": {"count": 0, "share": 0, "total": 0, "max": 0},
        None: light | {"share": pytest.approx(1 / 3)},
    }  # fmt: skip
    assert found_of("failures", variant=TWO)["light"] == {"count": 1, "share": pytest.approx(1 / 3), "in_a_row": 1}
    assert found_of("avoidable_wait") == {}, "nobody knows how many threads there are"
    lost = Request(request_class="lost", error="EOF")
    assert "lost" not in found_of("avoidable_wait", requests=[*WAITING, lost], variant=TWO)


def test_a_class_in_which_somebody_waited_has_a_table_of_its_own(tmp_path: Path) -> None:
    run = make_run(tmp_path, {"one": WAITING}, variants=[TWO])

    text = printed(read_run(run), derive_summary(run))

    head, line = text[text.index("Avoidable waits of light requests") :].splitlines()[1:3]
    assert head.split() == ["variant", "count", "share", "total,", "ms", "max,", "ms", "answered"]
    assert line.split() == ["one", "measured", "1", "0.50", "3900", "3900", "2"]
    assert "Waits of heavy" not in text


def test_recovery_is_of_all_requests_and_of_the_stalls_within_the_load() -> None:
    """The api stalls from 0.5 to 4.5 s, before the load, and until after the last request, which is sent at 6 s."""
    began = BEGAN.timestamp()
    last = Request(service_time_ms=100, overhead_ms=0, sent_s=6, worker="box:8")
    stalls = [(began - 9, began - 8), (began + 0.5, began + 4.5), (began + 5, began + 6.01)]
    before, after = ({"api-1": observation("api", stalls=told)} for told in ([], stalls))

    found = found_of("recovery", requests=[*WAITING, last], variant=TWO, before=before, after=after)

    assert found == {None: {"avg": pytest.approx(500), "max": pytest.approx(500)}}


def test_without_a_stall_a_claim_about_recovery_is_undecided() -> None:
    claims = [Claim(says="It recovers", value=Quantity(variant="one", metric="recovery", stat="max"), at_most=1)]

    [claim] = conclude(run_record(["one"], claims=claims), measured_cells(WAITING, *FAMILIES)).claims

    assert (claim.verdict, claim.reason) == ("undecided", "nothing was seen that recovery could be computed from")
