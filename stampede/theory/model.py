"""What can be simulated: who asks, what a request needs, and the workers that serve it. Times are in seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # loading NumPy would double the time of short commands
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]


class WrongModel(ValueError):
    """A model that cannot be simulated. The message names the part, its value and what is allowed."""


@dataclass(frozen=True)
class Constant:
    """Always the same time."""

    seconds: float

    def __post_init__(self) -> None:
        _check_time("a constant time", self.seconds)

    @property
    def mean(self) -> float:
        """The mean, in seconds."""
        return self.seconds


@dataclass(frozen=True)
class Uniform:
    """Every time between two ends is as likely as every other."""

    least: float
    most: float

    def __post_init__(self) -> None:
        _check_time("the shortest time", self.least)
        _check_time("the longest time", self.most)
        if self.least > self.most:
            raise WrongModel(f"the longest time, {self.most:g} s, is below the shortest, {self.least:g} s")

    @property
    def mean(self) -> float:
        """The mean, in seconds."""
        return (self.least + self.most) / 2


@dataclass(frozen=True)
class Exponential:
    """Times without memory."""

    mean: float
    """In seconds."""

    def __post_init__(self) -> None:
        _check_time("the mean of exponential times", self.mean)


@dataclass(frozen=True)
class Given:
    """Times that were measured: each draw returns one of them, all as likely."""

    seconds: Floats

    def __post_init__(self) -> None:
        if not len(self.seconds):
            raise WrongModel("measured times: there are none; at least one is needed")
        _check_time("the shortest of the measured times", float(self.seconds.min()))
        _check_time("the longest of the measured times", float(self.seconds.max()))

    @property
    def mean(self) -> float:
        """The mean, in seconds."""
        return float(self.seconds.mean())


Distribution = Constant | Uniform | Exponential | Given


@dataclass(frozen=True)
class Stalls:
    """When a service that requests call stalls: ``lasts`` seconds from ``first`` on, and again ``every`` seconds.

    A call that begins during a stall takes ``takes`` seconds.
    """

    first: float
    every: float
    lasts: float
    takes: float

    def __post_init__(self) -> None:
        for name in ("first", "every", "lasts", "takes"):
            _check_time(f"{name} of the stalls", getattr(self, name))
        if self.lasts >= self.every:
            raise WrongModel(f"a stall of {self.lasts:g} s every {self.every:g} s never ends")


@dataclass(frozen=True)
class WorkStep:
    """A part of a request's work.

    ``wait``: the step only keeps its thread. ``compute``: it also needs the interpreter lock of its process. ``call``:
    it waits for another service, which may stall. ``occupy``: it needs the machine for itself; no request asked for
    this time. ``queues``: before the step, the request gives its thread back, and waits for a thread of the same worker
    like a new request.
    """

    takes: Distribution
    does: Literal["wait", "compute", "call", "occupy"] = "wait"
    queues: bool = False
    stalls: Stalls | None = None


@dataclass(frozen=True)
class Closed:
    """``users`` who each send a request, wait for its answer, pause, and send the next request.

    ``keeps``: each user has one connection for all requests, so the worker that accepts it serves all of them.
    """

    users: int
    pause: Distribution = field(default_factory=lambda: Constant(0.0))
    keeps: bool = False

    def __post_init__(self) -> None:
        _check_count("users of a closed loop", self.users)


@dataclass(frozen=True)
class Open:
    """Requests at a rate that does not depend on the answers.

    ``regular``: always the same time apart, but for a delay of up to ``jitter`` seconds by chance.
    """

    per_second: float
    regular: bool = False
    jitter: float = 0.0

    def __post_init__(self) -> None:
        if not (isfinite(self.per_second) and self.per_second > 0):
            raise WrongModel(f"the rate of an open loop is {self.per_second:g} requests/s; it must be above 0")


@dataclass(frozen=True)
class Bursts:
    """``size`` requests at nearly the same moment, again and again; ``apart``: the seconds from one to the next."""

    size: int
    every: float
    apart: float = 0.0

    def __post_init__(self) -> None:
        _check_count("requests of a burst", self.size)
        if not self.every > 0:
            raise WrongModel(f"the time between bursts is {self.every:g} s; it must be above 0")
        _check_time("the time between the requests of a burst", self.apart)


@dataclass(frozen=True)
class Recorded:
    """Requests at given times, in ascending order."""

    sent: Floats

    def __post_init__(self) -> None:
        early = self.sent[1:] < self.sent[:-1]
        if early.any():
            place = int(early.argmax()) + 1
            raise WrongModel(f"the recorded times are not in order: time {place} is before time {place - 1}")


Arrivals = Closed | Open | Bursts | Recorded


@dataclass(frozen=True)
class Class:
    """One class of request: how requests arrive, and the steps of their work.

    ``works``: how long each recorded request works, in the order of arrival, instead of the time of the first step.
    """

    name: str
    arrivals: Arrivals
    steps: Sequence[WorkStep]
    works: Floats | None = None

    def __post_init__(self) -> None:
        if not self.steps:
            raise WrongModel(f"class {self.name} has no steps; a request needs at least one")
        if isinstance(self.arrivals, Closed) and self.mean + self.arrivals.pause.mean == 0:
            raise WrongModel(f"class {self.name} neither works nor pauses; its users would send without end")
        if self.works is not None:
            sent = len(self.arrivals.sent) if isinstance(self.arrivals, Recorded) else None
            if sent != len(self.works):
                raise WrongModel(f"class {self.name} has {len(self.works)} recorded times of work for {sent} requests")

    @property
    def mean(self) -> float:
        """How long a request works on average if it never waits, in seconds."""
        return sum(step.takes.mean for step in self.steps)

    @property
    def rate(self) -> float:
        """About how many requests come in a second, if none waits."""
        match self.arrivals:
            case Closed(users=users, pause=pause):
                return users / (self.mean + pause.mean)
            case Open(per_second=per_second):
                return per_second
            case Bursts(size=size, every=every):
                return size / every
            case Recorded(sent=sent):
                return len(sent) / max(float(sent[-1]), 1.0) if len(sent) else 0.0


Balance = Literal["hash", "turns", "least", "two"]


@dataclass(frozen=True)
class Servers:
    """Listening sockets with workers.

    ``balance`` is how a socket is chosen: ``hash`` (by chance, every socket as likely), ``turns`` (one after another),
    ``least`` (the fewest requests) or ``two`` (the better of two that chance picks). Chance picks one of the
    ``balancers``, each of which counts only its own requests; the turns of several balancers begin by chance. A socket
    may have ``max_per_socket`` requests at once; further requests wait at the balancer if it ``queues`` them, and are
    refused otherwise. The balancer keeps up to ``idle_kept`` idle connections open: a request takes the connection that
    was used last, whoever used it, and with it its worker; if no connection is idle, the request opens a connection. A
    worker that ``closes_idle_when_full`` counts no idle connection as accepted, and closes its own when its last thread
    becomes busy.

    At each socket wait ``workers``, and each of them accepts up to ``max_connections`` requests (None: without a
    limit), on ``threads`` threads (None: without a limit, as on an event loop). If several workers accept, they race:
    each of them wins with the chance ``bias``, in the order of forking; 0 makes all of them as likely. ``hesitates``: a
    worker whose threads are all busy wins only if every worker's threads are busy.

    ``cores``: so many processes compute at once (None: all of them), in turns of a few milliseconds. ``containers``
    share the workers equally; each of them may compute for ``quota`` core seconds in a second (None: without a limit).
    As the kernel counts it, a container that has used up its part of a period of 0.1 s stands still until the next.

    ``switch`` is after how many seconds a thread that computes hands the interpreter lock over if another thread of its
    process wants it. On a ``loop``, steps that compute or call have the worker's event loop for themselves until they
    end.
    """

    sockets: int = 1
    balancers: int = 1
    balance: Balance = "hash"
    max_per_socket: int | None = None
    queues: bool = True
    idle_kept: int = 0
    closes_idle_when_full: bool = False
    workers: int = 1
    threads: int | None = 1
    max_connections: int | None = None
    bias: float = 0.0
    hesitates: bool = False
    cores: int | None = None
    containers: int = 1
    quota: float | None = None
    switch: float = 0.005
    loop: bool = False

    def __post_init__(self) -> None:
        _check_count("sockets", self.sockets)
        _check_count("balancers", self.balancers)
        if self.balancers > 1 and self.max_per_socket is not None and self.queues:
            raise WrongModel("several balancers with a limit and a queue each cannot be simulated; use one balancer")
        if self.idle_kept and (
            self.balancers > 1 or self.max_per_socket is not None or (self.sockets > 1 and self.balance != "hash")
        ):
            raise WrongModel(
                f"{self.idle_kept} kept connections: only one balancer that chooses no socket keeps connections; "
                "use idle_kept=0"
            )
        _check_count("workers", self.workers)
        if self.containers < 1 or self.all_workers % self.containers:
            raise WrongModel(f"{self.containers} containers cannot share {self.all_workers} workers equally")
        if self.quota is not None and not self.quota > 0:
            raise WrongModel(f"the quota of a container is {self.quota:g} cores; it must be above 0")
        for name in ("max_per_socket", "threads", "max_connections", "cores"):
            if (count := getattr(self, name)) is not None:
                _check_count(name, count)
        if not 0 <= self.bias < 1:
            raise WrongModel(f"the bias of the race is {self.bias:g}; it must be at least 0 and below 1")
        if not self.switch > 0:
            raise WrongModel(f"the lock is handed over after {self.switch:g} s; the time must be above 0")

    @property
    def all_workers(self) -> int:
        """The workers at all sockets."""
        return self.sockets * self.workers

    @property
    def computing_at_once(self) -> float:
        """How many processes can compute at once on average."""
        quota = inf if self.quota is None else self.quota * self.containers
        return min(self.all_workers, quota, inf if self.cores is None else self.cores)

    @property
    def at_once(self) -> float:
        """How many requests all workers can work on at once."""
        return inf if self.threads is None else float(self.all_workers * self.threads)


@dataclass(frozen=True)
class QueueingSystem:
    """Servers, and the classes of requests that they get.

    ``one_device``: the service that requests call works on one call at a time, and gives each waiting call a slice of
    time in turn. ``transit``: how long a request is on its way, there and back together, outside of queues and threads.
    """

    servers: Servers
    classes: Sequence[Class]
    one_device: bool = False
    transit: float = 0.0

    def __post_init__(self) -> None:
        _check_time("the transit", self.transit)
        if not self.classes:
            raise WrongModel("the model has no class of requests; at least one is needed")
        if self.one_device and self.servers.loop and self.servers.all_workers > 1:
            raise WrongModel("one device behind several event loops cannot be simulated; use one worker, or threads")
        rates = [(class_, class_.arrivals.per_second) for class_ in self.classes if isinstance(class_.arrivals, Open)]

        def busy(does: str | None = None) -> float:
            """Return how much is busy on average with the steps of the open loops that do this; None: all steps."""
            steps = ((rate, step) for class_, rate in rates for step in class_.steps)
            return sum(rate * step.takes.mean for rate, step in steps if does in (None, step.does))

        if busy() >= self.servers.at_once:
            raise WrongModel(
                f"the open loops keep {busy():.4g} threads busy, and there are {self.servers.at_once:.0f}: the queue "
                "grows for ever; send fewer requests, or add workers or threads"
            )
        if busy("compute") >= self.servers.computing_at_once:
            what = "interpreter locks" if self.servers.computing_at_once == self.servers.all_workers else "cores"
            raise WrongModel(
                f"the open loops keep {busy('compute'):.4g} {what} busy, and there are "
                f"{self.servers.computing_at_once:g}: the queue grows for ever; send fewer requests, or add workers"
            )
        if busy("occupy") >= 1:
            raise WrongModel(
                f"the open loops need {busy('occupy'):.4g} times the processors of this machine; send fewer requests"
            )
        if self.one_device and busy("call") >= 1:
            raise WrongModel(f"the open loops need the only device {busy('call'):.4g} times: send fewer requests")


def _check_time(what: str, seconds: float) -> None:
    if not (isfinite(seconds) and seconds >= 0):
        raise WrongModel(f"{what} is {seconds:g} s; it must be at least 0")


def _check_count(what: str, count: int) -> None:
    if count < 1:
        raise WrongModel(f"{what}: {count} is too few; there must be at least 1")
