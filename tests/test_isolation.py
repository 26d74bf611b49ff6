"""The stack seen from inside its containers: what they may do, and whom they reach.

Every probe is tried on a plain container as well, which nothing closes: one that finds nothing there proves nothing.
"""

import http.client
import json
import os
import secrets
import socket
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
from urllib.parse import urlsplit

import psutil
import pytest

from lab.paths import COMPOSE_FILE, ROOT
from lab.servers import KINDS
from tests.conftest import lab_objects

pytestmark = pytest.mark.containers
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the engine has a host of its own")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="watching packets needs root")

SERVERS = tuple(dict.fromkeys(one.service for one in KINDS.values()))
INSIDE = (*SERVERS, "api", "mariadb", "nginx", "k6")
ALL = (*INSIDE, "door")
FURTHER = (*SERVERS[1:], "api", "mariadb", "open")
PROFILES = tuple(word for one in ("gunicorn", *FURTHER, "load") for word in ("--profile", one))
OUTSIDE = "198.51.100.1"
"""An address of TEST-NET-2 (RFC 5737), which nobody has."""
READY = "http://nginx:8080/-/ready"


def is_ready(answers: str) -> bool:
    """Whether a server has said that it is; each of them writes JSON in its own way."""
    return '"ready":true' in answers.replace("\\", "").replace(" ", "")


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


def inspect(container: str) -> dict[str, Any]:
    """Return what the engine says of a container."""
    done = subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True)
    [found] = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def inside(container: str, script: str, *, user: str = "", typed: str = "") -> str:
    """Run a shell script in a container and return what it wrote, on both streams."""
    as_user = ["--user", user] if user else []
    done = subprocess.run(
        ["docker", "exec", "--interactive", *as_user, container, "sh", "-c", script],
        input=typed, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.stdout


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


def processes(container: str) -> list[dict[str, str]]:
    """Return /proc/…/status of every process of a container, the probe's own among them."""
    text = inside(container, "for one in /proc/[0-9]*/status; do cat $one; echo; done 2>/dev/null")
    blocks = [block for block in text.split("\n\n") if block.strip()]
    return [
        {name: value.strip() for name, value in (line.split(":", 1) for line in block.splitlines() if ":" in line)}
        for block in blocks
    ]


def users(container: str) -> set[str]:
    """Return the ids of the users that a container's processes run as."""
    return {number for one in processes(container) for number in one["Uid"].split()}


def powers(container: str) -> set[str]:
    """Return the capabilities that a container's processes have, or may get, and whether they may gain privileges."""
    found = {one[name] for one in processes(container) for name in one if name.startswith("Cap")}
    return {value for value in found if int(value, 16)} | {
        "new privileges" for one in processes(container) if one["NoNewPrivs"] != "1"
    }


@pytest.mark.parametrize("service", ALL)
def test_nobody_is_root(stack: Stack, service: str) -> None:
    uid = stack.environment["LAB_USER"].split(":")[0] if service == "k6" else "10001"
    assert len(processes(stack.containers[service])) >= 3
    assert users(stack.containers[service]) == {uid}


@pytest.mark.parametrize("service", ALL)
def test_nobody_has_a_capability_or_can_gain_one(stack: Stack, service: str) -> None:
    """Of all processes, from the first one on; the bounding set is empty, so that root would have none either."""
    assert powers(stack.containers[service]) == set()


@pytest.mark.parametrize("service", ALL)
def test_an_init_is_the_first_process(stack: Stack, service: str) -> None:
    assert inside(stack.containers[service], "cat /proc/1/comm") == "docker-init\n"


def writable(container: str, user: str = "") -> dict[str, str]:
    """Try to write a file into folders of a container and return what came of it, by folder."""
    tried = {}
    for folder in ("/", "/srv", "/etc", "/usr/bin", "/tmp"):
        said = inside(container, f": > {folder}/probe && rm {folder}/probe && echo written", user=user)
        tried[folder] = said.strip().rsplit(": ", 1)[-1]
    return tried


@pytest.mark.parametrize("user", ["", "0"], ids=["its user", "root"])
@pytest.mark.parametrize("service", ALL)
def test_nothing_can_be_written_but_temporary_files(stack: Stack, service: str, user: str) -> None:
    closed = dict.fromkeys(("/", "/srv", "/etc", "/usr/bin"), "Read-only file system")

    assert writable(stack.containers[service], user) == closed | {"/tmp": "written"}


def sockets(container: str) -> list[str]:
    """Return the Unix sockets that lie in a container."""
    mounted = "for one in $(cut -d' ' -f5 /proc/self/mountinfo); do test -S $one && echo $one; done"
    created = "find / -path /proc -prune -o -type s -print 2>/dev/null"
    return inside(container, f"{mounted}; {created}", user="0").split()


@pytest.mark.parametrize("service", ALL)
def test_no_socket_of_the_engine_is_there(stack: Stack, service: str) -> None:
    own = {"uwsgi": ["/tmp/stats.sock"], "mariadb": ["/tmp/mariadb.sock"]}
    assert sockets(stack.containers[service]) == own.get(service, [])
    binds = [mount for mount in inspect(stack.containers[service])["Mounts"] if mount["Type"] == "bind"]
    assert {mount["Destination"] for mount in binds} == ({"/k6", "/results"} if service == "k6" else set())
    assert {mount["Destination"] for mount in binds if mount["RW"]} == ({"/results"} if service == "k6" else set())


def limits(container: str) -> dict[str, float | None]:
    """Return the limits that the kernel has for a container, of cgroups version 1 or 2. None: there is none."""
    said = inside(
        container,
        "cd /sys/fs/cgroup;"
        "echo $(cat cpu.max 2>/dev/null || cat cpu/cpu.cfs_quota_us cpu/cpu.cfs_period_us);"
        "cat memory.max 2>/dev/null || cat memory/memory.limit_in_bytes;"
        "cat pids.max 2>/dev/null || cat pids/pids.max;"
        "ulimit -n; cat /proc/sys/net/core/somaxconn",
    )
    cpu, memory, pids, files, backlog = said.splitlines()
    quota, period = cpu.split()
    return {
        "cores": None if quota in ("max", "-1") else int(quota) / int(period),
        "memory": None if memory == "max" or int(memory) > 2**60 else int(memory),
        "processes": None if pids == "max" else int(pids),
        "open files": None if files == "unlimited" else int(files),
        "backlog": int(backlog),
    }


@pytest.mark.parametrize("service", ALL)
def test_the_limits_in_force_are_those_of_the_file(stack: Stack, service: str) -> None:
    """LAB_CPUS is 0.5 here, so that the default of the file cannot pass for it."""
    config = json.loads(stack.compose(*PROFILES, "config", "--format", "json"))["services"][service]
    in_force = limits(stack.containers[service])

    assert in_force["processes"] == config["pids_limit"] == (2048 if service in (*SERVERS, "mariadb") else 512)
    assert in_force["open files"] == config["ulimits"]["nofile"] == 16384
    assert in_force["cores"] == (float(config["cpus"]) if "cpus" in config else None)
    assert in_force["memory"] == (int(config["mem_limit"]) if "mem_limit" in config else None)
    if service in SERVERS:
        assert (in_force["cores"], in_force["memory"], in_force["backlog"]) == (0.5, 2**28, 4096)


def test_the_probes_see_a_container_that_nothing_closes(plain: str) -> None:
    """Were a probe blind, everything above would pass."""
    assert users(plain) == {"0"}
    assert "new privileges" in powers(plain)
    assert len(powers(plain)) > 1
    assert inside(plain, "cat /proc/1/comm") == "sleep\n"
    assert set(writable(plain).values()) == {"written"}
    assert sockets(plain) == ["/run/docker.sock"]
    assert {limits(plain)[name] for name in ("cores", "memory")} == {None}
    assert limits(plain)["processes"] not in (512, 2048)
    assert limits(plain)["open files"] != 16384


def fetch(container: str, urls: list[str]) -> str:
    """Ask for several addresses at once from inside a container, with what its image has, and return all answers."""
    if inside(container, "command -v curl"):
        script = "".join(f"curl --globoff --silent --max-time 2 '{url}' & " for url in urls) + "wait"
        return inside(container, script)
    if inside(container, "command -v bash"):
        return inside(container, "".join(f"timeout 2 bash -c '{ask_with_bash(url)}' & " for url in urls) + "wait")
    script = (
        "import http from 'k6/http';\n"
        "export default () => {\n"
        f"  const asked = {json.dumps(urls)}.map((url) => ['GET', url, null, {{ timeout: '2s' }}]);\n"
        "  http.batch(asked).forEach((answer) => console.log(answer.body));\n"
        "};\n"
    )
    return inside(container, "k6 run --quiet --no-summary -", typed=script)


def fetch_from_all(stack: Stack, services: tuple[str, ...], urls: list[str]) -> dict[str, str]:
    """Ask from inside each of some containers at the same time, and see that each reaches the server."""
    with ThreadPoolExecutor(len(services)) as pool:
        asked = {one: pool.submit(fetch, stack.containers[one], [READY, *urls]) for one in services}
    answers = {one: answer.result() for one, answer in asked.items()}
    assert [one for one, answer in answers.items() if not is_ready(answer)] == []
    return answers


def ask_with_bash(url: str) -> str:
    """Return a script that sends a request and writes the answer, for an image that has nothing else."""
    parts = urlsplit(url)
    request = f"GET {parts.path} HTTP/1.0\\r\\nHost: {parts.hostname}\\r\\n\\r\\n"
    return f'exec 3<>/dev/tcp/{parts.hostname}/{parts.port or 80} && printf "{request}" >&3 && cat <&3'


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
def test_the_hosts_own_services_are_out_of_reach(stack: Stack, listener: Listener) -> None:
    """A closed network alone would not do: the host has an address in it, at which all its services answer."""
    listener.asked_by.clear()

    answers = fetch_from_all(stack, INSIDE, listener.urls(gateway(f"{stack.project}_lab")))

    assert [one for one, answer in answers.items() if listener.word in answer] == []
    assert listener.asked_by == []


@on_linux
def test_a_plain_container_reaches_the_hosts_services(plain: str, listener: Listener) -> None:
    """With curl, and with what asks where there is none."""
    assert listener.word in fetch(plain, listener.urls())
    assert listener.asked_by != []
    said = [inside(plain, f"bash -c '{ask_with_bash(url)}'") for url in listener.urls()]
    assert listener.word in "".join(said)


@pytest.mark.parametrize("service", ALL)
def test_nobody_has_an_address_of_ipv6(stack: Stack, service: str) -> None:
    """The host's side of the network has one of its own accord; without one of their own they cannot use it."""
    lines = inside(stack.containers[service], "cat /proc/net/if_inet6 2>/dev/null").splitlines()

    assert [line for line in lines if not line.endswith(" lo")] == []


class Wire:
    """What passes the interfaces by which this machine reaches the world, or itself."""

    def __init__(self) -> None:
        routes = [line.split() for line in Path("/proc/net/route").read_text().splitlines()[1:]]
        self.ways_out = {route[0] for route in routes if int(route[1], 16) == 0} | {"lo"}
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))  # ETH_P_ALL
        self.socket.setblocking(False)

    def senders(self, of: bytes) -> set[str]:
        """Return from which addresses packets came, since the last call, that hold some bytes."""
        found: set[str] = set()
        while True:
            try:
                packet, (interface, *_) = self.socket.recvfrom(65536)
            except BlockingIOError:
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
def test_no_packet_leaves_the_lab(stack: Stack, wire: Wire) -> None:
    fetch_from_all(stack, INSIDE, [f"http://{OUTSIDE}/"])

    assert wire.senders(socket.inet_aton(OUTSIDE)) == set()


@on_linux
@needs_root
def test_a_packet_of_the_door_has_an_address_to_which_nobody_outside_can_answer(stack: Stack, wire: Wire) -> None:
    """The door must have a network that is not closed, or no port of it could be published."""
    fetch(stack.containers["door"], [f"http://{OUTSIDE}/"])

    assert wire.senders(socket.inet_aton(OUTSIDE)) <= {stack.address("door", "outside")}


@on_linux
@needs_root
def test_a_packet_of_a_plain_container_leaves_with_the_hosts_address(plain: str, wire: Wire) -> None:
    fetch(plain, [f"http://{OUTSIDE}/"])

    assert wire.senders(socket.inet_aton(OUTSIDE)) & set(host_addresses())


@on_linux
@needs_root
def test_a_name_of_the_outside_is_asked_of_nobody(stack: Stack, wire: Wire) -> None:
    """Engines before 25.0.5 ask the host's resolver on behalf of a closed network: names are a way out, too."""
    word = secrets.token_hex(8)

    fetch_from_all(stack, ALL, [f"http://{word}.invalid/"])

    assert wire.senders(word.encode()) == set()
    for service in ALL:
        assert inspect(stack.containers[service])["HostConfig"]["Dns"] == ["127.0.0.1"], service


@on_linux
@needs_root
def test_a_name_that_a_plain_container_looks_up_is_seen(plain: str, wire: Wire) -> None:
    word = secrets.token_hex(8)

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

    assert is_ready(fetch(neighbour.containers["gunicorn"], [theirs]))
    for service in ALL:
        assert "ready" not in fetch(stack.containers[service], [theirs]).replace(theirs, ""), service


def from_the_host(address: str, port: int) -> str:
    """Ask for /-/ready from this process; the answer, or why there is none."""
    connection = http.client.HTTPConnection(address, port, timeout=2)
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
        assert "ready" not in from_the_host(stack.address(service, "lab"), 8080), service
    assert "ready" not in from_the_host(stack.address("gunicorn", "lab"), 8000)
    assert is_ready(from_the_host(stack.address("door", "outside"), 8080))


@on_linux
def test_the_door_opens_on_the_loopback_interface_alone(stack: Stack) -> None:
    port = stack.environment["LAB_PORT"]
    published = {service: inspect(one)["NetworkSettings"]["Ports"] for service, one in stack.containers.items()}

    assert {service for service, ports in published.items() if any(ports.values())} == {"door"}
    assert published["door"] == {"8080/tcp": [{"HostIp": "127.0.0.1", "HostPort": port}]}
    assert is_ready(from_the_host("127.0.0.1", int(port)))
    assert {from_the_host(address, int(port)) for address in host_addresses()} == {"ConnectionRefusedError"}


def test_results_belong_to_who_asked_for_them(stack: Stack, results: Path) -> None:
    short = ("-e", "DURATION=1s", "-e", "HEAVY_DELAY_S=0.1")

    stack.compose("run", "--rm", "--no-TTY", *short, "k6")

    owner, points = results.stat(), (results / "points.json.gz").stat()
    assert points.st_size > 0
    assert (points.st_uid, points.st_gid) == (owner.st_uid, owner.st_gid)
    assert os.geteuid() != 0 or points.st_uid == 4242
