"""stampede.evaluate.metrics.rates: up to which rate hardly any request is late, when the rate climbs in steps."""

import pytest
from inline_snapshot import snapshot

from stampede.evaluate.metrics import rates, servers
from stampede.evaluate.metrics.rates import highest_rate
from stampede.evaluate.read.observation import SENT, WRITTEN
from stampede.evaluate.verdict.validity import judge_trial
from stampede.experiment.loads.script import WrongSetting
from stampede.experiment.loads.scripts import K6_SCRIPTS
from stampede.predict.system import system_of
from stampede.records.claims import Claim, Quantity
from stampede.records.run import ContainerLog, LoadRecord, Queueing, Seconds, VariantRecord
from stampede.records.traffic import TRAFFIC, climbing_rates_rps
from stampede.report.wording import claim_subject, metric_phrase
from stampede.theory.model import Recorded
from tests.in_memory import changed, measure, trial_of
from tests.synthetic import Request, observation

ASKED = {"first_rps": 10, "last_rps": 40, "steps": 3, "users_max": 12, "late_ms": 100, "late_share": 0.1}
"""10, 20 and 40 requests/s; a step fails if a tenth of its requests is late."""
CLIMBING = LoadRecord(
    name="mix",
    script="steps.js",
    loop="open",
    duration="3s",
    settings={name.upper(): str(value) for name, value in ASKED.items()} | {"DOES": "wait", "DELAY_S": "0.1"},
)


TEN = [Request(sent_s=place) for place in range(10)]


def climbing(*late: int, error: str | None = None) -> list[Request]:
    """Return the requests of steps of a second, of which the first so many are late, by overhead or with an error."""
    return [
        Request(overhead_ms=100, sent_s=sent_s)
        if number >= count
        else Request(overhead_ms=5 if error else 101, error=error, sent_s=sent_s)
        for step, (rate, count) in enumerate(zip((10, 20, 40), late, strict=True))
        for number in range(rate)
        for sent_s in [step + number / rate]
    ]


def rate_within(requests: list[Request], load: LoadRecord = CLIMBING) -> float | None:
    return measure(requests, rates.FAMILY, load=load).get((None, "rate_within", "per_second"))


@pytest.mark.parametrize(
    ("late", "rate"),
    [
        ((0, 0, 0), None),  # more than was tried
        ((0, 1, 4), 20),
        ((0, 2, 0), 10),  # a later step that is good again does not count
        ((1, 0, 0), 0),
        ((0, 1, 3), None),
    ],
)
def test_the_rate_is_that_of_the_last_step_before_too_many_requests_were_late(
    late: tuple[int, int, int], rate: float | None
) -> None:
    assert rate_within(climbing(*late)) == rate


def test_the_rate_is_named_as_people_name_it() -> None:
    quantity = Quantity(variant="one", load="mix", metric="rate_within", stat="per_second")

    assert metric_phrase("rate_within", None) == "highest rate"
    assert claim_subject(Claim(says="It is high", value=quantity, at_least=1)) == "The highest rate in one under mix"


def test_a_request_that_failed_is_late() -> None:
    assert rate_within(climbing(0, 2, 4, error="status 502")) == 10


def test_a_load_without_a_bound_of_lateness_has_no_rate() -> None:
    steady = CLIMBING.model_copy(update={"script": "arrivals.js", "settings": {"RATE_RPS": "10"}})

    assert rate_within(climbing(0, 2, 4), steady) is None


def test_a_step_in_which_nothing_was_sent_shows_no_rate() -> None:
    assert highest_rate([(10, 1, 0), (20, 1, 1)], 0.1) == 10
    assert highest_rate([(10, 1, 0), (20, 0, 0)], 0.1) is None


def test_what_k6_drops_beyond_the_rate_is_a_note() -> None:
    """All of its users wait only if requests are late already."""
    trial = judge_trial(changed(trial_of(climbing(0, 2, 40), load=CLIMBING), raw={"dropped": 9}))

    assert "the load generator dropped 9 iterations, 11.4% of what it should have sent" in trial.notes


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"last_rps": 10}, snapshot("10 must be above first_rps, which is 10")),
        (
            {"users_max": 7},
            snapshot("7 users cannot show that requests are late at last_rps, 40 requests/s; it takes 40 x 0.2 s = 8"),
        ),
    ],
)
def test_settings_that_cannot_show_a_rate_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(WrongSetting) as caught:
        K6_SCRIPTS["steps.js"].check("steps.js", {**ASKED, "does": "wait", "delay_s": 0.1, **wrong}, generators=1)

    assert str(caught.value) == message


def test_k6_gets_the_rates_of_the_steps_which_share_the_duration() -> None:
    steps = K6_SCRIPTS["steps.js"]

    assert steps.derived_environment({**ASKED, "does": "wait", "delay_s": 0.1}, "9s") == {
        "GRACE_S": "60", "RATES_RPS": "10,20,40", "STEP_LASTS_S": "3", "ASKS": "/?delay=0.1", "ASKED_MS": "100",
    }  # fmt: skip
    assert "ASKS" not in steps.derived_environment(
        {**ASKED, "does": "compute", "rounds": 1, "wait_ms": 1, "cpu_ms": 1}, "9s"
    )  # what a request that computes asks for, the calibration finds out
    assert climbing_rates_rps({"first_rps": 10, "last_rps": 11, "steps": 2}) == [10, 11]


def test_theory_sends_the_requests_of_each_step_evenly() -> None:
    """10, 20 and 40 requests in the first, second and third second."""
    traffic = TRAFFIC["steps.js"]({**ASKED, "does": "wait", "delay_s": 0.1})
    settings = {"server": "gunicorn-gthread", "workers": 4, "threads": 2}
    queueing = Queueing(threads=2, max_connections=1000)
    variant = VariantRecord(name="one", workers=4, accept="shared", queueing=queueing, settings=settings)

    [one] = system_of(variant, CLIMBING.model_copy(update={"traffic": traffic})).classes

    assert isinstance(one.arrivals, Recorded)
    assert [int(((one.arrivals.sent >= at) & (one.arrivals.sent < at + 1)).sum()) for at in range(3)] == [10, 20, 40]


def test_how_long_a_limit_stopped_the_servers_is_a_share_of_the_load() -> None:
    """Three of thirty seconds."""
    before, after = ({"server-1": observation(served={7: count, 8: 0}, throttled_s=throttled_s)}
                     for count, throttled_s in ((0, 2), (10, 5)))  # fmt: skip

    found = measure(TEN, servers.FAMILY, before=before, after=after, seconds=Seconds(load=30))

    assert found[None, "throttled", "share"] == 0.1


@pytest.mark.parametrize(
    ("logs", "of_each"),
    [
        ([ContainerLog(kept=1500, before=500)], 100),
        ([ContainerLog(kept=10, before=500)], 0),
        ([ContainerLog(kept=400, before=0, cut=True)], 290),  # 5,000 written, without 2,100 that were sent
        ([ContainerLog(kept=9000, before=0, cut=True)], 900),
    ],
)
def test_what_servers_print_is_counted_by_the_engine_or_by_the_kernel(logs: list[ContainerLog], of_each: float) -> None:
    """If the beginning of a log is gone, what processes wrote counts, without what they sent; at least what is left."""
    seen = [observation(served={7: count, 8: 0}) + f"==> {WRITTEN} <==\n/proc/7/io wchar: {written}\n"
            f"==> {SENT} <==\n  eth0: 1 0 0 0 0 0 0 0 {sent}\n"
            for count, written, sent in ((0, 1000, 100), (10, 6000, 2200))]  # fmt: skip
    before, after = ({"server-1": text} for text in seen)

    found = measure(TEN, servers.FAMILY, before=before, after=after, logs={"server-1": logs[0]})

    assert found[None, "output", "per_request"] == of_each


def test_what_monitoring_saw_counts_from_before_the_load() -> None:
    """Two containers together: 5 of 50 looks found a connection that waited, and 30 of 120 threads were busy."""
    names = "samples", "backlog", "busy", "threads", "known", "avoidable"
    before = dict.fromkeys(("one", "two"), (10, 2, 4, 40, 3, 1))
    after = {"one": (35, 5, 24, 100, 8, 1), "two": (35, 4, 14, 100, 8, 4)}
    seen = [
        {f"server-{name}": observation(name, {7: served}, signals=dict(zip(names, counts, strict=True)))
         for name, counts in told.items()}
        for served, told in ((0, before), (5, after))
    ]  # fmt: skip

    found = measure(TEN, servers.FAMILY, before=seen[0], after=seen[1])

    assert [found[None, "signals", stat] for stat in ("backlog", "busy", "waits")] == [5 / 50, 30 / 120, 3 / 10]
