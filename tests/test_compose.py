"""docker-compose.yml and the images: variants differ in what their file says and in nothing else."""

import copy
import json
import re
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from python_on_whales import DockerClient

from analysis.metrics.visits import rates_per_s
from lab.experiment.file import load_experiment
from lab.experiment.model import Api, Database, Durations, Load
from lab.paths import CLIENTS, COMPOSE_FILE, K6, ROOT, SERVERS
from lab.servers import SERVERS as SERVERS_OF_THE_LAB
from lab.servers.asgi import Asgi
from lab.servers.base import Variant
from lab.servers.gunicorn import GunicornGthread, GunicornSync
from lab.servers.uwsgi import Uwsgi
from lab.trial.containers import GENERATORS
from lab.whereabouts import LOCAL, placeless

pytestmark = [pytest.mark.containers, pytest.mark.usefixtures("own_images")]
FORM = '<input name="csrfmiddlewaretoken" value="abc">'
OWN_KEYS = {"image", "build", "environment", "profiles", "scale", "command", "entrypoint"}


def composed(tmp_path: Path, factors: dict[str, str] | None = None, *profiles: str) -> dict[str, Any]:
    """Return what Compose makes of the file with some factors, for some profiles or all."""
    file = tmp_path / "factors.env"
    file.write_text("".join(f"{name}='{value}'\n" for name, value in (factors or {}).items()))
    client = DockerClient(
        compose_files=[COMPOSE_FILE], compose_env_files=[file], compose_profiles=list(profiles) or ["*"]
    )
    resolved = client.compose.config(return_json=True)
    assert isinstance(resolved, dict)
    return resolved


def test_all_servers_get_the_same_box(tmp_path: Path) -> None:
    """What a service adds to the box is what it is, never how much it gets. A copy that drifts is seen against it."""
    document = yaml.safe_load(COMPOSE_FILE.read_text())
    servers = [name for name, one in document["services"].items() if "app" in aliases(one)]
    services = composed(tmp_path)["services"]
    file = tmp_path / "box.yml"
    waited_for = {name: {"image": "none"} for name in document["x-server"]["depends_on"]}
    box = {"box": document["x-server"] | {"image": "none"}, **waited_for}
    file.write_text(yaml.safe_dump({"services": box, "networks": document["networks"]}))
    resolved = DockerClient(compose_files=[file]).compose.config(return_json=True)
    assert isinstance(resolved, dict)

    assert set(servers) == {one.service for one in SERVERS_OF_THE_LAB}
    for name in servers:
        assert own(services[name]) == own(resolved["services"]["box"]), name


def test_compose_makes_the_same_of_a_record_that_does_not_tell_where_it_was_made(tmp_path: Path) -> None:
    """For every service, with paths that have a dollar in them, which Compose would take for a variable."""
    part = tmp_path / "data of $dolores"
    part.mkdir()
    local = {
        "LAB_OWNER": "dolores-thinkpad-7-4711", "LAB_USER": "4711:4712", "LAB_RESULTS": str(part),
        "LAB_LOAD_SETTINGS": str(part / "load.env"), "LAB_CLIENT_SETTINGS": str(part / "client.env"),
        "LAB_CA_BUNDLE": str(part / "ca.pem"),
    }  # fmt: skip
    (part / "load.env").write_text("LIGHT_VUS='5'\n")
    (part / "client.env").write_text("CONNECTIONS='2'\n")
    assert set(local) == set(LOCAL)
    resolved = composed(tmp_path, local)

    record = placeless(resolved, local)

    text = yaml.safe_dump(record, sort_keys=False)
    assert [value for value in ("dolores", "4711", str(ROOT), str(tmp_path)) if value in text] == []
    (tmp_path / "record.yml").write_text(text)
    client = DockerClient(
        compose_files=[tmp_path / "record.yml"], compose_env_files=[tmp_path / "factors.env"],
        compose_project_directory=ROOT, compose_profiles=["*"],
    )  # fmt: skip
    assert client.compose.config(return_json=True) == resolved


def aliases(service: dict[str, Any]) -> list[str]:
    """Return the names of a service on the lab's network."""
    networks = service.get("networks", {})
    return (networks["lab"] or {}).get("aliases", []) if isinstance(networks, dict) and "lab" in networks else []


def own(service: dict[str, Any]) -> dict[str, Any]:
    """Return a service without what every server has of its own: how it is asked whether it is ready, too."""
    rest = {key: value for key, value in service.items() if key not in OWN_KEYS}
    return rest | {"healthcheck": {key: value for key, value in rest["healthcheck"].items() if key != "test"}}


def test_the_box_is_closed(tmp_path: Path) -> None:
    resolved = composed(tmp_path)

    for name, service in resolved["services"].items():
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges"], name
        assert service["read_only"], name
        assert service["init"], name
        assert service["dns"] == ["127.0.0.1"], name
        assert "container_name" not in service
        assert "restart" not in service
        assert not service.get("privileged")
        assert "docker.sock" not in json.dumps(service)
        if name != "door":
            assert list(service["networks"]) == ["lab"], name
            assert "ports" not in service, name
    bridge = "com.docker.network.bridge"
    assert resolved["networks"]["lab"]["internal"]
    assert resolved["networks"]["lab"]["driver_opts"] == {f"{bridge}.inhibit_ipv4": "true"}
    assert resolved["networks"]["outside"]["driver_opts"] == {f"{bridge}.enable_ip_masquerade": "false"}
    assert {port["host_ip"] for port in resolved["services"]["door"]["ports"]} == {"127.0.0.1"}


def test_variants_differ_in_what_their_file_says_and_in_nothing_else(tmp_path: Path) -> None:
    """Resolve every variant, undo what its file says against the plainest, and nothing is left."""
    variants = load_experiment("heavy-mix").variants
    profiles = "gunicorn", "nginx", "load"
    plain = composed(tmp_path, variants["shared-socket"].factors(), *profiles)

    def difference(name: str) -> set[str]:
        return set(differences(plain, composed(tmp_path, variants[name].factors(), *profiles)))

    server = "services.gunicorn"
    assert difference("shared-socket-23") == {f"{server}.image", f"{server}.build.args.RELEASE"}
    assert difference("one-process") == {f"{server}.environment.LAB_WORKERS", f"{server}.environment.LAB_THREADS"}
    assert difference("reuse-port") == {f"{server}.environment.LAB_REUSE_PORT"}
    assert difference("random-accept") == {f"{server}.environment.LAB_WORKER_CLASS"}
    assert difference("busy-accept") == {f"{server}.environment.LAB_WORKER_CLASS"}
    assert difference("connection-limit") == {f"{server}.environment.LAB_WORKER_CONNECTIONS"}
    assert difference("least-conn") == {
        f"{server}.environment.LAB_WORKERS", f"{server}.scale", "services.nginx.environment.LAB_BALANCE",
    }  # fmt: skip


def differences(one: object, other: object, where: str = "") -> list[str]:
    """Return the paths at which two documents differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            path
            for key in one.keys() | other.keys()
            for path in differences(one.get(key), other.get(key), f"{where}.{key}" if where else key)
        ]
    return [] if one == other else [where]


def test_all_balancers_get_the_same_box(tmp_path: Path) -> None:
    services = composed(tmp_path)["services"]

    assert own(services["nginx"]) == own(services["haproxy"])


def test_load_generators_have_more_weight_than_others_where_a_processor_is_short(tmp_path: Path) -> None:
    services = composed(tmp_path)["services"]

    weights = {name: one["cpu_shares"] for name, one in services.items()}
    assert weights == dict.fromkeys(services, 1024) | dict.fromkeys(GENERATORS, 8 * 1024)


def test_every_factor_of_the_file_is_set_by_a_variant_or_the_runner() -> None:
    """A LAB_ name that nobody sets would be a factor that no experiment controls."""
    variants = [example_of(server) for server in SERVERS_OF_THE_LAB]
    set_by_variants = {name for one in variants for name in one.factors()}
    runner = {"LAB_OWNER", "LAB_SCRIPT", "LAB_K6_RELEASE", "LAB_K6_MEMORY",
              "LAB_LOAD_SETTINGS", "LAB_RESULTS", "LAB_USER",
              "LAB_CA_BUNDLE", "LAB_INPUTS", "LAB_CLIENT", "LAB_CLIENT_SETTINGS"}  # fmt: skip
    for_people = {"LAB_PORT"}

    named = set(re.findall(r"\$\{(LAB_[A-Z0-9_]+)", COMPOSE_FILE.read_text()))

    set_by_loads = {*Api().factors(), *Database().factors()}
    assert named == set_by_variants | set_by_loads | runner | for_people


@pytest.mark.parametrize(("service", "threads"), [("gunicorn", ""), ("asgi", ""), ("uwsgi", "2"), ("flup", "1")])
def test_a_variant_without_threads_does_not_get_those_of_people(tmp_path: Path, service: str, threads: str) -> None:
    """A default is for who starts a server by hand; only uWSGI and flup always have threads."""
    environment = composed(tmp_path, {"LAB_THREADS": ""})["services"][service]["environment"]

    assert environment["LAB_THREADS"] == threads


@pytest.mark.parametrize("database", ["", "mariadb"])
def test_a_database_is_there_with_its_profile_and_servers_wait_for_it(tmp_path: Path, database: str) -> None:
    profiles = ("gunicorn", "nginx", "load", *([database] if database else []))

    services = composed(tmp_path, {"LAB_DATABASE": database}, *profiles)["services"]

    assert services.keys() == {"gunicorn", "nginx", "k6", *([database] if database else [])}
    assert services["gunicorn"]["environment"]["LAB_DATABASE"] == database
    if database:
        assert services["gunicorn"]["depends_on"] == {"mariadb": {"condition": "service_healthy", "required": False}}


@pytest.mark.parametrize("variant", [
    GunicornSync(server="gunicorn-sync", workers=2),
    Asgi(server="granian", workers=2, app="fastapi-async"),
], ids=lambda one: one.server)  # fmt: skip
def test_without_a_balancer_k6_asks_another_address_and_nothing_else_differs(tmp_path: Path, variant: Variant) -> None:
    def resolved(balancer: str) -> dict[str, Any]:
        one = variant.model_copy(update={"balancer": balancer})
        return composed(tmp_path, one.factors(), one.service, "load")

    assert differences(resolved("nginx"), resolved("none")) == ["services.k6.environment.LAB_URL"]


EVERY_SERVER: dict[str, Any] = {
    "workers": 3, "threads": 3, "replicas": 2, "balancer": "haproxy", "balance": "least_conn", "upstream_keepalive": 4,
    "max_conns": 5, "queue_timeout_s": 6, "cpus": 2, "cpuset": "0", "memory_mib": 2048, "somaxconn": 16,
}  # fmt: skip


@pytest.mark.parametrize("server", SERVERS_OF_THE_LAB)
def test_every_setting_of_a_variant_reaches_the_containers(server: type[Variant]) -> None:
    """Changing any setting changes the factors: none is read and then forgotten."""
    plain, fields = example_of(server), server.model_fields
    other = {
        name: another(fields[name].annotation, getattr(plain, name)) for name in fields.keys() - EVERY_SERVER.keys()
    }

    assert EVERY_SERVER.keys() <= fields.keys()
    for setting, value in (EVERY_SERVER | other).items():
        changed = plain.model_copy(update={setting: value})
        assert changed.factors() != plain.factors() or value == getattr(plain, setting), setting
    assert {name for name in other if other[name] == getattr(plain, name)} <= {"server"}


def example_of(server: type[Variant]) -> Variant:
    """Return a server's example, for the first word that its key ``server`` can be."""
    return server.model_validate({"server": get_args(server.model_fields["server"].annotation)[0], **server.example})


def another(annotation: Any, value: Any) -> Any:
    """Return another value of a setting; the same where there is no other."""
    if words := get_args(annotation):
        return next((word for word in words if word != value), value)
    return not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else "23.0.0"


def test_the_balancer_is_told_every_port_that_a_process_has_of_its_own() -> None:
    mapped = Uwsgi(server="uwsgi", workers=3, threads=1, map_socket=True)

    assert mapped.factors()["LAB_UPSTREAM"] == "app:8000 app:8001 app:8002"
    shared = mapped.model_copy(update={"map_socket": False})
    assert shared.factors()["LAB_UPSTREAM"] == "app:8000"


def test_a_sync_worker_differs_in_its_class_alone() -> None:
    threads = GunicornGthread(server="gunicorn-gthread", workers=2, threads=1).factors()
    sync = GunicornSync(server="gunicorn-sync", workers=2).factors()

    assert sync == {name: threads[name] for name in sync} | {"LAB_WORKER_CLASS": "sync"}
    assert threads.keys() - sync.keys() == {"LAB_WORKER_CONNECTIONS", "LAB_KEEPALIVE_S"}


def test_the_load_by_hand_is_the_experiments_load() -> None:
    """k6/heavy-mix.env is what Compose uses by hand; it must not drift from the experiment."""
    by_hand = dict(line.split("=") for line in (K6 / "heavy-mix.env").read_text().splitlines() if "=" in line)

    assert by_hand == load_experiment("heavy-mix").all_loads["heavy-mix"].environment() | {
        "DURATION": "30s", "GRACE_S": "60", "START_AT_MS": "0",
    }  # fmt: skip


@pytest.mark.parametrize("balance", ["", "least_conn;", "random two least_conn;"])
@pytest.mark.parametrize(("keepalive", "connection"), [("", "close"), ("keepalive 4;", '""')])
@pytest.mark.parametrize("protocol", ["http", "uwsgi", "fastcgi"])
def test_nginx_accepts_its_configuration(protocol: str, balance: str, keepalive: str, connection: str) -> None:
    environment = {
        "LAB_UPSTREAM": "127.0.0.1:8000 127.0.0.1:8001", "LAB_BALANCE": balance, "LAB_UPSTREAM_KEEPALIVE": keepalive,
        "LAB_UPSTREAM_CONNECTION": connection, "LAB_PROTOCOL": protocol, "LAB_SERVER_MAXCONN": "4",
    }  # fmt: skip
    flags = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    check = 'sed "s/exec nginx/exec nginx -t/" /usr/local/bin/start > /tmp/check && exec sh /tmp/check'

    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "--tmpfs", "/tmp", *flags, "--entrypoint", "sh",
         "stampede/nginx:trixie", "-c", check],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("keepalive", ["0", "4"])
@pytest.mark.parametrize("balance", ["roundrobin", "leastconn", "random(2)"])
def test_haproxy_accepts_its_configuration(balance: str, keepalive: str) -> None:
    environment = {
        "LAB_UPSTREAM": "127.0.0.1:8000 127.0.0.1:8001", "LAB_BALANCE": balance, "LAB_UPSTREAM_KEEPALIVE": keepalive,
    }  # fmt: skip

    done = haproxy(environment, check=True)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("factor", "value", "message"),
    [
        ("LAB_UPSTREAM_KEEPALIVE", "few", "LAB_UPSTREAM_KEEPALIVE is a whole number from 0 on, not few."),
        ("LAB_SERVER_MAXCONN", "2.5", "LAB_SERVER_MAXCONN is a whole number from 0 on, not 2.5."),
        ("LAB_QUEUE_TIMEOUT_S", "0", "LAB_QUEUE_TIMEOUT_S is a whole number from 1 on, not 0."),
        ("LAB_UPSTREAM", "nobody.invalid:8000",
         "No server answers to the name nobody.invalid: LAB_UPSTREAM=nobody.invalid:8000 does not resolve."),
    ],
)  # fmt: skip
def test_haproxy_does_not_start_with_a_factor_that_makes_no_sense(factor: str, value: str, message: str) -> None:
    """HAProxy itself reads a word as 0, which would be another experiment."""
    done = haproxy({"LAB_UPSTREAM": "127.0.0.1:8000", factor: value})

    assert (done.returncode, done.stderr) == (1, f"{message}\n")


def haproxy(environment: dict[str, str], *, check: bool = False) -> "subprocess.CompletedProcess[str]":
    """Start HAProxy's image without a network; or check its configuration only, with one, or it resolves no address."""
    flags = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    only_check = 'sed "s/exec haproxy/exec haproxy -c/" /usr/local/bin/start > /tmp/check && exec sh /tmp/check'
    return subprocess.run(
        ["docker", "run", "--rm", "--network", "bridge" if check else "none", "--tmpfs", "/tmp", *flags,
         "--entrypoint", "sh", "stampede/haproxy:trixie", "-c", only_check if check else "exec start"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("script", sorted(path.name for path in K6.glob("*.js")))
def test_every_script_is_accepted_by_k6_and_refuses_to_start_without_its_settings(script: str) -> None:
    settings = (K6 / script).with_suffix(".env").read_text()
    names = [line.split("=")[0] for line in settings.splitlines() if "=" in line]
    given = dict(line.split("=", 1) for line in settings.splitlines() if "=" in line)

    complete = copy.copy(given) | {"LAB_URL": "http://balancer:8080"}
    assert inspect(script, complete).returncode == 0
    for name in [*names, "LAB_URL"]:
        done = inspect(script, {key: value for key, value in complete.items() if key != name})
        assert done.returncode != 0
        assert f"{name} is not set; the .env file beside the script has an example" in done.stderr


@pytest.mark.parametrize(
    ("script", "setting", "value", "message"),
    [
        ("burst.js", "START_AT_MS", "soon", "START_AT_MS=soon is not a number"),
        ("burst.js", "ASKED_MS", " ", "ASKED_MS=  is not a number"),
        ("visits.js", "RATES_PER_S", "8,many", "RATES_PER_S=8,many is not a number"),
        ("visits.js", "RATES_PER_S", "8,", "RATES_PER_S=8, is not a number"),
        ("visits.js", "GRACE_S", "Infinity", "GRACE_S=Infinity is not a number"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(script: str, setting: str, value: str, message: str) -> None:
    lines = (K6 / script).with_suffix(".env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if "=" in line)

    done = inspect(script, given | {"LAB_URL": "http://balancer:8080", setting: value})

    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize(("duration", "every_s", "bursts"), [("20s", 10, 2), ("1m", 25, 2), ("5s", 10, 1)])
def test_a_burst_comes_as_often_as_it_fits_and_at_least_once(duration: str, every_s: int, bursts: int) -> None:
    given = {
        "BURST": "40",
        "EVERY_S": str(every_s),
        "ASKS": "/",
        "ASKED_MS": "0",
        "DURATION": duration,
        "GRACE_S": "60",
    }

    done = inspect("burst.js", given | {"LAB_URL": "http://app:8000", "START_AT_MS": "0"})

    [scenario] = json.loads(done.stdout)["scenarios"].values()
    assert (scenario["vus"], scenario["iterations"], scenario["startTime"]) == (40, bursts, "0s")


@pytest.mark.parametrize("script", sorted(path.name for path in K6.glob("*.js")))
def test_a_load_begins_at_its_moment_or_at_once_when_that_has_passed(script: str) -> None:
    """Several generators are told the same moment, and count from their own start."""
    settings = (K6 / script).with_suffix(".env").read_text()
    given = dict(line.split("=", 1) for line in settings.splitlines() if "=" in line)

    def starts_s(at_s: float) -> list[float]:
        moment = {"LAB_URL": "http://app:8000", "START_AT_MS": f"{1000 * (time.time() + at_s):.0f}"}
        scenarios = json.loads(inspect(script, given | moment).stdout)["scenarios"].values()
        return [in_seconds(one["startTime"]) for one in scenarios]

    assert set(starts_s(-5)) == {0}
    assert all(0 < one <= 300 for one in starts_s(300))


def in_seconds(duration: str) -> float:
    """Return a duration as k6 writes it, e.g. 4m59.7s, in seconds."""
    units = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "µs": 1e-6}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+)(ms|µs|h|m|s)", duration))


@pytest.mark.parametrize(
    ("given", "duration", "stages"),
    [
        ({"FIRST_PER_S": "8", "LAST_PER_S": "80", "STEP_S": "2"}, "6s",
         [("0s", 8), ("2s", 8), ("0s", 25), ("2s", 25), ("0s", 80), ("2s", 80)]),
        ({"FIRST_PER_S": "10", "LAST_PER_S": "20", "STEP_S": "30"}, "1m",
         [("0s", 10), ("30s", 10), ("0s", 20), ("30s", 20)]),
        ({"FIRST_PER_S": "8", "LAST_PER_S": "80", "STEP_S": "2"}, "5s",
         [("0s", 8), ("2s", 8), ("0s", 80), ("2s", 80)]),
        ({"FIRST_PER_S": "76", "LAST_PER_S": "76", "STEP_S": "10"}, "10s", [("0s", 76), ("10s", 76)]),
        ({"FIRST_PER_S": "76", "LAST_PER_S": "76", "STEP_S": "10"}, "5s", [("0s", 76), ("5s", 76)]),
    ],
)  # fmt: skip
def test_the_rate_of_visits_jumps_from_step_to_step(
    given: dict[str, str], duration: str, stages: list[tuple[str, int]]
) -> None:
    """A step that the duration has no room for is left out, but for the first. The analysis knows the same rates."""
    settings = {name.lower(): int(value) for name, value in given.items()} | {"timeout_steps": 1, "users_max": 9}
    load = Load(script="visits.js", duration=Durations(short=duration, full=duration), settings=settings)
    surrounding = {"DURATION": duration, "START_AT_MS": "0", "LAB_URL": "http://balancer:8080"}

    done = inspect("visits.js", load.environment() | load.handed_over(duration) | surrounding)

    [scenario] = json.loads(done.stdout)["scenarios"].values()
    assert (scenario["executor"], scenario["exec"]) == ("ramping-arrival-rate", "visitor")
    assert (scenario["startRate"], scenario["timeUnit"], scenario["preAllocatedVUs"]) == (stages[0][1], "1s", 9)
    assert [(stage["duration"], stage["target"]) for stage in scenario["stages"]] == stages
    assert [rate for _, rate in stages[::2]] == rates_per_s(given, duration)


@pytest.mark.parametrize(
    ("given", "duration", "users", "within", "within_s"),
    [
        ({"FIRST_PER_S": 8, "LAST_PER_S": 80, "STEP_S": 1, "TIMEOUT_STEPS": 1, "USERS_MAX": 400}, "2s", 88, "8s", 8),
        (
            {"FIRST_PER_S": 8, "LAST_PER_S": 80, "STEP_S": 1.5, "TIMEOUT_STEPS": 0.5, "USERS_MAX": 99},
            "3s",
            99,
            "7.25s",
            7.25,
        ),
        (
            {"FIRST_PER_S": 64, "LAST_PER_S": 64, "STEP_S": 10, "TIMEOUT_STEPS": 5, "USERS_MAX": 1600},
            "10s",
            640,
            "2m35s",
            155,
        ),
        (
            {"FIRST_PER_S": 64, "LAST_PER_S": 64, "STEP_S": 10, "TIMEOUT_STEPS": 5, "USERS_MAX": 1600},
            "4s",
            256,
            "1m5s",
            65,
        ),
    ],
)
def test_there_are_no_more_visitors_than_visits_and_their_last_answer_is_waited_for(
    given: dict[str, int | float], duration: str, users: int, within: str, within_s: float
) -> None:
    """The runner waits as long as k6 does."""
    load = Load(
        script="visits.js", database=Database(), duration=Durations(short=duration, full=duration),
        settings={name.lower(): value for name, value in given.items()},
    )  # fmt: skip
    surrounding = {"DURATION": duration, "START_AT_MS": "0", "LAB_URL": "http://balancer:8080"}

    done = inspect("visits.js", load.environment() | load.handed_over(duration) | surrounding)

    [scenario] = json.loads(done.stdout)["scenarios"].values()
    assert (scenario["preAllocatedVUs"], scenario["gracefulStop"]) == (users, within)
    assert load.grace_s(duration) == within_s


def test_other_loads_have_a_minute_for_their_last_answer() -> None:
    [load] = load_experiment("heavy-mix").all_loads.values()
    settings = (
        load.environment()
        | load.handed_over("9s")
        | {"DURATION": "9s", "START_AT_MS": "0", "LAB_URL": "http://balancer:8080"}
    )

    done = inspect("heavy-mix.js", settings)

    assert {one["gracefulStop"] for one in json.loads(done.stdout)["scenarios"].values()} == {"1m0s"}
    assert load.grace_s("9s") == 60


@pytest.mark.parametrize(
    ("answers", "thrown"),
    [
        ({"GET": (404, "nothing")}, "the page was refused with status 404: nothing"),
        ({"GET": (200, "nothing")}, "the page has no form: nothing"),
        ({"GET": (200, FORM), "POST": (403, "who are you?")}, "the post was refused with status 403: who are you?"),
        ({"GET": (200, FORM), "POST": (200, "try again")}, "the form was refused: try again"),
        ({"GET": (200, FORM), "POST": (503, "later")}, None),
        ({"GET": (502, "")}, None),
    ],
)
def test_a_visit_that_the_page_does_not_understand_is_an_error_of_the_script(
    answers: dict[str, tuple[int, str]], thrown: str | None
) -> None:
    """It is a failure of the visit where the server is at its end."""
    asked: set[str] = set()

    class Page(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.add(self.command)
            status, body = answers[self.command]
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(status)
            self.send_header("Lab-Served", "{}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST = answer  # noqa: N815  # http.server's own names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        given = {"RATES_PER_S": 2, "STEP_LASTS_S": 1, "TIMEOUT_S": 1, "USERS_MAX": 2, "GRACE_S": 8, "START_AT_MS": 0}
        flags = [word for name, value in given.items() for word in ("--env", f"{name}={value}")]
        done = subprocess.run(
            ["docker", "run", "--rm", "--network", "host", "--volume", f"{K6}:/k6:ro", "grafana/k6:1.8.1", "run",
             "--quiet", *flags, "--env", f"LAB_URL=http://127.0.0.1:{server.server_port}", "--env", "DURATION=1s",
             "/k6/visits.js"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        server.shutdown()

    assert (done.returncode, asked) == (0, set(answers))
    errors = [line for line in done.stderr.splitlines() if "level=error" in line]
    assert bool(errors) == bool(thrown)
    for line in errors:
        assert f"Error: {thrown}" in line


def inspect(script: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """Let k6 read a script without running it."""
    flags = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
    return subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "--volume", f"{K6}:/k6:ro", *flags,
         "grafana/k6:1.8.1", "inspect", "--include-system-env-vars", f"/k6/{script}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("script", sorted(path.name for path in CLIENTS.glob("*.py")))
def test_every_client_has_its_settings_by_hand_and_refuses_to_start_without_one(script: str) -> None:
    """In the container that it runs in, without a network; DURATION is short and nobody can be reached."""
    lines = (CLIENTS / script).with_suffix(".env").read_text().splitlines()
    given = dict(line.split("=", 1) for line in lines if "=" in line)

    def start(environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
        flags = [word for name, value in environment.items() for word in ("--env", f"{name}={value}")]
        return subprocess.run(
            ["docker", "run", "--rm", "--network", "none", "--tmpfs", "/results:mode=777", *flags,
             "--volume", f"{CLIENTS}:/clients:ro", "stampede/client:trixie", "python", f"/clients/{script}"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    complete = given | {"LAB_SERVER": "127.0.0.1:8000", "DURATION": "1s"}
    assert (start(complete).returncode, start(complete).stderr) == (0, "")
    for name in given:
        done = start({key: value for key, value in complete.items() if key != name})
        message = f"{name} is not set; the .env file beside the script has an example\n"
        assert (done.returncode, done.stderr) == (2, message)


@pytest.mark.parametrize("misspelt", ["lazy-app", "lisen"])
def test_uwsgi_does_not_start_with_an_option_that_it_does_not_know(misspelt: str) -> None:
    """Without its strict mode it would ignore either, and measure something else."""
    factors = {
        "WORKERS": "1", "THREADS": "1", "PROTOCOL": "http", "THUNDER_LOCK": "false", "MAP_SOCKET": "false",
        "SOMAXCONN": "4096", "APP": "wsgi:app",
    }  # fmt: skip
    flags = [word for name, value in factors.items() for word in ("--env", f"LAB_{name}={value}")]

    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "--tmpfs", "/tmp", *flags, "--entrypoint", "sh",
         "stampede/uwsgi:2.0.31", "-c",
         f"mkdir /tmp/a; cd /tmp/a; (cat /srv/uwsgi.ini; echo {misspelt} = 1) > uwsgi.ini; exec start"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 1
    assert f"[strict-mode] unknown config directive: {misspelt}" in done.stderr


@pytest.mark.parametrize(
    ("image", "files"),
    [
        ("gunicorn:27.0.1", {"acceptors.py", "event_loops.py", "gunicorn.conf.py"}),
        ("asgi:trixie", set()),
        ("uwsgi:2.0.31", {"application.py", "stats.py", "uwsgi.ini"}),
        ("flup:1.1.1", {"ready.py", "serve.py"}),
    ],
)
def test_the_image_holds_the_applications_and_nothing_else_of_ours(image: str, files: set[str]) -> None:
    applications = {path.name for path in (SERVERS / "app").glob("*.py")}
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "--entrypoint", "ls", f"stampede/{image}", "/srv"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert set(done.stdout.split()) == {"__pycache__", "guestbook", *applications, *files}


def test_the_image_of_the_database_holds_an_empty_one_and_its_settings() -> None:
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "--entrypoint", "ls", "stampede/mariadb:trixie", "/srv"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert set(done.stdout.split()) == {"empty", "init.sql", "mariadb.cnf"}


def test_the_database_does_not_start_with_an_option_that_it_does_not_know() -> None:
    done = subprocess.run(
        ["docker", "run", "--rm", "--network", "none", "--tmpfs", "/tmp", "--env", "LAB_DATABASE_CONNECTIONS=9",
         "--entrypoint", "sh", "stampede/mariadb:trixie", "-c",
         'sed "s/mariadb.cnf/misspelt.cnf/; s:/srv/misspelt:/tmp/misspelt:" /usr/local/bin/start > /tmp/start; '
         "(cat /srv/mariadb.cnf; echo [mariadbd]; echo extra-prot = 3307) > /tmp/misspelt.cnf; exec sh /tmp/start"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode != 0
    assert "unknown variable 'extra-prot=3307'" in done.stderr
