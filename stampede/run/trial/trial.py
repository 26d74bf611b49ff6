"""One trial: its state, and the steps from its start to its record, in their order; batch.py does them side by side.

A step that fails ends its trial alone. Whatever ends a trial, ends it in one way: ``fail`` or ``interrupt`` notes why,
and cancels the step that the trial is in.
"""

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from stampede.docker.client import DockerError, Machine, together
from stampede.docker.cluster.engines import Engines, UsageUnderLoad
from stampede.docker.cluster.images import image_difference
from stampede.docker.cluster.swarm import create_network, retry_joining
from stampede.docker.commands import in_words
from stampede.docker.containers import SERVICE, ContainerInfo, containers_of, is_generator
from stampede.docker.machine_usage import Quiet
from stampede.docker.redaction import LOCAL_ENV, local_words, redact
from stampede.errors import LabError
from stampede.experiment.loads.script import WrongSetting
from stampede.plan import PlannedTrial, k6_service
from stampede.records.classes import OWN_CLASSES, Login, OwnRequestClass
from stampede.records.folder import ALONE, BadRun, read_trial, trial_folder, write_record, write_whole
from stampede.records.run import Calibration, ContainerLog, Seconds, TrialRecord
from stampede.run.record import now
from stampede.run.trial import calibration, reasons
from stampede.run.trial.alone import Front, Session, alone_ms, without_sessions
from stampede.run.trial.compose import Composed, compose, env_text
from stampede.run.trial.files import RESULTS_THERE, bring, bring_scripts, compress_points, fetch_results, points_of
from stampede.run.trial.observing import LogStart, log_record, log_starts, observe
from stampede.run.trial.reasons import TrialFailed
from stampede.run.trial.replacing import replace_workers
from stampede.servers.base import BEFORE

UP_WITHIN_S = 60
START_WITHIN_S = 600
"""How long all services of a trial may take to start, with a command before the application and the services beside."""
AT_ONCE = 2
"""How many trials on several machines start their servers at the same time: a swarm lets containers join its networks
slowly, and gives up after 20 s."""
K6_STOPS_WITHIN_S = 10


@dataclass(eq=False)
class Trial:
    """A planned trial, and what is known of it so far. ``side_by_side`` trials are measured at the same time.

    ``unhealthy``: what does not start, and what it wrote. ``lost`` has the machines whose engine does not answer any
    more. ``turns`` limits how many trials start at once.
    """

    planned: PlannedTrial
    run_folder: Path
    side_by_side: int
    engines: Engines
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))
    began: str = field(default_factory=now)
    outcome: Literal["measured", "interrupted", "failed"] = "measured"
    reason: str | None = None
    composed: list[Composed] = field(default_factory=list)
    containers: list[ContainerInfo] = field(default_factory=list)
    unhealthy: tuple[ContainerInfo, str] | None = None
    visits_per_s: float | None = None
    calibration: Calibration | None = None
    sessions: list[Session] = field(default_factory=list)
    settings_in_force: dict[str, str] = field(default_factory=dict)
    log_starts: dict[str, LogStart] = field(default_factory=dict)
    logs: dict[str, ContainerLog] = field(default_factory=dict)
    load_at: float | None = None
    loading: set[str] = field(default_factory=set)
    all_loaded: asyncio.Event = field(default_factory=asyncio.Event)
    k6_exit_code: int | None = None
    out_of_memory: set[str] = field(default_factory=set)
    lost: set[Machine] = field(default_factory=set)
    took_s: dict[str, float] = field(default_factory=dict)
    _step: "asyncio.Task[Any] | None" = None

    def __post_init__(self) -> None:
        trial = self.planned
        self.folder = trial_folder(self.run_folder, trial.variant_name, trial.load_name, trial.number)
        self.part = self.folder.with_name(f".{trial.number}.part")
        run_id = f"{self.run_folder.parent.name}-{self.run_folder.name}".lower()
        self.project = f"stampede-{run_id}-{trial.variant_name}-{trial.load_name}-{trial.number}"

    @property
    def generators(self) -> list[ContainerInfo]:
        """The load generators, once they were created."""
        return [container for container in self.containers if is_generator(container.service)]

    @property
    def servers(self) -> list[ContainerInfo]:
        """The containers of the server, once they were created."""
        return [container for container in self.containers if container.service == self.planned.variant.service]

    @property
    def front(self) -> Front:
        """The container that k6 connects to."""
        variant = self.planned.variant
        [front] = [container for container in self.containers if container.service == variant.front]
        return Front(front, "app" if variant.balancer == "none" else "balancer", variant.front_port)

    @property
    def login(self) -> Login | None:
        """How users log in before the load; None: nobody logs in."""
        said = self.planned.load.settings.get("login")
        return Login.model_validate_json(str(said)) if said else None

    @property
    def user(self) -> Session:
        """The first user who has logged in; empty: nobody has."""
        return self.sessions[0] if self.sessions else Session()

    @property
    def asked_classes(self) -> dict[str, OwnRequestClass]:
        """The classes of requests that somebody's own application is asked for."""
        return OWN_CLASSES.validate_json(str(self.planned.load.settings["classes"]))

    async def attempt(
        self, step: Callable[["Trial"], Awaitable[object]], name: str = "", chosen: str = "measured"
    ) -> None:
        """Do a step, and note how long it took if it has a name. If it fails, the trial ends, and raises nothing.

        ``chosen``: the outcome with which the trial was chosen. If it has ended since then, the step does not begin.
        """
        self._step, began = asyncio.current_task(), time.monotonic()
        try:
            if self.outcome == chosen:
                await step(self)
        except DockerError as error:
            self.fail(f"the container engine stopped answering: {error}")
        except TrialFailed as error:
            self.fail(str(error))
        except asyncio.CancelledError:
            if self.outcome == "measured" or not self._step or not self._step.cancelling():
                raise
            self._step.uncancel()
        finally:
            self._step = None
            if name:
                self.took_s[name] = time.monotonic() - began
            if chosen == "measured" and self.outcome == "failed" and self.load_at is None:
                with suppress(DockerError):  # so that servers that start again and again do not disturb other trials
                    for container in await self._there():
                        if container.status == "running":
                            await container.machine.call("container", "kill", container.id)

    def fail(self, reason: str) -> None:
        """End this trial because it failed. Only the first reason counts."""
        self._end("failed", reason)

    def fail_with(self, error: LabError) -> LabError:
        """End this trial because of an error, and return it. The reason stands within a sentence, but GET stays GET."""
        self.fail(re.sub(r"^[A-Z](?=[a-z ])", lambda first: first[0].lower(), error.message).rstrip("."))
        return error

    def interrupt(self) -> None:
        """End this trial because somebody asked to stop, unless it has failed before."""
        self._end("interrupted", f"interrupted at {now()}")

    def lose(self, machine: Machine, why: str) -> None:
        """End this trial because a machine does not answer any more: requests to it wait for a minute each."""
        self.lost.add(machine)
        self.fail(f"the container engine{f' of {machine.name}' if machine.name else ''} stopped answering: {why}")

    def _end(self, outcome: Literal["interrupted", "failed"], reason: str) -> None:
        if self.outcome == "measured":
            self.outcome, self.reason = outcome, reason
            if self._step and self._step is not asyncio.current_task():
                self._step.cancel()

    async def start(self) -> None:
        """Start the servers and the balancer, wait until they are healthy, and create the load generators."""
        self.part.mkdir(parents=True)
        load, variant, overlay = self.planned.load, self.planned.variant, self.engines.overlay
        try:
            if follows := self.planned.follows:
                self.visits_per_s = await asyncio.to_thread(rate_after, self.planned, follows, self.run_folder)
            self.composed = await asyncio.to_thread(
                compose, self.planned, self.part, self.project, self.side_by_side, self.visits_per_s, self.engines
            )
            async with self.turns if overlay else nullcontext(), asyncio.timeout(START_WITHIN_S):
                order = [[variant.front, *(["api"] if load.api else [])]]  # Compose finds the rest itself
                if overlay:  # but not on several machines
                    await create_network(self.engines.machines, self.project)
                    beside = [name for name in self.planned.services_beside if name not in (variant.front, "client")]
                    order = [beside, [variant.service], [variant.front]]
                for services in order:
                    await self._compose("up", services, "--detach", "--wait", "--wait-timeout", str(UP_WITHIN_S))
            generators = [k6_service(number) for number in range(1, load.generators + 1)]
            await self._compose("create", [*generators, *(["client"] if load.client else [])])
            self.containers = await containers_of(self.project, self.engines.machines)
            if overlay and (reason := await asyncio.to_thread(image_difference, self.containers)):
                raise TrialFailed(reason)
            for generator in [each for each in self.generators if not each.machine.shares_files]:
                await bring_scripts(generator, variant.workload.load_files if variant.workload else None)
        except TimeoutError:
            there = reasons.unhealthy_containers(await self._there(), variant.front)
            what = next((container.service for container in there if container.status == "running"), "the start")
            named = "the command of application.before" if what == BEFORE else what
            raise TrialFailed(f"{named} was not ready within {in_words(START_WITHIN_S)}") from None
        except DockerError as error:
            why = str(error)
            for container in reasons.unhealthy_containers(await self._there(), variant.front):
                said = (await self.said_by(container)).strip()
                if said or container.probed:
                    probed = self.masked(container.probed.encode()).decode()
                    self.unhealthy = replace(container, probed=probed), said
                    why = reasons.last_lines(*self.unhealthy)
                    break
            raise TrialFailed(f"the servers did not become healthy: {why}") from None
        finally:
            (self.part / LOCAL_ENV).unlink(missing_ok=True)

    async def _compose(self, verb: str, services: list[str], *options: str) -> None:
        """Let Compose do something with services, on all machines at the same time. Raise DockerError if it fails."""

        async def on(part: Composed) -> None:
            if mine := [name for name in services if name in part.services]:
                words = [*part.words, verb, *options, "--no-build", "--pull", "never", *mine]
                await retry_joining(lambda: part.machine.call(*words, within_s=START_WITHIN_S))

        await together(on(part) for part in self.composed)

    async def calibrate(self) -> None:
        """Find out how requests compute for as long as the load says. k6/run passes the result to the script."""

        async def at_work_ms(path: str) -> float:
            curl = ["curl", "--silent", "--show-error", "--fail", "--max-time", "60", f"{front.origin}{path}"]
            answer = json.loads(await front.container.execute(*curl))
            return 1000 * (float(answer["ended"]) - float(answer["began"]))

        front = self.front
        try:
            self.calibration = await calibration.calibrate(self.planned.load, at_work_ms)
        except DockerError as error:
            raise TrialFailed(f"a single request before the load was not answered: {error}") from None
        except (ValueError, KeyError) as error:
            problem = f"a single request before the load got an answer that the lab cannot read: {error}"
            raise TrialFailed(problem) from None
        text = env_text(calibration.calibrated_request(self.planned.load, self.calibration))
        write_whole(self.part / "calibration.env", text)
        for generator in self.generators:
            await self._bring(generator, "calibration.env", text)

    async def _bring(self, generator: ContainerInfo, name: str, text: str) -> None:
        """Bring a file of this trial's folder to a load generator that does not share the folder."""
        if not generator.machine.shares_files:
            await bring(generator, RESULTS_THERE, {name: text.encode()})

    async def measure_unloaded_latency(self) -> None:
        """Find out how long requests to somebody's own application take alone, and keep it."""
        found = await alone_ms(self.front, self.asked_classes, self.user.headers)
        write_whole(self.part / ALONE, json.dumps(found) + "\n")

    async def observe_before(self) -> None:
        """Keep the settings, the counters and the beginnings of the logs of the containers before the load."""
        self.log_starts = await log_starts(self.containers)
        self.settings_in_force |= await observe(self.containers, self.part, "before", self.masked)

    async def send_load(self, at: float, within_s: float, usage: UsageUnderLoad) -> None:
        """Start the load generators, and wait until they have ended; meanwhile replace workers, if the variant says so.

        k6 begins to send at the time ``at``, in epoch seconds of the lab's clock, and ends within so many seconds.
        Whatever ends the load before, the load generators are stopped, and write their measurements before they end.
        """
        self.load_at, self.loading = at, {generator.id for generator in self.generators}
        write_whole(self.part / "start.env", f"START_AT_MS={1000 * at:.0f}\n")
        try:
            for generator in self.generators:
                try:
                    if not generator.machine.shares_files:
                        begins = f"START_AT_MS={1000 * usage.begins_at(generator.machine, at):.0f}\n"
                        await self._bring(generator, "start.env", begins)
                    await generator.machine.call("container", "start", generator.id)
                except DockerError as error:
                    raise TrialFailed(f"{generator.service} did not start: {error}") from None
            async with asyncio.timeout(at - time.time() + within_s):
                replacing = asyncio.create_task(replace_workers(self, at))
                try:
                    await self.all_loaded.wait()
                finally:
                    self.took_s["load"] = max(0.0, time.time() - at)
                    replacing.cancel()
                    await asyncio.wait([replacing])
                if not replacing.cancelled():
                    replacing.result()
        except TimeoutError:
            raise TrialFailed(f"the load did not end within {within_s:g} s") from None
        finally:
            going = [each for each in self.generators if each.id in self.loading and each.machine not in self.lost]
            stop = ("container", "stop", "--time", str(K6_STOPS_WITHIN_S))
            await asyncio.gather(*(each.machine.call(*stop, each.id) for each in going), return_exceptions=True)
            self.loading = set()

    async def react_to(self, event: dict[str, Any]) -> None:
        """React to an event of an engine: a container ended, or a process in it was killed because memory ran out."""
        labels = event["Actor"]["Attributes"]
        ident, service = event["Actor"]["ID"], labels[SERVICE]
        if event["Action"] == "oom":
            self.out_of_memory.add(ident)
            if not self._is_own_server(service):  # else the kernel ends a worker, and the server starts another one
                shortage = await asyncio.to_thread(self.engines.watch_memory())
                self.fail(shortage or self._limit_reached(service))
        elif is_generator(service):
            self.loading.discard(ident)
            if self.load_at and not self.loading:
                self.all_loaded.set()
        elif self.loading:
            exit_code, after_s = int(labels["exitCode"]), max(0.0, time.time() - (self.load_at or 0))
            mine = [container for container in self.servers if container.id == ident]
            if not mine or not self._is_own_server(service):
                self.fail(reasons.end_reason(service, exit_code))
            elif ident in self.out_of_memory:
                self.fail(self._limit_reached(service))
            else:
                said = ""
                with suppress(DockerError):
                    said = await self.said_by(mine[0])
                program = self.planned.variant.server.partition("-")[0]
                self.fail(reasons.own_end_reason(service, program, exit_code, after_s, said))

    def _is_own_server(self, service: str) -> bool:
        """Whether a service has somebody's own application under its load, whose workers may die by themselves."""
        variant = self.planned.variant
        return service == variant.service and variant.workload is not None and self.load_at is not None

    def _limit_reached(self, service: str) -> str:
        limits_mib = {name: mib for part in self.composed for name, mib in part.limits_mib.items()}
        return reasons.memory_limit_reason(self.planned, service, limits_mib.get(service, 0))

    async def collect(self) -> None:
        """Keep the counters and the logs of the containers, and the exit codes of the load generators."""

        async def keep_log(container: ContainerInfo) -> None:
            said, with_times, before = await container.output(), b"", self.log_starts.get(container.id)
            own = self._is_own_server(container.service)  # its log has times: its lines say when workers ended
            if own or (before and before.line):
                with_times = await container.output(with_times=True)
            (self.part / f"{container.name}.log").write_bytes(self.masked(with_times if own else said))
            if before:
                self.logs[container.name] = log_record(said, with_times, before)

        try:
            self.containers = await self._there()
            for generator in self.generators:
                if not generator.machine.shares_files:
                    await fetch_results(generator, self.part)
            await together(keep_log(container) for container in self.containers)
            for container in self.containers:
                service, ended, code = container.service, container.status == "exited", container.exit_code
                if container.out_of_memory and (ended or not self._is_own_server(service)):
                    self.fail(self._limit_reached(service))
                if not ended or (service, code) == (BEFORE, 0):
                    continue
                if not is_generator(service):
                    self.fail(reasons.end_reason(service, code))
                elif service == "client" and code:
                    said = reasons.last_error(self.part, "client")
                    self.fail(f"the client ended with exit code {code}: {said}")
            codes = [each.exit_code for each in self.generators if each.service != "client" and each.status == "exited"]
            self.k6_exit_code = worst_exit_code(codes)
            if self.k6_exit_code is not None:
                self.settings_in_force |= await observe(self.containers, self.part, "after", self.masked)
                if self.planned.variant.workload:  # what stampede-probe has noted: servers/user-service/stampede_own.py
                    for server in self.servers:
                        if server.status == "running":
                            said = await server.execute("sh", "-c", "cat /tmp/served/* || true")
                            write_whole(self.part / f"served-{server.name}.csv", f"{said}\n" if said else "")
        except OSError as error:
            raise TrialFailed(f"its logs could not be kept: {error.strerror or error}") from None

    async def _there(self) -> list[ContainerInfo]:
        """Return the containers of the machines that still answer, by the names that they had before.

        Fail because of a machine that does not answer any more. Raise DockerError if there is only one machine.
        """
        found = []
        for machine in self.engines.machines:
            if machine not in self.lost:
                try:
                    found += await containers_of(self.project, [machine])
                except DockerError as error:
                    if not self.engines.overlay:
                        raise
                    self.lose(machine, str(error))
        names = {container.id: container.name for container in self.containers}
        return [replace(container, name=names.get(container.id, container.name)) for container in found]

    def save(self, quiet: Quiet | None, load: UsageUnderLoad | None) -> TrialRecord:
        """Write trial.json, give the folder its name, and return the record, whose reason keeps the true paths."""
        compress_points(self.part)
        if self.k6_exit_code not in (None, 0, 99):
            self.fail(f"k6 ended with exit code {self.k6_exit_code}: {reasons.last_error(self.part, 'k6')}")
        if thrown := reasons.script_exception(self.part):  # k6 goes on after an exception, and ends with 0
            self.fail(f"the load script threw: {thrown}")
        machines = []
        if self.engines.overlay and load:
            for machine in self.engines.machines:
                here = [each for each in self.containers if each.machine == machine]
                hosts = [each.hostname for each in here if not is_generator(each.service)]
                points = [points_of(each.service) for each in here if is_generator(each.service)]
                machines.append(load.record(machine.name, hosts, points))
        record = TrialRecord(
            variant=self.planned.variant_name,
            load=self.planned.load_name,
            trial=self.planned.number,
            outcome=self.outcome,
            reason=self.reason,
            k6_exit_code=self.k6_exit_code,
            began=self.began,
            ended=now(),
            side_by_side=self.side_by_side,
            busy_before=quiet and quiet.busy,
            busy_during=load and load.most(lambda usage: usage.busy),
            steal_during=load and load.most(lambda usage: usage.steal),
            pressure_during=load and load.most(lambda usage: usage.pressure),
            clock_step_s=load and load.clock_step_s,
            calibration=self.calibration,
            visits_per_s=self.visits_per_s,
            settings=dict(sorted(self.settings_in_force.items())),
            machines=machines,
            logs=self.logs,
            seconds=Seconds(settle=quiet and quiet.waited_s, **self.took_s),
        )
        told = record.reason and redact(record.reason, local_words(results=self.folder.parents[4]))
        write_record(self.part / "trial.json", record.model_copy(update={"reason": told}))
        self.part.rename(self.folder)
        return record

    async def said_by(self, container: ContainerInfo) -> str:
        """Return what a container wrote, without the secrets of somebody's own application."""
        return self.masked(await container.output()).decode(errors="replace")

    def masked(self, said: bytes) -> bytes:
        """Return a text without the secrets of somebody's own application, and of its users."""
        workload, said = self.planned.variant.workload, without_sessions(said, self.sessions)
        return workload.masked(said) if workload else said


def rate_after(trial: PlannedTrial, follows: PlannedTrial, run_folder: Path) -> float:
    """Return the rate of a trial that follows from another one of this round. Raise TrialFailed without a capacity."""
    # imported here because loading DuckDB takes as long as a whole set-up
    from stampede.evaluate.metrics.visits import measured_capacity_per_s  # noqa: PLC0415
    from stampede.evaluate.read.rows import UnreadablePoints  # noqa: PLC0415

    assert trial.load.relative
    which = f"{follows.variant_name} under {follows.load_name}"
    key = follows.variant_name, follows.load_name, follows.number
    folder = trial_folder(run_folder, *key)
    try:
        record = read_trial(folder)
        if record.reason:
            raise TrialFailed(f"the rate is relative to {which}, which was not measured: {record.reason}")
        capacity_per_s = measured_capacity_per_s(
            folder, key, follows.load.environment(), follows.duration, record.machines
        )
    except BadRun:
        raise TrialFailed(f"the rate is relative to {which}, which has no record") from None
    except (UnreadablePoints, ValueError) as error:
        reason = str(error).replace(f"{folder}/", "")
        raise TrialFailed(f"the rate is relative to {which}, which shows no capacity: {reason}") from None
    if not capacity_per_s:
        raise TrialFailed(f"the rate is relative to {which}, where visits already failed in the first step")
    rate_per_s = trial.load.relative.times * capacity_per_s
    try:
        trial.load.at(rate_per_s)
    except WrongSetting as error:
        raise TrialFailed(f"the rate is relative to {which}, and is too high: {error}") from None
    return rate_per_s


def worst_exit_code(codes: list[int]) -> int | None:
    """Return what several k6 containers ended with: a failure, or else a crossed threshold (99); None: none ended."""
    return max(codes, key=lambda code: (code not in (0, 99), code == 99), default=None)
