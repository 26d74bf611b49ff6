"""stampede.run.trial: what becomes of the trials of a batch when they fail, and what happens under the load."""

import ast
import asyncio
import shutil
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from stampede import interruption
from stampede.docker.client import DockerError, Machine
from stampede.docker.cluster.engines import Engines, UsageUnderLoad
from stampede.docker.containers import PROJECT, SERVICE, ContainerInfo
from stampede.errors import LabError
from stampede.experiment.model import Durations, Load
from stampede.interruption import interrupt
from stampede.paths import ROOT
from stampede.plan import Plan, PlannedTrial, timing
from stampede.records.run import TODAY, USER_SERVICE, TrialRecord
from stampede.run.trial import batch, replacing
from stampede.run.trial import trial as trial_module
from stampede.run.trial.reasons import TrialFailed, memory_limit_reason
from stampede.run.trial.replacing import replace_workers, restart_replicas
from stampede.run.trial.trial import Trial
from stampede.servers.gunicorn import GunicornSync
from tests.conftest import PATIENCE_S, wait_until
from tests.told import Told


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """Heed SIGINT as the command line does."""
    previous = signal.signal(signal.SIGINT, interrupt)
    yield
    signal.signal(signal.SIGINT, previous)
    interruption._signals.clear()


def planned(name: str = "one", settings: Mapping[str, float] = {}) -> PlannedTrial:  # never changed
    load = Load(classes={"user": {"users": 1}}, duration=Durations(short="1s", full="1s"))
    variant = GunicornSync(server="gunicorn-sync", workers=2, replicas=2, **settings)
    return PlannedTrial(name, variant, "users", load, "1s", 1)


def trial_with(folder: Path, services: dict[str, str], machine: Machine, **settings: float) -> Trial:
    trial = Trial(planned(settings=settings), folder, 1, Engines((machine,)))
    trial.part.mkdir(parents=True)
    trial.containers = [ContainerInfo(name, of, f"{of}-{name}", machine) for name, of in services.items()]
    return trial


def event(action: str, container: str, service: str, exit_code: int = 0) -> dict[str, Any]:
    attributes = {SERVICE: service, PROJECT: "stampede-p", "exitCode": str(exit_code)}
    return {"Action": action, "Actor": {"ID": container, "Attributes": attributes}}


def test_what_sets_the_memory_of_somebody_s_own_service_is_named_as_in_its_file() -> None:
    classes = '{"home": {"path": "/", "users": 1}}'
    asked = {"script": USER_SERVICE, "settings": {"classes": classes}, "duration": {"short": "1s", "full": "1s"}}
    labs, own = planned(), replace(planned(), load=Load.model_validate(asked))

    said = [memory_limit_reason(trial, trial.variant.service, 512) for trial in (labs, own)]

    assert ["the variant's memory_mib" in one for one in said] == [True, False]
    assert said[1].endswith("its limit of 512 MiB, which served.memory_mib sets")


class Batches:
    """Batches of trials without containers. Each step notes itself, and does what ``does`` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.folder = folder
        self.steps: list[str] = []
        self.does: dict[str, Callable[[Trial], Awaitable[object]]] = {}
        self.busy: Callable[[], float] = lambda: 0.0
        self.removing: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0)
        self.removed, self.left = 0, set[str]()
        for name in ("start", "calibrate", "observe_before", "send_load", "collect"):
            monkeypatch.setattr(Trial, name, self._step(name))
        self.engine = Told()
        monkeypatch.setattr(Trial, "_there", lambda _: self._there())
        monkeypatch.setattr(Trial, "save", lambda trial, *_: self._save(trial))
        monkeypatch.setattr(batch, "busy_share", lambda _: self.busy())
        monkeypatch.setattr(batch, "remove_projects", self._remove)
        monkeypatch.setattr(batch, "ask_for_each_class", self._ask)
        monkeypatch.setattr(timing, "generators_up_s", lambda *_: 0.0)

    def _step(self, name: str) -> Callable[..., Awaitable[None]]:
        async def step(trial: Trial, *_: object) -> None:
            self.steps.append(name)
            if name == "start":
                trial.composed = [None]  # type: ignore[list-item]  # as if there were containers
                (trial.part).mkdir(parents=True)
                (trial.part / "points.json").touch()
            if does := self.does.get(name):
                await does(trial)

        return step

    async def _ask(self, trial: Trial, say: Callable[[str], None]) -> None:
        say("a redirect")
        await self._step("ask")(trial)

    async def _there(self) -> list[ContainerInfo]:
        return [ContainerInfo("1", "gunicorn", "gunicorn-1", self.engine)]

    async def _remove(self, *_: object) -> set[str]:
        await self.removing()
        self.removed += 1
        return self.left

    def _save(self, trial: Trial) -> TrialRecord:
        said = (trial.reason or "").partition(" at 2")[0]
        self.steps.append(f"{trial.planned.variant_name} {trial.outcome}: {said}")
        return cast("TrialRecord", None)

    def check(self, *names: str) -> list[str]:
        """Check somebody's own application, whose ways to be served have these names, and return what is said."""
        said: list[str] = []
        trials = tuple(planned(name) for name in names)
        batch.check(Plan((trials,), 1, 0), self.folder / "mine" / "run", lambda *_: None, Engines(()), said.append)
        return said

    def measure(self, *names: str, times: int = 1) -> list[str]:
        """Measure batches that are all the same, and return what was done before their containers were removed."""
        trials = tuple(planned(name) for name in names or ("one",))
        plan = Plan((trials,) * times, 1, 0)
        try:
            for _ in batch.measure_plan(plan, self.folder, lambda *_: None, Engines(())):  # none tells of an event
                shutil.rmtree(self.folder / "one", ignore_errors=True)
        finally:
            assert self.removed == times
        return self.steps


def act(*what: Exception | signal.Signals) -> Callable[[Trial], Awaitable[None]]:
    """Return a step in which signals come, or which raises an error."""

    async def step(_: Trial) -> None:
        for each in what:
            if isinstance(each, Exception):
                raise each
            signal.raise_signal(each)

    return step


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Batches:
    """What measures batches that need no containers."""
    return Batches(monkeypatch, tmp_path)


STEPS = ["start", "observe_before", "send_load", "collect"]


def test_a_trial_that_fails_ends_alone_and_no_later_reason_counts(batches: Batches) -> None:
    async def start(trial: Trial) -> None:
        if trial.planned.variant_name == "one":
            trial.fail("the first reason")
            raise TrialFailed("a later reason")

    batches.does["start"] = start

    assert batches.measure("one", "two")[-2:] == ["one failed: the first reason", "two measured: "]
    assert batches.steps.count("send_load") == 1
    assert batches.engine.calls == [("container", "kill", "1")], "so that it does not disturb the other"


def test_whoever_ends_a_trial_cancels_the_step_that_it_is_in(batches: Batches) -> None:
    """The engine's events, short memory, a lost engine and a late load all end it so. The other trial goes on."""
    cleaned_up: list[str] = []

    async def load(trial: Trial) -> None:
        if trial.planned.variant_name == "one":
            asyncio.get_running_loop().call_soon(trial.fail, "the machine ran short of memory")
            try:
                await asyncio.sleep(PATIENCE_S)
            finally:
                await asyncio.sleep(0)
                cleaned_up.append("stopped")

    batches.does["send_load"] = load

    assert batches.measure("one", "two")[-2:] == ["one failed: the machine ran short of memory", "two measured: "]
    assert cleaned_up == ["stopped"]


def test_an_error_of_the_engine_fails_the_trial_with_its_last_line(batches: Batches) -> None:
    batches.does["observe_before"] = act(DockerError("a long story\nno such container"))

    assert batches.measure()[-1] == "one failed: the container engine stopped answering: no such container"


@pytest.mark.parametrize("step", ["send_load", "collect"])
def test_an_unexpected_error_is_raised_when_all_is_saved_and_undone(batches: Batches, step: str) -> None:
    batches.does[step] = act(ValueError("unexpected"))

    with pytest.raises(ValueError, match="unexpected"):
        batches.measure()

    assert batches.steps == [*STEPS, "one measured: "]


def test_a_batch_is_removed_while_the_next_one_starts_and_before_its_load(batches: Batches) -> None:
    started = asyncio.Event()

    async def start(_: Trial) -> None:
        if "one measured: " in batches.steps:
            started.set()

    async def removing() -> None:
        if not batches.removed:
            await started.wait()
            batches.steps.append("removed")

    batches.does["start"], batches.removing = start, removing

    assert batches.measure(times=2) == [*STEPS, "one measured: ", "start", "removed", *STEPS[1:], "one measured: "]


def test_an_engine_that_refuses_to_remove_containers_stops_the_run(batches: Batches) -> None:
    """They would disturb the next trials. What was measured is kept."""
    batches.left = {"stampede-some-project"}

    with pytest.raises(LabError, match="did not remove the containers of stampede-some-project"):
        batches.measure()

    assert batches.steps == [*STEPS, "one measured: "]


def test_an_interrupt_counts_more_than_an_engine_that_then_refuses_to_remove_containers(batches: Batches) -> None:
    """The run is interrupted, and not failed; what is left is removed at its end."""
    batches.left = {"stampede-some-project"}
    batches.does["collect"] = act(signal.SIGINT)

    interrupted(batches)


def interrupted(batches: Batches, *names: str) -> list[str]:
    with pytest.raises(KeyboardInterrupt):
        batches.measure(*names)
    return batches.steps


def test_an_interrupt_ends_a_step_and_what_was_measured_is_kept(batches: Batches) -> None:
    async def load(_: Trial) -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(PATIENCE_S)

    batches.does["send_load"] = load
    began = time.monotonic()

    assert interrupted(batches) == [*STEPS, "one interrupted: interrupted"]
    assert time.monotonic() - began < PATIENCE_S


def test_an_interrupt_between_trials_that_take_turns_begins_no_further_one(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Load, "computes", True)
    monkeypatch.setattr(timing, "calibrate_s", lambda _: 1.0)
    batches.does["calibrate"] = act(signal.SIGINT)

    assert interrupted(batches, "one", "two").count("calibrate") == 1


def test_a_trial_that_is_interrupted_just_before_its_step_does_not_begin_it(tmp_path: Path) -> None:
    trial = trial_with(tmp_path, {}, Told())
    began: list[Trial] = []

    async def step(trial: Trial) -> None:
        began.append(trial)

    async def choose() -> None:
        attempt = asyncio.create_task(trial.attempt(step, chosen=trial.outcome))
        trial.interrupt()
        await attempt

    asyncio.run(choose())

    assert (trial.outcome, began) == ("interrupted", [])


def test_an_interrupt_keeps_the_reason_of_a_trial_that_failed_before(batches: Batches) -> None:
    async def start(trial: Trial) -> None:
        if trial.planned.variant_name == "one":
            raise TrialFailed("no memory")

    batches.does |= {"start": start, "observe_before": act(signal.SIGINT)}

    assert interrupted(batches, "one", "two")[-2:] == ["one failed: no memory", "two interrupted: interrupted"]


@pytest.mark.parametrize("busy", [0.0, 1.0])
def test_an_interrupt_while_a_machine_settles_lets_no_load_begin(batches: Batches, busy: float) -> None:
    """Not even one that is ended at once: what starts up may have made a file of points."""

    def settle() -> float:
        signal.pthread_kill(MAIN, signal.SIGTERM)
        wait_until(lambda: interruption._signals)  # the main thread may take a moment to note the signal
        return busy

    previous = signal.signal(signal.SIGTERM, interrupt)
    batches.busy = settle

    steps = interrupted(batches)
    signal.signal(signal.SIGTERM, previous)

    assert steps == ["start", "observe_before", "collect", "one interrupted: interrupted"]


MAIN = threading.main_thread().ident or 0


def test_an_interrupt_names_the_unexpected_error_that_it_hides(batches: Batches) -> None:
    batches.does["send_load"] = act(signal.SIGINT, ValueError("unexpected"))

    with pytest.raises(KeyboardInterrupt) as caught:
        batches.measure()

    assert str(caught.value.__cause__) == "unexpected"


def test_an_interrupt_after_the_load_changes_nothing_that_was_measured(batches: Batches) -> None:
    batches.does["collect"] = act(signal.SIGINT)

    assert interrupted(batches) == [*STEPS, "one measured: "]


def test_an_application_that_answers_is_started_once_and_leaves_nothing(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many trials the run has, and wherever today's way is in their order."""
    monkeypatch.setattr(GunicornSync, "workload", object())
    assert batches.check("limit-2x2", TODAY, TODAY) == ["a redirect"]

    assert (batches.steps, batches.removed) == (["start", "ask"], 1)
    assert [path for path in batches.folder.rglob("*") if path.name.endswith(".part")] == []


def test_an_application_that_fails_stops_the_run_and_its_record_is_kept(
    batches: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(trial: Trial) -> None:
        raise trial.fail_with(LabError("GET /total is answered with status 500."))

    batches.does["ask"] = fail
    monkeypatch.setattr(GunicornSync, "workload", object())

    with pytest.raises(LabError, match="status 500"):
        batches.check(TODAY)

    assert batches.steps == ["start", "ask", "collect", f"{TODAY} failed: GET /total is answered with status 500"]
    assert batches.removed == 1


def test_an_experiment_of_the_lab_is_not_checked(batches: Batches) -> None:
    assert batches.check("one-process") == []
    assert batches.steps == []


def sent(trial: Trial, at: float = 0.0, within_s: float = PATIENCE_S, *meanwhile: Callable[[], object]) -> None:
    """Send the load of a trial, while something happens half-way."""

    async def load() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(trial.attempt(lambda of: of.send_load(at, within_s, UsageUnderLoad(Engines(())))))
            while meanwhile and not trial.loading:
                await asyncio.sleep(0.001)
            for each in meanwhile:
                found = each()
                if isinstance(found, Awaitable):
                    await found

    asyncio.run(load())


GENERATORS = {"1": "k6", "2": "k6-2"}


def test_all_generators_are_told_the_moment_at_which_the_load_begins(tmp_path: Path) -> None:
    told: list[str] = []

    def answer(words: tuple[str, ...]) -> None:
        if "start" in words:
            told.append((trial.part / "start.env").read_text())

    trial = trial_with(tmp_path, GENERATORS, Told(answers=answer))
    ends = [lambda n=n: trial.react_to(event("die", n, GENERATORS[n])) for n in GENERATORS]
    sent(trial, time.time() + 0.0449, PATIENCE_S, *ends)

    assert [words[-1] for words in trial.generators[0].machine.calls] == ["1", "2"]  # type: ignore[attr-defined]
    assert told == [f"START_AT_MS={1000 * (trial.load_at or 0):.0f}\n"] * 2


Ends = Callable[[Trial], object]
LOADS: dict[str, tuple[list[Ends], str | None, list[str]]] = {
    "its last generator ends": (
        [lambda of: of.react_to(event("die", "1", "k6")), lambda of: of.react_to(event("die", "2", "k6-2"))], None, [],
    ),
    "a server ends": (
        [lambda of: of.react_to(event("die", "3", "gunicorn", 137))],
        "gunicorn ended during the load with exit code 137", ["1", "2"],
    ),
    "memory runs out": (
        [lambda of: of.react_to(event("oom", "2", "k6-2"))],
        "k6-2 needed more memory than its limit of 0 MiB, which stampede/experiment/loads/script.py computes from "
        "users, the rate and the duration", ["1", "2"],
    ),
    "it is late": ([], "the load did not end within 0.3 s", ["1", "2"]),
    "the engine is lost, which is not asked for anything": (  # it would keep the lab waiting for a minute
        [lambda of: of.lose(of.engines.machines[0], "it has ended")],
        "the container engine stopped answering: it has ended", [],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("meanwhile", "reason", "stopped"), LOADS.values(), ids=LOADS)
def test_a_load_ends_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: list[Ends], reason: str | None, stopped: list[str]
) -> None:
    monkeypatch.setattr(Engines, "watch_memory", lambda _: lambda: None)
    machine = Told()
    trial = trial_with(tmp_path, {**GENERATORS, "3": "gunicorn"}, machine)

    sent(trial, time.time(), PATIENCE_S if meanwhile else 0.3, *(partial(ends, trial) for ends in meanwhile))

    assert (trial.reason, trial.loading) == (reason, set())
    assert [words[-1] for words in machine.calls if "stop" in words] == stopped


async def for_a_moment(work: Awaitable[None], machine: Told, calls: int) -> None:
    """Do work, and cancel it a moment after it has made so many calls, as the end of a load does."""
    task = asyncio.ensure_future(work)
    while not task.done() and len(machine.calls) < calls:
        await asyncio.sleep(0.001)
    await asyncio.wait([task], timeout=0.3)
    task.cancel()
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()


@pytest.mark.parametrize(("after_s", "got"), [(0.01, ["one", "two"]), (3600, [])])
def test_only_the_servers_get_hup_and_only_while_requests_come(tmp_path: Path, after_s: float, got: list[str]) -> None:
    machine = Told()
    services = {"one": "gunicorn", "two": "gunicorn", "balancer": "nginx", "load": "k6"}
    trial = trial_with(tmp_path, services, machine, hup_after_s=after_s)

    asyncio.run(for_a_moment(replace_workers(trial, time.time()), machine, len(got)))

    assert machine.calls == [("container", "kill", "--signal", "HUP", name) for name in got]


@pytest.mark.parametrize(
    ("pre_stop_s", "done"),
    [
        (0, ["SIGTERM one", "nginx: two", "wait for one", "nginx: one two",
             "SIGTERM two", "nginx: one", "wait for two", "nginx: one two"]),
        (0.04, ["nginx: two", "SIGTERM one", "wait for one", "nginx: one two",
                "nginx: one", "SIGTERM two", "wait for two", "nginx: one two"]),
    ],
)  # fmt: skip
def test_replicas_are_restarted_one_after_another_and_nginx_learns_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, pre_stop_s: float, done: list[str]
) -> None:
    said: list[str] = []

    def answer(words: tuple[str, ...]) -> bytes:
        _, name, *command = words
        if command[0] == "env":
            said.append("nginx: " + command[1].removeprefix("LAB_UPSTREAM=").replace(":8000", ""))
        elif "kill -TERM" in words[-1]:
            said.append(f"SIGTERM {name}")
        elif command[0] == "timeout":
            said.append(f"wait for {name}")
        return f"{name} fd00::2".encode()

    monkeypatch.setattr(replacing, "NGINX_LEARNS_AFTER_S", 0.02)
    services = {"one": "gunicorn", "two": "gunicorn", "balancer": "nginx"}
    trial = trial_with(tmp_path, services, Told(answers=answer), term_after_s=1, pre_stop_s=pre_stop_s)

    asyncio.run(restart_replicas(trial))

    assert said == done


def test_a_restart_that_pauses_ends_with_the_load(tmp_path: Path) -> None:
    """Nothing is said to the server or to nginx, and nobody waits for the rest of the pause."""
    machine = Told(answers=lambda words: b"address" if "hostname" in words else None)
    trial = trial_with(tmp_path, {"one": "gunicorn", "balancer": "nginx"}, machine, term_after_s=1, pre_stop_s=5)

    asyncio.run(for_a_moment(restart_replicas(trial), machine, 1))

    assert [words[2:] for words in machine.calls] == [("hostname", "-i")]


def test_what_tests_spoil_in_a_copy_of_the_lab_is_there() -> None:
    """A line that moves shows here, and not when containers have been started."""
    missing, found = [], 0
    for file in (ROOT / "tests").rglob("*.py"):
        for call in ast.walk(ast.parse(file.read_text())):
            match call:
                case ast.Call(
                    func=ast.Attribute(attr="edit"), args=[ast.Constant(str(path)), ast.Constant(str(old)), _]
                ):
                    found += 1
                    missing += [f"{file.name}: {old}"] if old not in (ROOT / path).read_text() else []

    assert found > 20
    assert missing == []


def test_machines_whose_images_came_to_differ_end_a_trial(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Somebody may build an image again on one of the machines while the run goes on."""
    machines = tuple(Told(name, shares_files=False, answers=lambda words: words[-1].encode()) for name in ("a", "b"))
    there = [ContainerInfo("", "gunicorn", "", each, image=f"sha256:{each.name}") for each in machines]

    async def nothing(*_: object, **__: object) -> None:
        pass

    async def containers(*_: object) -> list[ContainerInfo]:
        return there

    monkeypatch.setattr(trial_module, "compose", lambda *_: [])
    monkeypatch.setattr(trial_module, "create_network", nothing)
    monkeypatch.setattr(trial_module, "containers_of", containers)
    monkeypatch.setattr(trial_module, "bring_scripts", nothing)
    trial = Trial(planned(), tmp_path, 1, Engines(machines))

    asyncio.run(trial.attempt(Trial.start))

    assert (trial.outcome, trial.reason) == ("failed", "gunicorn has another image on a than on b")
