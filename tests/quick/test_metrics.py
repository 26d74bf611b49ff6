"""stampede.evaluate.metrics: what is declared once is everywhere, and in the same words."""

import numpy as np

from stampede.evaluate.metrics import METRICS, OF_ALL_REQUESTS, STATISTICS, statistics_of, unit
from stampede.evaluate.metrics.by_class import FAILURE_FAMILY
from stampede.evaluate.metrics.families import FAMILIES
from stampede.evaluate.metrics.metric import TIMES, Metric
from stampede.evaluate.read.requests import simulated_requests
from stampede.records.run import ContainerLog, LoadRecord, Seconds, VariantRecord
from stampede.records.traffic import Traffic, TrafficClass
from stampede.report.wording import metric_phrase, whole_number
from stampede.theory.events import Rows
from tests.in_memory import measure
from tests.synthetic import BEGAN, Request, observation, visit


def test_every_statistic_says_how_it_is_counted() -> None:
    for metric in METRICS.values():
        assert [stat for how, stats in metric.explained() if how for stat in stats] == list(metric.units) != []
        assert {*metric.comparable} <= {*metric.units}


def test_a_new_metric_that_is_always_shown_is_compared_by_its_first_statistic() -> None:
    assert Metric("made_up", {"max": "ms", "count": "stalls"}, "how long", shown="always").comparable == ("max",)
    assert Metric("made_up", TIMES, "how long", shown="always").comparable == ("p50", "p90", "p99")
    assert Metric("made_up", {"max": "ms"}, "how long").comparable == ()


def test_units_and_statistics_follow_from_the_declarations() -> None:
    assert STATISTICS["throughput"] == ("per_second", "of_ideal")
    assert [unit("throughput", stat) for stat in STATISTICS["throughput"]] == ["requests/s", "share"]
    assert {metric for metric, _ in statistics_of("light")} == set(METRICS) - set(OF_ALL_REQUESTS) != set(METRICS)
    assert {metric for metric, _ in statistics_of(None)} == set(METRICS)


def test_titles_and_whole_numbers_follow_from_the_declarations() -> None:
    assert metric_phrase("overhead", "light") == "overhead of light requests"
    assert metric_phrase("overhead", None) == "overhead of all requests"
    assert metric_phrase("avoidable_wait", "light") == "avoidable waits of light requests"
    assert metric_phrase("database_connections", None) == "database connections"
    assert [str(whole_number(unit, 3.0)) for unit in ("requests", "visits", "connections", "ms", "share")] == [
        "3", "3", "3", "3.0", "3.0",
    ]  # fmt: skip


def test_failures_in_a_row_are_of_one_class_in_the_order_of_sending() -> None:
    """Probes fail, succeed, fail, fail, succeed; a failure of another class between two failures does not count."""
    probes = [
        Request(error=error, request_class="probe", sent_s=n) for n, error in enumerate(("a", None, "a", "a", None))
    ]
    users = [Request(error="status 502", request_class="user", sent_s=2.5), Request(request_class="user", sent_s=9)]

    found = measure([*probes, *users], FAILURE_FAMILY)

    assert {name: found[name, "failures", "in_a_row"] for name in ("probe", "user", None)} == {
        "probe": 2, "user": 1, None: 3,
    }  # fmt: skip


def test_a_simulated_request_fails_if_its_sender_gives_up_before() -> None:
    asks = {"user": TrafficClass(users=1, work=[]), "probe": TrafficClass(per_second=1, patience_s=1, work=[])}
    load = LoadRecord(name="mix", script="probe.js", duration="9s", settings={}, traffic=Traffic(classes=asks))
    sent, ended = np.array([0.0, 0, 1, 2, 3]), np.array([5.0, 0.5, 2.5, 3.5, 3.1])
    of_class, zeros = np.array([0, 1, 1, 1, 1]), np.zeros(5)
    variant = VariantRecord(name="one", workers=1, settings={})
    rows = Rows(of_class, of_class, of_class * 0, of_class * 0, sent, sent, ended, zeros)
    requests = simulated_requests(load, ["user", "probe"], rows)

    found = {values.request_class: values.stats for values in FAILURE_FAMILY.measure(requests, variant, load)}

    assert requests.answered.tolist() == [True, True, False, False, True]
    assert found["probe"] == {"share": 0.5, "count": 2, "in_a_row": 2}
    assert found["user"]["count"] == 0


def test_families_measure_what_is_declared_and_nothing_else() -> None:
    """A trial of everything at once: a load that climbs, in bursts and visits, and servers that tell all they can."""
    requests = [
        Request(n, request_class=("light", "heavy")[n % 2], connection=f"{n % 3}", sent_s=n / 9) for n in range(40)
    ]
    requests += [Request(error="status 502"), *visit("0", 5), *visit("1", 6, error="status 503")]
    climbs = {"BURST": 4, "FIRST_RPS": 1, "LAST_RPS": 2, "STEPS": 2, "LATE_MS": 1, "LATE_SHARE": 0.1,
              "FIRST_PER_S": 1, "LAST_PER_S": 2, "STEP_S": 1}  # fmt: skip
    settings = {name: str(value) for name, value in climbs.items()}
    counters, signals = ("accepted", "accept_attempts", "accept_failures"), ("samples", "backlog", "threads", "known")
    before, after = (
        {"server-1": observation(served={7: count}, counts={7: dict.fromkeys(counters, count)},
                                 signals=dict.fromkeys(signals, count)),
         "api-1": observation("api", stalls=[(BEGAN.timestamp() + 1, BEGAN.timestamp() + 2)] if count else []),
         "database-1": observation("store", rows=[], database={"connections_max": 1})}
        for count in (0, 40)
    )  # fmt: skip

    found = measure(
        requests,
        *FAMILIES,
        variant=VariantRecord(name="one", workers=2, settings={"threads": 2}),
        load=LoadRecord(name="mix", script="mix.js", kind="burst", duration="6s", settings=settings),
        before=before,
        after=after,
        seconds=Seconds(load=6),
        logs={"server-1": ContainerLog(kept=9)},
    )

    assert {key[1:] for key in found} <= {*statistics_of(None)}
    assert {metric for _, metric, _ in found} == {*METRICS}
