"""The commands about the machines of a cluster: what each of them has, and whether they are in one swarm."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from stampede.docker.client import DockerError, Machine
from stampede.docker.cluster.machines import Cluster, machines_of, read_machines
from stampede.errors import LabError
from stampede.terminal import out, say

MachinesFile = Annotated[Path, typer.Option("--machines", help="The file that names the machines.")]
DEFAULT = Path("machines.yaml")


@contextmanager
def _reach_machines(file: Path) -> Iterator[tuple[Cluster, Sequence[Machine]]]:
    """Yield the machines of a file, the first of which is the engine of Docker's commands meanwhile."""
    from stampede.docker.cluster.ready import use_cluster  # noqa: PLC0415  # so that other commands start faster

    cluster = read_machines(file)
    machines = machines_of(cluster)
    with use_cluster(cluster):
        yield cluster, machines


def check_machines(file: MachinesFile = DEFAULT) -> None:
    """Say what each machine has and lacks, and how good the network between them is, e.g. stampede machines check."""
    with _reach_machines(file) as (cluster, machines):
        lacks = [*_show_machines(machines), *_show_links(cluster, machines)]
    for lack in lacks:
        out.print(f"lacking: {lack}", markup=False, soft_wrap=True)
    if lacks:
        raise typer.Exit(1)


def join_machines(file: MachinesFile = DEFAULT) -> None:
    """Put all machines into one swarm, and make the swarm if there is none, e.g. stampede machines join."""
    from stampede.docker.cluster import swarm  # noqa: PLC0415
    from stampede.docker.cluster.images import bring_images  # noqa: PLC0415
    from stampede.docker.cluster.probe import IMAGE  # noqa: PLC0415
    from stampede.docker.doctor import make_ready  # noqa: PLC0415
    from stampede.docker.images import BESIDE_SERVERS, build_images  # noqa: PLC0415

    with _reach_machines(file) as (cluster, machines):
        swarm.nodes_of(machines)
        make_ready(say)
        build_images([BESIDE_SERVERS["client"]], say)
        bring_images([IMAGE], machines, say)
        if len(machines) > 1:
            swarm.join(cluster, machines, say)
        say(f"{len(machines)} machines are ready: stampede machines check")


def leave_machines(file: MachinesFile = DEFAULT) -> None:
    """Undo what join did; leave a swarm that was there before as it was, e.g. stampede machines leave."""
    from stampede.docker.cluster import swarm  # noqa: PLC0415

    with _reach_machines(file) as (_, machines):
        swarm.leave(machines, say)


def _show_machines(machines: Sequence[Machine]) -> Iterator[str]:
    """Print a row for each machine, and yield what machines lack."""
    from stampede.docker.cluster.engines import offset_s  # noqa: PLC0415
    from stampede.docker.cluster.images import content_of  # noqa: PLC0415
    from stampede.docker.cluster.probe import IMAGE, start_probes  # noqa: PLC0415
    from stampede.docker.cluster.ready import describe_host  # noqa: PLC0415

    headings = ("machine", "role", "engine", "cores", "GiB", "kernel", "processor", "clock, ms")
    table = _table(headings, ("cores", "GiB", "clock, ms"))
    there = [machine for machine in machines if content_of(IMAGE, machine)]
    yield from (
        f"{machine.name} has no image {IMAGE}; stampede machines join copies it"
        for machine in machines
        if machine not in there
    )
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
                yield f"the engine of {machine.name} cannot limit the memory of containers"
            if machine.cpuset and int(machine.cpuset.rpartition("-")[2]) >= host.cores:
                which = f"containers may use {machine.cpuset}"
                yield f"{machine.name} has {host.cores} cores, but its file says that {which}"
    out.print(table)


def _table(headings: Sequence[str], of_numbers: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in of_numbers else "left")
    return table


def _show_links(cluster: Cluster, machines: Sequence[Machine]) -> Iterator[str]:
    """Print the network between machines, and yield what it lacks."""
    from stampede.docker.cluster.links import measure_links  # noqa: PLC0415
    from stampede.docker.cluster.swarm import check_joined, nodes_of  # noqa: PLC0415

    if len(machines) < 2:
        return
    try:
        check_joined(nodes_of(machines))
        links = measure_links(machines, encrypted=cluster.encrypted)
    except LabError as error:
        yield f"{error.message} {error.hint}"
        return
    except DockerError as error:
        yield f"containers on different machines do not reach each other: {error}"
        return
    table = _table(("from", "to", "round trip, ms", "Mbit/s"), ("round trip, ms", "Mbit/s"))
    for link in links:
        table.add_row(link.from_, link.to, f"{link.round_trip_ms:.2f}", f"{link.mbit_s:,.0f}")
    out.print()
    out.print(table)
