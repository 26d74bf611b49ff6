"""theory against another simulator, where this takes long."""

from collections.abc import Generator

import ciw
import numpy as np
import pytest
import simpy

from stampede.theory.model import Class, Closed, Constant, Open, QueueingSystem, Servers, Uniform, WorkStep
from stampede.theory.simulate import simulate
from tests.quick.test_theory import one_class, waits


@pytest.mark.parametrize("shared", [False, True])
def test_simpy_agrees(shared: bool) -> None:
    """heavy-mix with a socket for each worker, and with one queue for all threads."""
    environment = simpy.Environment()
    workers = [simpy.Resource(environment, capacity=8 if shared else 2) for _ in range(1 if shared else 4)]
    chance = np.random.default_rng(1)
    theirs: list[float] = []

    def user(light: bool) -> Generator[simpy.Event]:
        while True:
            sent, worker = environment.now, workers[chance.integers(len(workers))]
            with worker.request() as thread:
                yield thread
                if light:
                    theirs.append(environment.now - sent)
                yield environment.timeout(chance.uniform(0, 1) if light else 10)

    for light in [True] * 5 + [False] * 2:
        environment.process(user(light))
    environment.run(until=10_000)
    light_class = Class("light", Closed(5), [WorkStep(Uniform(0, 1))])
    heavy_class = Class("heavy", Closed(2), [WorkStep(Constant(10.0))])
    servers = Servers(threads=8) if shared else Servers(sockets=4, threads=2)
    rows = simulate(QueueingSystem(servers, [light_class, heavy_class]), 100_000, 1)
    ours = waits(rows)[rows.of_class == 0]

    assert len(ours) / 100_000 == pytest.approx(len(theirs) / 10_000, rel=0.02)
    assert (ours > 0).mean() == pytest.approx((np.array(theirs) > 0).mean(), abs=0.01)
    assert ours.mean() == pytest.approx(np.mean(theirs), rel=0.08)


def test_ciw_agrees() -> None:
    """Uniform times before three threads, which no formula knows exactly."""
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=2.4)],
        service_distributions=[ciw.dists.Uniform(lower=0.0, upper=2.0)],
        number_of_servers=[3],
    )
    ciw.seed(1)
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(8_000)
    theirs = np.array([one.waiting_time for one in simulation.get_all_records()])
    ours = waits(simulate(one_class(Open(2.4), Uniform(0, 2), threads=3), 300_000, 1))

    assert ours.mean() == pytest.approx(theirs.mean(), rel=0.06)
    assert (ours > 0).mean() == pytest.approx((theirs > 0).mean(), rel=0.03)
    assert np.quantile(ours, 0.9) == pytest.approx(np.quantile(theirs, 0.9), rel=0.06)
