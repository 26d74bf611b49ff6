"""The options to serve a load: workers x threads, who accepts a connection, the balancer; and what each needs."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, log2
from typing import Any

from pydantic import ValidationError

from stampede.advise.offered import OfferedLoad
from stampede.plan import FREE_SHARE
from stampede.predict.options import OPTION_KINDS, OptionKind
from stampede.servers import KINDS
from stampede.servers.base import SERVER_MIB, THREAD_MIB, Variant

MOST_WORKERS = 32


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
