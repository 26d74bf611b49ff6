"""The simulator agrees with what queueing theory knows exactly."""

from math import inf
from pathlib import Path

import numpy as np
import pytest

from stampede.theory import model as models
from stampede.theory import must_compile
from stampede.theory.events import Rows
from stampede.theory.model import Bursts, Class, Closed, Constant, Exponential, Open, QueueingSystem, Servers, WorkStep
from stampede.theory.simulate import simulate, simulate_in_chunks
from tests import formulas


def one_class(
    arrivals: Closed | Open | Bursts | models.Recorded, *steps: WorkStep | models.Distribution, **servers: object
) -> QueueingSystem:
    """Return a model of one class of requests."""
    made = [step if isinstance(step, WorkStep) else WorkStep(step) for step in steps]
    return QueueingSystem(Servers(**servers), [Class("work", arrivals, made)])  # type: ignore[arg-type]


def waits(rows: Rows) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return rows.began - rows.sent


@pytest.mark.parametrize(("threads", "rate"), [(1, 0.7), (4, 3.2), (16, 14.0)])
def test_mmc(threads: int, rate: float) -> None:
    rows = simulate(one_class(Open(rate), Exponential(1.0), threads=threads), 400_000 / rate, 1)

    assert waits(rows).mean() == pytest.approx(formulas.mmc_wait(rate, 1.0, threads), rel=0.05)
    longer = formulas.mmc_waits_longer(rate, 1.0, threads, 0.5)
    assert (waits(rows) > 0.5).mean() == pytest.approx(longer, rel=0.05)


def test_a_mixture_of_classes_is_one_mg1_queue() -> None:
    mean, square = formulas.of_mixture([0.2, 2.0], [0.75, 0.25])
    model = QueueingSystem(
        Servers(), [Class(name, Open(rate), [WorkStep(Exponential(takes))]) for name, rate, takes in
                    (("light", 0.75, 0.2), ("heavy", 0.25, 2.0))]
    )  # fmt: skip
    rows = simulate(model, 500_000, 3)

    assert waits(rows).mean() == pytest.approx(formulas.mg1_wait(1.0, mean, square), rel=0.05)


def test_threads_that_compute_share_their_lock() -> None:
    """With turns that are short beside the work, the lock is processor sharing: the response grows with the work."""
    model = one_class(Open(0.6), WorkStep(models.Uniform(0.0, 2.0), does="compute"), threads=None, switch=0.01)
    rows = simulate(model, 40_000, 4)

    for work in (0.5, 1.0, 1.5):
        like = abs(rows.asked - work) < 0.1
        response = (rows.ended - rows.sent)[like].mean()
        assert response == pytest.approx(formulas.sharing_response(0.6, 1.0, work), rel=0.06)


def test_the_lock_is_handed_over_after_the_switch_interval() -> None:
    """Two requests of 20 ms: the second gets the lock after 5 ms, and both take turns."""
    rows = simulate(one_class(Bursts(2, 10.0), WorkStep(Constant(0.020), does="compute"), threads=2), 1, 1)
    assert sorted(rows.ended) == pytest.approx([0.035, 0.040])

    loop = simulate(
        one_class(Bursts(2, 10.0), WorkStep(Constant(0.020), does="compute"), threads=None, loop=True), 1, 1
    )
    assert sorted(loop.ended) == pytest.approx([0.020, 0.040])


@pytest.mark.parametrize("takes", [Exponential(0.1), Constant(0.1), models.Uniform(0.0, 0.2)])
def test_processes_share_cores_equally(takes: models.Distribution) -> None:
    """Processor sharing: the mean depends on the mean of the work alone, and is that of M/M/c for one or more cores."""
    for cores, rate in ((1, 6.0), (2, 15.0)):
        free = {"workers": 64, "max_connections": 1}
        rows = simulate(one_class(Open(rate), WorkStep(takes, "compute"), cores=cores, **free), 60_000 / rate, 1)

        expected = 0.1 + formulas.mmc_wait(rate, 0.1, cores)
        if cores == 1 or isinstance(takes, Exponential):  # with several cores, only nearly
            assert (rows.ended - rows.sent).mean() == pytest.approx(expected, rel=0.05)


def test_a_quota_stops_a_container_until_the_next_period() -> None:
    """Each period of 0.1 s, two processes run for 0.05 s each, and then stand still."""
    work = WorkStep(Constant(0.2), "compute")
    one = one_class(Bursts(1, 9), WorkStep(Constant(1.0), "compute"), quota=0.5)
    two = one_class(Bursts(2, 9), work, workers=2, max_connections=1, cores=2, quota=1.0)
    four = one_class(Bursts(4, 9), work, workers=4, max_connections=1, quota=1.0, containers=2)

    assert simulate(one, 1, 1).ended == pytest.approx([1.95])
    assert simulate(two, 1, 1).ended == pytest.approx([0.35] * 2)
    assert simulate(four, 1, 1).ended == pytest.approx([0.35] * 4)


def test_only_who_computes_needs_a_core() -> None:
    """A request that calls has the event loop for itself, but no core."""
    for does, ended in (("call", [0.2, 0.2]), ("compute", [0.395, 0.4]), ("wait", [0.2, 0.2])):
        step = WorkStep(Constant(0.2), does)  # type: ignore[arg-type]
        system = one_class(Bursts(2, 9), step, sockets=2, balance="turns", threads=None, loop=True, cores=1)
        assert simulate(system, 1, 1).ended == pytest.approx(ended)


def test_a_device_gives_each_call_a_slice_of_time() -> None:
    """Two calls of a second to one device take two seconds each; on an event loop, one after the other."""
    call = WorkStep(Constant(1.0), does="call")
    servers = Servers(threads=2)
    shared = simulate(QueueingSystem(servers, [Class("call", Bursts(2, 9.0), [call])], one_device=True), 1, 1)
    assert shared.ended.tolist() == pytest.approx([1.99, 2.0], abs=0.011)

    blocked = simulate(one_class(Bursts(2, 9.0), call, threads=None, loop=True), 1, 1)
    assert sorted(blocked.ended) == pytest.approx([1.0, 2.0])
    alone = simulate(one_class(Bursts(2, 9.0), call, threads=2), 1, 1)
    assert alone.ended.tolist() == pytest.approx([1.0, 1.0])


def test_calls_take_longer_during_a_stall() -> None:
    call = WorkStep(Constant(0.1), does="call", stalls=models.Stalls(first=5.0, every=20.0, lasts=5.0, takes=3.0))
    rows = simulate(one_class(Open(1.0, regular=True), call, threads=9), 40, 1)

    stalled = [5 <= sent % 20 < 10 for sent in rows.sent]
    assert (rows.ended - rows.sent).tolist() == pytest.approx([3.0 if one else 0.1 for one in stalled])
    assert set(rows.asked) == {0.1}


@pytest.mark.parametrize("threads", [1, 3])
def test_machine_repair(threads: int) -> None:
    rows = simulate(one_class(Closed(6, Exponential(2.0)), Exponential(1.0), threads=threads), 100_000, 5)

    assert len(rows.sent) / 100_000 == pytest.approx(formulas.repair_throughput(6, 2.0, 1.0, threads), rel=0.02)


def test_two_visits_to_the_pool_take_two_turns() -> None:
    """Ten requests need the only thread twice: all first visits are served before the second visits."""
    steps = WorkStep(Constant(1.0)), WorkStep(Constant(0.1), queues=True)
    rows = simulate(one_class(Bursts(10, 100.0), *steps, threads=1), 1, 1)

    assert sorted(rows.began) == pytest.approx(range(10))
    assert sorted(rows.ended) == pytest.approx([10.1 + 0.1 * place for place in range(10)])


def shares(rows: Rows, workers: int) -> list[float]:
    return [float(count) / len(rows.worker) for count in np.bincount(rows.worker, minlength=workers)]


def test_shares_of_each_way_to_choose() -> None:
    def of(**servers: object) -> list[float]:
        return shares(simulate(one_class(Open(100.0), Constant(0.001), **servers), 1000, 6), 4)

    assert of(sockets=4, balance="hash") == pytest.approx([0.25] * 4, abs=0.01)
    assert of(sockets=4, balance="turns") == pytest.approx([0.25] * 4, abs=0.0001)
    assert of(workers=4) == pytest.approx([0.25] * 4, abs=0.01)
    assert of(workers=4, bias=0.5) == pytest.approx([8 / 15, 4 / 15, 2 / 15, 1 / 15], abs=0.01)


def test_who_accepts_while_busy() -> None:
    """Three of four workers work for an hour. Who gets the next requests?"""

    def waiting(**servers: object) -> int:
        occupied = Class("hour", models.Recorded(np.array([0.0, 0.1, 0.2])), [WorkStep(Constant(3600.0))])
        next_ones = Class("next", Open(1.0, regular=True), [WorkStep(Constant(0.1))])
        model = QueueingSystem(Servers(**{"threads": 1} | servers), [occupied, next_ones])  # type: ignore[arg-type]
        rows = simulate(model, 1000, 8)
        return int((waits(rows)[rows.of_class == 1] > 0.5).sum())

    assert waiting(sockets=4, balance="hash") > 500
    assert waiting(workers=4) > 500
    for nobody in (
        {"workers": 4, "max_connections": 1},
        {"workers": 4, "hesitates": True},
        {"sockets": 4, "balance": "least"},
    ):
        assert waiting(**nobody) == 0, nobody
    assert 0 < waiting(sockets=4, balance="two") < waiting(sockets=4, balance="hash")
    assert waiting(sockets=4, balance="turns", max_per_socket=1) == 0


def test_a_full_server_refuses_unless_the_balancer_queues() -> None:
    burst = Bursts(5, 100.0)
    queued = simulate(one_class(burst, Constant(1.0), max_per_socket=2, threads=2), 1, 1)
    refused = simulate(one_class(burst, Constant(1.0), max_per_socket=2, threads=2, queues=False), 1, 1)

    assert sorted(queued.ended) == pytest.approx([1, 1, 2, 2, 3])
    assert sorted(refused.worker) == [-1, -1, -1, 0, 0]


def test_connections_that_are_kept_stay_at_their_worker() -> None:
    rows = simulate(one_class(Closed(20, Constant(0.5), keeps=True), Constant(0.1), workers=4, threads=2), 60, 9)

    for user in range(20):
        assert len(set(rows.worker[rows.user == user])) == 1


def test_a_kept_connection_counts_while_nobody_asks() -> None:
    """Two workers accept one connection each, and there are three users: the third is never served."""
    kept = one_class(Closed(3, Constant(1.0), keeps=True), Constant(0.1), workers=2, max_connections=1)

    assert len(set(simulate(kept, 60, 9).user)) == 2


def test_a_request_takes_the_connection_that_was_used_last() -> None:
    """One user at a time needs one connection, and two users at once need two, however many workers race for them."""
    alone = one_class(Closed(1, Constant(0.5)), Constant(0.1), workers=4, threads=2, idle_kept=16)
    both = one_class(Closed(2), Constant(0.1), workers=16, threads=2, idle_kept=16)
    apart = one_class(Closed(2), Constant(0.1), workers=16, threads=2)

    assert len({int(simulate(alone, 60, seed).worker[0]) for seed in range(20)}) > 1
    for seed in range(20):
        assert len(set(simulate(alone, 60, seed).worker)) == 1
        assert len(set(simulate(both, 60, seed).worker)) <= 2
    assert len(set(simulate(apart, 60, 0).worker)) == 16


def test_a_balancer_keeps_no_more_connections_than_it_may() -> None:
    """Two of three connections find room when they fall idle; the third is opened anew, and each worker gets some."""
    rows = simulate(one_class(Closed(3, Exponential(0.1)), Exponential(0.1), workers=8, threads=3, idle_kept=2), 600, 4)

    assert len(set(rows.worker)) == 8
    assert waits(rows).max() == 0


def test_workers_that_close_idle_connections_let_nobody_wait_beside_a_free_thread() -> None:
    """Eight threads for seven users, so one is always free: kept connections make light requests wait for heavy."""

    def waiting(**more: object) -> float:
        servers = Servers(workers=4, threads=2, idle_kept=16, **more)  # type: ignore[arg-type]
        light = Class("light", Closed(5), [WorkStep(models.Uniform(0.0, 1.0))])
        heavy = Class("heavy", Closed(2), [WorkStep(Constant(10.0))])
        system = QueueingSystem(servers, [light, heavy])
        return max(float((waits(simulate(system, 120, seed)) > 0).mean()) for seed in range(5))

    assert waiting() > 0.05
    assert waiting(max_connections=2, closes_idle_when_full=True) == 0
    closing = {"max_connections": 2, "idle_kept": 16, "closes_idle_when_full": True}
    alone = simulate(one_class(Closed(1, Constant(0.5)), Constant(0.1), workers=4, threads=2, **closing), 60, 3)
    assert len(set(alone.worker)) == 1, "while they have time, they keep their connections"


def test_recorded_requests_are_replayed() -> None:
    sent, works = np.array([0.0, 0.5, 0.6]), np.array([1.0, 0.2, 0.3])
    model = QueueingSystem(Servers(), [Class("log", models.Recorded(sent), [WorkStep(Constant(0.0))], works)])
    rows = simulate(model, 10, 1)

    assert rows.sent.tolist() == sent.tolist()
    assert rows.ended.tolist() == pytest.approx([1.0, 1.2, 1.5])
    given = simulate(one_class(Open(5.0), models.Given(works), threads=9), 100, 1)
    assert set(given.asked) == set(works)


def test_the_same_seed_gives_the_same_bits() -> None:
    model = one_class(Closed(30), models.Uniform(0, 1), workers=8, threads=4, bias=0.2)
    one, same, other = (simulate(model, 60, seed) for seed in (1, 1, 2))

    assert all((a == b).all() for a, b in zip(one, same, strict=True))
    assert len(one.sent) != len(other.sent) or (one.ended != other.ended).any()


def test_what_grows_grows_without_losing_a_request() -> None:
    """More requests at once than the simulator has room for at first, and more than one chunk of them."""
    model = one_class(Open(50_000.0, regular=True), Constant(1.0), threads=None)
    found = list(simulate_in_chunks(model, 4, 1))

    assert len(found) > 1
    assert sum(len(rows.sent) for rows in found) == 200_000
    assert max(rows.ended.max() for rows in found) == pytest.approx(5, abs=0.001)


def test_the_published_row_of_reuse_port() -> None:
    """heavy-mix's article measured a socket for each worker once, for 5 min; chance makes a run in 20 differ."""
    light = Class("light", Closed(5), [WorkStep(models.Uniform(0, 1))])
    heavy = Class("heavy", Closed(2), [WorkStep(Constant(10.0))])
    model = QueueingSystem(Servers(sockets=4, balance="hash", threads=2), [light, heavy])
    drawn = []
    for seed in range(200):
        rows = simulate(model, 300, seed)
        drawn.append(np.percentile(1000 * waits(rows)[rows.of_class == 0], [60, 80, 90, 99]))
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)

    for published, least, most in zip([81, 680, 1110, 8020], low, high, strict=True):
        assert least <= published <= most


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: one_class(Open(5.0), Constant(1.0), threads=4),
         "the open loops keep 5 threads busy, and there are 4: the queue grows for ever"),
        (lambda: one_class(Open(5.0), WorkStep(Constant(1.0), does="compute"), threads=None, workers=3),
         "the open loops keep 5 interpreter locks busy, and there are 3"),
        (lambda: Open(0.0), "the rate of an open loop is 0 requests/s; it must be above 0"),
        (lambda: Closed(0), "users of a closed loop: 0 is too few; there must be at least 1"),
        (lambda: one_class(Closed(2), Constant(0.0)), "class work neither works nor pauses"),
        (lambda: Bursts(5, 0.0), "the time between bursts is 0 s; it must be above 0"),
        (lambda: Constant(-1.0), "a constant time is -1 s; it must be at least 0"),
        (lambda: models.Uniform(2.0, 1.0), "the longest time, 1 s, is below the shortest, 2 s"),
        (lambda: Exponential(inf), "the mean of exponential times is inf s; it must be at least 0"),
        (lambda: models.Given(np.empty(0)), "measured times: there are none; at least one is needed"),
        (lambda: models.Recorded(np.array([0.0, 2.0, 1.0])), "time 2 is before time 1"),
        (lambda: Class("log", models.Recorded(np.array([0.0])), [WorkStep(Constant(1.0))], np.empty(0)),
         "class log has 0 recorded times of work for 1 requests"),
        (lambda: Class("light", Open(1.0), []), "class light has no steps; a request needs at least one"),
        (lambda: QueueingSystem(Servers(), []), "the model has no class of requests; at least one is needed"),
        (lambda: Servers(workers=0), "workers: 0 is too few; there must be at least 1"),
        (lambda: Servers(sockets=2, balance="least", idle_kept=4), "4 kept connections: only one balancer"),
        (lambda: Servers(balancers=2, idle_kept=4), "4 kept connections: only one balancer"),
        (lambda: Servers(balancers=2, max_per_socket=1), "several balancers with a limit and a queue each"),
        (lambda: Servers(bias=1.0), "the bias of the race is 1; it must be at least 0 and below 1"),
        (lambda: one_class(Open(5.0), WorkStep(Constant(1.0), does="compute"), threads=None, workers=8, quota=2.0),
         "the open loops keep 5 cores busy, and there are 2"),
        (lambda: Servers(workers=4, containers=3), "3 containers cannot share 4 workers equally"),
        (lambda: Servers(quota=0.0), "the quota of a container is 0 cores; it must be above 0"),
        (lambda: Servers(switch=0.0), "the lock is handed over after 0 s; the time must be above 0"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_be_simulated_says_why(make: object, says: str) -> None:
    with pytest.raises(models.WrongModel) as refused:
        make()  # type: ignore[operator]
    assert says in str(refused.value)


def test_requests_are_on_their_way() -> None:
    """A user who never waits needs the work and the transit for each request."""
    model = QueueingSystem(Servers(), [Class("one", Closed(1), [WorkStep(Constant(0.09))])], transit=0.01)
    rows = simulate(model, 9.995, 1)

    assert len(rows.sent) == 100
    assert (rows.ended - rows.sent).tolist() == pytest.approx([0.1] * 100)


def test_requests_occupy_the_machine_one_after_the_other() -> None:
    """Nobody asked for this time, and the workers share it."""
    steps = WorkStep(Constant(0.01), "occupy"), WorkStep(Constant(1.0))
    rows = simulate(one_class(Bursts(10, 100.0), *steps, sockets=5, balance="turns", threads=None), 1, 1)

    assert sorted(rows.ended) == pytest.approx([1.01 + 0.01 * place for place in range(10)])
    assert set(rows.asked) == {1.0}


def test_a_regular_load_is_as_irregular_as_its_jitter() -> None:
    rows = simulate(one_class(Open(10.0, regular=True, jitter=0.02), Constant(0.01)), 100, 1)

    late = rows.sent - np.arange(len(rows.sent)) / 10
    assert len(rows.sent) == 1000
    assert 0 <= late.min() < 0.001
    assert 0.019 < late.max() <= 0.02


def test_balancers_know_only_their_own_requests() -> None:
    """The more balancers there are, the less each of them knows, and the nearer its choice is to chance."""

    def waiting(**servers: object) -> float:
        return float(waits(simulate(one_class(Open(16.0), Exponential(1.0), sockets=20, **servers), 20_000, 1)).mean())

    one, several, many = (waiting(balance="least", balancers=count) for count in (1, 5, 1000))
    assert one < several < many
    assert many == pytest.approx(waiting(balance="hash"), rel=0.1)
    assert waiting(balance="turns", balancers=1) < waiting(balance="turns", balancers=5)


def test_the_first_simulation_after_an_installation_compiles(tmp_path: Path) -> None:
    assert must_compile(tmp_path)

    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "events.advance-1.py311.nbi").touch()

    assert not must_compile(tmp_path)
