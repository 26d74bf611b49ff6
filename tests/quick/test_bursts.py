"""stampede.evaluate.metrics.bursts and what is made of it: requests that are sent at once, counted by hand."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from stampede.evaluate.metrics import bursts
from stampede.evaluate.metrics.bursts import ordinal
from stampede.evaluate.metrics.by_class import TIME_FAMILY
from stampede.evaluate.statistics.estimates import TrialValues, measure_cells
from stampede.evaluate.statistics.intervals import Draw
from stampede.records.claims import Published
from stampede.records.run import LoadKind, LoadRecord, Run, VariantRecord
from stampede.records.summary import Summary, TrialValidity
from stampede.report.markdown import markdown
from stampede.report.wording import figures_phrase, published_quantity
from tests.in_memory import conclude, judged, measure, measured_cells, opened_trial, page_of, printed, trial_of
from tests.synthetic import Request, run_record
from tests.wrong import listed


def load(size: int | str, **settings: str) -> LoadRecord:
    """Return a load that sends so many requests at once."""
    return LoadRecord(
        name="mix", script="burst.js", kind="burst", duration="60s", settings={"BURST": str(size)} | settings
    )


def variant(name: str = "one", workers: int = 1, **settings: Any) -> VariantRecord:
    """Return a variant of so many workers."""
    return VariantRecord(name=name, workers=workers, settings={"threads": 1, "name": name} | settings)


def burst(*times_ms: float, at_s: float = 0, workers: int = 1, **changed: Any) -> list[Request]:
    """Return requests of 1000 ms, 1 ms apart, that take so long, and take turns in going to so many workers."""
    requests = []
    for place, time_ms in enumerate(times_ms):
        waits_ms, worker = time_ms - 1000, f"box:{7 + place % workers}"
        one = Request(waits_ms, 1000, waits_ms=waits_ms, worker=worker, sent_s=at_s + place / 1000)
        requests.append(replace(one, **changed))
    return requests


def one_by_one(size: int = 4, **changed: Any) -> list[Request]:
    """Return a burst that a single worker serves one by one."""
    return burst(*(1000 * place for place in range(1, size + 1)), **changed)


STEPS = [1000.0, 2000.0, 3000.0, 4000.0]
"""When a single worker answers the requests of a burst, in ms."""


def staircases(
    *trials: Sequence[float], of: Sequence[str] = ("one",), size: int = 4, **changed: Any
) -> tuple[Run, Summary]:
    """Return a run in which the bursts of the trials of each variant were answered after these times, with results."""
    variants = [variant(name) for name in of]
    run = run_record(of, len(trials), **({"loads": [load(size)], "variants": variants} | changed))
    cells = {(name, "mix", None): [TrialValues(n, size, {}) for n in range(1, len(trials) + 1)] for name in of}
    both = {(name, "mix"): [[*trial] for trial in trials] for name in of}
    return run, conclude(run, cells, times=both)


def published(*steps: float, within: float = 0.1, divided_by: float = 1) -> Published:
    """Return a published staircase."""
    return Published(
        variant="one", metric="response_time", completion_times=[*steps], within=within, divided_by=divided_by
    )


def test_a_load_says_how_many_requests_it_sends_at_once() -> None:
    """Its kind is that of the record, and not guessed from its settings. A crash has what comes before and after it."""
    found = {size: (load(size).burst, load(size).has_small_bursts) for size in ("10", "50", "51", "0", "many")}
    settings = {"BURST": "4", "CRASH_AFTER_S": "1", "BEFORE": "5", "AFTER": "5"}
    kinds: tuple[LoadKind, ...] = ("burst", "crash", "steady")

    assert found == {"10": (10, True), "50": (50, True), "51": (51, False), "0": (None, False), "many": (None, False)}
    loads = [LoadRecord(name="mix", script="mine.js", kind=kind, duration="20s", settings=settings) for kind in kinds]
    assert [(each.burst, each.crashes) for each in loads] == [(4, False), (11, True), (None, False)]
    assert loads[1].model_copy(update={"settings": settings | {"AFTER": "many"}}).burst is None


def steps_of(requests: list[Request], load: LoadRecord) -> list[float]:
    """Return the completion times of a trial under a load."""
    with opened_trial(requests, load=load) as (rows, trial):
        return [time for [found] in measure_cells(rows, [trial]).staircases.values() for time in found]


@pytest.mark.parametrize(
    ("requests", "kind"), [(one_by_one(), "steady"), (one_by_one(error="status 502"), "crash")],
    ids=["another kind", "nothing answered"],
)  # fmt: skip
def test_there_are_no_figures_of_bursts(requests: list[Request], kind: LoadKind) -> None:
    settings = {"BEFORE": "2", "CRASH_AFTER_S": "1", "AFTER": "1"}
    under = LoadRecord(name="mix", script="mine.js", kind=kind, duration="60s", settings=settings)

    assert measure(requests, bursts.FAMILY, load=under) == {}
    assert steps_of(requests, under) == []
    assert steps_of(one_by_one(), under) == [], "nobody knows what a crash held up"


@pytest.mark.parametrize(
    ("requests", "reasons"),
    [
        (one_by_one() + one_by_one(at_s=5), []),
        (one_by_one() + one_by_one(at_s=3), []),  # sent by the clock, while the last is not over
        (burst(1000, 1000, 1, 1000, service_time_ms=1, overhead_ms=0) + one_by_one(at_s=5),
         ["in 1 of 2 bursts a request was answered before the last one was sent"]),
        (one_by_one() + one_by_one(3, at_s=5), ["the last burst has 3 of 4 requests"]),
        (one_by_one()[:3] + one_by_one(1, at_s=0.1, answered=False),
         ["1 of 4 light requests failed (no answer before the end of the run)"]),
    ],
    ids=["exact", "overlapping", "early", "cut off", "unanswered"],
)  # fmt: skip
def test_a_burst_is_sent_whole_before_it_is_answered(requests: list[Request], reasons: list[str]) -> None:
    assert judged(trial_of(requests, load=load(4))) == ("suspect" if reasons else "valid", reasons)


def test_a_client_beside_the_load_is_no_part_of_a_burst() -> None:
    client = [Request(request_class="silent", sent_s=0.002, answered=False)]

    assert judged(trial_of(one_by_one(), client, load(4)))[1] == [
        "all 1 silent requests failed (no answer before the end of the run)"
    ]


def test_a_burst_lasts_from_the_first_request_sent_to_the_last_answer() -> None:
    """Three bursts of 4, 2 and 3 s, in which the busier of two workers serves two, two and three of four requests.

    The last answer comes 3 ms after its time, for its request is the fourth, and k6 takes 0.15 ms besides. A burst
    that was cut off does not count.
    """
    requests = one_by_one(workers=2) + burst(1000, 1000, 2000, 2000, at_s=5, workers=2)
    requests += burst(1000, 2000, 3000, at_s=10) + burst(2000, at_s=10.003, worker="box:8")
    requests += burst(9000, at_s=20)

    assert measure(requests, bursts.FAMILY, load=load(4)) == {
        (None, "burst", "total"): pytest.approx(3002.15), (None, "burst", "largest_share"): 0.5,
    }  # fmt: skip


def test_steps_are_the_response_times_in_order_of_completion() -> None:
    """The k-th of two bursts: 1 and 3, 2 and 4, … seconds; whoever was sent last may be answered first.

    If a request failed, nobody knows the last step.
    """
    requests = burst(4000, 3000, 2000, 1000) + burst(3000, 4000, 5000, 6000, at_s=9)
    failed = one_by_one()[:3] + one_by_one(error="status 502")[3:]

    assert steps_of(requests, load(4)) == pytest.approx([2000, 3000, 4000, 5000])
    assert steps_of(failed, load(4)) == pytest.approx(STEPS[:3])


def test_steps_of_several_trials_are_medians_with_an_interval() -> None:
    """Nobody knows the fourth step of one trial. Student's interval is wider."""
    [row] = staircases(STEPS, STEPS[:3], [3000, 4000, 5000, 6000])[1].completion_times

    assert (row.variant, row.load, row.published) == ("one", "mix", None)
    assert row.measured == pytest.approx([1000, 2000, 3000, 5000])
    assert row.low
    assert row.high
    assert [low < of_all for low, of_all in zip(row.low, STEPS, strict=True)] == [True] * 4
    assert [high > of_all for high, of_all in zip(row.high, [3000, 4000, 5000, 6000], strict=True)] == [True] * 4
    [row] = staircases(STEPS, STEPS[:3], published=[published(*STEPS)])[1].completion_times
    assert row.measured == pytest.approx(STEPS)
    assert row.low == pytest.approx(STEPS[:3], rel=1e-6), "a step of one trial only has none"
    assert row.published == STEPS


def test_the_requests_of_a_burst_say_nothing_about_another_burst() -> None:
    """Two equal bursts: their p50 has no interval in one trial, and a point in two."""
    cells = measured_cells(one_by_one(), TIME_FAMILY, load=load(4))
    twice = {cell: [trial, trial._replace(trial=2)] for cell, [trial] in cells.items()}

    found = [
        conclude(run_record(["one"], trials, loads=[load(4)]), of).row("one", "mix", None, "response_time", "p50")
        for trials, of in ((1, cells), (2, twice))
    ]

    assert [(row.measured, row.low, row.high) for row in found if row] == [(2500, None, None), (2500, 2500, 2500)]


def test_published_steps_are_compared_one_by_one_with_the_whole_interval() -> None:
    """Staircases of another length cannot be compared, and large bursts have no steps."""
    differing = [STEPS, [*STEPS[:3], 5000]] * 3
    cases: list[tuple[Sequence[Sequence[float]], Sequence[float]]] = [
        *(([STEPS] * 5, steps) for steps in (STEPS, [1000, 2000, 3000, 4500], [400, 2000, 3000, 5000])),
        (differing, STEPS), ([STEPS], [1000, 2000]), ([STEPS], [1000] * 10), ([STEPS[:3]], [1000] * 4),
        ([[1000] * 60], [1000]),
    ]  # fmt: skip

    def judged(trials: Sequence[Sequence[float]], steps: Sequence[float]) -> str:
        run, found = staircases(*trials, published=[published(*steps)], size=max(4, len(trials[0])))
        [row] = found.published
        assert (row.metric, row.completion_times) == ("response_time", True)
        assert [(one.stat, one.unit, one.published) for one in row.figures] == [
            (ordinal(place), "ms", step) for place, step in enumerate(steps, start=1)
        ]
        assert published_quantity(run, row) == "one: response time of all requests, in order of completion"
        stairs = ", ".join(f"{ms:g}" for of in found.completion_times for ms in of.measured) or "no steps"
        return f"{stairs}: {row.verdict}; {figures_phrase(row)}; {row.reason}"

    assert listed(judged(*case) for case in cases) == snapshot("""\
1000, 2000, 3000, 4000: reproduced; 4 of 4 within 10 %; None
1000, 2000, 3000, 4000: contradicted; 3 of 4 within 10 %; contradicted: 4th 0.89; None
1000, 2000, 3000, 4000: contradicted; 2 of 4 within 10 %; contradicted: 1st 2.50, 4th 0.80; None
1000, 2000, 3000, 4500: undecided; 3 of 4 within 10 %; undecided: 4th 1.12 (1.00 to 1.25); the interval of 4th
    straddles an edge; more than 100 trials would be needed
1000, 2000, 3000, 4000: undecided; 0 of 2 within 10 %; undecided: 1st, 2nd; there were 4 requests in a burst,
    2 were published
1000, 2000, 3000, 4000: undecided; 0 of 10 within 10 %; undecided: 1st, 2nd, 3rd, 4th, 5th, 6th, 7th, 8th,
    9th, 10th; there were 4 requests in a burst, 10 were published
1000, 2000, 3000: undecided; 0 of 4 within 10 %; undecided: 1st, 2nd, 3rd, 4th; at most 3 of the 4 requests of
    a burst were answered
no steps: undecided; 0 of 1 within 10 %; undecided: 1st; mix has no bursts of at most 50 requests
""")


def test_published_steps_of_an_invalid_trial_are_invalid() -> None:
    run = run_record(["one"], loads=[load(4)], variants=[variant()], published=[published(1, 2, 3, 4)])
    failed = TrialValidity(variant="one", load="mix", trial=1, verdict="invalid", reasons=["failed: nginx said: no"])

    found = conclude(run, {}, [failed])

    assert [(one.verdict, one.reason) for one in found.published] == [("invalid", f"one: {failed.reasons[0]}")]
    assert [(one.published, one.measured) for one in found.completion_times] == [([1, 2, 3, 4], [])]


def test_places_have_words() -> None:
    places = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 11: "11th", 12: "12th", 13: "13th", 21: "21st", 42: "42nd"}

    assert {place: ordinal(place) for place in places} == places


IN_ORDER = "Response times in seconds, in order of completion"


def lines_of(run: Run, found: Summary) -> list[str]:
    """Return the lines that a terminal of 80 columns shows of a run, without the blanks at their ends."""
    return [line.rstrip() for line in printed(run, found).splitlines()]


def test_a_staircase_is_a_line_of_seconds(tmp_path: Path) -> None:
    """A source whose requests took 222 times as long, and a variant of which it says nothing."""
    run, found = staircases(
        STEPS, STEPS, of=["one", "another-variant"],
        published=[published(222000, 444000, 777000, 888000, divided_by=222)],
    )  # fmt: skip
    lines, page = lines_of(run, found), page_of(tmp_path, run, found)

    assert lines[lines.index(IN_ORDER) :][:5] == [
        "Response times in seconds, in order of completion",
        "variant                           1st to last",
        "one              published ÷ 222  1.00  2.00  3.50  4.00",
        "                 measured         1.00  2.00  3.00  4.00",
        "another-variant  measured         1.00  2.00  3.00  4.00",
    ]
    table = page[page.index(f"<caption>{IN_ORDER}</caption>") :].split("</table>")[0]
    assert '<td class="text">published ÷ 222</td>' in table
    assert '<td class="text">1.00  2.00  3.50  4.00</td>' in table
    text = markdown(run, found)
    assert "| one | published ÷ 222 | 1.00  2.00  3.50  4.00 |" in text
    assert f"{IN_ORDER}:\n\n| variant |  | 1st to last |\n" in text
    [row] = found.published
    assert (row.divided_by, [one.published for one in row.figures]) == (222, [1000, 2000, 3500, 4000])
    assert published_quantity(run, row).endswith("in order of completion, published ÷ 222")
    assert figures_phrase(row) == "3 of 4 within 10 %; contradicted: 3rd 0.86"


def test_a_staircase_of_twelve_is_broken_between_two_steps_and_a_longer_one_has_no_table(tmp_path: Path) -> None:
    of = ["a-variant-of-thirty-characters"]
    lines = lines_of(*staircases([1000 * place for place in range(1, 13)], of=of, size=12))

    start = lines.index(IN_ORDER)
    seconds = " ".join(lines[start + 2 : start + 4]).split()
    assert [one for one in seconds if "." in one] == [f"{place}.00" for place in range(1, 13)]

    longer = staircases([1000] * 13, size=13)
    assert len(longer[1].completion_times[0].measured) == 13
    assert IN_ORDER not in printed(*longer)
    assert IN_ORDER not in page_of(tmp_path, *longer)


def test_what_a_burst_took_stands_beside_published_times_that_are_divided() -> None:
    of_run = Published(variant="one", metric="burst", stats={"total": 888000, "largest_share": 0.9}, divided_by=222)
    run = run_record(["one"], loads=[load(4)], variants=[variant()], published=[of_run])
    took = {("burst", "total"): Draw(4003), ("burst", "largest_share"): Draw(1)}

    lines = lines_of(run, conclude(run, {("one", "mix", None): [TrialValues(1, 4, took)]}))

    assert lines[lines.index("Burst") + 1 :][:3] == [
        "variant                   total, ms  largest share  answered",
        "one      published ÷ 222       4000           0.90",
        "         measured              4003            1.0         4",
    ]
