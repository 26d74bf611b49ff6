"""Measure the network between machines: how long a small message takes there and back, and how many bytes pass."""

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from stampede.docker.client import Machine
from stampede.docker.cluster.engines import Engines
from stampede.docker.cluster.network import create_network
from stampede.docker.cluster.probe import IMAGE
from stampede.docker.containers import BOX, label_options, overlay_name
from stampede.docker.leftovers import remove_projects

LINKS = "stampede-links"
PORT = 8000
LISTENS_WITHIN_S = 10
_ANSWER = f"""\
import socket, struct
with socket.create_server(("", {PORT})) as listening:
    while True:
        one, _ = listening.accept()
        with one:
            while asked := one.recv(8):
                left = struct.unpack("!Q", asked)[0]
                while left > 0:
                    left -= one.send(bytes(min(left, 2**20)))
"""
_ASK = f"""\
import json, socket, statistics, struct, sys, time
deadline = time.monotonic() + {LISTENS_WITHIN_S}
while True:
    try:
        one = socket.create_connection((sys.argv[1], {PORT}), timeout=20)
        break
    except ConnectionRefusedError:  # the other machine does not listen yet
        if time.monotonic() > deadline:
            raise
        time.sleep(0.05)
with one:
    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    def ask(count):
        began = time.perf_counter()
        one.sendall(struct.pack("!Q", count))
        while count > 0:
            count -= len(one.recv(2**20))
        return time.perf_counter() - began
    trips = [ask(1) for _ in range(50)]
    mib = 32
    print(json.dumps([1000 * statistics.median(trips), mib * 8 * 2**20 / 1e6 / ask(mib * 2**20)]))
"""


@dataclass(frozen=True)
class Link:
    """From one machine to another: the median round trip in ms, and the bandwidth back in Mbit/s."""

    from_: str
    to: str
    round_trip_ms: float
    mbit_s: float


def measure_links(machines: Sequence[Machine], *, encrypted: bool) -> list[Link]:
    """Measure the network from each machine to each other machine, one after the other.

    Raise DockerException if an engine fails. Leave nothing running.
    """
    engines = Engines(tuple(machines), overlay=True, encrypted=encrypted)
    with _listening(engines):
        return [_link(source, target) for source in machines for target in machines if source != target]


@contextmanager
def _listening(engines: Engines) -> Iterator[None]:
    try:
        asyncio.run(create_network(engines, LINKS))
        for machine in engines.machines:
            machine.run("run", "--detach", "--init", "--name", f"{LINKS}-{machine.name}",
                        "--network", overlay_name(LINKS), "--network-alias", machine.name, *label_options(LINKS), *BOX,
                        IMAGE, "python", "-c", _ANSWER)  # fmt: skip
        yield
    finally:
        asyncio.run(remove_projects(engines.machines, [LINKS]))


def _link(source: Machine, target: Machine) -> Link:
    answer = source.run("exec", f"{LINKS}-{source.name}", "python", "-c", _ASK, target.name, within_s=600)
    round_trip_ms, mbit_s = json.loads(answer)
    return Link(source.name, target.name, round_trip_ms, mbit_s)
