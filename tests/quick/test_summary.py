"""stampede.pipeline: figures that were counted by hand, and verdicts that follow from them."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from rich.console import Console, RenderableType

from stampede.evaluate.metrics import Statistic, servers
from stampede.evaluate.metrics.by_class import FAILURE_FAMILY, SPREAD_FAMILY, THROUGHPUT_FAMILY, TIME_FAMILY, evenness
from stampede.evaluate.metrics.metric import rows_needed
from stampede.evaluate.statistics.estimates import comparable_figures
from stampede.evaluate.verdict.claims import missing_cores
from stampede.pipeline import derive_summary
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.run import LoadRecord, Run, RunMachine, VariantRecord
from stampede.records.summary import ClaimRow, Estimate, PublishedRow, Summary, TrialValidity
from stampede.report.markdown import markdown
from stampede.report.tables.verdicts import claims_table, published_table
from stampede.report.terminal import terminal_table
from stampede.report.wording import figures_phrase, published_quantity
from tests.in_memory import (
    MIX,
    changed,
    conclude,
    concluded,
    measure,
    measured_cells,
    page_of,
    printed,
    trial_of,
    values_of,
)
from tests.synthetic import NOWHERE, Request, make_run, make_trial, observation, run_record
from tests.wrong import listed

HUNDRED = [Request(overhead_ms=float(n), sent_s=n / 10) for n in range(1, 101)]


def row(
    summary: Summary, stat: Statistic, request_class: str | None = "light", metric: str = "overhead"
) -> Estimate | None:
    """Return the row of one statistic of the only variant, if there is one."""
    return summary.row("one", "mix", request_class, metric, stat)


def p99(variant: str = "one") -> Quantity:
    """Return the p99 overhead of light requests."""
    return Quantity(variant=variant, request_class="light", metric="overhead", stat="p99")


def claim(at_least: float | None, **changed: Any) -> Claim:
    """Return a claim that light requests wait."""
    return Claim(**({"says": "It waits", "value": p99(), "at_least": at_least} | changed))


def near(stats: dict[Statistic, float], within: float = 0.25, variant: str = "one") -> Published:
    """Return a published row about the overhead of light requests that says how near is near enough."""
    return Published(variant=variant, request_class="light", metric="overhead", stats=stats, within=within)


SHORT = Claim(says="the tail is short", value=p99(), at_most=1e9)
BUSY = TrialValidity(variant="one", load="mix", trial=1, verdict="suspect", reasons=["the machine was 50% busy"])


def test_percentiles_are_those_of_the_rows() -> None:
    """Of 1, 2, … 100 ms the median is 50.5 and p99 is 99.01, interpolated linearly between neighbours.

    Fewer requests cannot carry a p99.
    """
    expected = {"min": 1, "avg": 50.5, "p50": 50.5, "p90": 90.1, "p99": 99.01, "max": 100}
    found, of_fewer = (measure(requests, TIME_FAMILY) for requests in (HUNDRED, HUNDRED[:99]))

    assert {stat: found["light", "overhead", stat] for stat in expected} == pytest.approx(expected)
    assert ("light", "overhead", "p90") in of_fewer
    assert ("light", "overhead", "p99") not in of_fewer
    needed = {"p50": 2, "p90": 10, "p10": 10, "p99": 100, "p99.9": 1000, "min": 1, "stdev": 2}
    assert {stat: rows_needed(stat) for stat in needed} == needed


def test_failures_are_counted_beside_the_times_and_never_in_them() -> None:
    """The failed requests might have been the slowest: if one in a hundred failed, there is no p99."""
    failed = [Request(overhead_ms=-100, error="status 502") for _ in range(10)]
    found, fewer, more = (
        measure([Request(overhead_ms=10)] * answered + failed[:count], TIME_FAMILY, FAILURE_FAMILY)
        for answered, count in ((990, 10), (990, 9), (190, 10))
    )

    assert (found["light", "overhead", "min"], found["light", "failures", "share"]) == (10, 0.01)
    assert [("light", "overhead", stat) in found for stat in ("p95", "p99")] == [True, False]
    assert [("light", "overhead", stat) in more for stat in ("p90", "p95")] == [True, False]
    assert ("light", "overhead", "p99") in fewer


def test_classes_of_request_are_kept_apart_and_counted_together() -> None:
    found = measure([Request(overhead_ms=1), Request(overhead_ms=9, request_class="heavy")], TIME_FAMILY)

    averages = {name: found[name, "overhead", "avg"] for name in ("light", "heavy", None)}
    assert averages == {"light": 1, "heavy": 9, None: 5}


def test_throughput_counts_from_the_first_request_to_the_last_answer() -> None:
    """Users of a closed loop lose throughput to waiting.

    Two of them ask for 100 ms ten times each; one waits as long again, so both lose a third of their time together.
    """
    steady = [Request(service_time_ms=900, overhead_ms=100, sent_s=second) for second in range(10)]
    patient = [Request(overhead_ms=0, sent_s=n * 0.1, user=1) for n in range(10)]
    waiting = [Request(overhead_ms=100, sent_s=n * 0.2, user=2) for n in range(10)]

    opened = measure(steady, THROUGHPUT_FAMILY, load=MIX.model_copy(update={"loop": "open"}))
    closed = measure(patient + waiting, THROUGHPUT_FAMILY)

    assert opened == {(name, "throughput", "per_second"): pytest.approx(1) for name in ("light", None)}
    assert closed["light", "throughput", "of_ideal"] == pytest.approx(2 / 3, abs=0.001)


def test_the_median_trial_is_shown_and_rows_are_not_pooled(tmp_path: Path) -> None:
    """Three trials with medians 1, 2 and 90 ms: the run's figure is 2, whatever their sizes."""
    claims = [Claim(says="the median is short", value=p99().model_copy(update={"stat": "p50"}), at_most=1e9)]
    make_run(tmp_path, {"one": [Request(overhead_ms=1)] * 2}, trials=3, claims=claims)
    make_trial(tmp_path, "one", 2, [Request(overhead_ms=2)] * 2)
    make_trial(tmp_path, "one", 3, [Request(overhead_ms=90)] * 50)

    summary = derive_summary(tmp_path)

    found = row(summary, "p50")
    assert found is not None
    assert (found.measured, found.trials, found.n, found.unit) == (2, 3, 54, "ms")
    assert found.values == {1: 1, 2: 2, 3: 90}
    assert [(one.verdict, one.measured) for one in summary.claims] == [("reproduced", 2)]
    # what other programs read: these keys stay, others may come
    read = json.loads((tmp_path / "summary.json").read_text())
    assert (read["schema"], read["experiment"]) == (2, "made-up")
    assert {"verdict", "reasons"} <= set(read["validity"])
    row_keys = "variant load request_class metric stat unit published predicted measured low high n trials"
    assert set(row_keys.split()) <= set(read["rows"][0])
    assert {"variant", "load", "trial", "request_class", "worker", "requests", "share"} <= set(read["workers"][0])
    assert {"says", "verdict", "measured", "bound", "unit", "reason"} <= set(read["claims"][0])


def test_requests_and_connections_are_counted_by_worker(tmp_path: Path) -> None:
    """Two connections bring 6 and 2 requests to one worker, one brings 2 to the other."""
    requests = [
        Request(worker=worker, connection=connection, sent_s=n / 10)
        for n, (worker, connection) in enumerate([("box:1", "a")] * 6 + [("box:1", "b")] * 2 + [("box:2", "c")] * 2)
    ]

    summary = derive_summary(make_run(tmp_path, {"one": requests}))

    assert [(one.worker, one.requests, one.share, one.connections) for one in summary.workers if one.request_class] == [
        ("box:2", 2, 0.2, 1),
        ("box:1", 8, 0.8, 2),
    ]
    found = {(one.metric, one.stat): one.measured for one in summary.rows if one.request_class}
    assert found["requests_by_worker", "largest_share"] == 0.8
    assert found["requests_by_connection", "avg"] == pytest.approx(10 / 3)
    assert found["requests_by_connection", "max"] == 6
    assert found["connections_by_worker", "largest_share"] == pytest.approx(2 / 3)
    assert found["connections_by_worker", "correlation"] == pytest.approx(1)
    untold = {metric for _, metric, _ in measure(HUNDRED, SPREAD_FAMILY)}
    assert untold == {"requests_by_worker"}, "a server that cannot tell its connections has none"


def test_idle_workers_count_for_evenness() -> None:
    """Three of four workers serve 6, 3 and 3 requests, one none: by hand 0.5, 2.0 and 12^2 / (4 * 54)."""
    requests = [Request(worker=f"box:{worker}") for worker in [1] * 6 + [2] * 3 + [3] * 3]

    found = measure(requests, SPREAD_FAMILY, variant=VariantRecord(name="one", workers=4, settings={}))

    expected = {"largest_share": 0.5, "max_over_mean": 2.0, "jain_index": 144 / 216}
    assert {stat: found["light", "requests_by_worker", stat] for stat in expected} == pytest.approx(expected)
    assert evenness([1, 3]) == {"largest_share": 0.75, "max_over_mean": 1.5, "jain_index": 0.8}
    assert evenness([0, 0]) == {}, "nothing is spread unevenly"
    published = Published(variant="one", metric="requests_by_worker", counts=[113, 95, 132, 455])
    assert comparable_figures(published)["largest_share"] == 455 / 795


def test_what_servers_tell_of_themselves_is_of_all_requests() -> None:
    """Four attempts for each of ten connections, 50 ms of processor for ten requests, memory as it was at the end."""
    ten = [Request(worker="box:7", sent_s=n / 10) for n in range(10)]
    raced = {7: {"accept_attempts": 24, "accept_failures": 14, "accepted": 10}, 99: {"accept_attempts": 16,
             "accept_failures": 16, "accepted": 0}}  # fmt: skip
    none = {worker: dict.fromkeys(counts, 0) for worker, counts in raced.items()}
    seen: dict[str, Any] = {
        "before": {
            "server-1": observation(served={7: 0, 99: 0}, counts=none, processor_s=1),
            "nginx-1": observation("proxy", balanced=1),
        },
        "after": {
            "server-1": observation(served={7: 10, 99: 0}, counts=raced, processor_s=1.05, memory_mib=36),
            "nginx-1": observation("proxy", balanced=11),
        },
    }

    assert measure(ten, servers.FAMILY, **seen) == {
        (None, "accept_attempts", "per_connection"): 4, (None, "accept_failures", "per_connection"): 3,
        (None, "processor", "per_request"): pytest.approx(5), (None, "memory", "total"): 36,
    }  # fmt: skip
    told = [
        (one.worker, one.counts["accept_attempts"]) for one in servers.counter_rows([changed(trial_of(ten), **seen)])
    ]
    assert told == [("box:7", 24), ("box:99", 16)]


def test_a_percentile_that_requests_do_not_carry_decides_nothing() -> None:
    """A closed loop sends fewer requests while they wait, so what is left of the trials would be the fast ones.

    Had the requests that failed been answered, they might have been the slowest hundredth.
    """
    lacking = {
        ("one", "mix", "light"): [values_of(1, p50=1, p99=9, min=3), values_of(2, 50, p50=2)],
        ("two", "mix", "light"): [values_of(number, 99, p50=1) for number in (1, 2)],
    }
    failing = measured_cells(HUNDRED * 10 + [Request(error="status 502")] * 11, TIME_FAMILY, FAILURE_FAMILY)
    few = {("one", "mix", "light"): [values_of(1, 99, p50=1)]}
    nothing = {("one", "mix", "light"): [values_of(1, 2, min=3, p50=4), values_of(2, 0)]}
    one, of_failing, of_few, of_nothing = (
        conclude(run_record(["one", "two"], trials, claims=[SHORT]), cells)
        for trials, cells in ((2, lacking), (1, failing), (1, few), (2, nothing))
    )

    assert [(found.claims[0].verdict, found.claims[0].measured, found.claims[0].reason)
            for found in (one, of_failing, of_few)] == [
        ("undecided", None, "p99 needs 100 requests a trial; one trial had 50"),
        ("undecided", None, "1.1% of the requests failed, too many to leave out of p99"),
        ("undecided", None, "p99 needs 100 requests a trial; there were 99 at most"),
    ]  # fmt: skip
    assert [row(found, "p99") for found in (one, of_failing, of_few)] == [None] * 3
    assert row(of_failing, "p95")
    middle, smallest = row(one, "p50"), row(of_nothing, "min")
    assert middle
    assert (middle.n, middle.trials) == (150, 2)
    assert row(of_nothing, "p50") is None
    assert smallest
    assert smallest.measured == 3, "one trial is enough for a min"


def test_text_with_brackets_is_printed_as_it_is() -> None:
    """Rich would take [/work] for markup and stop, after the whole measurement."""
    run, summary = concluded({"one": [1]}, claims=[claim(1, says="the tail of [/work] is [even]")])

    assert "the tail of [/work] is [even]" in " ".join(printed(run, summary).split())


def test_an_invalid_trial_gives_no_number_and_no_verdict(tmp_path: Path) -> None:
    """Points that cannot be read make their trial invalid, and keep the others."""
    claims = [SHORT, SHORT.model_copy(update={"value": p99("two")})]
    published = [near({"p50": 50, "p99": 99})]
    make_run(tmp_path, {"one": HUNDRED, "two": HUNDRED, "three": HUNDRED}, claims=claims, published=published)
    make_trial(tmp_path, "one", 1, HUNDRED, outcome="failed", reason="k6 ended with exit code 107", k6_exit_code=107)
    points = tmp_path / "two" / "mix" / "1" / "points.json.gz"
    points.write_bytes(points.read_bytes()[:300])

    summary = derive_summary(tmp_path)

    assert {"three"} == {one.variant for one in summary.rows if one.measured is not None}
    assert summary.validity.verdict == "invalid"
    why = "failed: k6 ended with exit code 107"
    assert summary.validity.reasons[0] == f"one: invalid: {why}"
    reason = "two/mix/1/points.json.gz cannot be read: IO Error: Unexpected end of GZIP stream"
    assert summary.validity.reasons[1].startswith(f"two: invalid: {reason}")
    assert [claim.verdict for claim in summary.claims] == ["invalid"] * 2
    [found] = summary.published
    assert summary.claims[0].reason == found.reason == f"one: {why}"
    assert [(one.verdict, one.measured) for one in found.figures] == [("invalid", None)] * 2


SPREAD = [80.0, 90.0, 100.0, 110.0, 125.0]


def test_two_machines_of_two_cores_do_not_have_four() -> None:
    """A process runs on one machine, so the cores of the smallest machine count. Machines for load do not count."""

    def on(*machines: tuple[str, int]) -> Run:
        hosts = [(role, NOWHERE.model_copy(update={"cores": cores})) for role, cores in machines]
        named = [RunMachine(name=f"bench-{place}", role=role, host=host) for place, (role, host) in enumerate(hosts)]
        return run_record(["one"], machines=named)

    assert missing_cores(claim(50, cores=4), on(("servers", 2), ("servers", 8), ("load", 1))) == (
        "the claim needs 4 cores on one machine, and the servers had 2"
    )
    assert missing_cores(claim(50, cores=4), on(("servers", 4), ("both", 8), ("load", 1))) is None


MORE_CORES, FEWER_CORES = (NOWHERE.model_copy(update={"cores": cores}) for cores in (4, 2))
OF_TWO = {"relative_to": p99("two")}
TURNED = [60.0] * 5 + [40.0] * 20
CLAIMED: list[tuple[dict[str, list[float]], Claim, dict[str, Any]]] = [
    ({"one": [99] * 5}, claim(98.99), {}),
    ({"one": [99] * 5}, claim(99.01), {}),
    ({"one": [99] * 5}, claim(None, at_most=99.01), {}),
    ({"one": [99] * 5}, claim(None, at_most=98.99), {}),
    # a single trial knows nothing of another start of the servers; a run takes a minute
    ({"one": [1000]}, claim(50), {}),
    ({"one": [100, 101]}, claim(50), {}),
    ({"one": [100, 160]}, claim(50), {}),
    ({"one": [80, 90]}, claim(60), {}),
    # the median alone, 100 ms, would keep the bound of the third claim
    ({"one": SPREAD}, claim(79), {}),
    ({"one": SPREAD}, claim(126), {}),
    ({"one": SPREAD}, claim(99), {}),
    ({"one": [10, 30, 20, 90, 15]}, claim(9), {}),
    ({"one": [40, 90, 95, 100, 120]}, claim(50), {}),
    ({"one": [40, 48, 51, 54, 60]}, claim(50), {}),
    ({"one": [40, 45, 50, 55, 60], "two": [10, 12, 15, 18, 20]}, claim(2, **OF_TWO), {}),
    ({"one": [40] * 5, "two": [0] * 5}, claim(2, **OF_TWO), {}),
    # more trials do not help where cores are missing
    ({"one": [60.0] * 5}, claim(50, cores=4), {"host": MORE_CORES}),
    ({"one": [60.0] * 5}, claim(50, cores=4), {"host": FEWER_CORES}),
    # whoever looks after every round needs more agreement than the interval, which would suffice if it was planned
    ({"one": [60.0, 49.0, *[60.0] * 5]}, claim(50), {}),
    ({"one": [60.0, 49.0, *[60.0] * 5]}, claim(50), {"until_decided": True}),
    ({"one": TURNED}, claim(50), {}),
    ({"one": TURNED}, claim(50), {"until_decided": True}),
    ({"one": [60.0] * 5}, claim(50), {"until_decided": True}),
    ({"one": [50.0] * 5, "two": [10.0] * 5}, claim(2, **OF_TWO), {"until_decided": True}),
]


def test_a_verdict_follows_from_the_interval_and_the_bound() -> None:
    """What is undecided says how many trials would decide."""

    def judged(values: dict[str, list[float]], one: Claim, changed: dict[str, Any]) -> str:
        [found] = concluded(values, claims=[one], **changed)[1].claims
        figure = "nothing" if found.measured is None else f"{found.measured:.4g} ({found.low:.4g} to {found.high:.4g})"
        needed = f"needs {found.trials_needed}" if found.trials_needed else "no number decides"
        return f"{figure} {found.unit}, {found.bound}: {found.verdict} ({needed}); {found.reason}"

    assert listed(judged(*row) for row in CLAIMED) == snapshot("""\
99 (99 to 99) ms, >= 98.99: reproduced (needs 2); None
99 (99 to 99) ms, >= 99.01: not reproduced (needs 2); None
99 (99 to 99) ms, <= 99.01: reproduced (needs 2); None
99 (99 to 99) ms, <= 98.99: not reproduced (needs 2); None
1000 (1000 to 1000) ms, >= 50: undecided (needs 5); one trial decides nothing; about 5 trials (5 min) would
    decide
100.5 (94.34 to 107.1) ms, >= 50: reproduced (needs 2); None
130 (6.387 to 2505) ms, >= 50: undecided (needs 3); the interval straddles the bound; about 3 trials (2 min)
    would decide
85 (40.15 to 179.3) ms, >= 60: undecided (needs 3); the interval straddles the bound; about 3 trials (2 min)
    would decide
100 (80 to 125) ms, >= 79: reproduced (needs 5); None
100 (80 to 125) ms, >= 126: not reproduced (needs 5); None
100 (80 to 125) ms, >= 99: undecided (no number decides); the interval straddles the bound; more than 100
    trials would be needed
20 (10 to 90) ms, >= 9: reproduced (needs 5); None
95 (40 to 120) ms, >= 50: undecided (needs 10); the interval straddles the bound; about 10 trials (2 min)
    would decide
51 (40 to 60) ms, >= 50: undecided (no number decides); the interval straddles the bound; more than 100 trials
    would be needed
3.333 (2.25 to 5) ratio, >= 2: reproduced (needs 5); None
nothing ratio, >= 2: undecided (no number decides); a trial of two has 0, by which nothing can be divided
60 (60 to 60) ms, >= 50: reproduced (needs 2); None
60 (60 to 60) ms, >= 50: undecided (no number decides); the claim needs 4 cores, and the servers had 2
60 (60 to 60) ms, >= 50: reproduced (needs 2); None
60 (60 to 60) ms, >= 50: undecided (needs 2); looking after every round needs more certainty; about 8 trials
    (2 min) would decide
40 (40 to 40) ms, >= 50: not reproduced (needs 2); None
40 (40 to 40) ms, >= 50: undecided (needs 2); looking after every round needs more certainty; about 26 trials
    (2 min) would decide
60 (60 to 60) ms, >= 50: reproduced (needs 2); None
5 (5 to 5) ratio, >= 2: reproduced (needs 2); None
""")


PUBLISHED: list[tuple[list[float], Published]] = [
    # up to the stated share: from the figure divided by 1.25 to 1.25 times the figure, both included
    *(([100.0, 100.0], near({"p99": figure})) for figure in (100, 80, 79.99, 125, 125.02, -100)),
    ([0, 0], near({"p99": 100})),
    # an edge is within whatever the digits of its numbers
    ([10.38] * 2, near({"p99": 8.65}, 0.2)),
    ([0.33] * 2, near({"p99": 0.3}, 0.1)),
    ([8.65 / 1.15] * 2, near({"p99": 8.65}, 0.15)),
    # the whole interval counts
    *((SPREAD, near({"p99": figure})) for figure in (100, 60, 200, 99, 101)),
    (SPREAD, near({"p99": 100}, 0.05)),
    # nothing but 0 reproduces a published 0; what names no tolerance has one all the same
    *(([value] * 2, near({"p99": 0})) for value in (0.0, 5.0)),
    ([51] * 2, Published(variant="one", request_class="light", metric="overhead", stats={"p99": 50})),
    # one trial decides nothing
    ([1000], near({"p99": 1000})),
    # a row is as good as its worst measured figure; p50 and p10 are measured, and p75 needs more requests
    ([50] * 5, near({"p50": 50, "p10": 50})),
    ([50] * 5, near({"p50": 50, "p75": 99})),
    ([50] * 5, near({"p50": 100, "p75": 99, "p10": 50})),
    ([50] * 5, near({"p75": 99})),
]  # fmt: skip


def test_a_published_figure_is_reproduced_up_to_the_stated_share() -> None:
    """A row of a variant that was left out has no verdict."""
    assert concluded({"one": [1]}, published=[near({"p50": 50}, variant="left-out")])[1].published == []

    def judged(values: list[float], published: Published) -> str:
        stats = ["max", "p99"] if "p99" in published.stats else ["max", "p50", "p10"]
        answered = 100 if "p99" in published.stats else 3
        [row] = concluded({"one": values}, stats=stats, answered=answered, published=[published])[1].published
        figures = (f"{one.stat} {one.published:g}: {one.verdict}" + (
            "" if one.measured is None else f", {one.measured:.4g} ({one.low:.4g} to {one.high:.4g}), "
            f"{'no ratio' if one.ratio is None else f'{one.ratio:.4g}'}"
        ) for one in row.figures)  # fmt: skip
        return f"{row.verdict} ±{row.within:g}: {'; '.join(figures)}; {row.reason}"

    assert listed(judged(*row) for row in PUBLISHED) == snapshot("""\
reproduced ±0.25: p99 100: reproduced, 100 (100 to 100), 1; None
reproduced ±0.25: p99 80: reproduced, 100 (100 to 100), 1.25; None
contradicted ±0.25: p99 79.99: contradicted, 100 (100 to 100), 1.25; None
reproduced ±0.25: p99 125: reproduced, 100 (100 to 100), 0.8; None
contradicted ±0.25: p99 125.02: contradicted, 100 (100 to 100), 0.7999; None
contradicted ±0.25: p99 -100: contradicted, 100 (100 to 100), -1; None
contradicted ±0.25: p99 100: contradicted, 0 (0 to 0), 0; None
reproduced ±0.2: p99 8.65: reproduced, 10.38 (10.38 to 10.38), 1.2; None
reproduced ±0.1: p99 0.3: reproduced, 0.33 (0.33 to 0.33), 1.1; None
reproduced ±0.15: p99 8.65: reproduced, 7.522 (7.522 to 7.522), 0.8696; None
reproduced ±0.25: p99 100: reproduced, 100 (80 to 125), 1; None
contradicted ±0.25: p99 60: contradicted, 100 (80 to 125), 1.667; None
contradicted ±0.25: p99 200: contradicted, 100 (80 to 125), 0.5; None
undecided ±0.25: p99 99: undecided, 100 (80 to 125), 1.01; the interval of p99 straddles an edge; about 6
    trials (2 min) would decide
undecided ±0.25: p99 101: undecided, 100 (80 to 125), 0.9901; the interval of p99 straddles an edge; about 6
    trials (2 min) would decide
undecided ±0.05: p99 100: undecided, 100 (80 to 125), 1; the interval of p99 straddles an edge; more than 100
    trials would be needed
reproduced ±0.25: p99 0: reproduced, 0 (0 to 0), no ratio; None
contradicted ±0.25: p99 0: contradicted, 5 (5 to 5), no ratio; None
reproduced ±0.25: p99 50: reproduced, 51 (51 to 51), 1.02; None
undecided ±0.25: p99 1000: undecided, 1000 (1000 to 1000), 1; one trial decides nothing; about 5 trials (5
    min) would decide
reproduced ±0.25: p50 50: reproduced, 50 (50 to 50), 1; p10 50: reproduced, 50 (50 to 50), 1; None
reproduced ±0.25: p50 50: reproduced, 50 (50 to 50), 1; p75 99: not measured in a short run; p75 needs 4
    requests a trial; there were 3 at most
contradicted ±0.25: p50 100: contradicted, 50 (50 to 50), 0.5; p75 99: not measured in a short run; p10 50:
    reproduced, 50 (50 to 50), 1; p75 needs 4 requests a trial; there were 3 at most
not measured in a short run ±0.25: p75 99: not measured in a short run; p75 needs 4 requests a trial; there
    were 3 at most
""")


def test_a_reason_that_all_claims_share_stands_once_below_their_table() -> None:
    table = claims_table(*concluded({"one": [1000]}, claims=[claim(50), claim(60)]))

    assert table.note.startswith("one trial decides nothing; about 5 trials (5 min) would decide; reproduced:")
    assert [says for _, says, *_ in table.rows] == ["It waits", "It waits"]


def test_a_measured_share_has_its_name_and_a_ratio_says_that_it_is_one() -> None:
    share = Quantity(variant="one", request_class="light", metric="failures", stat="share")
    claims = [Claim(says="few fail", value=share, at_most=0.1), claim(1, relative_to=p99("two"), says="it is slower")]
    run, summary = concluded({"one": [30, 30, 30], "two": [10, 10, 10]}, claims=claims)

    assert [row[2] for row in claims_table(run, summary).rows] == ["share 0.00\n0.00 to 0.00", "3.0 times\n3.0 to 3.0"]


def test_published_figures_are_judged_in_a_table_of_80_columns() -> None:
    """The medians of five trials are 10 to 90 ms, the middle one 20, and all requests of a trial take as long."""
    published = [
        near({"p50": 25, "p99": 20}, within=9),
        near({"p50": 4, "p90": 0.1, "p99": 5000, "max": 20}),
        near({"p50": 20, "p99.9": 20}, within=0.155),
    ]

    stats = ["p50", "p90", "p99", "max"]
    text = printed(*concluded({"one": [10, 30, 20, 90, 15]}, stats=stats, published=published))

    lines = text[text.index("Published figures") :].splitlines()
    assert [line.rstrip() for line in lines] == [
        "Published figures",
        "verdict       what                              figures",
        "reproduced    one: overhead of light requests   2 of 2 within 900 %",
        "contradicted  one: overhead of light requests   0 of 4 within 25 %;",
        "              — the interval of max straddles   contradicted: p50 5.00, p90 200,",
        "              an edge; more than 100 trials     p99 0.004; undecided: max 1.00",
        "              would be needed                   (0.50 to 4.50)",
        "undecided     one: overhead of light requests   0 of 2 within 15.5 %; undecided:",
        "              — p99.9 needs 1000 requests a     p50 1.00 (0.50 to 4.50); not",
        "              trial; there were 100 at most;    measured in a short run: p99.9",
        "              the interval of p50 straddles an",
        "              edge; more than 100 trials would",
        "              be needed",
        "reproduced: every measured figure, with its interval, is within the stated",
        "percentage of the published figure; the other figures are listed as measured /",
        "published; floor: what a request costs while nobody waits",
    ]


def test_a_published_row_names_its_load_where_there_are_several() -> None:
    loads = [LoadRecord(name=name, script="mix.js", duration="60s", settings={}) for name in ("mix", "rush")]
    published = [
        Published(variant="one", load="mix", request_class="light", metric="response_time", stats={"p50": 1}, within=1),
        Published(variant="one", load="rush", metric="memory", stats={"total": 30}, within=0.1),
    ]
    run, summary = concluded({"one": [1]}, published=published, loads=loads)

    assert [(published_quantity(run, one), one.verdict, figures_phrase(one)) for one in summary.published] == [
        ("one, mix: response time of light requests", "undecided", "0 of 1 within 100 %; undecided: p50"),
        ("one, rush: memory", "invalid", "0 of 1 within 10 %; invalid: total"),
    ]


def in_colour(table: RenderableType) -> str:
    """Return what a terminal of 80 columns gets."""
    console = Console(width=80, record=True, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(table)
    return console.export_text(styles=True)


GREEN, RED, YELLOW, FAINT = (f"\x1b[{style}m" for style in (32, 31, 33, 2))


def test_only_a_contradiction_is_red() -> None:
    published = [near({"p50": 50.5}), near({"p50": 1}), near({"p99.9": 1}, within=9)]
    run, summary = concluded({"one": [50] * 5}, stats=["p50", "max"], published=published)

    text = in_colour(terminal_table(published_table(run, summary)))

    for told in (f"{GREEN}reproduced", f"{RED}contradicted", f"{FAINT}not measured"):
        assert told in text
    assert text.count(RED) == 1


def test_a_verdict_from_a_suspect_trial_says_so_and_is_never_plainly_green_or_red(tmp_path: Path) -> None:
    """On the terminal, in Markdown and in the report; the verdict beside it rests on a valid trial."""
    claims = [Claim.model_validate({"says": f"{name} is so", "value": p99(name), bound: 1e9})
              for name in ("one", "two") for bound in ("at_most", "at_least")]  # fmt: skip
    published = [near({"p99": 50}), near({"p99": 50}, variant="two")]
    run = run_record(["one", "two"], 2, claims=claims, published=published)
    cells = {(name, "mix", "light"): [values_of(1, p99=50), values_of(2, p99=50)] for name in ("one", "two")}
    summary = conclude(run, cells, [BUSY])
    rows: list[ClaimRow | PublishedRow] = [*summary.claims, *summary.published]
    judged = [(row.suspect, row.reason, row.doubt) for row in rows]
    suspect, trusted = (True, None, BUSY.reasons[0]), (False, None, None)

    said, told = in_colour(terminal_table(claims_table(run, summary))), markdown(run, summary)
    page = page_of(tmp_path, run, summary)

    assert judged == [suspect, suspect, trusted, trusted, suspect, trusted]
    assert said.count(f"{YELLOW}reproduced,") == said.count(f"{YELLOW}not reproduced,") == 1
    assert (said.count(GREEN), said.count(RED)) == (1, 1)
    for verdict, count in {"reproduced, suspect": 2, "not reproduced, suspect": 1, "reproduced": 2}.items():
        assert told.count(f"| {verdict} |") == count
    assert page.count('<td class="verdict suspect">') == 3
    assert '<td class="verdict suspect">not reproduced, suspect</td>' in page
    assert page.count('<td class="verdict reproduced">reproduced</td>') == 2
