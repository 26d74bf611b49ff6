"""Make the engines of a run ready: the lab's own engine, an engine elsewhere, or the machines of a cluster."""

import json
import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stampede.docker import provenance
from stampede.docker.client import HERE, Machine
from stampede.docker.cluster.engines import Engines
from stampede.docker.cluster.images import bring_images
from stampede.docker.cluster.machines import Cluster, machines_of, read_machines
from stampede.docker.cluster.probe import IMAGE as PROBE_IMAGE
from stampede.docker.cluster.probe import Probe, start_probes
from stampede.docker.cluster.swarm import check_joined, nodes_of
from stampede.docker.commands import Say
from stampede.docker.engine import engine_cores, memory_budget, plugin_version
from stampede.docker.facts import ask_engine
from stampede.docker.processor import model_name
from stampede.plan import MemoryBudget, MemoryBudgets, machines_for
from stampede.records.run import Host, RunMachine


@contextmanager
def use_cluster(file: Path) -> Iterator[Cluster]:
    """Read the file of machines, and make its first machine the engine of Docker's commands, which builds the images.

    Raise WrongUse if the file is wrong.
    """
    cluster = read_machines(file)
    before = {name: os.environ.pop(name, None) for name in ("DOCKER_CONTEXT", "DOCKER_HOST")}
    os.environ["DOCKER_CONTEXT"] = machines_of(cluster)[0].context or "default"
    try:
        yield cluster
    finally:
        del os.environ["DOCKER_CONTEXT"]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def find_machines(cluster: Cluster | None) -> tuple[Machine, ...]:
    """Return the machines of a run. Raise LabError if an engine of a cluster does not answer."""
    if cluster is None:
        return (find_machine(),)
    found = machines_of(cluster)
    nodes = nodes_of(found)
    if len(found) > 1:
        check_joined(nodes)
    return found


def find_machine() -> Machine:
    """Return the engine that Docker's own settings choose. An engine elsewhere has a name, and shares no files."""
    engine = ask_engine()
    if not engine or engine.machine in ("", platform.node()):
        return HERE
    context = HERE.told("context", "show")
    return Machine(context if context not in ("", "default") else engine.machine, shares_files=False)


def cores_for_servers(cluster: Cluster | None) -> int:
    """Return how many cores the servers of a run may use. Without a cluster: the cores of the engine."""
    if cluster is None:
        return engine_cores()
    return sum(
        cluster.machines[machine.name].cores or int(machine.told("info", "--format", "{{.NCPU}}") or 1)
        for machine in machines_for("servers", machines_of(cluster))
    )


def memory_budgets(cluster: Cluster | None) -> MemoryBudgets:
    """Return the memory of the machines of a run."""
    if cluster is None:
        return MemoryBudgets([HERE], [memory_budget()])
    found = machines_of(cluster)
    totals = [int(machine.told("info", "--format", "{{.MemTotal}}") or 0) // 2**20 for machine in found]
    return MemoryBudgets(found, [MemoryBudget(total, total) for total in totals])


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
        yield Engines(machines, probes, overlay=len(machines) > 1)


def server_host(engines: Engines) -> Host:
    """Describe the machine on which servers run: the first of them, if there are several."""
    first = engines.machines[0]
    return describe_host(first, engines.probes[first.name]) if engines.probes else provenance.local_host()


def describe_host(machine: Machine, probe: Probe | None) -> Host:
    """Describe one machine of a cluster; without a probe, its processor has the name of its architecture."""
    info = json.loads(machine.run("info", "--format", "{{json .}}"))
    return Host(
        cpu=(probe and model_name(probe.exchange("/proc/cpuinfo")[1][0])) or info["Architecture"],
        cores=info["NCPU"],
        memory_gib=round(info["MemTotal"] / 2**30, 1),
        kernel=f"{info['OSType'].capitalize()} {info['KernelVersion']}",
        engine=f"Docker {info['ServerVersion']}",
        compose=plugin_version("compose"),
    )


def machine_records(engines: Engines) -> list[RunMachine]:
    """Return how a run records its machines; empty if there is only one."""
    if not engines.overlay:
        return []
    return [
        RunMachine(name=machine.name, role=machine.role, cpuset=machine.cpuset,
                   host=describe_host(machine, engines.probes[machine.name]))
        for machine in engines.machines
    ]  # fmt: skip
