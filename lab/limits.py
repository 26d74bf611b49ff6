"""How much memory each container of a trial may have, and whether that fits into this machine.

What one worker and one virtual user need was measured (docs/benchmarks.md). The limits themselves are in
docker-compose.yml, in a variant's ``memory_mib``, and for k6 they follow from what its script sends.
"""

from dataclasses import dataclass
from functools import cache
from math import ceil

from lab.loads import K6_SCRIPTS, Settings
from lab.services import services

WORKER_MIB = {"wsgi": 8, "flask_app": 18, "django_app": 20, "fastapi_app": 30}
"""What each further worker needs, by the module of its application."""
SERVER_MIB = 14
"""What a server needs beside its workers."""
THREAD_MIB = 0.02
K6_MIB = 128
"""What k6 needs before the first virtual user is made: 43 MiB, with room for what is written to disk meanwhile."""
USER_MIB = 0.6
"""What one virtual user of k6 needs: 0.17 MiB when it sends nothing, up to 0.42 MiB when k6 waits for a processor."""
REQUEST_MIB = 0.0005
"""What k6 keeps of each request for its summary: 0.00024 MiB."""
LAB_MIB = 512
"""What the lab and the engine's clients need meanwhile."""
FREE_SHARE, FREE_MIB = 0.1, 4096
"""What stays free when every container has all that it may: a tenth of the machine's memory, or 4 GiB if less."""


def workers_problem(module: str, workers: int, threads: int, memory_mib: int) -> str | None:
    """Return why so many workers of an application do not fit into a container, if they do not."""
    each_mib = WORKER_MIB[module] + threads * THREAD_MIB
    needed_mib = SERVER_MIB + workers * each_mib
    if needed_mib > memory_mib:
        fit = max(0, int((memory_mib - SERVER_MIB) / each_mib))
        return (
            f"{workers:,} workers need about {SERVER_MIB} + {workers:,} x {each_mib:g} = {needed_mib:,.0f} MiB, and "
            f"memory_mib is {memory_mib:,}; at most {fit:,} fit"
        )
    tasks = workers * (1 + threads)
    if tasks > (most := pids_limit()):
        product = f"{workers:,} x (1 + {threads:,})"
        return f"{product} = {tasks:,} processes and threads are more than the {most:,} that a container may have"
    return None


def k6_mib(script: str, settings: Settings, duration_s: int, generators: int) -> int:
    """Return how much memory each of a load's k6 containers may use, in MiB."""
    asked = K6_SCRIPTS[script]
    users = asked.users_at_once(settings) / generators
    requests = asked.rate_at_most_rps(settings, generators) / generators * duration_s
    return ceil(K6_MIB + users * USER_MIB + requests * REQUEST_MIB)


@cache
def fixed_mib(service: str) -> int:
    """Return how much memory a container may use whose limit is the same in all trials, in MiB."""
    return int(str(services()[service]["mem_limit"]).removesuffix("m"))


@cache
def pids_limit() -> int:
    """Return how many processes and threads a server's container may have."""
    return int(services()["gunicorn"]["pids_limit"])


@dataclass(frozen=True)
class Room:
    """The memory of the machine that the containers run on, in MiB: all of it, and what nobody uses now."""

    total_mib: int
    available_mib: int

    @property
    def free_mib(self) -> int:
        """What stays free."""
        return int(min(FREE_SHARE * self.total_mib, FREE_MIB))

    @property
    def for_containers_mib(self) -> int:
        """What containers may have together."""
        return max(0, self.available_mib - self.free_mib - LAB_MIB)

    def problem(self, needed_mib: dict[str, int]) -> str | None:
        """Return why the containers of a trial do not fit, if they do not; ``needed_mib`` has each kind's sum."""
        together_mib = sum(needed_mib.values())
        if together_mib <= self.for_containers_mib:
            return None
        kinds = ", ".join(f"{service} {mib:,}" for service, mib in needed_mib.items())
        return (
            f"its containers' limits of memory add up to {together_mib:,} MiB ({kinds}), but only "
            f"{self.for_containers_mib:,} MiB can be given to containers: of {self.total_mib:,} MiB "
            f"{self.available_mib:,} are available, {self.free_mib:,} stay free, and the lab itself needs {LAB_MIB}"
        )
