"""theory against another simulator, where this takes long."""

from collections.abc import Generator

import numpy as np
import pytest
import simpy

from stampede.theory.model import Class, Closed, Constant, QueueingSystem, Servers, Uniform, WorkStep
from stampede.theory.simulate import simulate
from tests.quick.test_theory import waits


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
