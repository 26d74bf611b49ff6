"""The memory limits of a trial's containers, and whether the containers fit into this machine.

A variant's ``memory_mib`` sets the limit of a server. The limit of k6 follows from the load's script. The other limits
are in docker-compose.yml. What a worker and a virtual user need was measured (docs/develop/benchmarks.md).
"""

from dataclasses import dataclass
from functools import cache
from math import ceil

from stampede.servers.services import services

WORKER_MIB = {"wsgi": 8, "counted": 10, "flask_app": 18, "django_app": 20, "fastapi_app": 30, "own": 18}
"""The memory of each worker, by the module of its application; of somebody's own application, at least so much."""
SERVER_MIB = 14
"""The memory that a server needs beside its workers."""
THREAD_MIB = 0.02
K6_MIB = 128
"""The limit of k6 without virtual users: k6 needs 43 MiB; the rest is for the output that k6 writes to disk."""
USER_MIB = 0.6
"""The limit for each virtual user. A user needs 0.17 MiB without requests, and up to 0.42 when k6 waits for a CPU."""
REQUEST_MIB = 0.0005
"""The limit for each request. k6 keeps 0.00024 MiB of each request for its summary."""
LAB_MIB = 512
"""The memory that the lab and the engine's clients need during a trial."""
FREE_SHARE, FREE_MIB = 0.1, 4096
"""The memory that stays free when all containers reach their limits: a tenth of the machine's, at most 4 GiB."""


def workers_problem(module: str, workers: int, threads: int, memory_mib: int) -> str | None:
    """Return why this number of workers does not fit into a container; None if the workers fit."""
    each_mib = WORKER_MIB[module] + threads * THREAD_MIB
    needed_mib = SERVER_MIB + workers * each_mib
    if needed_mib > memory_mib:
        fit = max(0, int((memory_mib - SERVER_MIB) / each_mib))
        return (
            f"{workers:,} workers need about {SERVER_MIB} + {workers:,} x {each_mib:g} = {needed_mib:,.0f} MiB, but "
            f"memory_mib is {memory_mib:,}; at most {fit:,} fit"
        )
    tasks = workers * (1 + threads)
    if tasks > (most := pids_limit()):
        product = f"{workers:,} x (1 + {threads:,})"
        return f"{product} = {tasks:,} processes and threads are more than the {most:,} that a container may have"
    return None


def k6_mib(users: float, requests: float) -> int:
    """Return the memory limit of a k6 container that has so many virtual users and sends so many requests, in MiB."""
    return ceil(K6_MIB + users * USER_MIB + requests * REQUEST_MIB)


@cache
def fixed_mib(service: str) -> int:
    """Return the memory limit of a service whose limit is the same in all trials, in MiB."""
    return int(str(services()[service]["mem_limit"]).removesuffix("m"))


@cache
def pids_limit() -> int:
    """Return how many processes and threads a server's container may have."""
    return int(services()["gunicorn"]["pids_limit"])


@dataclass(frozen=True)
class MemoryBudget:
    """The total and the available memory of a machine that containers run on, in MiB."""

    total_mib: int
    available_mib: int

    @property
    def free_mib(self) -> int:
        """The memory that stays free when all containers reach their limits."""
        return int(min(FREE_SHARE * self.total_mib, FREE_MIB))

    @property
    def for_containers_mib(self) -> int:
        """The most that the limits of all containers may add up to."""
        return max(0, self.available_mib - self.free_mib - LAB_MIB)

    def problem(self, needed_mib: dict[str, int]) -> str | None:
        """Return why containers do not fit; None if they fit. ``needed_mib`` has a sum per service."""
        together_mib = sum(needed_mib.values())
        if together_mib <= self.for_containers_mib:
            return None
        kinds = ", ".join(f"{service} {mib:,}" for service, mib in needed_mib.items())
        return (
            f"the memory limits of its containers add up to {together_mib:,} MiB ({kinds}), but containers can have "
            f"only {self.for_containers_mib:,} MiB: {self.available_mib:,} of {self.total_mib:,} MiB are available, "
            f"{self.free_mib:,} MiB must stay free, and the lab itself needs {LAB_MIB} MiB"
        )
