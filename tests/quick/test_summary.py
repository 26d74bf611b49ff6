"""analysis.pipeline: figures that were counted by hand, and verdicts that follow from them."""

import io
import json
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from analysis.metrics import OF_ALL_REQUESTS, Statistic
from analysis.metrics.metric import rows_needed
from analysis.metrics.spread import evenness
from analysis.pipeline import derive, derive_summary
from analysis.records.claims import Claim, Published, Quantity
from analysis.records.folder import read_run, trial_folder
from analysis.records.run import LoadRecord, Run, RunMachine, VariantRecord
from analysis.records.summary import Row, Summary
from analysis.report.html import write_report
from analysis.report.markdown import markdown
from analysis.report.tables import Table
from analysis.report.tables.quantities import counts_by_worker, quantity_tables, workers_tables
from analysis.report.tables.verdicts import claims_table
from analysis.report.terminal import print_tables, terminal_table
from analysis.report.wording import figures_phrase, published_quantity
from analysis.verdict.claims import missing_cores
from tests.synthetic import NOWHERE, Request, make_run, make_trial, observation

HUNDRED = [Request(overhead_ms=float(n), sent_s=n / 10) for n in range(1, 101)]


def row(summary: Summary, stat: Statistic, request_class: str | None = "light", metric: str = "overhead") -> Row | None:
    """Return the row of one statistic of the only variant, if there is one."""
    found = [one for one in summary.rows if (one.stat, one.request_class, one.metric) == (stat, request_class, metric)]
    return found[0] if found else None


def p99(variant: str = "one") -> Quantity:
    """Return the p99 overhead of light requests."""
    return Quantity(variant=variant, request_class="light", metric="overhead", stat="p99")


def test_percentiles_are_those_of_the_rows(tmp_path: Path) -> None:
    """Of 1, 2, … 100 ms the median is 50.5 and p99 is 99.01, interpolated linearly between neighbours."""
    summary = derive_summary(make_run(tmp_path, {"one": HUNDRED}))

    expected: dict[Statistic, float] = {"min": 1, "avg": 50.5, "p50": 50.5, "p90": 90.1, "p99": 99.01, "max": 100}
    for stat, value in expected.items():
        found = row(summary, stat)
        assert found is not None
        assert found.measured == pytest.approx(value)
        assert (found.n, found.trials, found.unit) == (100, 1, "ms")


def test_a_percentile_that_the_sample_cannot_carry_is_not_printed(tmp_path: Path) -> None:
    summary = derive_summary(make_run(tmp_path, {"one": HUNDRED[:99]}))

    assert row(summary, "p90") is not None
    assert row(summary, "p99") is None


@pytest.mark.parametrize(
    ("stat", "needed"), [("p50", 2), ("p90", 10), ("p10", 10), ("p99", 100), ("p99.9", 1000), ("min", 1), ("stdev", 2)]
)
def test_rows_needed_by_a_statistic(stat: Statistic, needed: int) -> None:
    assert rows_needed(stat) == needed


def test_failures_are_counted_beside_the_times_and_never_in_them(tmp_path: Path) -> None:
    requests = [Request(overhead_ms=10) for _ in range(99)] + [Request(overhead_ms=-100, error="status 502")]

    summary = derive_summary(make_run(tmp_path, {"one": requests}))

    low, share = row(summary, "min"), row(summary, "share", metric="failures")
    assert low is not None
    assert share is not None
    assert (low.measured, low.n) == (10, 99)
    assert share.measured == pytest.approx(0.01)


def test_classes_of_request_are_kept_apart_and_counted_together(tmp_path: Path) -> None:
    requests = [Request(overhead_ms=1), Request(overhead_ms=9, request_class="heavy")]

    summary = derive_summary(make_run(tmp_path, {"one": requests}))

    assert {
        one.request_class: one.measured for one in summary.rows if (one.metric, one.stat) == ("overhead", "avg")
    } == {
        "light": 1,
        "heavy": 9,
        None: 5,
    }


def test_throughput_counts_from_the_first_request_to_the_last_answer(tmp_path: Path) -> None:
    requests = [Request(service_time_ms=900, overhead_ms=100, sent_s=second) for second in range(10)]

    found = row(derive_summary(make_run(tmp_path, {"one": requests})), "per_second", metric="throughput")

    assert found is not None
    assert found.measured == pytest.approx(1.0)


def test_the_median_trial_is_shown_and_rows_are_not_pooled(tmp_path: Path) -> None:
    """Three trials with medians 1, 2 and 90 ms: the run's figure is 2, whatever their sizes."""
    make_run(tmp_path, {"one": [Request(overhead_ms=1)] * 2}, trials=3)
    make_trial(tmp_path, "one", 2, [Request(overhead_ms=2)] * 2)
    make_trial(tmp_path, "one", 3, [Request(overhead_ms=90)] * 50)

    found = row(derive_summary(tmp_path), "p50")

    assert found is not None
    assert (found.measured, found.trials, found.n) == (2, 3, 54)
    assert found.values == {1: 1, 2: 2, 3: 90}


def test_requests_are_counted_by_worker(tmp_path: Path) -> None:
    requests = [Request(worker=worker) for worker in ["box:1"] * 3 + ["box:2"]]

    summary = derive_summary(make_run(tmp_path, {"one": requests}))

    light = [(one.worker, one.requests, one.share) for one in summary.workers if one.request_class == "light"]
    assert light == [("box:2", 1, 0.25), ("box:1", 3, 0.75)]
    found = row(summary, "largest_share", metric="requests_by_worker")
    assert found is not None
    assert found.measured == 0.75
    assert evenness([1, 3]) == {"largest_share": 0.75, "max_over_mean": 1.5, "jain_index": 0.8}


def test_idle_workers_count_for_evenness(tmp_path: Path) -> None:
    """Three of four workers serve 6, 3 and 3 requests, one none: by hand 0.5, 2.0 and 12^2 / (4 * 54)."""
    requests = [Request(worker=f"box:{worker}") for worker in [1] * 6 + [2] * 3 + [3] * 3]
    variants = [VariantRecord(name="one", workers=4, settings={})]

    make_run(tmp_path, {"one": requests}, variants=variants)
    server = trial_folder(tmp_path, "one", "mix", 1) / "server-1.before.txt"
    server.write_text(observation(served=dict.fromkeys(range(1, 5), 0)))
    server.with_name("server-1.after.txt").write_text(observation(served={1: 6, 2: 3, 3: 3, 4: 0}))

    summary = derive_summary(tmp_path)

    expected: dict[Statistic, float] = {"largest_share": 0.5, "max_over_mean": 2.0, "jain_index": 144 / 216}
    for stat, value in expected.items():
        found = row(summary, stat, metric="requests_by_worker")
        assert found is not None
        assert found.measured == pytest.approx(value)


def test_nothing_is_spread_unevenly() -> None:
    assert evenness([0, 0]) == {}


def test_connections_are_counted_beside_requests(tmp_path: Path) -> None:
    """Two connections bring 6 and 2 requests to one worker, one brings 2 to the other."""
    requests = [
        Request(worker=worker, connection=connection, sent_s=n / 10)
        for n, (worker, connection) in enumerate([("box:1", "a")] * 6 + [("box:1", "b")] * 2 + [("box:2", "c")] * 2)
    ]

    summary = derive_summary(make_run(tmp_path, {"one": requests}))

    assert [(one.worker, one.requests, one.connections) for one in summary.workers if one.request_class == "light"] == [
        ("box:2", 2, 1), ("box:1", 8, 2),
    ]  # fmt: skip
    by_connection = {one.stat: one.measured for one in summary.rows if one.metric == "requests_by_connection"}
    by_worker = {one.stat: one.measured for one in summary.rows if one.metric == "connections_by_worker"}
    assert by_connection == {"avg": pytest.approx(10 / 3), "max": 6}
    assert by_worker["largest_share"] == pytest.approx(2 / 3)
    assert by_worker["correlation"] == pytest.approx(1)


def test_a_server_that_cannot_tell_its_connections_has_none(tmp_path: Path) -> None:
    summary = derive_summary(make_run(tmp_path, {"one": HUNDRED}))

    assert row(summary, "avg", metric="requests_by_connection") is None
    assert row(summary, "largest_share", metric="connections_by_worker") is None


def test_a_closed_loop_loses_throughput_to_waiting(tmp_path: Path) -> None:
    """Two users ask for 100 ms ten times each; one waits as long again, so both together lose a third of their time."""
    patient = [Request(overhead_ms=0, sent_s=n * 0.1, user=1) for n in range(10)]
    waiting = [Request(overhead_ms=100, sent_s=n * 0.2, user=2) for n in range(10)]

    closed = derive_summary(make_run(tmp_path / "closed", {"one": patient + waiting}))
    loads = [LoadRecord(name="mix", script="mix.js", loop="open", duration="60s", settings={})]
    opened = derive_summary(make_run(tmp_path / "open", {"one": patient + waiting}, loads=loads))

    share = row(closed, "of_ideal", metric="throughput")
    assert share is not None
    assert share.measured == pytest.approx(2 / 3, abs=0.001)
    assert (share.unit, row(opened, "of_ideal", metric="throughput")) == ("share", None)


def test_what_servers_tell_of_themselves_is_of_all_requests(tmp_path: Path) -> None:
    """Four attempts for each of ten connections, 50 ms of processor for ten requests, memory as it was at the end."""
    ten = [Request(worker="box:7", sent_s=n / 10) for n in range(10)]
    folder = make_trial(make_run(tmp_path, {"one": ten}), "one", 1, ten)
    raced = {7: {"accept_attempts": 24, "accept_failures": 14, "accepted": 10}, 99: {"accept_attempts": 16,
             "accept_failures": 16, "accepted": 0}}  # fmt: skip
    none = {worker: dict.fromkeys(counts, 0) for worker, counts in raced.items()}
    (folder / "server-1.before.txt").write_text(observation(served={7: 0, 99: 0}, counts=none, processor_s=1))
    (folder / "server-1.after.txt").write_text(
        observation(served={7: 10, 99: 0}, counts=raced, processor_s=1.05, memory_mib=36)
    )
    (folder / "nginx-1.before.txt").write_text(observation("proxy", balanced=1, queued=1))
    (folder / "nginx-1.after.txt").write_text(observation("proxy", balanced=11, queued=4))

    summary = derive_summary(tmp_path)

    told = {
        (one.metric, one.stat): one.measured
        for one in summary.rows
        if one.request_class is None and one.metric in OF_ALL_REQUESTS
    }
    assert told == {
        ("accept_attempts", "per_connection"): 4, ("accept_failures", "per_connection"): 3,
        ("processor", "per_request"): pytest.approx(5), ("memory", "total"): 36, ("queued", "count"): 3,
    }  # fmt: skip
    assert [(one.worker, one.counts["accept_attempts"]) for one in summary.counters] == [("box:7", 24), ("box:99", 16)]


def test_published_figures_stand_beside_measured_ones(tmp_path: Path) -> None:
    published = [
        Published(variant="one", request_class="light", metric="overhead", stats={"p50": 292, "p99": 10550}),
        Published(variant="one", request_class="light", metric="requests_by_worker", counts=[113, 95, 132, 455]),
    ]

    summary = derive_summary(make_run(tmp_path, {"one": HUNDRED[:10]}, published=published))

    median, tail = row(summary, "p50"), row(summary, "p99")
    share = row(summary, "largest_share", metric="requests_by_worker")
    assert median is not None
    assert tail is not None
    assert share is not None
    assert (median.published, median.measured) == (292, 5.5)
    assert (tail.published, tail.measured, tail.predicted) == (10550, None, None)
    assert share.published == pytest.approx(455 / 795)


@pytest.mark.parametrize(
    ("bound", "verdict"),
    [
        ({"at_least": 98.99}, "reproduced"),
        ({"at_least": 99.01}, "not reproduced"),
        ({"at_most": 99.01}, "reproduced"),
        ({"at_most": 98.99}, "not reproduced"),
    ],
)
def test_a_verdict_follows_from_the_bound(tmp_path: Path, bound: dict[str, float], verdict: str) -> None:
    one = Claim.model_validate({"says": "the tail is so long", "value": p99(), **bound})

    [claim] = repeated(tmp_path, {"one": [99] * 5}, one).claims

    assert (claim.verdict, claim.reason) == (verdict, None)
    assert claim.measured == pytest.approx(99)


def test_a_claim_can_compare_two_variants(tmp_path: Path) -> None:
    one = Claim(says="twice as long", value=p99("two"), relative_to=p99("one"), at_least=1.9)

    [claim] = repeated(tmp_path, {"one": [10] * 5, "two": [20] * 5}, one).claims

    assert (claim.verdict, claim.unit) == ("reproduced", "ratio")
    assert claim.measured == pytest.approx(2)


def test_too_few_requests_leave_a_claim_undecided(tmp_path: Path) -> None:
    claims = [Claim(says="the tail is short", value=p99(), at_most=1e9)]

    [claim] = derive_summary(make_run(tmp_path, {"one": HUNDRED[:99]}, claims=claims)).claims

    assert (claim.verdict, claim.measured) == ("undecided", None)
    assert claim.reason == "p99 needs 100 requests a trial; there were 99 at most"


def test_failures_that_could_be_the_tail_leave_a_claim_undecided(tmp_path: Path) -> None:
    """One request in a hundred failed: had they been answered, they might have been the slowest hundredth."""
    claims = [Claim(says="the tail is short", value=p99(), at_most=1e9)]
    requests = HUNDRED * 10 + [Request(error="status 502")] * 11

    summary = derive_summary(make_run(tmp_path, {"one": requests}, claims=claims))

    assert (summary.claims[0].verdict, summary.claims[0].reason) == (
        "undecided", "1.1% of the requests failed, too many to leave out of p99",
    )  # fmt: skip
    assert row(summary, "p99") is None
    assert row(summary, "p95") is not None


def test_a_verdict_from_a_suspect_trial_says_so(tmp_path: Path) -> None:
    claims = [Claim(says="the tail is short", value=p99(), at_most=1e9)]
    make_run(tmp_path, {"one": HUNDRED}, claims=claims, times=5)
    make_trial(tmp_path, "one", 1, HUNDRED, busy_before=0.5)

    [claim] = derive_summary(tmp_path).claims

    assert (claim.verdict, claim.suspect) == ("reproduced", True)
    assert (claim.reason or "").startswith("suspect: the machine was 50% busy")


def test_a_percentile_that_one_trial_lacks_has_no_median(tmp_path: Path) -> None:
    """A closed loop sends fewer requests while they wait, so what is left of the trials would be the fast ones."""
    claims = [Claim(says="the tail is short", value=p99(), at_most=1e9)]
    make_run(tmp_path, {"one": HUNDRED}, trials=2, claims=claims)
    make_trial(tmp_path, "one", 2, HUNDRED[:50])

    summary = derive_summary(tmp_path)

    middle = row(summary, "p50")
    assert row(summary, "p99") is None
    assert middle is not None
    assert (middle.n, middle.trials) == (150, 2)
    assert (summary.claims[0].verdict, summary.claims[0].reason) == (
        "undecided", "p99 needs 100 requests a trial; one trial had 50",
    )  # fmt: skip
    assert "no p99 of light requests of any variant: it needs 100 in every trial, one trial had 50" in (
        summary.validity.reasons
    )


def test_text_with_brackets_is_printed_as_it_is(tmp_path: Path) -> None:
    """Rich would take [/work] for markup and stop, after the whole measurement."""
    claims = [Claim(says="the tail of [/work] is [even]", value=p99(), at_most=1e9)]
    run = make_run(tmp_path, {"one": HUNDRED}, claims=claims)
    console = Console(width=200, record=True, file=io.StringIO())

    print_tables(console, read_run(run), derive_summary(run))

    assert "the tail of [/work] is [even]" in console.export_text()


def test_an_invalid_trial_gives_no_number_and_no_verdict(tmp_path: Path) -> None:
    claims = [Claim(says="the tail is short", value=p99(), at_most=1e9)]
    make_run(tmp_path, {"one": HUNDRED}, claims=claims)
    make_trial(tmp_path, "one", 1, HUNDRED, outcome="failed", reason="k6 ended with exit code 107", k6_exit_code=107)

    summary = derive_summary(tmp_path)

    assert summary.rows == []
    assert [(claim.verdict, claim.reason) for claim in summary.claims] == [
        ("invalid", "one: failed: k6 ended with exit code 107")
    ]


def test_unreadable_points_make_the_trial_invalid_and_keep_the_others(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": HUNDRED, "two": HUNDRED})
    points = tmp_path / "one" / "mix" / "1" / "points.json.gz"
    points.write_bytes(points.read_bytes()[:300])

    summary = derive_summary(tmp_path)

    assert {"two"} == {one.variant for one in summary.rows}
    assert summary.validity.verdict == "invalid"
    reason = "one: invalid: one/mix/1/points.json.gz cannot be read: IO Error: Unexpected end of GZIP stream"
    assert summary.validity.reasons[0].startswith(reason)


def test_everything_derived_can_be_deleted_and_rebuilt(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": HUNDRED, "two": HUNDRED[:50]})
    derive(tmp_path)
    first = (tmp_path / "summary.json").read_bytes()
    derived = [tmp_path / "summary.json", tmp_path / "report.html", *tmp_path.rglob("requests.parquet")]
    assert len(derived) == 4
    for path in derived:
        path.unlink()

    derive(tmp_path)

    assert first == (tmp_path / "summary.json").read_bytes()
    assert all(path.exists() for path in derived)


def test_summary_json_keeps_its_keys(tmp_path: Path) -> None:
    """What other programs read: these keys stay, others may come."""
    claims = [Claim(says="the tail is short", value=p99(), at_most=1e9)]
    derive_summary(make_run(tmp_path, {"one": HUNDRED}, claims=claims))

    summary = json.loads((tmp_path / "summary.json").read_text())

    assert summary["schema"] == 2
    assert summary["experiment"] == "made-up"
    assert {"verdict", "reasons"} <= set(summary["validity"])
    row_keys = "variant load request_class metric stat unit published predicted measured low high n trials"
    assert set(row_keys.split()) <= set(summary["rows"][0])
    assert {"variant", "load", "trial", "request_class", "worker", "requests", "share"} <= set(summary["workers"][0])
    assert {"says", "verdict", "measured", "bound", "unit", "reason"} <= set(summary["claims"][0])


SPREAD = [80.0, 90.0, 100.0, 110.0, 125.0]


def repeated(folder: Path, p99s: dict[str, list[float]], claim: Claim | None = None, **changed: Any) -> Summary:
    """Return the summary of a run whose trials have these p99 of overhead."""
    values = {
        variant: [[Request(overhead_ms=p, sent_s=n / 10) for n in range(100)] for p in p99s[variant]]
        for variant in p99s
    }
    claims = changed.pop("claims", [claim] if claim else [])
    first = {variant: trials[0] for variant, trials in values.items()}
    make_run(folder, first, claims=claims, trials=max(map(len, p99s.values())), **changed)
    for variant, trials in values.items():
        for number, requests in enumerate(trials, start=1):
            make_trial(folder, variant, number, requests)
    return derive_summary(folder)


def test_trials_give_their_median_and_an_interval_around_it(tmp_path: Path) -> None:
    found = row(repeated(tmp_path, {"one": [10, 30, 20, 90, 15]}), "p99")

    assert found is not None
    assert (found.measured, found.low, found.high, found.trials) == pytest.approx((20, 10, 90, 5))


def test_one_trial_decides_nothing_and_says_what_would(tmp_path: Path) -> None:
    """The interval of one trial knows nothing of another start of the servers; a trial takes a minute."""
    claim = Claim(says="It waits", value=p99(), at_least=50)
    summary = repeated(tmp_path, {"one": [1000]}, claim, published=[near({"p99": 1000})])

    found = row(summary, "p99")
    assert found is not None
    assert (found.low, found.high) == (1000, 1000)
    assert "one trial of each variant: no claim is decided, because another start of the servers may differ" in (
        summary.validity.reasons
    )
    why = "one trial decides nothing; about 5 trials (5 min) would decide: TRIALS=5"
    [claimed], [published] = summary.claims, summary.published
    assert (claimed.verdict, claimed.measured, claimed.trials_needed, claimed.reason) == ("undecided", 1000, 5, why)
    assert (published.verdict, published.reason) == ("undecided", why)


@pytest.mark.parametrize(
    ("p99s", "reason"),
    [
        ([40, 90, 95, 100, 120], "about 10 trials (2 min) would decide: TRIALS=10"),
        ([40, 48, 51, 54, 60], "more than 100 trials would be needed"),
        ([80, 90], "about 3 trials (2 min) would decide: TRIALS=3"),
    ],
)
def test_what_is_undecided_says_how_many_trials_would_decide(tmp_path: Path, p99s: list[float], reason: str) -> None:
    claim = Claim(says="It waits", value=p99(), at_least=50 if p99s[0] < 80 else 60)

    [found] = repeated(tmp_path, {"one": p99s}, claim).claims

    assert (found.verdict, found.reason) == ("undecided", f"the interval straddles the bound; {reason}")


@pytest.mark.parametrize(("cores", "verdict"), [(2, "undecided"), (4, "reproduced")])
def test_a_claim_that_needs_more_cores_stays_undecided(tmp_path: Path, cores: int, verdict: str) -> None:
    """More trials would not help, so none are advised."""
    claim = Claim(says="It waits", value=p99(), at_least=50, cores=4)

    [found] = repeated(tmp_path, {"one": [60.0] * 5}, claim, host=NOWHERE.model_copy(update={"cores": cores})).claims

    why = None if cores == 4 else "the claim needs 4 cores, and the servers had 2"
    assert (found.verdict, found.measured, found.reason) == (verdict, 60, why)
    assert (found.trials_needed is None) == (cores == 2)


def test_two_machines_of_two_cores_do_not_have_four(tmp_path: Path) -> None:
    """A process runs on one machine, so the cores of the smallest machine count. Machines for load do not count."""
    claim = Claim(says="It waits", value=p99(), at_least=50, cores=4)
    run = read_run(make_run(tmp_path, {"one": []}))

    def on(*machines: tuple[str, int]) -> Run:
        hosts = [(role, run.host.model_copy(update={"cores": cores})) for role, cores in machines]
        named = [RunMachine(name=f"bench-{place}", role=role, host=host) for place, (role, host) in enumerate(hosts)]
        return run.model_copy(update={"machines": named})

    assert missing_cores(claim, on(("servers", 2), ("servers", 8), ("load", 1))) == (
        "the claim needs 4 cores on one machine, and the servers had 2"
    )
    assert missing_cores(claim, on(("servers", 4), ("both", 8), ("load", 1))) is None


def test_few_trials_decide_if_they_agree_closely(tmp_path: Path) -> None:
    claim = Claim(says="It waits", value=p99(), at_least=50)

    [near_each_other] = repeated(tmp_path / "near", {"one": [100, 101]}, claim).claims
    [far_apart] = repeated(tmp_path / "far", {"one": [100, 160]}, claim).claims

    assert (near_each_other.verdict, far_apart.verdict) == ("reproduced", "undecided")


def test_who_looks_after_every_round_needs_more_agreement(tmp_path: Path) -> None:
    """Seven trials of which the second misses the bound: the bootstrap would suffice if they had been planned."""
    claim = Claim(says="It waits", value=p99(), at_least=50)
    seven = [60.0, 49.0, 60.0, 60.0, 60.0, 60.0, 60.0]

    [planned] = repeated(tmp_path / "planned", {"one": seven}, claim).claims
    [looked] = repeated(tmp_path / "looked", {"one": seven}, claim, until_decided=True).claims

    assert planned.verdict == "reproduced"
    assert looked.verdict == "undecided"
    assert (looked.reason or "").startswith("looking after every round needs more certainty; about 8 trials")
    [agreed] = repeated(tmp_path / "agreed", {"one": [60.0] * 5}, claim, until_decided=True).claims
    assert agreed.verdict == "reproduced"


def test_looking_at_a_ratio_compares_the_trials_of_each_round(tmp_path: Path) -> None:
    claim = Claim(says="One waits longer", value=p99("one"), relative_to=p99("two"), at_least=2)
    both = {"one": [50.0] * 5, "two": [10.0] * 5}

    [found] = repeated(tmp_path, both, claim, until_decided=True).claims

    assert found.verdict == "reproduced"


def test_a_verdict_uses_the_interval(tmp_path: Path) -> None:
    """The median alone, 100 ms, would keep the bound of the last claim."""
    claims = [Claim(says=f"It waits {bound}", value=p99(), at_least=bound) for bound in (79, 126, 99)]

    found = repeated(tmp_path, {"one": SPREAD}, claims=claims).claims

    assert [(one.verdict, one.reason) for one in found] == [
        ("reproduced", None),
        ("not reproduced", None),
        ("undecided", "the interval straddles the bound; more than 100 trials would be needed"),
    ]
    assert all((one.low, one.high) == pytest.approx((80, 125)) for one in found)


def test_a_ratio_has_an_interval_too(tmp_path: Path) -> None:
    claim = Claim(says="One waits longer", value=p99("one"), relative_to=p99("two"), at_least=2)

    [found] = repeated(tmp_path, {"one": [40, 45, 50, 55, 60], "two": [10, 12, 15, 18, 20]}, claim).claims

    assert found.verdict == "reproduced"
    assert (found.measured, found.low, found.high) == pytest.approx((50 / 15, 2.1, 5), rel=0.1)


def test_nothing_is_divided_by_zero(tmp_path: Path) -> None:
    claim = Claim(says="One waits longer", value=p99("one"), relative_to=p99("two"), at_least=2)

    [found] = repeated(tmp_path, {"one": [40], "two": [0]}, claim).claims

    assert (found.verdict, found.measured) == ("undecided", None)
    assert found.reason == "a trial of two has 0, by which nothing can be divided"


def near(stats: dict[Statistic, float], within: float = 0.25, variant: str = "one") -> Published:
    """Return a published row about the overhead of light requests that says how near is near enough."""
    return Published(variant=variant, request_class="light", metric="overhead", stats=stats, within=within)


def test_a_published_figure_is_reproduced_up_to_the_stated_share(tmp_path: Path) -> None:
    """Within a quarter: from the published figure divided by 1.25 to 1.25 times the figure, both included.

    An edge is within whatever the digits of its numbers.
    """
    measured = {"hundred": 100.0, "none": 0.0, "digits": 10.38, "more": 0.33, "share": 8.65 / 1.15}
    expected = [
        (100, 0.25, "hundred", "reproduced"), (80, 0.25, "hundred", "reproduced"),
        (79.99, 0.25, "hundred", "contradicted"), (125, 0.25, "hundred", "reproduced"),
        (125.02, 0.25, "hundred", "contradicted"), (-100, 0.25, "hundred", "contradicted"),
        (100, 0.25, "none", "contradicted"),
        (8.65, 0.2, "digits", "reproduced"), (0.3, 0.1, "more", "reproduced"), (8.65, 0.15, "share", "reproduced"),
    ]  # fmt: skip
    published = [near({"p99": figure}, within, variant) for figure, within, variant, _ in expected]

    found = repeated(tmp_path, {name: [value] * 2 for name, value in measured.items()}, published=published).published

    assert [(row.variant, row.within, row.verdict, row.reason) for row in found] == [
        (variant, within, verdict, None) for _, within, variant, verdict in expected
    ]
    for row, (figure, _, variant, verdict) in zip(found, expected, strict=True):
        [one] = row.figures
        assert (row.load, row.request_class, row.metric) == ("mix", "light", "overhead")
        assert (one.stat, one.unit, one.published, one.verdict, one.trials) == ("p99", "ms", figure, verdict, 2)
        value = measured[variant]
        assert (one.measured, one.low, one.high, one.ratio) == pytest.approx((value, value, value, value / figure))


def test_a_published_figure_is_compared_with_the_whole_interval(tmp_path: Path) -> None:
    straddles = "the interval of p99 straddles an edge; "
    expected = [
        (100, 0.25, "reproduced", ""), (60, 0.25, "contradicted", ""), (200, 0.25, "contradicted", ""),
        (99, 0.25, "undecided", straddles), (101, 0.25, "undecided", straddles), (100, 0.05, "undecided", straddles),
    ]  # fmt: skip
    published = [near({"p99": figure}, within) for figure, within, *_ in expected]

    found = repeated(tmp_path, {"one": SPREAD}, published=published).published

    for row, (figure, _, verdict, reason) in zip(found, expected, strict=True):
        assert row.verdict == verdict
        assert (row.reason or "").startswith(reason)
        assert bool(row.reason) == bool(reason)
        [one] = row.figures
        assert one.verdict == verdict
        assert (one.measured, one.low, one.high) == pytest.approx((100, 80, 125))
        assert one.ratio == pytest.approx(100 / figure)


def test_a_published_row_is_as_good_as_its_worst_measured_figure(tmp_path: Path) -> None:
    """All take 50 ms; p99 needs a hundred, and all five trials together have 95."""
    published = [
        near({"p50": 50, "p10": 50}), near({"p50": 50, "p99": 99}), near({"p50": 100, "p99": 99, "p10": 50}),
        near({"p99": 99}),
    ]  # fmt: skip
    alike = [Request(overhead_ms=50)] * 19

    summary = derive_summary(make_run(tmp_path, {"one": alike}, published=published, times=5))

    too_few = "p99 needs 100 requests a trial; there were 19 at most"
    assert [(one.verdict, one.reason) for one in summary.published] == [
        ("reproduced", None), ("reproduced", too_few), ("contradicted", too_few),
        ("not measured in a short run", too_few),
    ]  # fmt: skip
    figures = {one.stat: one for one in summary.published[2].figures}
    assert {stat: one.verdict for stat, one in figures.items()} == {
        "p50": "contradicted", "p99": "not measured in a short run", "p10": "reproduced",
    }  # fmt: skip
    assert (figures["p99"].measured, figures["p99"].ratio) == (None, None)


def test_a_published_row_of_an_invalid_trial_is_invalid(tmp_path: Path) -> None:
    make_run(tmp_path, {"one": HUNDRED}, published=[near({"p50": 50, "p99": 99})])
    make_trial(tmp_path, "one", 1, HUNDRED, outcome="failed", reason="k6 ended with exit code 107", k6_exit_code=107)

    [found] = derive_summary(tmp_path).published

    assert (found.verdict, found.reason) == ("invalid", "one: failed: k6 ended with exit code 107")
    assert [(one.verdict, one.measured) for one in found.figures] == [("invalid", None)] * 2


def test_a_published_row_of_a_suspect_trial_says_so(tmp_path: Path) -> None:
    """The other variant was measured in peace, and its row says nothing."""
    published = [near({"p50": 50}), near({"p50": 50}, variant="two")]
    alike = [Request(overhead_ms=50)] * 99
    make_run(tmp_path, {"one": alike, "two": alike}, published=published, times=5)
    make_trial(tmp_path, "one", 1, alike, busy_before=0.5)

    rows = derive_summary(tmp_path).published

    assert [(one.variant, one.verdict, one.suspect) for one in rows] == [
        ("one", "reproduced", True),
        ("two", "reproduced", False),
    ]
    assert (rows[0].reason or "").startswith("suspect: the machine was 50% busy")
    assert rows[1].reason is None


def test_published_figures_without_a_tolerance_have_a_verdict_too(tmp_path: Path) -> None:
    """A row of a variant that was left out has none, and nothing but 0 reproduces a published 0."""
    published = [
        Published(variant="one", request_class="light", metric="overhead", stats={"p50": 50, "min": 0}),
        Published(variant="one", request_class="light", metric="failures", stats={"count": 0}),
        Published(variant="one", request_class="light", metric="requests_by_worker", counts=[1, 2]),
        near({"p50": 50}, variant="left-out"),
    ]

    summary = derive(make_run(tmp_path, {"one": [Request(overhead_ms=51)] * 100}, published=published, times=2))

    assert [(one.metric, one.within) for one in summary.published] == [
        ("overhead", 0.25), ("failures", 0.25), ("requests_by_worker", 0.25),
    ]  # fmt: skip
    verdicts = {(row.metric, one.stat): (one.verdict, one.ratio) for row in summary.published for one in row.figures}
    assert verdicts["overhead", "p50"][0] == "reproduced"
    assert verdicts["overhead", "p50"][1] == pytest.approx(1.02)
    assert verdicts["overhead", "min"] == ("contradicted", None)
    assert verdicts["failures", "count"] == ("reproduced", None)
    assert verdicts["requests_by_worker", "largest_share"][0] == "contradicted"
    assert "1 of 2 within 25 %; contradicted: min" in " ".join(printed(tmp_path, summary).split())


def printed(run: Path, summary: Summary) -> str:
    """Return what a terminal of 80 columns shows of a run."""
    out = io.StringIO()
    print_tables(Console(file=out, width=80), read_run(run), summary)
    return out.getvalue()


def test_a_long_name_breaks_before_a_number_does() -> None:
    """Ten columns of numbers leave eighteen characters for the name."""
    statistics = ["min", "avg", "stdev", "p50", "p75", "p90", "p99", "p99.9", "max"]
    row = ("a-variant-of-thirty-characters", "measured", *["12.3"] * len(statistics), "1234")
    out = io.StringIO()

    table = Table("Times", ("variant", "", *statistics, "n"), [row], words=2)
    Console(file=out, width=80).print(terminal_table(table))

    lines = [one.rstrip() for one in out.getvalue().splitlines()]
    assert max(map(len, lines)) <= 80
    assert "".join(one.split()[0] for one in lines[2:]) == row[0]
    assert lines[2].split()[1:] == ["measured", *["12.3"] * len(statistics), "1234"]


def test_quantities_of_several_trials_fit_80_columns_in_as_many_parts_as_it_takes(tmp_path: Path) -> None:
    """Intervals stand below the medians, and the columns are dealt evenly to the parts."""
    published = [near({"p50": 25, "p60": 20, "p80": 20000}, variant=name) for name in ("one", "two-with-a-long-name")]
    trials: dict[str, list[float]] = {
        "one": [10, 30, 20, 90, 15],
        "two-with-a-long-name": [11000, 31000, 21000, 91000, 15000],
    }

    text = printed(tmp_path, repeated(tmp_path, trials, published=published))

    lines = text[text.index("Overhead of light requests") : text.index("measured: the median")].splitlines()
    assert max(map(len, text.splitlines())) <= 80
    assert "\n".join(line.rstrip() for line in lines) == snapshot("""\
Overhead of light requests, ms
variant                                     min             p50    n
one                   published               –            25.0
                      measured             20.0            20.0  500
                                   10.0 to 90.0    10.0 to 90.0
two-with-a-long-name  published               –            25.0
                      measured            21000           21000  500
                                 11000 to 91000  11000 to 91000

Overhead of light requests, ms
variant                                     p60             p80    n
one                   published            20.0           20000
                      measured             20.0            20.0  500
                                   10.0 to 90.0    10.0 to 90.0
two-with-a-long-name  published            20.0           20000
                      measured            21000           21000  500
                                 11000 to 91000  11000 to 91000

Overhead of light requests, ms
variant                                    p90             p99    n
one                   measured            20.0            20.0  500
                                  10.0 to 90.0    10.0 to 90.0
two-with-a-long-name  measured           21000           21000  500
                                11000 to 91000  11000 to 91000\
""")


def test_what_has_no_figure_has_no_row_and_no_column() -> None:
    """The column n says how many requests there were, and a variant without a figure may have had some."""
    table = Table(
        "Times", ("variant", "", "p50", "p99", "max", "n"), words=2,
        rows=[("one", "published", "–", "–", "9", ""), ("one", "measured", "1", "–", "–", "12"),
              ("two", "measured", "–", "–", "–", "3")],
    )  # fmt: skip

    found = table.without_gaps()

    assert found.head == ["variant", "", "p50", "max", "n"]
    assert found.rows == [["one", "published", "–", "9", ""], ["one", "measured", "1", "–", "12"]]
    assert found.words == 2


def test_a_table_names_the_variants_of_which_nothing_was_measured(tmp_path: Path) -> None:
    failed = [Request(error="refused") for _ in range(10)]
    derive(make_run(tmp_path, {"one": HUNDRED, "two": failed, "three": failed}))

    table = next(quantity_tables(read_run(tmp_path), derive_summary(tmp_path)))

    assert {row[0] for row in table.rows} == {"one"}
    assert table.note == "nothing was measured of two and three"


def test_a_reason_that_all_claims_share_is_said_once_below_the_table(tmp_path: Path) -> None:
    claims = [Claim(says=says, value=p99("one"), at_most=1e9) for says in ("it is fast", "it is quick")]
    run = make_run(tmp_path, {"one": HUNDRED}, claims=claims)
    summary = derive_summary(run)

    table = claims_table(read_run(run), summary)

    assert [row[1] for row in table.rows] == ["it is fast", "it is quick"]
    assert table.note.startswith(
        "one trial decides nothing; about 5 trials (5 min) would decide: TRIALS=5; reproduced:"
    )
    assert markdown(read_run(run), summary).count("ne trial decides nothing; about 5") == 1


def test_published_figures_are_judged_in_a_table_of_80_columns(tmp_path: Path) -> None:
    """The medians of five trials are 10 to 90 ms, the middle one 20, and all requests of a trial take as long."""
    published = [
        near({"p50": 25, "p99": 20}, within=9),
        near({"p50": 4, "p90": 0.1, "p99": 5000, "max": 20}),
        near({"p50": 20, "p99.9": 20}, within=0.155),
    ]

    text = printed(tmp_path, repeated(tmp_path, {"one": [10, 30, 20, 90, 15]}, published=published))

    lines = text[text.index("Published figures") :].splitlines()
    assert max(map(len, lines)) <= 80
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


def test_a_published_row_names_its_load_where_there_are_several(tmp_path: Path) -> None:
    loads = [LoadRecord(name=name, script="mix.js", duration="60s", settings={}) for name in ("mix", "rush")]
    published = [
        Published(
            variant="one", load="mix", request_class="light", metric="response_time", stats={"p50": 150}, within=0.1
        ),
        Published(variant="one", load="rush", metric="memory", stats={"total": 30}, within=0.1),
    ]

    alike = [Request(overhead_ms=50)] * 20
    summary = derive_summary(make_run(tmp_path, {"one": alike}, published=published, loads=loads, times=5))

    run = read_run(tmp_path)
    assert [(published_quantity(run, one), one.verdict, figures_phrase(one)) for one in summary.published] == [
        ("one, mix: response time of light requests", "reproduced", "1 of 1 within 10 %"),
        ("one, rush: memory", "invalid", "0 of 1 within 10 %; invalid: total"),
    ]


def test_only_a_contradiction_is_red(tmp_path: Path) -> None:
    published = [near({"p50": 50.5}), near({"p50": 1}), near({"p99.9": 1}, within=9)]
    summary = repeated(tmp_path, {"one": [50] * 5}, published=published)
    console = Console(width=80, record=True, file=io.StringIO(), force_terminal=True, color_system="standard")

    print_tables(console, read_run(tmp_path), summary)

    text = console.export_text(styles=True)
    assert "\x1b[32mreproduced" in text
    assert "\x1b[31mcontradicted" in text
    assert "\x1b[2mnot measured" in text
    assert text.count("\x1b[31m") == 1


def test_a_percentile_that_no_sample_carries_is_named(tmp_path: Path) -> None:
    summary = derive_summary(make_run(tmp_path, {"one": HUNDRED, "two": HUNDRED[:99]}))

    assert "no p99 of light requests of two: it needs 100 a trial, there were 99 at most" in summary.validity.reasons


def test_a_variant_against_itself_shows_the_smallest_difference(tmp_path: Path) -> None:
    summary = repeated(tmp_path, {"a": [10, 12, 14], "b": [10, 13, 19]})
    write_report(tmp_path, summary)

    [found] = [
        one for one in summary.differences if (one.request_class, one.metric, one.stat) == ("light", "overhead", "p99")
    ]

    reach = 4.303 * sqrt((4 + 21) / 3)  # Student's, for variances of 4 and 21
    assert (found.a, found.b, found.low, found.high) == pytest.approx((12, 13, 1 - reach, 1 + reach), rel=1e-3)
    assert found.smallest == pytest.approx(1 + reach, rel=1e-3)
    assert (found.unit, found.trials) == ("ms", 3)
    assert "The smallest difference that this machine can tell" in printed(tmp_path, summary)
    assert "The smallest difference that this machine can tell" in (tmp_path / "report.html").read_text()


def test_different_variants_have_no_such_difference(tmp_path: Path) -> None:
    variants = [VariantRecord(name=name, workers=2, settings={"threads": name}) for name in ("a", "b")]

    assert repeated(tmp_path, {"a": [10, 12], "b": [10, 13]}, variants=variants).differences == []


def test_a_verdict_from_a_suspect_trial_is_never_plainly_green_or_red(tmp_path: Path) -> None:
    """On the terminal, in Markdown and in the report; the verdict beside it rests on a valid trial."""
    claims = [
        claim
        for variant in ("one", "two")
        for claim in (
            Claim(says=f"{variant} is fast", value=p99(variant), at_most=1e9),
            Claim(says=f"{variant} is slow", value=p99(variant), at_least=1e9),
        )
    ]
    variants = [VariantRecord(name=name, workers=2, settings={"threads": name}) for name in ("one", "two")]
    run = make_run(tmp_path, {"one": HUNDRED, "two": HUNDRED}, claims=claims, times=5, variants=variants)
    make_trial(tmp_path, "one", 1, HUNDRED, busy_before=0.5)
    summary = derive(run)
    console = Console(width=80, record=True, file=io.StringIO(), force_terminal=True, color_system="standard")
    green, red, yellow = (f"\x1b[{colour}m" for colour in (32, 31, 33))

    console.print(terminal_table(claims_table(read_run(run), summary)))

    said = console.export_text(styles=True)
    assert said.count(f"{yellow}reproduced,") == said.count(f"{yellow}not reproduced,") == 1
    assert (said.count(green), said.count(red)) == (1, 1)
    told = markdown(read_run(run), summary)
    assert [told.count(f"| {one} |") for one in ("reproduced, suspect", "not reproduced, suspect", "reproduced")] == [
        1,
        1,
        1,
    ]
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.count('<td class="verdict suspect">') == 2
    assert '<td class="verdict suspect">not reproduced, suspect</td>' in page
    assert page.count('<td class="verdict reproduced">reproduced</td>') == 1


def test_workers_of_several_trials_are_counted_in_all_of_them(tmp_path: Path) -> None:
    """Whoever was the busiest: 3 and 1 requests, then 2 and 4, are 2 and 4 on average, rounded to whole requests."""
    trials = [[Request(worker=f"box:{worker}") for worker in workers] for workers in ("7778", "778888")]
    make_run(tmp_path, {"one": trials[0]}, trials=2)
    make_trial(tmp_path, "one", 2, trials[1])
    summary = derive_summary(tmp_path)

    assert counts_by_worker([one for one in summary.workers if one.request_class], 3) == [0, 2, 4]
    [table] = workers_tables(read_run(tmp_path), summary)
    assert table.title == "Requests by worker, least first, mean of 2 trials"
