"""stampede/run/trial/calibration.py: ten milliseconds are ten milliseconds, whatever the machine adds to a call."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from stampede.docker.client import DockerError
from stampede.docker.cluster.engines import Engines
from stampede.docker.containers import ContainerInfo
from stampede.experiment.file import load_experiment
from stampede.experiment.model import Durations, Load
from stampede.experiment.variations import computing
from stampede.plan import lay_out
from stampede.records.run import Calibration
from stampede.run.trial import calibration
from stampede.run.trial.calibration import ALONE, TRIES, calibrated_request
from stampede.run.trial.trial import Trial
from tests.told import Told

LOAD = Load(
    classes={"work": {"users": 1, "takes_s": 0.1, "computes": 0.5, "rounds": 5}, "quick": {"users": 1}},
    duration=Durations(short="15s", full="20s"),
)
BURST = {"burst": 2, "every_s": 9, "does": "compute", "rounds": 5, "wait_ms": 10, "cpu_ms": 10}


class Machine:
    """A server whose calls and sleeps take longer than they ask for; its first request takes twice as long."""

    def __init__(self, late_us: float) -> None:
        self.late_us = late_us
        self.asked: list[str] = []

    def __call__(self, path: str) -> float:
        """Return how long it is at work, in ms."""
        self.asked.append(path)
        given = dict(parse_qsl(path.partition("?")[2]))
        per_call_us = float(given.get("call_us", 940)) + self.late_us
        calls = float(given["rounds"]) * float(given["cpu_ms"])
        took_ms = float(given["rounds"]) * (float(given["wait_ms"]) + 0.1) + calls * per_call_us / 1000
        return took_ms * (2 if len(self.asked) == 1 else 1)


def calibrate(load: Load, ask: Callable[[str], float]) -> Calibration:

    async def answer(path: str) -> float:
        return ask(path)

    return asyncio.run(calibration.calibrate(load, answer))


def loaded(cpu: str) -> Load:
    return LOAD.model_copy(update={"settings": LOAD.settings | {"cpu": cpu}})


@pytest.mark.parametrize("late_us", [0.0, 60.0, 250.0])
def test_calls_are_made_shorter_by_what_they_take_too_long(late_us: float) -> None:
    found = calibrate(loaded("hold"), Machine(late_us))

    assert (found.cpu, found.service_time_ms) == ("hold", 100)
    assert found.call_us == round(990 - late_us)
    assert found.alone_ms == pytest.approx([100] * ALONE, abs=0.05)


def test_what_was_found_out_is_what_the_script_asks_for() -> None:
    """A load of classes, and a script whose requests all compute."""
    work = "/work?rounds=5&wait_ms=10&cpu_ms=10&cpu="

    asks = json.loads(LOAD.derived_environment("15s")["PATHS"])["work"].format(wait_ms=10, cpu_ms=10)
    for cpu, how in (("hold", "&call_us=930"), ("burn", "")):
        machine, load = Machine(60.0), loaded(cpu)
        variables = calibrated_request(load, calibrate(load, machine))
        assert asks + variables["COMPUTING"] == machine.asked[-1] == f"{work}{cpu}{how}"

        burst = Load(script="burst.js", duration=LOAD.duration, settings=BURST)
        load = burst.model_copy(update={"settings": BURST | {"cpu": cpu}})
        assert calibrated_request(load, calibrate(load, machine)) == {"ASKS": f"{work}{cpu}{how}", "ASKED_MS": "100"}
        assert "ASKS" not in burst.derived_environment("15s")


def test_burning_is_only_looked_at() -> None:
    machine = Machine(60.0)

    found = calibrate(loaded("burn"), machine)

    assert (found.cpu, found.call_us, len(found.alone_ms)) == ("burn", None, ALONE)
    assert set(machine.asked) == {"/work?rounds=5&wait_ms=10&cpu_ms=10&cpu=burn"}


def test_a_machine_that_was_busy_at_first_is_looked_at_again() -> None:
    """Other programs made the first calls last longer, so the shortened calls would be too short."""
    machine = Machine(600.0)

    def ask(path: str) -> float:
        took_ms = machine(path)
        machine.late_us = 600.0 if len(machine.asked) < 1 + ALONE else 60.0
        return took_ms

    found = calibrate(loaded("hold"), ask)

    assert found.call_us == 930
    assert found.alone_ms == pytest.approx([100] * ALONE, abs=0.05)
    assert len(machine.asked) == 1 + 3 * ALONE


def test_a_request_that_asks_for_nothing_is_calibrated_once() -> None:
    nothing = BURST | {"cpu": "hold", "rounds": 1, "wait_ms": 0, "cpu_ms": 0}
    machine = Machine(60.0)

    found = calibrate(LOAD.model_copy(update={"settings": nothing}), machine)

    assert (found.call_us, found.service_time_ms) == (940, 0)
    assert found.holds()
    assert found.missed_ms > 0
    assert len(machine.asked) == 1 + 2 * ALONE


def test_the_nearest_of_several_calibrations_counts() -> None:
    """The machine is busy again and again, each time differently."""
    machine, late = Machine(600.0), iter([600.0, 60.0, 300.0, 140.0, 500.0])

    def ask(path: str) -> float:
        if len(machine.asked) % ALONE == 1:
            machine.late_us = next(late)
        return machine(path)

    found = calibrate(loaded("hold"), ask)

    times = [abs(ms - 100) for ms in found.alone_ms]
    assert max(times) < 20
    assert len(machine.asked) == 1 + (1 + TRIES) * ALONE


@pytest.mark.parametrize(("late_us", "call_us"), [(5000.0, 100.0), (-5000.0, 1500.0)])
def test_a_call_stays_within_bounds_on_a_machine_that_cannot(late_us: float, call_us: float) -> None:
    """The trial will be doubted, for a request alone does not take what it asks for."""
    found = calibrate(loaded("hold"), Machine(late_us))

    assert found.call_us == call_us
    assert abs(found.alone_ms[0] - 100) > 5


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DockerError("curl: (22) The requested URL returned error: 502\n", 22),
         "a single request before the load was not answered: curl: (22) The requested URL returned error: 502"),
        (KeyError("ended"), "a single request before the load got an answer that the lab cannot read: 'ended'"),
    ],
)  # fmt: skip
def test_a_request_alone_that_is_not_answered_fails_the_trial(tmp_path: Path, error: Exception, reason: str) -> None:
    """No container: how the balancer is asked is what fails."""
    trial = next(one for one in lay_out(computing(load_experiment("gil-sharing"), "hold")).trials)

    def answer(words: tuple[str, ...]) -> bytes:
        if "curl" in words:
            raise error
        return b""

    machine = Told(answers=answer)
    measured = Trial(trial, tmp_path, 1, Engines((machine,)))
    measured.containers = [ContainerInfo("1", "nginx", "nginx-1", machine)]

    asyncio.run(measured.attempt(Trial.calibrate))

    assert (measured.outcome, measured.reason) == ("failed", reason)
    assert measured.calibration is None


def test_long_requests_are_asked_twice_and_none_for_nothing() -> None:
    """The first request takes twice as long here, so the first correction is too large, and a second is needed."""
    machine = Machine(60.0)
    long = BURST | {"cpu": "hold", "rounds": 1, "wait_ms": 0, "cpu_ms": 1500}

    found = calibrate(LOAD.model_copy(update={"settings": long}), machine)

    assert len(machine.asked) == 6
    assert found.alone_ms == pytest.approx([1500] * 2, rel=0.01)
