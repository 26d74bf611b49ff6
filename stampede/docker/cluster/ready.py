"""Make the engines of a run ready: the lab's own engine, an engine elsewhere, or the machines of a cluster."""

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stampede.docker.client import HERE, Machine
from stampede.docker.cluster.engines import Engines
from stampede.docker.cluster.images import bring_images
from stampede.docker.cluster.machines import read_machines
from stampede.docker.cluster.probe import IMAGE as PROBE_IMAGE
from stampede.docker.cluster.probe import Probe, start_probes
from stampede.docker.cluster.swarm import check_joined, nodes_of
from stampede.docker.commands import Say
from stampede.docker.engine import engine_cores, plugin_version
from stampede.docker.facts import ask_engine
from stampede.docker.processor import cpuinfo, model_name
from stampede.plan import machines_for
from stampede.records.run import Host, RunMachine, cores_named


@contextmanager
def use_machines(file: Path) -> Iterator[tuple[Machine, ...]]:
    """Read a file of machines, and make the first one the engine of Docker's commands, which builds the images.

    Raise WrongUse if the file is wrong.
    """
    machines = read_machines(file)
    before = {name: os.environ.pop(name, None) for name in ("DOCKER_CONTEXT", "DOCKER_HOST")}
    os.environ["DOCKER_CONTEXT"] = machines[0].context
    try:
        yield machines
    finally:
        del os.environ["DOCKER_CONTEXT"]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def check_reachable(machines: Sequence[Machine]) -> None:
    """Raise LabError if an engine of these machines does not answer, or if they share no swarm."""
    nodes = nodes_of(machines)
    if len(machines) > 1:
        check_joined(nodes)


def find_machine() -> Machine:
    """Return the engine that Docker's own settings choose. An engine elsewhere has a name, and shares no files."""
    engine = ask_engine()
    if not engine or engine.machine in ("", platform.node()):
        return HERE
    context = HERE.told("context", "show")
    return Machine(context if context not in ("", "default") else engine.machine, shares_files=False)


def cores_for_servers(machines: Sequence[Machine]) -> int:
    """Return how many cores the servers of a run may use; without machines: the cores of the engine."""
    if not machines:
        return engine_cores()
    return sum(
        cores_named(machine.cpuset) if machine.cpuset else machine.info()["NCPU"]
        for machine in machines_for("servers", machines)
    )


@contextmanager
def engines_on(machines: tuple[Machine, ...], images: Sequence[str], say: Say) -> Iterator[Engines]:
    """Yield the engines of a run, with the images on all machines. Wait until no other lab measures there.

    Raise LabError if a machine cannot be made ready.
    """
    if machines[0].shares_files:
        yield Engines(machines)
        return
    bring_images([PROBE_IMAGE], machines, say)
    with start_probes(machines, say) as probes:
        bring_images(images, machines, say)
        yield Engines(machines, probes)


def describe_host(machine: Machine, probe: Probe | None = None) -> Host:
    """Describe a machine; without a probe, the processor of one elsewhere has the name of its architecture."""
    info = machine.info()
    told = probe.exchange("/proc/cpuinfo")[1][0] if probe else cpuinfo() if machine.shares_files else ""
    return Host(
        cpu=model_name(told) or info["Architecture"],
        cores=info["NCPU"],
        memory_gib=round(info["MemTotal"] / 2**30, 1),
        kernel=f"{info['OSType'].capitalize()} {info['KernelVersion']}",
        engine=f"Docker {info['ServerVersion']}",
        compose=plugin_version("compose"),
    )


def machine_records(engines: Engines) -> list[RunMachine]:
    """Return how a run records its machines; empty if there is only one."""
    return [
        RunMachine(name=machine.name, role=machine.role, cpuset=machine.cpuset,
                   host=describe_host(machine, engines.probes[machine.name]))
        for machine in engines.machines if engines.overlay
    ]  # fmt: skip
