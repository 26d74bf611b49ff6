"""The command ``stampede machines``: what each machine of a cluster has, and whether they are in one swarm."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from stampede.docker.cluster.engines import offset_s
from stampede.docker.cluster.images import content_of
from stampede.docker.cluster.probe import IMAGE, start_probes
from stampede.docker.cluster.ready import describe_host, use_machines
from stampede.docker.cluster.swarm import check_joined, nodes_of
from stampede.errors import LabError
from stampede.terminal import out, say


def check_machines(
    file: Annotated[Path, typer.Option("--machines", help="The file that names the machines.")] = Path("machines.yaml"),
) -> None:
    """Say what each machine of a cluster has and lacks, e.g. stampede machines --machines machines.yaml."""
    table = Table(box=None, pad_edge=False)
    for heading in ("machine", "role", "engine", "cores", "GiB", "kernel", "processor", "clock, ms"):
        table.add_column(heading, justify="right" if heading in ("cores", "GiB", "clock, ms") else "left")
    lacks = []
    with use_machines(file) as machines:
        nodes = nodes_of(machines)
        # the first run copies the image of the probes
        with start_probes([machine for machine in machines if content_of(IMAGE, machine)], say) as probes:
            for machine in machines:
                probe, clock = probes.get(machine.name), "unknown"
                host = describe_host(machine, probe)
                if probe:  # how far its clock is ahead of the lab's, in ms
                    asked = probe.exchanges()
                    uncertain_s = min(exchange.answered - exchange.asked for exchange in asked) / 2
                    clock = f"{1000 * offset_s(asked):+.2f} ± {1000 * uncertain_s:.2f}"
                size = str(host.cores), f"{host.memory_gib:g}"
                table.add_row(machine.name, machine.role, host.engine, *size, host.kernel, host.cpu, clock)
                if machine.info()["MemoryLimit"] is False:
                    lacks.append(f"the engine of {machine.name} cannot limit the memory of containers")
                if machine.cpuset and int(machine.cpuset.rpartition("-")[2]) >= host.cores:
                    which = f"containers may use {machine.cpuset}"
                    lacks.append(f"{machine.name} has {host.cores} cores, but its file says that {which}")
        out.print(table)
        if len(machines) > 1:
            try:
                check_joined(nodes)
            except LabError as error:
                lacks.append(f"{error.message} {error.hint}")
    for lack in lacks:
        out.print(f"lacking: {lack}", markup=False, soft_wrap=True)
    if lacks:
        raise typer.Exit(1)
