"""The containers of one trial, from their start to their removal, and the files that the trial keeps."""

import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Literal

from python_on_whales.exceptions import DockerException

from stampede.docker.cluster.engines import Engines, UsageSamplers, UsageUnderLoad
from stampede.docker.cluster.images import image_difference
from stampede.docker.cluster.machines import Machine
from stampede.docker.cluster.network import create_network
from stampede.docker.commands import in_words, last_line
from stampede.docker.containers import (
    SERVICE,
    ContainerInfo,
    containers_of,
    first_line_of,
    is_generator,
    output_of,
    suppress_docker_errors,
)
from stampede.docker.leftovers import remove_project
from stampede.docker.machine_usage import Quiet
from stampede.docker.redaction import LOCAL_ENV, local_words, redact
from stampede.interruption import wait_for_signal
from stampede.plan import PlannedTrial
from stampede.records.classes import Login, OwnRequestClass, read_login, read_own_classes
from stampede.records.files import ALONE
from stampede.records.folder import trial_folder, write_record, write_whole
from stampede.records.run import TODAY, USER_SERVICE, Calibration, ContainerLog, MachineRecord, Seconds, TrialRecord
from stampede.run.record import now
from stampede.run.trial import calibration, reasons, starting
from stampede.run.trial.alone import Front, alone_ms
from stampede.run.trial.compose import Composed, compose, env_text
from stampede.run.trial.files import RESULTS_THERE, bring, bring_scripts, compress_points, fetch_results, points_of
from stampede.run.trial.login import Session, without_sessions
from stampede.run.trial.logs import LogStart, log_record, log_starts, note_cuts
from stampede.run.trial.observing import keep_who_served, observe
from stampede.run.trial.rates import NoRate, rate_after
from stampede.run.trial.starting import create_generators, start_order, start_services
from stampede.servers.workload import BEFORE

K6_STOPS_WITHIN_S = 10
_ONE_NETWORK = threading.Lock()
"""Networks that span machines are made one after the other, because a swarm makes several of them no faster."""
END_AGAIN_S = 0.5
SIGNAL_NOTED_WITHIN_S = 1
"""How long the main thread, which notes signals, may take to do so on a busy machine."""
UNHEALTHY = "the servers did not become healthy"


class Phase(Enum):
    """How far a trial's containers have come."""

    STARTING, STARTED, LOADING, LOADED = range(4)


class TrialContainers:
    """The containers of one trial, from their start to their removal."""

    def __init__(
        self,
        trial: PlannedTrial,
        run_folder: Path,
        side_by_side: int,
        engines: Engines,
        stop_signals: Sequence[int] = (),
    ) -> None:
        """Take a planned trial, how many trials are measured side by side, and the signals that ask to stop."""
        self.planned = trial
        self.engines = engines
        self.side_by_side = side_by_side
        self.stop_signals = stop_signals
        self.folder = trial_folder(run_folder, trial.variant_name, trial.load_name, trial.number)
        self.part = self.folder.with_name(f".{trial.number}.part")
        run_id = f"{run_folder.parent.name}-{run_folder.name}".lower()
        self.project = f"stampede-{run_id}-{trial.variant_name}-{trial.load_name}-{trial.number}"
        self.began = now()
        self.outcome: Literal["measured", "interrupted", "failed"] = "measured"
        self.reason: str | None = None
        self._deciding = Lock()
        self.failed_by_itself = False
        self.composed: list[Composed] = []
        self.containers: list[ContainerInfo] = []
        self.k6_exit_code: int | None = None
        self.calibration: Calibration | None = None
        self.sessions: list[Session] = []
        self.visits_per_s: float | None = None
        self.settings_in_force: dict[str, str] = {}
        self.log_starts: dict[str, LogStart] = {}
        self.logs: dict[str, ContainerLog] = {}
        self.phase = Phase.STARTING
        self.load_at = 0.0
        self.out_of_memory: set[str] = set()
        self.took_s: dict[str, float] = {}
        self.gone = False

    @property
    def generators(self) -> list[ContainerInfo]:
        """The load generators, once they were created."""
        return [container for container in self.containers if container.is_generator]

    @property
    def servers(self) -> list[ContainerInfo]:
        """The containers of the server, once they were created."""
        return [container for container in self.containers if container.service == self.planned.variant.service]

    def fail(self, reason: str, error: DockerException | None = None) -> None:
        """Note why this trial failed, and the last line of Docker's ``error``, if any. Only the first reason counts.

        Ctrl-C also ends Docker's commands, perhaps before the lab has noted the signal. So wait a moment for it.
        """
        if error and self.outcome == "measured":
            reason = f"{reason}: {last_line(error)}"
            wait_for_signal(self.stop_signals, SIGNAL_NOTED_WITHIN_S)
        with self._deciding:  # timers, the engine's events and the steps fail it side by side
            if self.outcome == "measured":
                self.outcome, self.reason = "failed", reason
                self.failed_by_itself = not self.stop_signals

    def interrupt(self) -> None:
        """Note that this trial was interrupted."""
        with self._deciding:
            self.outcome, self.reason = "interrupted", f"interrupted at {now()}"

    def react_to(self, event: Literal["oom", "die"], machine: Machine, container: str, labels: dict[str, str]) -> None:
        """React to an event of an engine, given the machine, the container's id and the labels of the event."""
        service = labels[SERVICE]
        if event == "oom":
            if not self._is_own_server(service):  # the kernel ends a worker, and the server starts another one
                self.fail_out_of_memory(machine, container, service)
            self.out_of_memory.add(container)
        elif self.phase is Phase.LOADING and not is_generator(service):
            self.fail(self._why_ended(container, service, int(labels["exitCode"])))
            self.end_load()

    def _why_ended(self, ident: str, service: str, exit_code: int) -> str:
        """Return why a container ended under the load; of somebody's own server, when, and its last lines."""
        after_s = max(0.0, time.time() - self.load_at)
        mine = [container for container in self.servers if container.id == ident]
        if not mine or not self._is_own_server(service):
            return reasons.end_reason(service, exit_code)
        if ident in self.out_of_memory:
            return self._limit_reached(service)
        said = ""
        with suppress_docker_errors():
            said = self.said_by(mine[0])
        program = self.planned.variant.server.partition("-")[0]
        return reasons.own_end_reason(service, program, exit_code, after_s, said)

    def _is_own_server(self, service: str) -> bool:
        """Whether a service has somebody's own application under its load, whose workers may die by themselves."""
        of_own = service == self.planned.variant.service and self.planned.variant.workload is not None
        return of_own and self.phase in (Phase.LOADING, Phase.LOADED)

    def fail_out_of_memory(self, machine: Machine, container: str, service: str) -> None:
        """Fail because a container has reached its memory limit, and at once end the load or the container.

        If the machine itself is short of memory, say so: then the kernel kills the lab's containers first.
        """
        self.fail(self.engines.watch_memory()() or self._limit_reached(service))
        if self.phase in (Phase.LOADING, Phase.LOADED):
            self.end_load()
        else:  # so that the lab stops waiting until a server is healthy or answers
            with suppress_docker_errors():
                machine.client.container.kill(container)

    def fail_lost(self, machine: Machine) -> None:
        """Fail because a machine does not answer any more, and end the load: requests to it wait for a minute each."""
        self.fail(f"{machine.engine_name} stopped answering")
        if self.phase is Phase.LOADING:
            self.end_load()

    def start(self) -> None:
        """Start the servers and the balancer, wait until they are healthy, and create the load generators."""
        began = time.monotonic()
        try:
            self.part.mkdir(parents=True)
            if follows := self.planned.follows:
                self.visits_per_s = rate_after(self.planned, follows, self.folder.parents[2])
            self.composed = compose(
                self.planned, self.part, self.project, self.side_by_side, self.visits_per_s, self.engines
            )
            if self.engines.overlay:
                with _ONE_NETWORK:
                    create_network(self.engines, self.project)
            with self._limit():
                for services in start_order(self.planned, overlay=self.engines.overlay):
                    start_services(services, self.composed)
            create_generators(self.planned.load, self.composed)
            self.containers = containers_of(self.project, self.engines.machines)
            if reason := image_difference(self.containers):
                self.fail(reason)
            workload = self.planned.variant.workload
            for generator in self.generators:
                if not generator.machine.shares_files:
                    bring_scripts(generator, workload.load_files if workload else None)
        except NoRate as error:
            self.fail(str(error))
        except DockerException as error:
            self.fail(f"{UNHEALTHY}: {self._why_not_healthy(error)}")
            self._kill_running()  # so that servers that start again and again do not disturb other trials
        finally:
            self.took_s["up"] = time.monotonic() - began
            self.phase = Phase.STARTED
            (self.part / LOCAL_ENV).unlink(missing_ok=True)

    @contextmanager
    def _limit(self) -> Iterator[None]:
        """Fail, and end what has started, if the block takes too long: Compose waits for a command without a limit."""

        def give_up() -> None:
            with suppress_docker_errors():
                there = containers_of(self.project, self.engines.machines)
                unhealthy = reasons.unhealthy_containers(there, self.planned.variant.front)
                waiting = [container for container in unhealthy if container.state.running]
                what = waiting[0].service if waiting else "the start"
                named = "the command of application.before" if what == BEFORE else what
                self.fail(f"{named} was not ready within {in_words(starting.START_WITHIN_S)}")
            self._kill_running()

        late = threading.Timer(starting.START_WITHIN_S, give_up)
        late.start()
        try:
            yield
        finally:
            late.cancel()
            late.join()

    def abort_start(self) -> None:
        """End the containers that start, again and again until ``start`` has ended: Compose may start further ones."""
        while self.phase is Phase.STARTING:
            self._kill_running()
            time.sleep(END_AGAIN_S)

    def _kill_running(self) -> None:
        with suppress_docker_errors():
            for container in containers_of(self.project, self.engines.machines):
                if container.state.running:
                    container.machine.client.container.kill(container.id)

    def calibrate(self) -> None:
        """Find out how requests compute for as long as the load says. k6/run passes the result to the script."""
        began = time.monotonic()
        try:
            self.calibration = calibration.calibrate(self.planned.load, partial(_at_work_ms, self.front))
            variables = calibration.calibrated_request(self.planned.load, self.calibration)
            text = env_text(variables)
            write_whole(self.part / "calibration.env", text)
            for generator in self.generators:
                if not generator.machine.shares_files:
                    bring(generator, RESULTS_THERE, {"calibration.env": text})
        except DockerException as error:
            self.fail("a single request before the load was not answered", error)
        except (ValueError, KeyError) as error:
            self.fail(f"a single request before the load got an answer that the lab cannot read: {error}")
        self.took_s["calibrate"] = time.monotonic() - began

    @property
    def measures_unloaded_latency(self) -> bool:
        """Whether requests to somebody's own application are first sent one at a time: once in a run."""
        trial = self.planned
        return trial.load.script == USER_SERVICE and trial.variant_name == TODAY and trial.number == 1

    def measure_unloaded_latency(self) -> None:
        """Find out how long requests to somebody's own application take alone, and keep it."""
        try:
            found = alone_ms(self.front, self.asked_classes, self.user.headers)
            write_whole(self.part / ALONE, json.dumps(found) + "\n")
        except DockerException as error:
            self.fail("the container engine stopped answering", error)

    @property
    def login(self) -> Login | None:
        """How users log in before the load; None: nobody logs in."""
        said = self.planned.load.settings.get("login")
        return read_login(str(said)) if said else None

    @property
    def user(self) -> Session:
        """The first user who has logged in; empty: nobody has."""
        return self.sessions[0] if self.sessions else Session()

    @property
    def front(self) -> Front:
        """The container that k6 connects to."""
        variant = self.planned.variant
        [front] = [container for container in self.containers if container.service == variant.front]
        return Front(front, "app" if variant.balancer == "none" else "balancer", variant.front_port)

    @property
    def asked_classes(self) -> dict[str, OwnRequestClass]:
        """The classes of requests that somebody's own application is asked for."""
        return read_own_classes(str(self.planned.load.settings["classes"]))

    def observe_before(self) -> None:
        """Keep the settings, the counters and the beginnings of the logs of the containers before the load."""
        self.log_starts = log_starts(self.containers)
        self.settings_in_force |= observe(self.containers, self.part, "before", self.masked)

    def start_load(self, at: float, samplers: UsageSamplers) -> None:
        """Start the load generators. k6 begins to send at the time ``at``, in epoch seconds of the lab's clock."""
        self.phase, self.load_at = Phase.LOADING, at
        write_whole(self.part / "start.env", f"START_AT_MS={1000 * at:.0f}\n")
        for generator in self.generators:
            if self.outcome != "measured":
                return
            try:
                if not generator.machine.shares_files:
                    begins = f"START_AT_MS={1000 * samplers.begins_at(generator.machine, at):.0f}\n"
                    bring(generator, RESULTS_THERE, {"start.env": begins})
                generator.machine.client.container.start(generator.id)
            except DockerException as error:
                self.fail(f"{generator.service} did not start", error)

    def wait_for_load(self) -> None:
        """Wait until the load generators have ended."""
        began = time.monotonic()
        for generator in self.generators:
            try:
                exit_code = generator.machine.client.wait(generator.id)
                if generator.service != "client":
                    self._k6_ended(exit_code)
            except DockerException as error:
                self.fail(f"{generator.machine.engine_name} stopped answering", error)
        self.took_s["load"] = time.monotonic() - began
        self.phase = Phase.LOADED

    def reload(self) -> None:
        """Send HUP to the servers, which then replace their workers."""
        for container in self.servers:
            if self.phase is Phase.LOADING:
                try:
                    container.machine.client.container.kill(container.id, signal="HUP")
                except DockerException as error:
                    self.fail(f"{container.name} did not get HUP", error)

    def end_load(self) -> None:
        """Stop the load generators, which write their measurements before they end."""

        def stop(generator: ContainerInfo) -> None:
            with suppress_docker_errors():
                generator.machine.client.container.stop(generator.id, time=K6_STOPS_WITHIN_S)

        if self.generators:
            with ThreadPoolExecutor(len(self.generators)) as pool:
                list(pool.map(stop, self.generators))

    def collect(self) -> None:
        """Keep the counters and the logs of the containers, and the exit codes of the load generators."""
        began = time.monotonic()
        try:
            self.containers = self._still_there()
            for generator in self.generators:
                if not generator.machine.shares_files:
                    fetch_results(generator, self.part)
            for container in self.containers:
                service = container.service
                self._keep_log(container)
                ended = container.state.status == "exited"
                if container.state.oom_killed and (ended or not self._is_own_server(service)):
                    self.fail(self._limit_reached(service))
                exit_code = container.state.exit_code
                if not ended or (service, exit_code) == (BEFORE, 0):
                    continue
                if not is_generator(service):
                    self.fail(reasons.end_reason(service, exit_code or 0))
                elif service != "client":
                    self._k6_ended(exit_code)
                elif exit_code:
                    self.fail(f"the client ended with exit code {exit_code}: {reasons.last_error(self.part, 'client')}")
            if self.k6_exit_code is not None:
                self.settings_in_force |= observe(self.containers, self.part, "after", self.masked)
                if self.planned.variant.workload:
                    keep_who_served(self.containers, self.planned.variant.service, self.part)
            note_cuts(self.part, self.logs)
        except DockerException as error:
            self.fail("the container engine stopped answering", error)
        except OSError as error:
            self.fail(f"its logs could not be kept: {error.strerror or error}")
        self.took_s["collect"] = time.monotonic() - began

    def _keep_log(self, container: ContainerInfo) -> None:
        """Keep the log of a container. That of somebody's own server has times: its lines say when workers ended."""
        said = output_of(container)
        shown = output_of(container, with_times=True) if self._is_own_server(container.service) else said
        (self.part / f"{container.name}.log").write_bytes(self.masked(shown))
        if before := self.log_starts.get(container.id):
            self.logs[container.name] = log_record(said, first_line_of(container), before)

    def _still_there(self) -> list[ContainerInfo]:
        """Return the containers of the machines that still answer, by the names that they had before.

        Fail because of a machine that does not answer any more. Raise DockerException if there is only one machine.
        """
        machines = []
        for machine in self.engines.machines:
            try:
                if self.engines.overlay:
                    machine.client.system.info()
                machines.append(machine)
            except DockerException as error:
                self.fail(f"{machine.engine_name} stopped answering", error)
        names = {container.id: container.name for container in self.containers}
        found = containers_of(self.project, machines)
        return [replace(container, name=names.get(container.id, container.name)) for container in found]

    def remove(self) -> None:
        """Remove only this trial's containers and network. The next command removes what could not be removed."""
        self.gone = remove_project(self.engines.machines, self.project)

    def save(self, quiet: Quiet | None, load: UsageUnderLoad | None) -> TrialRecord:
        """Write trial.json, give the folder its name, and return the record, whose reason keeps the true paths."""
        compress_points(self.part)
        if self.k6_exit_code not in (None, 0, 99):
            self.fail(f"k6 ended with exit code {self.k6_exit_code}: {reasons.last_error(self.part, 'k6')}")
        if thrown := reasons.script_exception(self.part):  # k6 goes on after an exception, and ends with 0
            self.fail(f"the load script threw: {thrown}")
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
            machines=[self._machine(machine, load) for machine in self.engines.machines]
            if self.engines.overlay and load
            else [],
            logs=self.logs,
            seconds=Seconds(settle=quiet and quiet.waited_s, **self.took_s),
        )
        told = record.reason and redact(record.reason, local_words(results=self.folder.parents[4]))
        write_record(self.part / "trial.json", record.model_copy(update={"reason": told}))
        self.part.rename(self.folder)
        return record

    def _machine(self, machine: Machine, load: UsageUnderLoad) -> MachineRecord:
        mine = [container for container in self.containers if container.machine == machine]
        hosts = [container.hostname for container in mine if not container.is_generator]
        generators = [points_of(container.service) for container in mine if container.is_generator]
        return load.record(machine.name, hosts, generators)

    def said_by(self, container: ContainerInfo) -> str:
        """Return what a container wrote, without the secrets of somebody's own application."""
        return self.masked(output_of(container)).decode(errors="replace")

    def masked(self, said: bytes) -> bytes:
        """Return a text without the secrets of somebody's own application, and of its users."""
        workload, said = self.planned.variant.workload, without_sessions(said, self.sessions)
        return workload.masked(said) if workload else said

    def _why_not_healthy(self, error: DockerException) -> str:
        """Return the last lines of the first container that is not healthy, or else the last line of Docker."""
        with suppress_docker_errors():
            there = containers_of(self.project, self.engines.machines)
            if said := reasons.unhealthy_output(there, self.planned.variant.front, output_of):
                return self.masked(said.encode()).decode()
        return last_line(error)

    def _limit_reached(self, service: str) -> str:
        limits_mib = {name: mib for part in self.composed for name, mib in part.limits_mib.items()}
        return reasons.memory_limit_reason(self.planned, service, limits_mib.get(service, 0))

    def _k6_ended(self, exit_code: int | None) -> None:
        """Of several k6 containers, keep the worst exit code: failure, then a crossed threshold (99)."""
        codes = [0, 99, self.k6_exit_code, exit_code]
        self.k6_exit_code = max((code for code in codes[2:] if code is not None), key=codes.index, default=None)


def _at_work_ms(front: Front, path: str) -> float:
    """Send a request as k6 will, and return how long the server worked, in ms."""
    command = ["curl", "--silent", "--show-error", "--fail", "--max-time", "60", f"{front.origin}{path}"]
    answer = json.loads(front.container.execute(command))
    return 1000 * (float(answer["ended"]) - float(answer["began"]))
