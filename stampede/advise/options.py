"""A load that is offered to servers, and the options to serve it: workers x threads, who accepts, the balancer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2, sqrt
from typing import Any

from pydantic import ValidationError

from stampede.plan import FREE_SHARE
from stampede.predict.options import OPTION_KINDS, OptionKind
from stampede.servers import KINDS
from stampede.servers.base import SERVER_MIB, THREAD_MIB, WORKER_MIB, Balance, Variant
from stampede.theory.model import Class, Closed, Open

MOST_WORKERS = 32


@dataclass(frozen=True)
class OfferedLoad:
    """The classes of requests, of users or of so many per second, and the machine.

    ``computes``: requests need cores. ``cores`` are those of all containers; ``cpus`` is how many each pod may use on
    average, or all containers together if there are no pods; None: there is no quota. ``pods``: so many containers,
    among which the ``balance`` chooses, have ``memory_mib`` each; None: one machine has them, and may start several
    servers. ``least_workers``: 2 if one process could be too few. ``threads`` is the most threads in all workers; None:
    as many as help.
    """

    classes: Sequence[Class]
    computes: bool = False
    cores: float = 1
    cpus: float | None = None
    pods: int | None = None
    balance: Balance = "round_robin"
    memory_mib: int = 1 << 20
    worker_mib: float = WORKER_MIB["wsgi"]
    least_workers: int = 1
    threads: int | None = None

    @property
    def busy(self) -> float:
        """About how many threads are busy at once at most."""
        users = [each.arrivals.users if isinstance(each.arrivals, Closed) else inf for each in self.classes]
        means = [each.rate * each.mean for each in self.classes]
        return sum(min(most, mean + 3 * sqrt(mean)) for most, mean in zip(users, means, strict=True))

    @property
    def rate(self) -> float:
        """About how many requests come in a second, if none waits."""
        return sum(each.rate for each in self.classes)

    def times(self, factor: float) -> "OfferedLoad":
        """Return the load with more users, or with more requests per second; other arrivals stay as they are."""
        classes = []
        for each in self.classes:
            match each.arrivals:
                case Closed(users=users) as arrivals:
                    classes.append(replace(each, arrivals=replace(arrivals, users=ceil(users * factor))))
                case Open(per_second=rate) as arrivals:
                    classes.append(replace(each, arrivals=replace(arrivals, per_second=rate * factor)))
                case _:
                    classes.append(each)
        return replace(self, classes=classes)


@dataclass(frozen=True)
class ServingOption:
    """One option, as a variant that the lab can measure.

    ``workers`` are those of all containers together; of pods, they and ``memory_mib`` are those of each.
    """

    kind: OptionKind
    variant: Variant
    workers: int
    threads: int
    memory_mib: float
    is_today: bool = False

    @property
    def name(self) -> str:
        """A name that a variant of an experiment can have."""
        return "today" if self.is_today else f"{self.kind.name}-{self.workers}x{self.threads}"

    @property
    def size(self) -> str:
        """The workers and the threads of each, such as ``4 x 2``."""
        return f"{self.workers} x {self.threads}"


def serving_options(load: OfferedLoad) -> Iterator[ServingOption]:
    """Yield the options that fit into the memory and the threads, and into the cores if requests compute."""
    pods, cores = load.pods or 1, load.cores if load.cpus is None else load.cpus
    # a quota stops more processes than cores, but a short request does not wait for the end of a long one
    most_workers = MOST_WORKERS if not load.computes else int(cores) if load.cpus is None else 4 * ceil(cores)
    shared: dict[str, Any] = {"memory_mib": 1 << 20}
    if pods > 1:
        shared |= {"replicas": pods, "balance": load.balance}
    near = 2 ** ceil(log2(max(load.busy / pods, 1)))
    totals = {max(1, near // 2), near, 2 * near}
    if load.threads is not None:
        totals = {total for total in totals if total <= load.threads} | {load.threads}
    # a container for each worker is no pod
    kinds = [kind for kind in OPTION_KINDS if not (load.pods and "replicas" in kind.settings(2, 1))]
    for threads in sorted(totals):
        most = min(most_workers, threads)
        powers = (2**power * load.least_workers for power in range(most.bit_length()))
        for workers in powers:
            if workers > most or threads % workers:
                continue
            for kind in kinds:
                if kind.name != "uwsgi" and kind.for_single_worker != (workers == 1):
                    continue
                settings = kind.settings(workers, threads // workers) | shared
                if load.pods or load.computes:
                    settings["cpus"] = (load.cpus or 0) / (1 if load.pods else settings.get("replicas", 1))
                try:
                    variant = KINDS[settings["server"]].model_validate(settings)
                except ValidationError:
                    continue  # the container has too little memory, or uWSGI cannot serve the application
                each_mib = variant.workers * (load.worker_mib + (variant.threads or 1) * THREAD_MIB)
                memory_mib = variant.replicas * (SERVER_MIB + each_mib) / pods
                option = ServingOption(kind, variant, workers, threads // workers, memory_mib)
                if option.memory_mib <= load.memory_mib * (1 - FREE_SHARE if load.pods else 1):
                    yield option
