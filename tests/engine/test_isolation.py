"""The stack seen from inside its containers: what they may do, and whom they reach.

Each container is looked at once, and a test for each rule reads what was found. Every probe is tried on a plain
container as well, which nothing closes: a probe that finds nothing there proves nothing.
"""

import http.client
import json
import os
import secrets
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psutil
import pytest

from stampede.paths import COMPOSE_FILE, ROOT
from stampede.servers import KINDS
from tests.conftest import PATIENCE_S, lab_objects
from tests.probes import Facts, ask_with_bash, fetch, inside, inspect, look, ready

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the engine has a host of its own")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="watching packets needs root")

SERVERS = tuple(dict.fromkeys(one.service for one in KINDS.values() if not one.build_minutes))
"""Without the services whose images take minutes to build. They have the same box: see tests/quick/test_compose.py."""
INSIDE = (*SERVERS, "api", "mariadb", "nginx", "k6")
ALL = (*INSIDE, "door")
FURTHER = (*SERVERS[1:], "api", "mariadb", "open")
PROFILES = tuple(word for one in ("gunicorn", *FURTHER, "load") for word in ("--profile", one))
OUTSIDE = "198.51.100.1"
"""An address of TEST-NET-2 (RFC 5737), which nobody has."""
READY = "http://nginx:8080/-/ready"


@dataclass
class Stack:
    """A Compose project as somebody starts it by hand, and its containers by service."""

    project: str
    environment: dict[str, str]
    containers: dict[str, str] = field(default_factory=dict)

    def compose(self, *arguments: str) -> str:
        """Run ``docker compose`` on this project and return what it printed."""
        command = ["docker", "compose", "--file", str(COMPOSE_FILE), "--project-name", self.project, *arguments]
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def up(self, *profiles: str) -> None:
        """Start the servers and nginx, with the services of further profiles."""
        flags = [word for profile in ("gunicorn", *profiles) for word in ("--profile", profile)]
        self.compose(*flags, "up", "--detach", "--wait", "--no-build")
        for one in self.compose(*flags, "ps", "--format", "{{.Service}} {{.ID}}").splitlines():
            service, container = one.split()
            self.containers[service] = container

    def address(self, service: str, network: str) -> str:
        """Return a service's address in one of the project's networks."""
        found = inspect(self.containers[service])["NetworkSettings"]["Networks"][f"{self.project}_{network}"]
        return str(found["IPAddress"])


@pytest.fixture(scope="module", autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail when the module leaves a container or a network of the lab behind."""
    assert lab_objects() == []
    yield
    assert lab_objects() == []


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of somebody who is not root and not the images' user."""
    folder = tmp_path_factory.mktemp("results")
    if os.geteuid() == 0:
        os.chown(folder, 4242, 4242)
    return folder


@pytest.fixture(scope="module")
def stack(own_images: None, nothing_left: None, results: Path) -> Iterator[Stack]:  # noqa: ARG001  # before and after
    """The whole stack with its door open, and a k6 container that sleeps instead of sending."""
    owner = results.stat()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    user = f"{owner.st_uid}:{owner.st_gid}"
    factors = {"LAB_PORT": port, "LAB_RESULTS": str(results), "LAB_USER": user, "LAB_CPUS": "0.5"}
    one = Stack("stampede-isolation", factors | {"LAB_UPSTREAM": "gunicorn:8000"})  # flup does not speak HTTP
    try:
        one.up(*FURTHER)
        k6 = one.compose("run", "--detach", "--entrypoint", "sleep", "k6", "600").split()
        one.containers["k6"] = k6[-1]
        yield one
    finally:
        if "k6" in one.containers:  # down leaves what run has started
            subprocess.run(["docker", "rm", "--force", one.containers["k6"]], capture_output=True, check=True)
        one.compose(*PROFILES, "down", "--timeout", "1")


@pytest.fixture(scope="module")
def plain(own_images: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:  # noqa: ARG001
    """A container of the same image without what the Compose file says: root, and a socket where the engine's is."""
    path = tmp_path_factory.mktemp("engine") / "docker.sock"
    with socket.socket(socket.AF_UNIX) as engine:
        engine.bind(str(path))
        done = subprocess.run(
            ["docker", "run", "--detach", "--rm", "--user", "0", "--dns", OUTSIDE, "--entrypoint", "sleep",
             "--volume", f"{path}:/run/docker.sock", "stampede/gunicorn:27.0.1", "600"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        container = done.stdout.strip()
        try:
            yield container
        finally:
            subprocess.run(["docker", "rm", "--force", container], capture_output=True, check=True)


@pytest.fixture(scope="module")
def found(stack: Stack) -> dict[str, Facts]:
    """What there is inside the container of each service."""
    with ThreadPoolExecutor(len(ALL)) as pool:
        looks = {service: pool.submit(look, stack.containers[service]) for service in ALL}
    return {service: facts.result() for service, facts in looks.items()}


@pytest.fixture(scope="module")
def configured(stack: Stack) -> dict[str, Any]:
    """What the file says of each service."""
    services = json.loads(stack.compose(*PROFILES, "config", "--format", "json"))["services"]
    assert isinstance(services, dict)
    return services


@pytest.mark.parametrize("service", ALL)
def test_nobody_is_root_has_a_power_or_can_gain_one(stack: Stack, found: dict[str, Facts], service: str) -> None:
    """Of all processes, from the first one on; the bounding set is empty, so that root would have none either."""
    facts, uid = found[service], stack.environment["LAB_USER"].split(":")[0] if service == "k6" else "10001"
    assert (facts.users, facts.powers, facts.first_process) == ({uid}, set(), "docker-init\n")
    assert len(facts.processes) >= 3


@pytest.mark.parametrize("service", ALL)
def test_nothing_can_be_written_but_temporary_files(found: dict[str, Facts], service: str) -> None:
    closed = dict.fromkeys(("/", "/srv", "/etc", "/usr/bin"), "Read-only file system")

    assert found[service].written == dict.fromkeys(("its user", "root"), closed | {"/tmp": "written"})


@pytest.mark.parametrize("service", ALL)
def test_no_way_to_the_host_is_mounted_or_has_an_address(found: dict[str, Facts], service: str) -> None:
    """The host's side of the network has an address of IPv6 of its own accord; without one they cannot use it."""
    own = {"uwsgi": ["/tmp/stats.sock"], "mariadb": ["/tmp/mariadb.sock"]}
    assert found[service].sockets == own.get(service, []), "none is the engine's"
    binds = [mount for mount in found[service].inspected["Mounts"] if mount["Type"] == "bind"]
    assert {mount["Destination"] for mount in binds} == ({"/k6", "/results"} if service == "k6" else set())
    assert {mount["Destination"] for mount in binds if mount["RW"]} == ({"/results"} if service == "k6" else set())
    assert [one for one in found[service].interfaces_of_ipv6 if one != "lo"] == []


@pytest.mark.parametrize("service", ALL)
def test_the_limits_in_force_are_those_of_the_file(
    found: dict[str, Facts], configured: dict[str, Any], service: str
) -> None:
    """LAB_CPUS is 0.5 here, so that the default of the file cannot pass for it."""
    config = configured[service]
    in_force = found[service].limits

    assert in_force["processes"] == config["pids_limit"] == (2048 if service in (*SERVERS, "mariadb") else 512)
    assert in_force["open files"] == config["ulimits"]["nofile"] == 16384
    assert in_force["cores"] == (float(config["cpus"]) if "cpus" in config else None)
    assert in_force["memory"] == (int(config["mem_limit"]) if "mem_limit" in config else None)
    if service in SERVERS:
        assert (in_force["cores"], in_force["memory"], in_force["backlog"]) == (0.5, 2**28, 4096)


def test_the_probes_see_a_container_that_nothing_closes(plain: str) -> None:
    """Were a probe blind, everything above would pass."""
    found = look(plain)

    assert found.users == {"0"}
    assert "new privileges" in found.powers
    assert len(found.powers) > 1
    assert found.first_process == "sleep\n"
    assert {said for of_user in found.written.values() for said in of_user.values()} == {"written"}
    assert found.sockets == ["/run/docker.sock"]
    assert {found.limits[name] for name in ("cores", "memory")} == {None}
    assert found.limits["processes"] not in (512, 2048)
    assert found.limits["open files"] != 16384


def fetch_from_all(stack: Stack, services: tuple[str, ...], urls: list[str]) -> dict[str, str]:
    """Ask from inside each of some containers at the same time, and see that each reaches the server."""
    with ThreadPoolExecutor(len(services)) as pool:
        asked = {one: pool.submit(fetch, stack.containers[one], [READY, *urls]) for one in services}
    answers = {one: answer.result() for one, answer in asked.items()}
    assert [one for one, answer in answers.items() if not ready(answer)] == []
    return answers


@dataclass
class Listener:
    """A service of the host that listens on all its addresses, as careless ones do."""

    port: int
    word: str
    asked_by: list[str]

    def urls(self, *more: str) -> list[str]:
        """Return where it can be found: at all addresses of the host but the loopback interface's."""
        return [
            f"http://[{one}]:{self.port}/" if ":" in one else f"http://{one}:{self.port}/"
            for one in [*host_addresses(), *more]
            if one
        ]


@pytest.fixture(scope="module")
def listener() -> Iterator[Listener]:
    """Listen on 0.0.0.0, and on :: where there is IPv6."""
    word = secrets.token_hex(8)
    asked_by: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked_by.append(self.client_address[0])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(word.encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # its name in the base class
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    with Server(("", 0), Handler) as server:  # http.server's makes an IPv6 socket answer IPv4 as well
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Listener(server.server_address[1], word, asked_by)
        server.shutdown()


def host_addresses() -> list[str]:
    """Return the host's addresses on all its interfaces, without those that mean only one link or itself."""
    found = [one.address.split("%")[0] for interface in psutil.net_if_addrs().values() for one in interface
             if one.family in (socket.AF_INET, socket.AF_INET6)]  # fmt: skip
    return [one for one in found if not ip_address(one).is_loopback and not ip_address(one).is_link_local]


def gateway(network: str) -> str:
    """Return the address that the engine reserved for the host in a network; empty when it has none."""
    done = subprocess.run(["docker", "network", "inspect", network], capture_output=True, text=True, check=True)
    return str(json.loads(done.stdout)[0]["IPAM"]["Config"][0].get("Gateway", "")).split("/")[0]


@on_linux
def test_the_hosts_own_services_are_out_of_reach(stack: Stack, plain: str, listener: Listener) -> None:
    """A closed network alone would not do: the host has an address in it, at which all its services answer.

    A plain container reaches them with curl, and with what asks where there is none.
    """
    listener.asked_by.clear()
    answers = fetch_from_all(stack, INSIDE, listener.urls(gateway(f"{stack.project}_lab")))
    assert [one for one, answer in answers.items() if listener.word in answer] == []
    assert listener.asked_by == []

    assert listener.word in fetch(plain, listener.urls())
    assert listener.asked_by != []
    assert listener.word in "".join(inside(plain, f"bash -c '{ask_with_bash(url)}'") for url in listener.urls())


class Wire:
    """What passes the interfaces by which this machine reaches the world, or itself."""

    SO_RCVBUFFORCE, SOL_PACKET, PACKET_STATISTICS = 33, 263, 6  # Python has no names for them

    def __init__(self) -> None:
        routes = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
        self.ways_out = {route[0] for route in routes if int(route[1], 16) == 0} | {"lo"}
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))  # ETH_P_ALL
        self.socket.setsockopt(socket.SOL_SOCKET, self.SO_RCVBUFFORCE, 2**27)  # other tests send much meanwhile
        self.socket.setblocking(False)

    def senders(self, of: bytes) -> set[str]:
        """Return from which addresses packets came, since the last call, that hold some bytes. None was dropped."""
        found: set[str] = set()
        while True:
            try:
                packet, (interface, *_) = self.socket.recvfrom(65536)
            except BlockingIOError:
                _, dropped = struct.unpack("II", self.socket.getsockopt(self.SOL_PACKET, self.PACKET_STATISTICS, 8))
                assert dropped == 0, "the kernel had no room for all packets"
                return found
            if interface in self.ways_out and of in packet and packet[0] >> 4 == 4:
                found.add(socket.inet_ntoa(packet[12:16]))


@pytest.fixture
def wire() -> Iterator[Wire]:
    """Watch every interface."""
    one = Wire()
    if one.ways_out == {"lo"}:
        pytest.skip("this machine has no way out")
    yield one
    one.socket.close()


@on_linux
@needs_root
def test_no_packet_leaves_the_lab(stack: Stack, plain: str, wire: Wire) -> None:
    """The door must have an open network, or it could publish no port: nobody outside can answer to its address."""
    urls, packed = [f"http://{OUTSIDE}/"], socket.inet_aton(OUTSIDE)
    fetch_from_all(stack, INSIDE, urls)
    assert wire.senders(packed) == set()

    fetch(stack.containers["door"], urls)
    assert wire.senders(packed) <= {stack.address("door", "outside")}

    fetch(plain, urls)
    assert wire.senders(packed) & set(host_addresses())


@on_linux
@needs_root
def test_a_name_of_the_outside_is_asked_of_nobody(stack: Stack, plain: str, wire: Wire) -> None:
    """Engines before 25.0.5 ask the host's resolver on behalf of a closed network: names are a way out, too."""
    word = secrets.token_hex(8)
    fetch_from_all(stack, ALL, [f"http://{word}.invalid/"])
    assert wire.senders(word.encode()) == set()
    assert {tuple(inspect(stack.containers[one])["HostConfig"]["Dns"]) for one in ALL} == {("127.0.0.1",)}

    fetch(plain, [f"http://{word}.invalid/"])
    assert wire.senders(word.encode()) != set()


@pytest.fixture(scope="module")
def neighbour(stack: Stack) -> Iterator[Stack]:
    """A second stack beside the first one."""
    one = Stack("stampede-isolation-neighbour", stack.environment | {"LAB_WORKERS": "1"})
    try:
        one.up()
        yield one
    finally:
        one.compose(*PROFILES, "down", "--timeout", "1")


def test_two_stacks_do_not_see_each_other(stack: Stack, neighbour: Stack) -> None:
    theirs = f"http://{neighbour.address('nginx', 'lab')}:8080/-/ready"

    assert ready(fetch(neighbour.containers["gunicorn"], [theirs])) == 1
    answers = fetch_from_all(stack, ALL, [theirs])
    assert {service: ready(answer) for service, answer in answers.items()} == dict.fromkeys(ALL, 1), "their own server"


def from_the_host(address: str, port: int, patience_s: float = PATIENCE_S) -> str:
    """Ask for /-/ready from this process; the answer, or why there is none."""
    connection = http.client.HTTPConnection(address, port, timeout=patience_s)
    try:
        connection.request("GET", "/-/ready")
        return connection.getresponse().read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


@on_linux
def test_the_host_does_not_reach_the_containers_but_by_the_door(stack: Stack) -> None:
    for service in ("nginx", "door"):
        assert "ready" not in from_the_host(stack.address(service, "lab"), 8080, 2), service
    assert "ready" not in from_the_host(stack.address("gunicorn", "lab"), 8000, 2)
    assert ready(from_the_host(stack.address("door", "outside"), 8080))


@on_linux
def test_the_door_opens_on_the_loopback_interface_alone(stack: Stack) -> None:
    port = stack.environment["LAB_PORT"]
    published = {service: inspect(one)["NetworkSettings"]["Ports"] for service, one in stack.containers.items()}

    assert {service for service, ports in published.items() if any(ports.values())} == {"door"}
    assert published["door"] == {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": port}]}
    assert ready(from_the_host("127.0.0.1", int(port)))
    assert {from_the_host(address, int(port)) for address in host_addresses()} == {"ConnectionRefusedError"}


def test_results_belong_to_who_asked_for_them(stack: Stack, results: Path) -> None:
    short = ("-e", "DURATION=1s", "-e", "HEAVY_DELAY_S=0.1")

    stack.compose("run", "--rm", "--no-TTY", *short, "k6")

    owner, points = results.stat(), (results / "points.json.gz").stat()
    assert points.st_size > 0
    assert (points.st_uid, points.st_gid) == (owner.st_uid, owner.st_gid)
    assert os.geteuid() != 0 or points.st_uid == 4242
