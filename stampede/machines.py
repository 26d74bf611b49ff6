"""The commands about the machines of a cluster: what each of them has, and whether they are in one swarm."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from stampede.docker.cluster import swarm
from stampede.docker.cluster.engines import offset_s
from stampede.docker.cluster.images import bring_images, content_of
from stampede.docker.cluster.machines import machines_of
from stampede.docker.cluster.probe import IMAGE, start_probes
from stampede.docker.cluster.ready import describe_host, use_cluster
from stampede.docker.doctor import make_ready
from stampede.docker.images import BESIDE_SERVERS, build_images
from stampede.errors import LabError
from stampede.terminal import out, say

MachinesFile = Annotated[Path, typer.Option("--machines", help="The file that names the machines.")]
DEFAULT = Path("machines.yaml")


def check_machines(file: MachinesFile = DEFAULT) -> None:
    """Say what each machine has and lacks, e.g. stampede machines check."""
    table = Table(box=None, pad_edge=False)
    for heading in ("machine", "role", "engine", "cores", "GiB", "kernel", "processor", "clock, ms"):
        table.add_column(heading, justify="right" if heading in ("cores", "GiB", "clock, ms") else "left")
    with use_cluster(file) as cluster:
        machines = machines_of(cluster)
        there = [machine for machine in machines if content_of(IMAGE, machine)]
        lacks = [f"{machine.name} has no image {IMAGE}; stampede machines join copies it"
                 for machine in machines if machine not in there]  # fmt: skip
        with start_probes(there, say) as probes:
            for machine in machines:
                probe, clock = probes.get(machine.name), "unknown"
                host = describe_host(machine, probe)
                if probe:  # how far its clock is ahead of the lab's, in ms
                    asked = probe.exchanges()
                    uncertain_s = min(exchange.answered - exchange.asked for exchange in asked) / 2
                    clock = f"{1000 * offset_s(asked):+.2f} ± {1000 * uncertain_s:.2f}"
                size = str(host.cores), f"{host.memory_gib:g}"
                table.add_row(machine.name, machine.role, host.engine, *size, host.kernel, host.cpu, clock)
                if json.loads(machine.run("info", "--format", "{{json .}}"))["MemoryLimit"] is False:
                    lacks.append(f"the engine of {machine.name} cannot limit the memory of containers")
                if machine.cpuset and int(machine.cpuset.rpartition("-")[2]) >= host.cores:
                    which = f"containers may use {machine.cpuset}"
                    lacks.append(f"{machine.name} has {host.cores} cores, but its file says that {which}")
        out.print(table)
        if len(machines) > 1:
            try:
                swarm.check_joined(swarm.nodes_of(machines))
            except LabError as error:
                lacks.append(f"{error.message} {error.hint}")
    for lack in lacks:
        out.print(f"lacking: {lack}", markup=False, soft_wrap=True)
    if lacks:
        raise typer.Exit(1)


def join_machines(file: MachinesFile = DEFAULT) -> None:
    """Put all machines into one swarm, and make the swarm if there is none, e.g. stampede machines join."""
    with use_cluster(file) as cluster:
        machines = machines_of(cluster)
        swarm.nodes_of(machines)
        make_ready(say)
        build_images([BESIDE_SERVERS["client"]], say)
        bring_images([IMAGE], machines, say)
        if len(machines) > 1:
            swarm.join(cluster, machines, say)
        say(f"{len(machines)} machines are ready: stampede machines check")


def leave_machines(file: MachinesFile = DEFAULT) -> None:
    """Undo what join did; leave a swarm that was there before as it was, e.g. stampede machines leave."""
    with use_cluster(file) as cluster:
        swarm.leave(machines_of(cluster), say)
