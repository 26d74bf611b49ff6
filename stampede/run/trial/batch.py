"""Measure trials side by side, each in its own Compose project and network.

No load starts before all containers of the batch are up and the machine is quiet. No container is removed before all
loads have ended. Whatever happens, the containers are removed and the measured files are kept in the run's folder.
"""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from stampede.docker.client import DockerError, Machine
from stampede.docker.cluster.engines import Engines, UsageUnderLoad
from stampede.docker.cluster.probe import MachineLost
from stampede.docker.commands import Say
from stampede.docker.containers import OWNER_LABEL, PROJECT, owner
from stampede.docker.leftovers import remove_projects
from stampede.docker.machine_usage import QUIET, QUIET_WITHIN_S, Progress, Quiet, busy_share
from stampede.errors import LabError
from stampede.interruption import uninterrupted, was_stopped
from stampede.plan import Plan, PlannedTrial, timing
from stampede.records.run import TODAY, USER_SERVICE, TrialRecord
from stampede.records.traffic import in_seconds
from stampede.run.trial.checking import ask_for_each_class, log_in
from stampede.run.trial.trial import AT_ONCE, Trial
from stampede.typed import typed

K6_SLACK_S = 60
LOOK_EVERY_S = 0.25
CHECK_MEMORY_EVERY_S = 1
ASKED_WITHIN_S = 0.3
"""How long it takes to ask an engine to remove containers."""
ASK_EVERY_S = 20
"""How often an engine is asked whether it is still there: one that is frozen says nothing by itself."""


def measure_plan(
    plan: Plan, run_folder: Path, progress: Progress, engines: Engines
) -> Generator[list[TrialRecord], None, None]:
    """Measure all trials of a plan, and yield the records of each batch once its folders are complete.

    On an interrupt, stop the current batch, keep its measured files as interrupted trials, and raise KeyboardInterrupt.
    A trial that fails raises no error: its record has the outcome ``failed``. The containers of a batch are removed
    while the servers of the next one start. Raise LabError if an engine refuses to remove them, unless a signal came.
    """
    batch: Batch | None = None
    with asyncio.Runner() as runner:
        try:
            for planned in plan.batches:
                turns = asyncio.Semaphore(AT_ONCE)
                trials = [Trial(each, run_folder, len(planned), engines, turns) for each in planned]
                batch = Batch(trials, engines, progress, before=batch)
                _run(runner, batch, batch.measure())
                yield batch.records
        finally:
            if batch:
                _run(runner, batch, batch.removed())


def check(plan: Plan, run_folder: Path, progress: Progress, engines: Engines, say: Say) -> None:
    """Start somebody's own application once as it is served today, and send a request of each class, without a load.

    Say how each class was answered. Raise LabError if the application does not start, or if a class is not answered as
    it should be; then the record of the first trial says so.
    """
    own = [trial for trial in plan.trials if trial.variant.workload and trial.variant_name == TODAY]
    if own:
        batch = Batch([Trial(own[0], run_folder, 1, engines)], engines, progress)
        with asyncio.Runner() as runner:
            _run(runner, batch, batch.check(say))


def _run(runner: asyncio.Runner, batch: "Batch", work: Coroutine[None, None, None]) -> None:
    """Do the work of a batch to its end, also after a signal, which then raises KeyboardInterrupt."""
    with uninterrupted() as batch.stop_signals:
        try:
            runner.run(work)
        except BaseException as error:
            first = error
            while isinstance(first, BaseExceptionGroup):
                first = first.exceptions[0]
            if was_stopped():  # maybe by a signal that came before this work
                raise KeyboardInterrupt from first
            raise first from None


@dataclass
class Batch:
    """Trials that are measured side by side, and what is known of the machines before their loads and during them.

    The containers of the batch ``before`` are still being removed when this one begins.
    """

    trials: Sequence[Trial]
    engines: Engines
    progress: Progress
    before: "Batch | None" = None
    stop_signals: Sequence[int] = ()
    quiet: Quiet | None = None
    usage: UsageUnderLoad | None = None
    records: list[TrialRecord] = field(default_factory=list)
    removal: "asyncio.Task[None] | None" = None

    @property
    def going_on(self) -> list[Trial]:
        """The trials that nothing has ended so far; after a signal, there are none: all further steps do nothing."""
        return [] if self.stop_signals else [trial for trial in self.trials if trial.outcome == "measured"]

    async def measure(self) -> None:
        """Measure the trials, from the start of their servers to their records."""
        async with AsyncExitStack() as at_end:  # the last callback is called first, whatever happens
            if self.before:
                at_end.push_async_callback(self.before.removed)
            at_end.push_async_callback(self._leave)
            at_end.callback(self._save)
            at_end.push_async_callback(self._collect)
            async with self._watched():
                up_s = timing.up_s([trial.planned for trial in self.trials])
                await self._each(self.going_on, "starting the servers", up_s, Trial.start, "up")
                if self.before:
                    await self.before.removed()
                if computing := [trial for trial in self.going_on if trial.planned.load.computes]:
                    await self._settle()
                    for trial in computing:  # one after the other, because calibration needs requests that run alone
                        if trial in self.going_on:
                            expected_s = timing.calibrate_s(trial.planned.load)
                            await self._each([trial], "calibrating", expected_s, Trial.calibrate, "calibrate")
                of_users = [trial for trial in self.going_on if trial.login]
                await self._each(of_users, "logging users in", 2, log_in)
                for trial in self.going_on:  # of somebody's own application, once in a run
                    of = trial.planned
                    if (of.load.script, of.variant_name, of.number) == (USER_SERVICE, TODAY, 1):
                        await self._each([trial], "asking alone", 2, Trial.measure_unloaded_latency)
                await self._each(self.going_on, "observing the servers", 1, Trial.observe_before)
                if self.going_on:
                    await self._settle()
                if going_on := self.going_on:
                    await self._load([trial.planned for trial in going_on])

    async def _load(self, planned: Sequence[PlannedTrial]) -> None:
        """Start all loads at the same time, wait until the last has ended, and note what the machines did meanwhile."""
        self.usage = usage = await asyncio.to_thread(UsageUnderLoad, self.engines)
        at = time.time() + timing.generators_up_s(planned[0].load, len(planned))
        lasts_s = (in_seconds(trial.duration) + trial.load.grace_s(trial.duration) for trial in planned)
        within_s = K6_SLACK_S + max(lasts_s)

        async def watch_machines() -> None:
            """See how busy the machines are, and end all loads as soon as one has hardly any memory left."""
            await asyncio.sleep(at - time.time())
            await asyncio.to_thread(usage.begin)
            shortage_of = await asyncio.to_thread(self.engines.watch_memory)
            while True:
                await asyncio.sleep(CHECK_MEMORY_EVERY_S)
                if shortage := await asyncio.to_thread(shortage_of):
                    for trial in [trial for trial in self.trials if trial.loading]:
                        trial.fail(shortage)

        watching = asyncio.create_task(watch_machines())
        try:
            load_s = max(map(timing.load_s, planned))
            await self._each(self.going_on, "load", load_s, lambda of: of.send_load(at, within_s, usage), at=at)
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            await asyncio.to_thread(usage.end)

    async def check(self, say: Say) -> None:
        """Start the only trial, and send a request of each class, without a load. Keep its record only if it fails."""
        [trial] = self.trials
        async with AsyncExitStack() as at_end:

            async def keep() -> None:
                if trial.outcome == "failed":
                    await self._collect()
                    self._save()
                else:
                    shutil.rmtree(trial.part, ignore_errors=True)

            at_end.push_async_callback(self._remove)
            at_end.push_async_callback(keep)
            async with self._watched():
                up_s = timing.up_s([trial.planned])
                await self._each(self.going_on, "starting your application", up_s, Trial.start)
                if not self.stop_signals:  # also if it has failed, to say why
                    asking = "asking for each class alone"
                    await self._each([trial], asking, 2, lambda of: ask_for_each_class(of, say))

    async def _each(
        self, trials: Sequence[Trial], what: str, expected_s: float, step: Callable[[Trial], Awaitable[object]],
        name: str = "", *, at: float = 0,
    ) -> None:  # fmt: skip
        """Do a step for several trials at the same time, and return when it has ended for all of them.

        The step begins at a moment (epoch seconds; default: at once); until then it is being started.
        """
        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            tasks = {group.create_task(each.attempt(step, name, chosen=each.outcome)) for each in trials}
            while tasks:
                _, tasks = await asyncio.wait(tasks, timeout=LOOK_EVERY_S)
                passed_s, since_s = time.monotonic() - began, time.time() - at
                if since_s < 0:
                    self.progress(f"starting the {what}", passed_s, passed_s - since_s)
                else:
                    self.progress(what, min(since_s, passed_s), expected_s)

    async def _settle(self) -> None:
        """Wait until all machines are quiet, for at most QUIET_WITHIN_S, and note how busy they were at most."""
        began = time.monotonic()
        while not self.stop_signals:
            busy = await asyncio.to_thread(busy_share, self.engines.looks.values())
            waited_s = time.monotonic() - began
            if busy <= QUIET or waited_s > QUIET_WITHIN_S:
                self.quiet = max(filter(None, (self.quiet, Quiet(waited_s, busy))), key=lambda wait: wait.busy)
                return
            self.progress("waiting until the machine is quiet", waited_s, QUIET_WITHIN_S)

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """End trials, during the block, because of what the engines and the machines tell, or because of a signal.

        Otherwise k6 would send requests to a dead server for minutes, and the lab would wait in vain for a server whose
        workers are killed as they start.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._heed_signals())]
            for machine in self.engines.machines:
                tasks += [group.create_task(self._follow(machine, group)), group.create_task(self._ask_on(machine))]
            try:
                yield
            except MachineLost as error:
                for trial in self.trials:
                    trial.fail_with(error)
            finally:
                for task in tasks:
                    task.cancel()
                if self.stop_signals:
                    self._interrupt()

    async def _heed_signals(self) -> None:
        while not self.stop_signals:
            await asyncio.sleep(LOOK_EVERY_S)
        self._interrupt()

    def _interrupt(self) -> None:
        for trial in self.trials:
            trial.interrupt()

    async def _follow(self, machine: Machine, group: asyncio.TaskGroup) -> None:
        """Tell each trial the ends of its containers, and that memory ran out in one of them."""
        filters = ["event=die", "event=oom", f"label={OWNER_LABEL}={owner()}"]
        since = ["--since", f"{time.time():.3f}", *(word for each in filters for word in ("--filter", each))]
        async with aclosing(machine.events(*since)) as events:
            async for event in events:
                for trial in self.trials:
                    if event["Actor"]["Attributes"].get(PROJECT) == trial.project:
                        group.create_task(trial.react_to(event))
        for trial in self.trials:
            trial.lose(machine, "it has ended")

    async def _ask_on(self, machine: Machine) -> None:
        while True:
            await asyncio.sleep(ASK_EVERY_S)
            try:
                await machine.call("version", "--format", "{{.Server.Version}}")
            except DockerError as error:
                if error.exit_code is None:
                    for trial in self.trials:
                        trial.lose(machine, str(error))
                    return

    async def _collect(self) -> None:
        composed = [trial for trial in self.trials if trial.composed]
        await self._each(composed, "stopping the servers", 1, Trial.collect, "collect")

    async def _leave(self) -> None:
        """Begin to remove the containers: the engine goes on while the lab seals and shows what was measured."""
        self.removal = asyncio.create_task(self._remove())
        await asyncio.wait([self.removal], timeout=ASKED_WITHIN_S)

    async def removed(self) -> None:
        """Wait until the containers of this batch are removed."""
        if self.removal:
            removal, self.removal = self.removal, None
            await removal

    async def _remove(self) -> None:
        """Remove only the containers and networks of these trials. Raise LabError if an engine that answers refuses."""
        lost = {machine for trial in self.trials for machine in trial.lost}
        machines = [machine for machine in self.engines.machines if machine not in lost]
        if left := await remove_projects(machines, {trial.project for trial in self.trials}):
            problem = f"The container engine did not remove the containers of {', '.join(sorted(left))}."
            raise LabError(problem, hint=typed("down"))

    def _save(self) -> None:
        """Save every trial, even if another cannot be saved. Afterwards raise the first OSError, if there was any.

        The folder of an interrupted trial that has measured nothing is removed.
        """
        problem: OSError | None = None
        for trial in self.trials:
            if trial.outcome == "interrupted" and not any(trial.part.glob("points*.json*")):
                shutil.rmtree(trial.part, ignore_errors=True)
                continue
            try:
                self.records.append(trial.save(self.quiet, self.usage))
            except OSError as error:
                with suppress(OSError):  # renaming needs no disk space; keep the raw points, but never count them
                    trial.part.rename(trial.part.with_name(f"unsaved-{trial.planned.number}"))
                problem = problem or error
        if problem:
            raise problem
