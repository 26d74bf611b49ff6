"""Remove containers and networks by their label: those of some projects, or those of killed runs of an owner."""

import asyncio
import time
from collections.abc import Collection, Sequence

from stampede.docker.client import DockerError, Machine
from stampede.docker.containers import OWNER_LABEL, PROJECT, owner

ATTEMPTS = 5
LOOK_AGAIN_S = 1
REFUSED_S = 0.2
"""How long to wait after an engine has refused to remove something."""


def remove_leftovers(machines: Sequence[Machine]) -> list[str]:
    """Remove the containers and networks of this user's killed runs on these machines; return their projects' names.

    Call it only while no run is measuring. Leave alone what was started by hand, by other users or by other machines.
    """
    projects: set[str] = set()
    for _ in range(ATTEMPTS):
        found, left = asyncio.run(_remove(machines, f"{OWNER_LABEL}={owner()}", attempts=1))
        projects |= found
        if found == left:  # nothing was removed, because nothing is there, or an engine refuses
            break
        time.sleep(LOOK_AGAIN_S)  # after its runner was killed, Compose may still start another container
    return sorted(projects)


async def remove_projects(machines: Sequence[Machine], projects: Collection[str]) -> set[str]:
    """Remove the containers and networks of projects, and return the projects of which something may be left."""
    _, left = await _remove(machines, PROJECT, projects)
    return left


async def _remove(
    machines: Sequence[Machine], label: str, projects: Collection[str] | None = None, attempts: int = ATTEMPTS
) -> tuple[set[str], set[str]]:
    """Remove what has a label, on all machines at the same time; ``projects``: leave all others alone.

    Return the projects that were found, and those of which something may be left.
    """
    on_each = await asyncio.gather(*(_remove_on(machine, label, projects, attempts) for machine in machines))
    return set().union(*(found for found, _ in on_each)), set().union(*(left for _, left in on_each))


async def _remove_on(
    machine: Machine, label: str, projects: Collection[str] | None, attempts: int
) -> tuple[set[str], set[str]]:
    """Remove containers, then networks. A machine that keeps a container keeps its networks, too."""
    found: set[str] = set()
    for kind in ("container", "network"):
        left = set(projects or ())  # until the engine says what it has
        for _ in range(attempts):
            try:
                there = await _listed(machine, kind, label, projects)
                left = set(there.values())
                found |= left
                if there:
                    options = ["--force", "--volumes"] if kind == "container" else []
                    await machine.call(kind, "rm", *options, *there)
                left = set()
                break
            except DockerError as error:
                if error.exit_code is None:
                    break
                if kind == "network" and all("not found" in line for line in error.said.strip().splitlines()):
                    left = set()  # a swarm may still list what has gone
                    break
                await asyncio.sleep(REFUSED_S)
        if left:
            return found, left
    return found, set()


async def _listed(machine: Machine, kind: str, label: str, projects: Collection[str] | None) -> dict[str, str]:
    """Return the ids of what a machine has to remove of a kind, each with its project."""
    scope = "{{.Scope}}" if kind == "network" else ""
    words = ["--no-trunc", "--filter", f"label={label}", *(["--all"] if kind == "container" else [])]
    columns = f'{{{{.ID}}}}\t{{{{.Label "{PROJECT}"}}}}\t{scope}'
    said = await machine.call(kind, "ls", *words, "--format", columns)
    rows = [line.split("\t") for line in said.decode().splitlines()]
    rows = [row for row in rows if projects is None or row[1] in projects]
    if any(row[2] == "swarm" for row in rows) and not await is_manager(machine):
        # only a manager of a swarm can remove a network that spans machines; elsewhere it goes by itself
        rows = [row for row in rows if row[2] != "swarm"]
    return {ident: project for ident, project, _ in rows}


async def is_manager(machine: Machine) -> bool:
    """Whether an engine is a manager of a swarm."""
    told = await machine.call("info", "--format", "{{.Swarm.LocalNodeState}} {{.Swarm.ControlAvailable}}")
    return told.decode().split() == ["active", "true"]
