"""analysis.metrics.bursts and what is made of it: requests that are sent at once, counted by hand."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from analysis.metrics.bursts import ordinal
from analysis.metrics.workers import in_order
from analysis.pipeline import derive, derive_summary
from analysis.records.claims import Claim, Published, Quantity
from analysis.records.folder import read_run
from analysis.records.run import LoadRecord, VariantRecord
from analysis.records.summary import Row, Summary, WaveRow
from analysis.report.markdown import markdown
from analysis.report.terminal import print_tables
from analysis.report.wording import figures_phrase, published_quantity
from tests.synthetic import Request, make_run, make_trial, write_points


def load(size: int | str, **settings: str) -> LoadRecord:
    """Return a load that sends so many requests at once."""
    return LoadRecord(name="mix", script="burst.js", duration="60s", settings={"BURST": str(size)} | settings)


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


def summary(folder: Path, *trials: list[Request], size: int = 4, workers: int = 1, **changed: Any) -> Summary:
    """Return the summary of a run of one variant."""
    record: dict[str, Any] = {
        "loads": [load(size)],
        "variants": [variant(workers=workers)],
        "trials": len(trials),
    } | changed
    make_run(folder, {"one": trials[0]}, **record)
    for number, requests in enumerate(trials, start=1):
        make_trial(folder, "one", number, requests, workers=workers)
    return derive_summary(folder)


def published(*steps: float, within: float = 0.1, divided_by: float = 1) -> Published:
    """Return a published staircase."""
    return Published(
        variant="one", metric="response_time", completion_times=[*steps], within=within, divided_by=divided_by
    )


@pytest.mark.parametrize(
    ("size", "burst", "stairs"),
    [("10", 10, True), ("50", 50, True), ("51", 51, False), ("0", None, False), ("many", None, False)],
)
def test_a_load_says_how_many_requests_it_sends_at_once(size: str, burst: int | None, stairs: bool) -> None:
    assert (load(size).burst, load(size).has_small_bursts) == (burst, stairs)


@pytest.mark.parametrize(("before", "after", "burst"), [("5", "5", 11), ("0", "0", 1), ("5", "many", None)])
def test_a_crash_is_a_burst_with_what_comes_before_and_after_it(before: str, after: str, burst: int | None) -> None:
    settings = {"CRASH_AFTER_S": "0.25", "BEFORE": before, "AFTER": after}
    crash = LoadRecord(name="mix", script="crash.js", duration="20s", settings=settings)

    assert (crash.burst, crash.crashes) == (burst, True)
    other = LoadRecord(name="mix", script="other.js", kind="crash", duration="20s", settings={"CRASH_AFTER_S": "1"})
    assert (other.burst, other.crashes) == (None, True)


def test_the_kind_of_a_load_is_that_of_the_record_and_not_guessed_from_its_settings() -> None:
    """Only a record of an older version, which has no kind, is of the kind that its script had."""
    settings = {"BURST": "4", "CRASH_AFTER_S": "1", "BEFORE": "1", "AFTER": "1"}

    def kind_of(script: str, **said: Any) -> tuple[str, int | None, bool]:
        one = LoadRecord(name="mix", script=script, duration="20s", settings=settings, **said)
        return one.kind, one.burst, one.crashes

    assert kind_of("burst.js") == ("burst", 4, False)
    assert kind_of("crash.js") == ("crash", 3, True)
    assert kind_of("calls.js") == ("steady", None, False)
    assert kind_of("mine.js") == ("steady", None, False)
    assert kind_of("burst.js", kind="steady") == ("steady", None, False)
    assert kind_of("mine.js", kind="burst") == ("burst", 4, False)


def test_a_load_of_another_kind_has_no_bursts(tmp_path: Path) -> None:
    other = LoadRecord(name="mix", script="users.js", duration="60s", settings={"USERS": "4"})
    assert (other.burst, other.has_small_bursts, other.crashes) == (None, False, False)

    found = summary(tmp_path, one_by_one(), loads=[other])

    assert (found.completion_times, found.waves) == ([], [])
    assert {row.metric for row in found.rows} & {"burst"} == set()


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
def test_a_burst_is_sent_whole_before_it_is_answered(
    tmp_path: Path, requests: list[Request], reasons: list[str]
) -> None:
    [trial] = summary(tmp_path, requests).trials

    assert (trial.verdict, trial.reasons) == ("suspect" if reasons else "valid", reasons)


def test_a_client_beside_the_load_is_no_part_of_a_burst(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": one_by_one()}, loads=[load(4)], variants=[variant()])
    write_points(
        tmp_path / "one" / "mix" / "1" / "points-client.json.gz",
        [Request(request_class="silent", sent_s=0.002, answered=False)],
    )

    found = derive_summary(tmp_path)

    assert found.trials[0].reasons == ["all 1 silent requests failed (no answer before the end of the run)"]


def of_burst(found: Summary) -> dict[str, float | None]:
    """Return the statistics of bursts."""
    return {row.stat: row.measured for row in found.rows if row.metric == "burst"}


def test_a_burst_lasts_from_the_first_request_sent_to_the_last_answer(tmp_path: Path) -> None:
    """Three bursts of 4, 2 and 3 s, in which the busier of two workers serves two, two and three of four requests.

    The last answer comes 3 ms after its time, for its request is the fourth, and k6 takes 0.15 ms besides. A burst
    that was cut off does not count.
    """
    requests = one_by_one(workers=2) + burst(1000, 1000, 2000, 2000, at_s=5, workers=2)
    requests += burst(1000, 2000, 3000, at_s=10) + burst(2000, at_s=10.003, worker="box:8")
    requests += burst(9000, at_s=20)

    found = summary(tmp_path, requests, workers=2)

    assert of_burst(found) == {"total": pytest.approx(3002.15), "largest_share": 0.5}
    units = {row.stat: (row.unit, row.request_class) for row in found.rows if row.metric == "burst"}
    assert units == {"total": ("ms", None), "largest_share": ("share", None)}


def test_a_burst_of_which_nothing_was_answered_has_no_figures(tmp_path: Path) -> None:
    settings = {"BEFORE": "2", "CRASH_AFTER_S": "1", "AFTER": "1"}
    loads = [LoadRecord(name="mix", script="crash.js", duration="60s", settings=settings)]

    found = summary(tmp_path, one_by_one(error="status 502"), loads=loads)

    assert of_burst(found) == {}
    assert found.completion_times == []


def test_steps_are_the_response_times_in_order_of_completion(tmp_path: Path) -> None:
    """The k-th of two bursts: 1 and 3, 2 and 4, … seconds; whoever was sent last may be answered first."""
    requests = burst(4000, 3000, 2000, 1000) + burst(3000, 4000, 5000, 6000, at_s=9)

    [row] = summary(tmp_path, requests).completion_times

    assert (row.variant, row.load, row.published, row.low, row.high) == ("one", "mix", None, None, None)
    assert row.measured == pytest.approx([2000, 3000, 4000, 5000])


def test_steps_of_several_trials_are_medians_with_an_interval(tmp_path: Path) -> None:
    """In one trial a request failed, so that nobody knows its fourth step. Student's interval is wider."""
    trials = [one_by_one(), one_by_one()[:3] + one_by_one(4, error="status 502")[3:], burst(3000, 4000, 5000, 6000)]

    [row] = summary(tmp_path, *trials).completion_times

    assert row.measured == pytest.approx([1000, 2000, 3000, 5000])
    assert row.low
    assert row.high
    assert [low < of_all for low, of_all in zip(row.low, [1000, 2000, 3000, 4000], strict=True)] == [True] * 4
    assert [high > of_all for high, of_all in zip(row.high, [3000, 4000, 5000, 6000], strict=True)] == [True] * 4


def test_the_requests_of_a_burst_say_nothing_about_another_burst(tmp_path: Path) -> None:
    """Two equal bursts: their p50 has no interval in one trial, and a point in two."""
    [once] = [one for one in summary(tmp_path / "once", one_by_one()).rows if is_p50(one)]
    [twice] = [one for one in summary(tmp_path / "twice", one_by_one(), one_by_one()).rows if is_p50(one)]

    assert (once.measured, once.low, once.high) == (2500, None, None)
    assert (twice.measured, twice.low, twice.high) == (2500, 2500, 2500)


def is_p50(row: Row) -> bool:
    """Whether a row is the p50 of all response times."""
    return (row.request_class, row.metric, row.stat) == (None, "response_time", "p50")


def test_a_step_of_one_trial_only_has_no_interval(tmp_path: Path) -> None:
    trials = [one_by_one(), one_by_one()[:3] + one_by_one(4, error="status 502")[3:]]

    [row] = summary(tmp_path, *trials, published=[published(1000, 2000, 3000, 4000)]).completion_times

    assert row.measured == pytest.approx([1000, 2000, 3000, 4000])
    assert row.low == pytest.approx([1000, 2000, 3000], rel=1e-6)
    assert row.published == [1000, 2000, 3000, 4000]


def test_large_bursts_have_no_steps(tmp_path: Path) -> None:
    found = summary(tmp_path, burst(*[1000] * 60), size=60, published=[published(1000)])

    assert found.completion_times == []
    assert [(one.verdict, one.reason) for one in found.published] == [
        ("undecided", "mix has no bursts of at most 50 requests")
    ]


@pytest.mark.parametrize(
    ("steps", "verdict", "figures"),
    [
        ((1000, 2000, 3000, 4000), "reproduced", "4 of 4 within 10 %"),
        ((1000, 2000, 3000, 4500), "contradicted", "3 of 4 within 10 %; contradicted: 4th 0.89"),
        ((400, 2000, 3000, 5000), "contradicted", "2 of 4 within 10 %; contradicted: 1st 2.50, 4th 0.80"),
    ],
)
def test_published_steps_are_compared_one_by_one(
    tmp_path: Path, steps: tuple[float, ...], verdict: str, figures: str
) -> None:
    [row] = summary(tmp_path, *[one_by_one()] * 5, published=[published(*steps)]).published

    assert (row.verdict, row.reason, row.metric, row.completion_times) == (verdict, None, "response_time", True)
    assert [one.stat for one in row.figures] == ["1st", "2nd", "3rd", "4th"]
    assert [(one.unit, one.published) for one in row.figures] == [("ms", step) for step in steps]
    assert figures_phrase(row) == figures
    assert published_quantity(read_run(tmp_path), row) == "one: response time of all requests, in order of completion"


def test_published_steps_are_compared_with_the_whole_interval(tmp_path: Path) -> None:
    trials = [one_by_one(), burst(1000, 2000, 3000, 5000)] * 3

    [row] = summary(tmp_path, *trials, published=[published(1000, 2000, 3000, 4000)]).published

    assert row.verdict == "undecided"
    assert (row.reason or "").startswith("the interval of 4th straddles an edge; ")
    assert figures_phrase(row) == "3 of 4 within 10 %; undecided: 4th 1.12 (1.00 to 1.25)"


@pytest.mark.parametrize(
    ("requests", "steps", "reason"),
    [
        (one_by_one(), [1000, 2000], "there were 4 requests in a burst, 2 were published"),
        (one_by_one(), [1000] * 10, "there were 4 requests in a burst, 10 were published"),
        (one_by_one()[:3] + one_by_one(error="status 502")[3:], [1000] * 4,
         "at most 3 of the 4 requests of a burst were answered; "
         "suspect: 1 of 4 light requests failed (status 502)"),
    ],
)  # fmt: skip
def test_staircases_of_another_length_cannot_be_compared(
    tmp_path: Path, requests: list[Request], steps: list[float], reason: str
) -> None:
    [row] = summary(tmp_path, requests, published=[published(*steps)]).published

    assert (row.verdict, row.reason) == ("undecided", reason)
    assert {(one.verdict, one.measured, one.ratio) for one in row.figures} == {("undecided", None, None)}


def test_published_steps_of_an_invalid_trial_are_invalid(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": one_by_one()}, loads=[load(4)], variants=[variant()], published=[published(1, 2, 3, 4)])
    make_trial(tmp_path, "one", 1, one_by_one(), workers=1, outcome="failed", reason="nginx said: no")

    found = derive_summary(tmp_path)

    assert [(one.verdict, one.reason) for one in found.published] == [("invalid", "one: failed: nginx said: no")]
    assert [(one.published, one.measured) for one in found.completion_times] == [([1, 2, 3, 4], [])]


@pytest.mark.parametrize(
    ("place", "word"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th"), (21, "21st"),
     (42, "42nd"), (50, "50th")],
)  # fmt: skip
def test_places_have_words(place: int, word: str) -> None:
    assert ordinal(place) == word


def printed(folder: Path, found: Summary) -> list[str]:
    """Return the lines that a terminal of 80 columns shows of a run, without the blanks at their ends."""
    out = io.StringIO()
    print_tables(Console(file=out, width=80), read_run(folder), found)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    return lines


def test_a_staircase_is_a_line_of_seconds(tmp_path: Path) -> None:
    """A source whose requests took 222 times as long, and a variant of which it says nothing."""
    make_run(
        tmp_path, {"one": one_by_one(), "another-variant": burst(1000, 1000, 1001, 1002)}, loads=[load(4)], times=2,
        variants=[variant(), variant("another-variant")],
        published=[published(222000, 444000, 777000, 888000, divided_by=222)],
    )  # fmt: skip
    found = derive(tmp_path)

    lines = printed(tmp_path, found)

    start = lines.index("Response times in seconds, in order of completion")
    assert lines[start : start + 5] == [
        "Response times in seconds, in order of completion",
        "variant                           1st to last",
        "one              published ÷ 222  1.00  2.00  3.50  4.00",
        "                 measured         1.00  2.00  3.00  4.00",
        "another-variant  measured         1.00  1.00  1.00  1.00",
    ]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    caption = "<caption>Response times in seconds, in order of completion</caption>"
    table = page[page.index(caption) :].split("</table>")[0]
    assert "<th>1st</th><th>2nd</th><th>3rd</th><th>4th</th>" in table
    assert '<td class="text">published ÷ 222</td>' in table
    assert "<td>1.00</td><td>2.00</td><td>3.50</td><td>4.00</td>" in table
    text = markdown(read_run(tmp_path), found)
    assert "| one | published ÷ 222 | 1.00 | 2.00 | 3.50 | 4.00 |" in text
    assert "Response times in seconds, in order of completion:\n\n| variant |  | 1st | 2nd | 3rd | 4th |\n" in text
    row = found.published[0]
    assert (row.divided_by, [one.published for one in row.figures]) == (222, [1000, 2000, 3500, 4000])
    words = "one: response time of all requests, in order of completion, published ÷ 222"
    assert published_quantity(read_run(tmp_path), row) == words
    assert figures_phrase(row) == "3 of 4 within 10 %; contradicted: 3rd 0.86"


def test_a_long_staircase_is_broken_between_two_steps(tmp_path: Path) -> None:
    name = "a-variant-of-thirty-characters"
    make_run(tmp_path, {name: one_by_one(12)}, loads=[load(12)], variants=[variant(name)])

    lines = printed(tmp_path, derive_summary(tmp_path))

    start = lines.index("Response times in seconds, in order of completion")
    seconds = " ".join(lines[start + 2 : start + 4]).split()
    assert [one for one in seconds if "." in one] == [f"{place}.00" for place in range(1, 13)]


def test_a_burst_of_more_than_twelve_has_no_table_of_steps(tmp_path: Path) -> None:
    summary(tmp_path, one_by_one(13), size=13)
    found = derive(tmp_path)

    assert len(found.completion_times[0].measured) == 13
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for shown in (printed(tmp_path, found), page):
        assert "Response times in seconds, in order of completion" not in shown


def test_what_a_burst_took_is_in_a_table_and_published_times_are_divided(tmp_path: Path) -> None:
    of_run = Published(variant="one", metric="burst", stats={"total": 888000, "largest_share": 0.9}, divided_by=222)

    found = summary(tmp_path, one_by_one(), published=[of_run])

    lines = printed(tmp_path, found)
    start = lines.index("Burst")
    assert lines[start + 1 : start + 4] == [
        "variant                   total, ms  largest share  n",
        "one      published ÷ 222       4000           0.90",
        "         measured              4003            1.0  4",
    ]
    assert {row.stat: row.published for row in found.rows if row.metric == "burst"} == {
        "total": 4000, "largest_share": 0.9,
    }  # fmt: skip


def test_percentiles_that_a_small_burst_cannot_carry_are_missed_only_if_somebody_speaks_of_them(tmp_path: Path) -> None:
    value = Quantity(variant="one", request_class="light", metric="overhead", stat="p90")
    claim = Claim(says="The tail is short", value=value, at_most=1)
    stats = Published(variant="one", request_class="light", metric="response_time", stats={"p75": 3000})

    nobody = summary(tmp_path / "nobody", one_by_one(2), size=2)
    claimed = summary(tmp_path / "claimed", one_by_one(2), size=2, claims=[claim])
    told = summary(tmp_path / "told", one_by_one(2), size=2, published=[stats])
    large = summary(tmp_path / "large", one_by_one(52), size=52)

    def missed(found: Summary) -> list[str]:
        return [reason for reason in found.validity.reasons if reason.startswith("no p")]

    assert missed(nobody) == []
    assert missed(claimed) == ["no p90 of light requests of any variant: it needs 10 a trial, there were 2 at most"]
    assert missed(told) == ["no p75 of light requests of any variant: it needs 4 a trial, there were 2 at most"]
    assert missed(large) == ["no p99 of light requests of any variant: it needs 100 a trial, there were 52 at most"]


def cells(found: Summary) -> list[tuple[str, int, int]]:
    """Return worker, wave and requests of each row of waves."""
    return [(one.worker, one.wave, one.requests) for one in found.waves]


def test_waves_are_counted_by_worker_from_the_first_request_that_began(tmp_path: Path) -> None:
    """Two workers of two threads: one serves two waves of two and then one more, the other a single wave.

    The first burst of the first trial is shown. What begins less than half a wave late belongs to it.
    """
    waits_s = [(0.02, 7), (0.03, 7), (0.1, 11), (0.4, 11), (1.04, 7), (1.05, 7), (2.1, 7)]
    requests = [
        Request(service_time_ms=1000, overhead_ms=1000 * late, waits_ms=1000 * late, worker=f"box:{pid}")
        for late, pid in waits_s
    ]
    later = burst(*[1000] * 7, at_s=9, workers=1)

    found = summary(tmp_path, requests + later, burst(*[1000] * 7, workers=2, worker="box:9"), size=7, workers=2)

    assert cells(found) == [("box:7", 1, 2), ("box:7", 2, 2), ("box:7", 3, 1), ("box:11", 1, 2)]
    assert found.waves[0] == WaveRow(
        variant="one", load="mix", trial=1, burst=1, worker="box:7", wave=1, requests=2
    )  # fmt: skip


@pytest.mark.parametrize(
    ("requests", "workers"),
    [
        (one_by_one(), 1),
        (burst(1000, 61000, workers=2) * 2, 2),
        (burst(90, 95, 100, 1000, workers=2, service_time_ms=99, overhead_ms=0, waits_ms=0), 2),
        (one_by_one(error="status 502"), 2),
    ],
    ids=["one worker", "sixty-one waves", "short requests", "failures"],
)
def test_there_are_no_waves(tmp_path: Path, requests: list[Request], workers: int) -> None:
    assert summary(tmp_path, requests, workers=workers).waves == []


def test_sixty_waves_are_the_most(tmp_path: Path) -> None:
    found = summary(tmp_path, burst(1000, 60000, workers=2) * 2, workers=2)

    assert cells(found) == [("box:7", 1, 2), ("box:8", 60, 2)]


def test_workers_are_in_the_order_of_forking() -> None:
    assert in_order({"b:3", "a:10", "a:9", "b:12"}) == ["a:9", "a:10", "b:3", "b:12"]
