"""What a run records of itself: the models of run.json and of each trial's trial.json."""

import json
from statistics import median
from typing import Any, Literal

from pydantic import Field

from stampede.records.claims import Claim, Curve, Published
from stampede.records.model import ADDRESS_PATTERN, Model, TrialPart
from stampede.records.traffic import Traffic

SCHEMA = 2
"""The schema of the records that this version writes and reads."""
METHOD = 2
"""How runs are measured. It grows with each change after which old and new runs cannot be compared (CHANGELOG.md)."""
THEORY = 2
"""How theory predicts. It grows with each change after which the same settings have another prediction, or
predicted.json other keys or names of metrics."""
OTHERS_CORES = 2
"""How many cores the balancer and the load generator need in addition to the cores of workers that compute."""
ALONE_ALLOWED = 0.05
"""By which part of its time a request that computes may miss the time that it asks for, when it is sent alone."""
SMALL_BURST = 50
"""If a burst has at most this many requests, its figures and pictures show every request."""
TABLED_BURST = 12
"""If a burst has at most this many requests, tables show every request, too."""

GTHREAD_CONNECTIONS = 1000
"""How many connections a gthread worker of gunicorn holds if its settings do not say it."""
EVEN, FORK_ORDER = "even", "fork-order"


class Image(Model):
    """A container image that took part in the run; ``stand_in``: what it was built from, as no registry was reached.

    A registry knows it by its ``digests``; images that were built here have none. The names of Python packages begin
    with ``python/``. ``programs`` has the versions of the programs that the image is for.
    """

    name: str
    id: str
    stand_in: str | None = None
    digests: list[str] = Field([])
    packages: dict[str, str] = Field({})
    programs: dict[str, str] = Field({})


class Host(Model):
    """The machine on which the run was measured."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    engine: str
    compose: str


UNKNOWN = Host(cpu="", cores=0, memory_gib=0, kernel="", engine="", compose="")
"""The machine of requests that theory or a log knows, and no run of the lab measured."""


def cores_named(cpuset: str) -> int:
    """Return how many cores a list such as ``0-2,4`` names."""
    ends = [part.partition("-")[::2] for part in cpuset.replace(",", " ").split()]
    return sum(int(last or first) - int(first) + 1 for first, last in ends)


class RunMachine(Model):
    """One of the machines of a run: what ran on it, and which cores its containers could use (empty: all).

    Its ``role`` is ``servers``, ``load`` or ``both``.
    """

    name: str
    role: str
    cpuset: str = ""
    host: Host

    @property
    def cores(self) -> int:
        """How many cores its containers could use."""
        return cores_named(self.cpuset) or self.host.cores


class Git(Model):
    """The state of the lab's own files."""

    commit: str
    dirty: bool


class Queueing(Model):
    """How one worker queues requests.

    ``threads`` is how many requests it serves at once, ``max_connections`` how many it accepts; None: without a limit.
    On a ``loop``, requests that compute or call another service hold up all others of the worker; ``blocks_loop``:
    requests that sleep do, too. A loop that ``sweeps_backlog`` accepts all connections that wait when it wakes.
    ``race`` says who wins a connection that several workers want: the workers in the order of forking
    (``fork-order``), or all with the same chance (``even``); a worker that ``hesitates`` lets idle workers win.
    ``keeps_idle``: the balancer may keep idle connections open; a worker that ``closes_idle_when_full`` closes them
    when its last thread becomes busy. ``missing`` is what theory lacks to simulate such workers.
    """

    threads: int | None = None
    max_connections: int | None = None
    loop: bool = False
    blocks_loop: bool = False
    sweeps_backlog: bool = False
    race: str = FORK_ORDER
    hesitates: bool = False
    keeps_idle: bool = False
    closes_idle_when_full: bool = False
    missing: str | None = None

    @property
    def has_inner_queue(self) -> bool:
        """Whether a busy worker accepts requests, so that they wait where no other worker can take them."""
        return self.threads is None or self.max_connections is None or self.max_connections > self.threads


class VariantRecord(Model):
    """A variant as it was requested, with the number of workers that its requests should be spread over.

    ``accept``: the workers of one container share a listening socket (``shared``), or each has its own
    (``per-worker``). An ``elastic`` server starts and ends workers as it needs them, and has at most ``workers``.
    """

    name: str
    workers: int
    elastic: bool = False
    accept: str | None = None
    queueing: Queueing | None = None
    settings: dict[str, Any]

    @property
    def settings_in_words(self) -> dict[str, str]:
        """The settings as texts; that of a build that is not released says what it is made from, and its hash."""
        return {
            name: ", ".join(f"{key} {part}" for key, part in value.items() if part)
            if isinstance(value, dict) else str(value)
            for name, value in self.settings.items()
        }  # fmt: skip

    @property
    def is_replaced(self) -> bool:
        """Whether workers are replaced during the load, after a number of requests or by a signal."""
        return bool(self.settings.get("max_requests") or self.signal)

    @property
    def signal(self) -> Literal["HUP", "SIGTERM"] | None:
        """The signal that replaces all workers during the load; None: no signal does."""
        signals: dict[str, Literal["HUP", "SIGTERM"]] = {"hup_after_s": "HUP", "term_after_s": "SIGTERM"}
        return next((signal for name, signal in signals.items() if self.settings.get(name)), None)

    @property
    def threads(self) -> int | None:
        """How many threads each worker has; None: that is unknown."""
        threads = self.settings.get("threads")
        return threads if type(threads) is int else None


class ClientRecord(Model):
    """A client that ran beside k6, as it was requested, with its environment; it connects to the server or balancer."""

    script: str
    settings: dict[str, str]
    through_balancer: bool = False


class RelativeRate(Model):
    """A rate: ``times`` times the capacity that variant ``of`` showed under load ``under`` in the same round."""

    times: float
    of: str
    under: str


LoadKind = Literal["steady", "burst", "crash", "visits"]
"""How requests come: continuously, in bursts, in bursts with a request that kills its worker, or in visits."""
TODAY = "today"
"""The variant that serves somebody's own application as it is served today."""
USER_SERVICE, REPLAY = "user-service.js", "replay.js"
"""The scripts that send requests to somebody's own application: classes of requests, and the requests of a log."""


class LoadRecord(Model):
    """A load as it was requested; ``settings`` is the environment of the load's script.

    ``generators`` k6 containers shared it. ``api`` has the settings of the service that the servers call, times in
    seconds, and ``database`` those of their database. A load that ``overloads`` asks for more than the servers can
    answer, so failures are findings. ``traffic``: the requests as theory simulates them; None: as the settings say.
    """

    name: str
    script: str
    kind: LoadKind = "steady"
    client: ClientRecord | None = None
    generators: int = 1
    api: dict[str, float | bool] | None = None
    database: dict[str, int] | None = None
    overloads: bool = False
    relative: RelativeRate | None = None
    loop: Literal["closed", "open"] = "closed"
    duration: str
    settings: dict[str, str]
    traffic: Traffic | None = None

    @property
    def described(self) -> dict[str, str]:
        """The settings; those of the classes of requests each by its name, such as ``users of light``."""
        classes: dict[str, dict[str, object]] = json.loads(self.settings.get("CLASSES", "{}"))
        each = {f"{key} of {name}": str(value) for name, of in classes.items() for key, value in of.items()}
        others = {name: value for name, value in self.settings.items() if not classes or name != "CLASSES"}
        return others | each

    @property
    def calibrated(self) -> str | None:
        """The class of requests that a trial is calibrated for; None: all classes, or nobody recorded it.

        Empty: its requests do not all ask for the same, so a quick request is no sign of a wrong calibration.
        """
        classes = self.traffic.classes if self.traffic else {}
        computing = {name: of for name, of in classes.items() if any(work.does == "compute" for work in of.work)}
        if not computing:
            return None
        name, of = max(computing.items(), key=lambda each: each[1].rounds * sum(work.mean_s for work in each[1].work))
        return name if all(isinstance(work.takes_s, int | float) for work in of.work) else ""

    @property
    def burst(self) -> int | None:
        """How many requests the load sends at once; None: the load has no bursts.

        A request that kills its worker, and the requests before and after it, are a burst, too.
        """
        match self.kind:
            case "burst":
                parts = [self.settings.get("BURST", "")]
            case "crash":
                parts = ["1", self.settings.get("BEFORE", ""), self.settings.get("AFTER", "")]
            case _:
                return None
        return sum(map(int, parts)) or None if all(part.isdecimal() for part in parts) else None

    @property
    def has_small_bursts(self) -> bool:
        """Whether the load's bursts are so small that pictures show every request."""
        return self.burst is not None and self.burst <= SMALL_BURST

    @property
    def has_tabled_bursts(self) -> bool:
        """Whether the load's bursts are so small that a table shows when each request was answered."""
        return self.burst is not None and self.burst <= TABLED_BURST

    @property
    def crashes(self) -> bool:
        """Whether one of the load's requests kills the worker that serves the request."""
        return self.kind == "crash"

    @property
    def is_of_user_service(self) -> bool:
        """Whether the requests are for somebody's own application."""
        return self.script in (USER_SERVICE, REPLAY)


class SourceRecord(Model):
    """Where published figures come from. ``address`` is where the article can be read; None: it was not found."""

    title: str
    publisher: str
    year: int | None = None
    address: str | None = Field(None, pattern=ADDRESS_PATTERN)
    unknown: list[str] = Field([])


class Run(Model):
    """run.json: what was measured, on which machine, and how the run ended.

    ``machines`` is empty if everything ran on one machine, which is then ``host``; otherwise ``host`` is the first
    machine for servers, and the traffic between machines may be ``encrypted``. ``sleeping``: no request uses a core.
    ``until_decided``: rounds went on until every claim was decided; ``trials`` is the most rounds that were planned.
    """

    method: int = 1
    version: str = ""
    experiment: str
    title: str
    question: str
    because: str | None = None
    source: SourceRecord | None = None
    published: list[Published] = Field([])
    claims: list[Claim] = Field([])
    curve: Curve | None = None
    variants: list[VariantRecord]
    loads: list[LoadRecord]
    sleeping: bool = False
    full: bool = False
    trials: int = 1
    until_decided: bool = False
    jobs: int = 1
    seed: int = 1
    order: list[list[str]]
    command: str
    host: Host = UNKNOWN
    machines: list[RunMachine] = Field([])
    encrypted: bool = False
    git: Git | None = None
    images: list[Image] = Field([])
    began: str
    ended: str | None = None
    outcome: Literal["running", "completed", "interrupted", "failed"] = "running"
    reason: str | None = None

    def load(self, name: str) -> LoadRecord:
        """Return the load of this name."""
        return next(load for load in self.loads if load.name == name)

    def variant(self, name: str) -> VariantRecord:
        """Return the variant of this name."""
        return next(variant for variant in self.variants if variant.name == name)

    def variants_under(self, load: str) -> list[VariantRecord]:
        """Return the variants that were to be measured under a load."""
        asked = {variant for variant, under, _ in self.order if under == load}
        return [variant for variant in self.variants if variant.name in asked]

    @property
    def telling_claims(self) -> list[Claim]:
        """The claims, and before them the first that answers the question, and the first that names a cure."""
        firsts = (next((claim for claim in self.claims if claim.role == role), None) for role in ("answer", "cure"))
        return [claim for claim in (*firsts, *self.claims) if claim]

    @property
    def cores(self) -> int:
        """How many cores the servers could use, on all machines together."""
        return sum(machine.cores for machine in self.machines if machine.role != "load") or self.host.cores

    @property
    def cores_of_one(self) -> int:
        """How many cores the servers could use on the machine that has the fewest."""
        return min((machine.cores for machine in self.machines if machine.role != "load"), default=self.host.cores)

    @property
    def measured_on(self) -> str:
        """The machine in words, or the machines by name, role and cores."""
        if not self.machines:
            return f"{self.host.cpu} ({self.host.cores} cores)"
        named = (f"{machine.name} ({machine.role}, {machine.cores} cores)" for machine in self.machines)
        return f"{len(self.machines)} machines: {', '.join(named)}; the first is a {self.host.cpu}"


class Seconds(Model):
    """How long each step of a trial took, in seconds. None: the trial ended before this step did."""

    up: float | None = None
    settle: float | None = None
    calibrate: float | None = None
    load: float | None = None
    collect: float | None = None


class Calibration(Model):
    """How long requests that compute (as ``cpu`` says) take when they are sent one at a time, before the load.

    ``call_us`` is the length of the calls with which a request holds the interpreter lock; None: it really computes.
    Each request asks for ``service_time_ms`` of work; ``alone_ms`` is how long a worker was at work on each.
    """

    cpu: str
    call_us: float | None
    service_time_ms: float
    alone_ms: list[float]

    @property
    def missed_ms(self) -> float:
        """By how much the median request alone missed the time that it asked for."""
        return abs(median(self.alone_ms) - self.service_time_ms)

    def holds(self, cpus: float = 1) -> bool:
        """Whether requests alone take nearly as long as they ask for; always, if they ask for nothing.

        ``cpus`` is how many cores the container may use. With a quota of half a core, a request that computes alone
        may take twice as long, because its container stands still for the other half of each period.
        """
        if not self.service_time_ms:
            return True
        longest_ms = self.service_time_ms / min(1, cpus)
        return self.service_time_ms * (1 - ALONE_ALLOWED) <= median(self.alone_ms) <= longest_ms * (1 + ALONE_ALLOWED)


class Exchange(Model):
    """A question to a machine for its time: asked and answered by the lab's clock, told by its own; epoch seconds."""

    asked: float
    told: float
    answered: float


class MachineRecord(Model):
    """What one machine did in a trial, its state as in the trial's record, and what its clock told.

    ``hosts`` are the host names of its containers, as workers name themselves (``host:pid``), and ``generators`` its
    load generators, by the names of their files of points (``points-2``).
    """

    name: str
    hosts: list[str] = Field([])
    generators: list[str] = Field([])
    exchanges: list[Exchange] = Field([])
    busy_during: float | None = None
    steal_during: float | None = None
    pressure_during: float | None = None


class ContainerLog(Model):
    """How many bytes of a container's output the engine kept, and had at first; ``cut``: not the beginning."""

    kept: int
    before: int = 0
    cut: bool = False


class TrialRecord(TrialPart):
    """trial.json: one variant under one load, measured once.

    ``busy`` and ``steal`` are shares of the time of all cores, ``pressure`` is the share of the time in which something
    waited for a processor; None: the machine does not report it. ``settings`` has what each container reports, by name.
    ``calibration`` is None if no request computes. ``visits_per_s``: the rate followed from a measured capacity.
    ``machines`` is empty if all containers ran on one machine.
    """

    outcome: Literal["measured", "interrupted", "failed"]
    reason: str | None = None
    k6_exit_code: int | None = None
    began: str
    ended: str
    side_by_side: int
    busy_before: float | None = None
    busy_during: float | None = None
    steal_during: float | None = None
    pressure_during: float | None = None
    clock_step_s: float | None = None
    calibration: Calibration | None = None
    visits_per_s: float | None = None
    settings: dict[str, str] = Field({})
    machines: list[MachineRecord] = Field([])
    logs: dict[str, ContainerLog] = Field({})
    seconds: Seconds = Seconds()
