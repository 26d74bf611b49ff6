"""Trials in real containers: each in a Compose project and network of its own. The one place that measures.

A batch is one or more trials side by side. No load starts before every stack of the batch is up and the machine is
quiet; no stack is torn down before all loads have ended. Whatever happens, the containers are gone afterwards and what
was measured lies in the run's folder.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import yaml
from python_on_whales import Container, DockerClient
from python_on_whales.exceptions import DockerException

from analysis.folder import BadRun, read_trial, trial_folder, write_record, write_whole
from analysis.record import Calibration, Seconds, TrialRecord
from lab import calibration, plan
from lab.experiment.model import DATABASE, in_seconds
from lab.interruption import uninterrupted
from lab.loads import K6_SCRIPTS, WrongSetting
from lab.machine import K6_RELEASE, ca_bundle, last_line
from lab.paths import COMPOSE_FILE, ROOT
from lab.watch import Memory, Progress, Quiet, Usage, Watch, settle
from lab.whereabouts import LOCAL_ENV, here, placeless, without

OWNER_LABEL = "stampede.owner"
GENERATORS = ("k6", "client")
"""The services that ask, and end by themselves."""

UP_WITHIN_S = 60
K6_SLACK_S = 60
K6_STOPS_WITHIN_S = 10
DOWN_ATTEMPTS = 5
LOOK_AGAIN_S = 1
LOOK_EVERY_S = 0.5
START_UP_S = 0.5
FURTHER_START_UP_S = 0.25
"""What one trial's load generators need to start up, and each further one of the same trial, before the first sends.
Those of trials side by side add up."""

LabelFilter = list[tuple[Literal["label"], str]]


def measure(plan_: plan.Plan, run_folder: Path, progress: Progress) -> Iterator[list[TrialRecord]]:
    """Measure all trials of a plan, and yield the records of each batch once its folders are complete.

    On KeyboardInterrupt the batch under way is stopped, what it measured is kept as interrupted, and the interrupt
    goes on to the caller. A trial that fails is a record that failed.
    """
    for batch in plan_.batches:
        yield _measure_batch(batch, run_folder, progress)


def remove_leftovers() -> list[str]:
    """Remove what this user's killed runs on this machine left behind, and return the names of their projects.

    Call it only while no run is under way. What somebody started by hand, or another user or machine, is left alone.
    """
    projects: set[str] = set()
    for _ in range(DOWN_ATTEMPTS):
        found = _remove_all_of_mine()
        if not found:
            break
        projects |= found
        time.sleep(LOOK_AGAIN_S)  # a Compose whose runner was killed may still be starting the next container
    return sorted(projects)


def _remove_all_of_mine() -> set[str]:
    client = DockerClient()
    mine: LabelFilter = [("label", f"{OWNER_LABEL}={owner()}")]
    projects = set()
    with _tolerating_docker_errors():
        for container in client.container.list(all=True, filters=mine):
            projects.add(_labels(container)[_PROJECT])
            container.remove(force=True, volumes=True)
        for network in client.network.list(filters=mine):
            projects.add((network.labels or {})[_PROJECT])
            network.remove()
    return projects


def owner() -> str:
    """Return who starts containers here: this user on this machine, also when several share an engine."""
    return f"{platform.node()}-{os.getuid()}"


class Stack:
    """The containers of one trial, from their start to their removal."""

    def __init__(self, trial: plan.Trial, run_folder: Path, side_by_side: int) -> None:
        self.trial = trial
        self.side_by_side = side_by_side
        self.folder = trial_folder(run_folder, trial.variant_name, trial.load_name, trial.number)
        self.part = self.folder.with_name(f".{trial.number}.part")
        run_id = f"{run_folder.parent.name}-{run_folder.name}".lower()
        self.project = f"stampede-{run_id}-{trial.variant_name}-{trial.load_name}-{trial.number}"
        self.began = now()
        self.outcome: Literal["measured", "interrupted", "failed"] = "measured"
        self.reason: str | None = None
        self.client: DockerClient | None = None
        self.generators: list[Container] = []
        self.k6_exit_code: int | None = None
        self.calibration: Calibration | None = None
        self.visits_per_s: float | None = None
        self.settings: dict[str, str] = {}
        self.limits: dict[str, int] = {}
        self.loading = False
        self.seconds: dict[str, float] = {}
        self.gone = False

    def fail(self, reason: str) -> None:
        """Note why this trial measures nothing; the first reason counts."""
        if self.outcome == "measured":
            self.outcome, self.reason = "failed", reason

    def heed(self, event: Literal["oom", "die"], container: str, labels: dict[str, str]) -> None:
        """Heed what happens to a container, given its id and the labels with which the engine tells of it."""
        service = labels[_SERVICE]
        if event == "oom":
            self.out_of_memory(container, service)
        elif self.loading and not _is_generator(service):
            self.fail(f"{service} ended during the load with exit code {labels['exitCode']}")
            self.end_load()

    def out_of_memory(self, container: str, service: str) -> None:
        """Fail because a container has reached its limit of memory, and end what it takes part in at once.

        Where the machine itself is short of memory, that is the reason: the lab's containers are the first to go.
        """
        self.fail(Memory().shortage() or self._limit_reached(service))
        if self.loading:
            self.end_load()
        else:  # nobody waits any longer until a server is healthy, or answers
            with _tolerating_docker_errors():
                DockerClient().container.kill(container)

    def up(self) -> None:
        """Start the servers and the balancer, wait until they are healthy, and create the load generators."""
        began = time.monotonic()
        self.part.mkdir(parents=True)
        try:
            if follows := self.trial.follows:
                self.visits_per_s = self._rate_after(follows)
            self.client = self._client()
            needed = [self.trial.variant.front, *(["api"] if self.trial.load.api else [])]
            self.client.compose.up(needed, detach=True, wait=True, no_build=True, pull="never",
                                   quiet=True, wait_timeout=UP_WITHIN_S)  # fmt: skip
            asking = [_k6(number) for number in range(1, self.trial.load.generators + 1)]
            self.client.compose.create(asking + ["client"] * bool(self.trial.load.client),
                                       no_build=True, pull="never")  # fmt: skip
            self.generators = [one for one in self._containers() if _asks(one)]
        except NoRate as error:
            self.fail(str(error))
        except DockerException as error:
            self.fail(f"the servers did not become healthy: {self._why_not_healthy(error)}")
        finally:
            (self.part / LOCAL_ENV).unlink(missing_ok=True)
        self.seconds["up"] = time.monotonic() - began

    def calibrate(self) -> None:
        """Find out how requests compute for as long as the load says; k6/run hands it to the script."""
        began = time.monotonic()
        try:
            variant = self.trial.variant
            [front] = [one for one in self._containers() if _labels(one)[_SERVICE] == variant.front]
            self.calibration = calibration.calibrate(self.trial.load, partial(_at_work_ms, front, variant.front_port))
            if self.calibration.call_us is not None:
                write_whole(self.part / "calibration.env", f"CALL_US={self.calibration.call_us:g}\n")
        except DockerException as error:
            self.fail(f"a request alone was not answered: {last_line(error)}")
        except (ValueError, KeyError) as error:
            self.fail(f"a request alone was not answered as agreed: {error}")
        self.seconds["calibrate"] = time.monotonic() - began

    def look_before(self) -> None:
        """Keep what the containers are, and have counted so far, before the load."""
        try:
            self._observe("before")
        except DockerException as error:
            self.fail(f"the container engine stopped answering: {last_line(error)}")

    def start_load(self, at: float) -> None:
        """Start the load generators; k6 begins to send ``at`` that time, in epoch seconds."""
        self.loading = True
        write_whole(self.part / "start.env", f"START_AT_MS={1000 * at:.0f}\n")
        for generator in self.generators:
            if self.outcome != "measured":
                return
            try:
                generator.start()
            except DockerException as error:
                self.fail(f"{_labels(generator)[_SERVICE]} did not start: {last_line(error)}")

    def wait_for_load(self) -> None:
        """Wait until the load generators have ended."""
        assert self.client is not None
        began = time.monotonic()
        try:
            for generator in self.generators:
                exit_code = self.client.wait(generator)
                if _labels(generator)[_SERVICE] != "client":
                    self._k6_ended(exit_code)
        except DockerException as error:
            self.fail(f"the container engine stopped answering: {last_line(error)}")
        self.seconds["load"] = time.monotonic() - began

    def end_load(self) -> None:
        """Stop the load generators, which first write out what they have measured."""

        def stop(generator: Container) -> None:
            with _tolerating_docker_errors():
                generator.stop(time=K6_STOPS_WITHIN_S)

        if self.generators:
            with ThreadPoolExecutor(len(self.generators)) as pool:
                list(pool.map(stop, self.generators))

    def collect(self) -> None:
        """Keep what the containers have counted, their logs and how the load generator ended."""
        began = time.monotonic()
        try:
            for container in self._containers():
                labels = _labels(container)
                (self.part / f"{_numbered(labels)}.log").write_bytes(_output_of(container))
                if container.state.oom_killed:
                    self.fail(self._limit_reached(labels[_SERVICE]))
                if container.state.status != "exited":
                    continue
                exit_code = container.state.exit_code
                if not _asks(container):
                    self.fail(f"{labels[_SERVICE]} ended during the load with exit code {exit_code}")
                elif labels[_SERVICE] != "client":
                    self._k6_ended(exit_code)
                elif exit_code:
                    self.fail(f"the client ended with exit code {exit_code}: {self._last_words('client')}")
            if self.k6_exit_code is not None:
                self._observe("after")
        except DockerException as error:
            self.fail(f"the container engine stopped answering: {last_line(error)}")
        except OSError as error:
            self.fail(f"its logs could not be kept: {error.strerror or error}")
        self.seconds["collect"] = time.monotonic() - began

    def down(self) -> None:
        """Remove this trial's containers and network, and no others; what resists is left to the next command."""
        client = DockerClient()
        mine: LabelFilter = [("label", f"{_PROJECT}={self.project}")]
        for _ in range(DOWN_ATTEMPTS):
            with _tolerating_docker_errors():
                if containers := client.container.list(all=True, filters=mine):
                    client.container.remove(containers, force=True, volumes=True)
                for network in client.network.list(filters=mine):
                    network.remove()
                self.gone = True
                return

    def save(self, quiet: Quiet | None, usage: Usage | None) -> TrialRecord:
        """Write trial.json and give the folder its name, and return the record, whose reason has the true paths."""
        if self.k6_exit_code not in (None, 0, 99):
            self.fail(f"k6 ended with exit code {self.k6_exit_code}: {self._last_words('k6')}")
        if thrown := self._thrown():  # k6 itself goes on, and ends with 0
            self.fail(f"the load script threw: {thrown}")
        record = TrialRecord(
            variant=self.trial.variant_name,
            load=self.trial.load_name,
            trial=self.trial.number,
            outcome=self.outcome,
            reason=self.reason,
            k6_exit_code=self.k6_exit_code,
            began=self.began,
            ended=now(),
            side_by_side=self.side_by_side,
            busy_before=quiet and quiet.busy,
            busy_during=usage and usage.busy,
            steal_during=usage and usage.steal,
            pressure_during=usage and usage.pressure,
            clock_step_s=usage and usage.clock_step_s,
            calibration=self.calibration,
            visits_per_s=self.visits_per_s,
            settings=dict(sorted(self.settings.items())),
            seconds=Seconds(settle=quiet and quiet.waited_s, **self.seconds),
        )
        told = record.reason and without(record.reason, here(results=self.folder.parents[4]))
        write_record(self.part / "trial.json", record.model_copy(update={"reason": told}))
        self.part.rename(self.folder)
        return record

    def _client(self) -> DockerClient:
        """Write down what Compose makes of this trial's factors, and return a client of just that."""
        variant, load = self.trial.variant, self.trial.load
        common = {"DURATION": self.trial.duration}
        profiles = [variant.service, variant.front, "load"]
        profiles += [
            name for name, one in (("client", load.client), ("api", load.api), (DATABASE, load.database)) if one
        ]
        factors = variant.environment() | {
            "LAB_SCRIPT": load.script,
            "LAB_K6_MEMORY": f"{load.k6_mib(self.trial.duration)}m",
            "LAB_K6_RELEASE": K6_RELEASE,
        }
        local = {
            "LAB_OWNER": owner(),
            "LAB_LOAD_SETTINGS": str(self.part / "load.env"),
            "LAB_RESULTS": str(self.part),
            "LAB_USER": f"{os.getuid()}:{os.getgid()}",
            "LAB_CA_BUNDLE": ca_bundle(),
        }
        if load.api:
            factors |= load.api.environment()
        if load.database:
            factors |= load.database.environment()
        if load.client:
            factors |= {"LAB_CLIENT": load.client.script}
            local |= {"LAB_CLIENT_SETTINGS": str(self.part / "client.env")}
            common_to_it = common | {"START_AFTER": f"{START_UP_S * self.side_by_side:g}s"}
            write_whole(self.part / "client.env", _env_file(load.client.environment() | common_to_it))
        write_whole(self.part / "load.env", _env_file(load.at(self.visits_per_s).environment() | common))
        write_whole(self.part / "factors.env", _env_file(factors))
        write_whole(self.part / LOCAL_ENV, _env_file(local))
        resolved = DockerClient(
            compose_files=[COMPOSE_FILE],
            compose_env_files=[self.part / "factors.env", self.part / LOCAL_ENV],
            compose_project_name=self.project,
            compose_profiles=profiles,
        ).compose.config(return_json=True)
        services = resolved["services"]
        for service in services.values():  # by hand they may be missing or fail; here they are there, and must not
            there = {name: one for name, one in service.get("depends_on", {}).items() if name in services}
            service["depends_on"] = {name: one | {"required": True} for name, one in there.items()}
        services |= _shared_out(services["k6"], load.generators)
        self.limits = {
            name: int(service["mem_limit"]) // 2**20 for name, service in services.items() if "mem_limit" in service
        }
        write_whole(self.part / "compose.yml", yaml.safe_dump(placeless(resolved, local), sort_keys=False))
        return DockerClient(
            compose_files=[self.part / "compose.yml"],
            compose_env_files=[self.part / LOCAL_ENV],
            compose_project_directory=ROOT,
            compose_project_name=self.project,
            compose_profiles=profiles,
        )

    def _observe(self, moment: Literal["before", "after"]) -> None:
        """Ask every container but the load generators' what it is and has counted; see servers/observe.

        One that does not answer leaves no observation, and the trial will be doubted for it.
        """

        def observe(container: Container) -> None:
            labels = _labels(container)
            if _asks(container) or container.state.status != "running":
                return
            with suppress(DockerException):
                said = DockerClient().container.execute(container, ["observe"])
                write_whole(self.part / f"{_numbered(labels)}.{moment}.txt", f"{said}\n")
                self.settings[_numbered(labels)] = str(said).partition("==> settings <==\n")[2]

        with ThreadPoolExecutor() as pool:
            list(pool.map(observe, self._containers()))

    def _rate_after(self, follows: plan.Trial) -> float:
        """Return the rate that follows from another trial of this round. Raise NoRate when it shows no capacity."""
        # DuckDB loads in the time of a whole set-up
        from analysis.capacity import measured_capacity_per_s  # noqa: PLC0415
        from analysis.read.rows import UnreadablePoints  # noqa: PLC0415

        assert self.trial.load.relative
        which = f"{follows.variant_name} under {follows.load_name}"
        folder = trial_folder(self.folder.parents[2], follows.variant_name, follows.load_name, follows.number)
        try:
            if reason := read_trial(folder).reason:
                raise NoRate(f"the rate is relative to {which}, which was not measured: {reason}")
            capacity_per_s = measured_capacity_per_s(
                folder, follows.variant_name, follows.load_name, follows.number,
                follows.load.environment(), follows.duration,
            )  # fmt: skip
        except BadRun:
            raise NoRate(f"the rate is relative to {which}, of which there is no record") from None
        except (UnreadablePoints, ValueError) as error:
            reason = str(error).replace(f"{folder}/", "")
            raise NoRate(f"the rate is relative to {which}, which shows no capacity: {reason}") from None
        if not capacity_per_s:
            raise NoRate(f"the rate is relative to {which}, where visits failed already in the first step")
        rate_per_s = self.trial.load.relative.times * capacity_per_s
        try:
            self.trial.load.at(rate_per_s)
        except WrongSetting as error:
            raise NoRate(f"the rate is relative to {which}, and too high: {error}") from None
        return rate_per_s

    def _containers(self) -> list[Container]:
        return DockerClient().container.list(all=True, filters=[("label", f"{_PROJECT}={self.project}")])

    def _why_not_healthy(self, error: DockerException) -> str:
        """Return the last lines that the least healthy container wrote; else what Docker said."""
        front = self.trial.variant.front  # which only waits for the servers, or is one
        with _tolerating_docker_errors():
            for container in sorted(self._containers(), key=lambda one: _labels(one)[_SERVICE] == front):
                health = container.state.health.status if container.state.health else None
                if container.state.status == "created" or health == "healthy":
                    continue
                lines = _output_of(container).decode(errors="replace").splitlines()
                probes = container.state.health.log if container.state.health else None
                if probes:
                    lines.append(f"the health check last said: {(probes[-1].output or '').strip()}")
                if lines:
                    return f"{_labels(container)[_SERVICE]} said:\n" + "\n".join(lines[-8:])
        return last_line(error)

    def _limit_reached(self, service: str) -> str:
        """Say which container needed more memory than it may have, and what to change."""
        load = self.trial.load
        if service == self.trial.variant.service:
            setting = "which the variant's memory_mib sets"
        elif service.partition("-")[0] == "k6":
            names = ", ".join(dict.fromkeys(K6_SCRIPTS[load.script].users))
            setting = f"which lab/limits.py computes from {names}, the rate and the duration"
        else:
            setting = f"which mem_limit of {service} in docker-compose.yml sets"
        return f"{service} needed more memory than its limit of {self.limits.get(service, 0)} MiB, {setting}"

    def _k6_ended(self, exit_code: int | None) -> None:
        """Note how one k6 ended; of several the one that measured nothing tells, or whose threshold was crossed."""
        codes = [0, 99, self.k6_exit_code, exit_code]
        self.k6_exit_code = max((code for code in codes[2:] if code is not None), key=codes.index, default=None)

    def _said(self, service: str) -> list[str]:
        logs = sorted(self.part.glob(f"{service}-*.log"))
        return [line for log in logs for line in log.read_text(errors="replace").strip().splitlines()]

    def _last_words(self, service: str) -> str:
        lines = self._said(service)
        errors = [line for line in lines if "level=error" in line]
        return _message((errors or lines or ["it wrote nothing"])[-1])

    def _thrown(self) -> str | None:
        thrown = [line for line in self._said("k6") if "level=error" in line and "source=stacktrace" in line]
        return _message(thrown[0]) if thrown else None


class NoRate(Exception):
    """The rate of a load is relative to a capacity that nobody knows; the message says why."""


def _k6(number: int) -> str:
    """Return the service of one of several k6 containers, counted from 1."""
    return "k6" if number == 1 else f"k6-{number}"


def _shared_out(k6: dict[str, Any], count: int) -> dict[str, dict[str, Any]]:
    """Return the services of so many k6 containers, each of which sends its share; one sends all."""
    if count == 1:
        return {}
    sequence = ",".join(["0", *(f"{number}/{count}" for number in range(1, count)), "1"])
    ends = sequence.split(",")
    suffix, *arguments = k6["command"]
    return {
        _k6(number): k6 | {"command": [
            suffix if number == 1 else f"-{number}",
            "--execution-segment", f"{ends[number - 1]}:{ends[number]}", "--execution-segment-sequence", sequence,
            *arguments,
        ]}
        for number in range(1, count + 1)
    }  # fmt: skip


def _asks(container: Container) -> bool:
    """Whether a container is a load generator."""
    return _is_generator(_labels(container)[_SERVICE])


def _is_generator(service: str) -> bool:
    return service.partition("-")[0] in GENERATORS


_SERVICE = "com.docker.compose.service"
_PROJECT = "com.docker.compose.project"


def _measure_batch(batch: tuple[plan.Trial, ...], run_folder: Path, progress: Progress) -> list[TrialRecord]:
    stacks = [Stack(trial, run_folder, len(batch)) for trial in batch]
    quiet: Quiet | None = None
    usage: Usage | None = None
    with uninterrupted() as asked, _watching(stacks):  # heeded between two steps, and while the load is waited for

        def settled() -> Quiet:
            return settle(partial(_heeding, progress, asked))

        try:
            _together(
                Stack.up, stacks, partial(progress, "starting the servers"), expected_s=3 + len(batch), asked=asked
            )
            ready = [stack for stack in stacks if stack.outcome == "measured"]
            computing = [stack for stack in ready if stack.trial.load.computes]
            quiet = settled() if computing else None
            for stack in computing:  # one after the other: alone is alone
                _together(Stack.calibrate, [stack], partial(progress, "calibrating"), expected_s=2, asked=asked)
            ready = [stack for stack in stacks if stack.outcome == "measured"]
            if ready:
                _together(
                    Stack.look_before, ready, partial(progress, "observing the servers"), expected_s=1, asked=asked
                )
                ready = [stack for stack in ready if stack.outcome == "measured"]
                quiet = max(filter(None, (quiet, settled())), key=lambda one: one.busy)
                ready = [stack for stack in ready if stack.outcome == "measured"]
                usage = _load(ready, progress, asked) if ready else None
        except KeyboardInterrupt:
            _mark_interrupted(stacks)
            raise
        finally:
            stopping = partial(progress, "stopping the servers")
            measured = [stack for stack in stacks if stack.outcome == "measured"]
            try:
                _together(Stack.collect, [stack for stack in stacks if stack.client], stopping, expected_s=1)
            finally:
                try:
                    _together(Stack.down, stacks, stopping, expected_s=2)
                finally:
                    if asked:  # a terminal's Ctrl-C reaches the engine's clients, too: their failure is no other
                        _mark_interrupted([stack for stack in measured if stack.outcome == "failed"])
                    records = _save(stacks, quiet, usage)
    return records


def _mark_interrupted(stacks: list[Stack]) -> None:
    for stack in stacks:
        stack.outcome, stack.reason = "interrupted", f"interrupted at {now()}"


def _heeding(progress: Progress, asked: list[int], what: str, passed_s: float, expected_s: float) -> None:
    if asked:
        raise KeyboardInterrupt
    progress(what, passed_s, expected_s)


def _save(stacks: list[Stack], quiet: Quiet | None, usage: Usage | None) -> list[TrialRecord]:
    """Save every stack, whatever becomes of the others; the first that could not be saved is raised afterwards."""
    records: list[TrialRecord] = []
    problem: OSError | None = None
    for stack in stacks:
        if not stack.gone:
            stack.fail(f"its containers could not be removed; make down removes {stack.project}")
        try:
            if _is_worth_keeping(stack):
                records.append(stack.save(quiet, usage))
        except OSError as error:
            with suppress(OSError):  # renaming takes no room: the raw points stay, and are never counted
                stack.part.rename(stack.part.with_name(f"unsaved-{stack.trial.number}"))
            problem = problem or error
    if problem:
        raise problem
    return records


def _load(stacks: list[Stack], progress: Progress, asked: list[int]) -> Usage:
    """Start the load on all stacks at once, wait until the last has ended, and return how the machine was meanwhile."""
    if asked:
        raise KeyboardInterrupt
    further = sum(stack.trial.load.generators - 1 for stack in stacks)
    begins = time.time() + START_UP_S * len(stacks) + FURTHER_START_UP_S * further
    _together(partial(Stack.start_load, at=begins), stacks, partial(progress, "starting the load"), expected_s=1)
    started = [stack for stack in stacks if stack.outcome == "measured"]
    for stack in stacks:
        if stack not in started:  # of several load generators some may have started
            stack.end_load()
    if not started:
        return Watch().read()
    duration_s = max(in_seconds(stack.trial.duration) for stack in stacks)
    deadline_s = K6_SLACK_S + max(
        in_seconds(stack.trial.duration) + stack.trial.load.last_answer_within_s(stack.trial.duration)
        for stack in stacks
    )

    def stop_late_ones() -> None:
        for stack in started:
            if "load" not in stack.seconds:
                stack.fail(f"the load did not end within {deadline_s:g} s")
                stack.end_load()

    late = threading.Timer(begins - time.time() + deadline_s, stop_late_ones)
    late.start()
    try:
        with _ending_when_memory_is_short(started):
            while not asked and (left_s := begins - time.time()) > 0:
                time.sleep(min(left_s, LOOK_EVERY_S))
            watch = Watch()
            loading = partial(progress, "load")
            _together(Stack.wait_for_load, started, loading, duration_s + plan.TAIL_S, asked, stop=Stack.end_load)
        return watch.read()
    finally:
        late.cancel()
        for stack in started:
            stack.loading = False


@contextmanager
def _watching(stacks: list[Stack]) -> Iterator[None]:
    """End a stack's load as soon as one of its servers ends, or one of its containers has no memory left.

    k6 would ask the dead for minutes, and a server whose workers are killed as they start is never healthy. Of each
    stack the first such event counts.
    """

    def heed(lines: Iterable[str]) -> None:
        with ThreadPoolExecutor(len(stacks)) as pool:  # while one stack ends, the events of others are read
            for line in lines:
                event = json.loads(line)
                of = event["Actor"]["Attributes"]
                for stack in stacks:
                    if of.get(_PROJECT) == stack.project and stack.outcome == "measured":
                        pool.submit(stack.heed, event["Action"], event["Actor"]["ID"], of)

    command = ["docker", "events", "--since", f"{time.time():.3f}", "--filter", "event=die", "--filter", "event=oom",
               "--filter", f"label={OWNER_LABEL}={owner()}", "--format", "{{json .}}"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as events:
        assert events.stdout
        heeding = threading.Thread(target=heed, args=(events.stdout,))
        heeding.start()
        try:
            yield
        finally:
            events.terminate()
            heeding.join()


@contextmanager
def _ending_when_memory_is_short(stacks: list[Stack]) -> Iterator[None]:
    """End all loads as soon as the machine has hardly any memory left."""
    over = threading.Event()

    def look() -> None:
        memory = Memory()
        while not over.wait(LOOK_AGAIN_S):
            if shortage := memory.shortage():
                loading = [stack for stack in stacks if "load" not in stack.seconds]
                for stack in loading:
                    stack.fail(shortage)
                with ThreadPoolExecutor(len(stacks)) as pool:
                    list(pool.map(Stack.end_load, loading))
                return

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield
    finally:
        over.set()
        looking.join()


def _together(
    step: Callable[[Stack], None],
    stacks: list[Stack],
    progress: Callable[[float, float], None],
    expected_s: float,
    asked: Sequence[int] = (),
    stop: Callable[[Stack], None] | None = None,
) -> None:
    """Do one step for all stacks at the same time, and return or raise only when none is at it any more.

    Once signals are among ``asked`` a step does not begin, or ``stop``, if there is one, is called so that it ends
    early; then KeyboardInterrupt is raised. An unexpected error of one stack is raised when all are through.
    """
    if asked and not stop:
        raise KeyboardInterrupt
    if not stacks:
        return
    began = time.monotonic()
    with ThreadPoolExecutor(2 * len(stacks)) as pool:
        waiting = futures = [pool.submit(step, stack) for stack in stacks]
        while waiting:
            waiting = list(wait(waiting, timeout=LOOK_EVERY_S).not_done)
            progress(time.monotonic() - began, expected_s)
            if asked and stop:
                stopping = [pool.submit(stop, stack) for stack in stacks]
                stop, waiting, futures = None, waiting + stopping, futures + stopping
    errors = [error for future in futures if (error := future.exception())]
    if asked:
        raise KeyboardInterrupt from (errors[0] if errors else None)
    if errors:
        raise errors[0]


def _at_work_ms(front: Container, port: int, path: str) -> float:
    """Ask as k6 will, and return how long the server was at work."""
    command = ["curl", "--silent", "--show-error", "--fail", "--max-time", "60", f"http://127.0.0.1:{port}{path}"]
    answer = json.loads(str(DockerClient().container.execute(front, command)))
    return 1000 * (float(answer["ended"]) - float(answer["began"]))


def _is_worth_keeping(stack: Stack) -> bool:
    """Whether a trial leaves a folder: an interrupted one that sent nothing does not."""
    if stack.outcome == "interrupted" and not (stack.part / "points.json.gz").exists():
        shutil.rmtree(stack.part, ignore_errors=True)
        return False
    return True


@contextmanager
def _tolerating_docker_errors() -> Iterator[None]:
    """Go on when the engine refuses or is gone: what cannot be removed now is removed by the next command."""
    try:
        yield
    except DockerException:
        time.sleep(0.2)


def _output_of(container: Container) -> bytes:
    """Return what a container wrote, on both streams."""
    lines = DockerClient().container.logs(container, stream=True)
    return b"".join(line for _, line in cast("Iterable[tuple[str, bytes]]", lines))


def _labels(container: Container) -> dict[str, str]:
    return container.config.labels or {}


def _numbered(labels: dict[str, str]) -> str:
    """Return the name of a container within its project, e.g. nginx-1."""
    return f"{labels[_SERVICE]}-{labels['com.docker.compose.container-number']}"


def _message(line: str) -> str:
    """Return the message of one line of k6's log, without the stack below it."""
    found = re.search(r'msg="(.*?)(?:\\n|"(?: |$))', line)
    return (found[1] if found else line)[:300]


def _env_file(values: dict[str, str]) -> str:
    return "".join(f"{name}='{value}'\n" for name, value in values.items())


def now() -> str:
    """Return the time in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
