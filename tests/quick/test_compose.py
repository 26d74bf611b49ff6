"""docker-compose.yml, as Compose reads it without an engine: variants differ in what their file says alone."""

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from python_on_whales import DockerClient

from stampede.docker.containers import GENERATORS
from stampede.docker.redaction import LOCAL, redact_composed
from stampede.experiment.file import load_experiment
from stampede.experiment.model import Api, Database
from stampede.paths import COMPOSE_FILE, K6, ROOT
from stampede.servers import SERVERS as SERVERS_OF_THE_LAB
from stampede.servers.asgi import Asgi
from stampede.servers.base import Variant
from stampede.servers.gunicorn import GunicornGthread, GunicornSync
from stampede.servers.unreleased import Unreleased
from stampede.servers.wsgi import Uwsgi
from stampede.service.layer import OWN

OWN_KEYS = {"image", "build", "environment", "profiles", "scale", "command", "entrypoint"}


def composed(tmp_path: Path, factors: dict[str, str] | None = None, *profiles: str) -> dict[str, Any]:
    file = tmp_path / "factors.env"
    file.write_text("".join(f"{name}='{value}'\n" for name, value in (factors or {}).items()))
    client = DockerClient(
        compose_files=[COMPOSE_FILE], compose_env_files=[file], compose_profiles=list(profiles) or ["*"]
    )
    resolved = client.compose.config(return_json=True)
    assert isinstance(resolved, dict)
    return resolved


@pytest.fixture(scope="module")
def by_default(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Compose makes of the file when no factor is set."""
    return composed(tmp_path_factory.mktemp("composed"))


def test_all_servers_get_the_same_box(by_default: dict[str, Any], tmp_path: Path) -> None:
    """What a service adds to the box is what it is, never how much it gets. A copy that drifts is seen against it."""
    document = yaml.safe_load(COMPOSE_FILE.read_text())
    servers = [name for name, one in document["services"].items() if "app" in aliases(one)]
    services = by_default["services"]
    file = tmp_path / "box.yml"
    waited_for = {name: {"image": "none"} for name in document["x-server"]["depends_on"]}
    box = {"box": document["x-server"] | {"image": "none"}, **waited_for}
    file.write_text(yaml.safe_dump({"services": box, "networks": document["networks"]}))
    resolved = DockerClient(compose_files=[file]).compose.config(return_json=True)
    assert isinstance(resolved, dict)

    assert set(servers) == {OWN, *(one.service for one in SERVERS_OF_THE_LAB)}
    assert set(servers) <= document["x-balancer"]["depends_on"].keys(), "a balancer starts after its server"
    for name in servers:
        assert own(services[name]) == own(resolved["services"]["box"]), name


def test_compose_makes_the_same_of_a_record_that_does_not_tell_where_it_was_made(tmp_path: Path) -> None:
    """For every service, with paths that have a dollar in them, which Compose would take for a variable."""
    part = tmp_path / "data of $dolores"
    part.mkdir()
    local = {
        "LAB_OWNER": "dolores-thinkpad-7-4711", "LAB_USER": "4711:4712", "LAB_RESULTS": str(part),
        "LAB_LOAD_SETTINGS": str(part / "load.env"), "LAB_CLIENT_SETTINGS": str(part / "client.env"),
        "LAB_CA_BUNDLE": str(part / "ca.pem"), "LAB_SECRETS": "%7B%22TOKEN%22%3A%20%22dolores%22%7D",
    }  # fmt: skip
    (part / "load.env").write_text("LIGHT_VUS='5'\n")
    (part / "client.env").write_text("CONNECTIONS='2'\n")
    assert set(local) == set(LOCAL)
    resolved = composed(tmp_path, local)

    record = redact_composed(resolved, local)

    text = yaml.safe_dump(record, sort_keys=False)
    assert [value for value in ("dolores", "4711", str(ROOT), str(tmp_path)) if value in text] == []
    (tmp_path / "record.yml").write_text(text)
    client = DockerClient(
        compose_files=[tmp_path / "record.yml"], compose_env_files=[tmp_path / "factors.env"],
        compose_project_directory=ROOT, compose_profiles=["*"],
    )  # fmt: skip
    assert client.compose.config(return_json=True) == resolved


def aliases(service: dict[str, Any]) -> list[str]:
    networks = service.get("networks", {})
    return (networks["lab"] or {}).get("aliases", []) if isinstance(networks, dict) and "lab" in networks else []


def own(service: dict[str, Any]) -> dict[str, Any]:
    """Return a service without what every server has of its own: how it is asked whether it is ready, too."""
    rest = {key: value for key, value in service.items() if key not in OWN_KEYS}
    return rest | {"healthcheck": {key: value for key, value in rest["healthcheck"].items() if key != "test"}}


def test_the_box_is_closed(by_default: dict[str, Any]) -> None:
    for name, service in by_default["services"].items():
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
    assert by_default["networks"]["lab"]["internal"]
    assert by_default["networks"]["lab"]["driver_opts"] == {f"{bridge}.inhibit_ipv4": "true"}
    assert by_default["networks"]["outside"]["driver_opts"] == {f"{bridge}.enable_ip_masquerade": "false"}
    assert {port["host_ip"] for port in by_default["services"]["door"]["ports"]} == {"127.0.0.1"}


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
    if isinstance(one, dict) and isinstance(other, dict):
        return [
            path
            for key in one.keys() | other.keys()
            for path in differences(one.get(key), other.get(key), f"{where}.{key}" if where else key)
        ]
    return [] if one == other else [where]


def test_all_balancers_get_the_same_box(by_default: dict[str, Any]) -> None:
    services = by_default["services"]

    assert own(services["nginx"]) == own(services["haproxy"]) == own(services["envoy"])


def test_load_generators_have_more_weight_than_others_where_a_processor_is_short(by_default: dict[str, Any]) -> None:
    services = by_default["services"]

    weights = {name: one["cpu_shares"] for name, one in services.items()}
    assert weights == dict.fromkeys(services, 1024) | dict.fromkeys(GENERATORS, 8 * 1024)


def test_every_factor_of_the_file_is_set_by_a_variant_or_the_runner() -> None:
    """A LAB_ name that nobody sets would be a factor that no experiment controls."""
    variants = [example_of(server) for server in SERVERS_OF_THE_LAB]
    set_by_variants = {name for one in variants for name in one.factors()}
    runner = {"LAB_OWNER", "LAB_SCRIPT", "LAB_K6_RELEASE", "LAB_K6_MEMORY",
              "LAB_LOAD_SETTINGS", "LAB_RESULTS", "LAB_USER",
              "LAB_CA_BUNDLE", "LAB_INPUTS", "LAB_CLIENT", "LAB_CLIENT_CONNECTS_TO", "LAB_CLIENT_SETTINGS",
              "LAB_POINTS", "LAB_SECRETS"}  # fmt: skip
    for_people = {"LAB_PORT"}
    own = {"LAB_USER_SERVICE", "LAB_WAY", "LAB_BACKPRESSURE"}  # stampede/service/variants.py sets these
    builds = {"LAB_UNRELEASED"}  # test_a_build_that_is_not_released_has_an_image_of_its_own

    named = set(re.findall(r"\$\{(LAB_[A-Z0-9_]+)", COMPOSE_FILE.read_text()))

    set_by_loads = {*Api().factors(), *Database().factors()}
    assert named == set_by_variants | set_by_loads | runner | for_people | own | builds


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
OF_THE_LAB = {"pre_stop_s"}  # the lab itself waits before it sends SIGTERM
NOT_FOR_UWSGI = {"hup_after_s", "max_requests_jitter"}  # it needs no word of a HUP, and refuses the jitter
NOT_AS_WRITTEN = {
    "app", "balance", "balancer", "gil", "max_conns", "memory_mib", "server", "upstream_keepalive", "worker_class"
}  # fmt: skip


@pytest.mark.parametrize("server", SERVERS_OF_THE_LAB)
def test_every_setting_of_a_variant_reaches_the_containers(server: type[Variant]) -> None:
    """Changing any setting changes the factor of its name, or other factors: none is read and then forgotten."""
    plain, fields = example_of(server), server.model_fields
    other = {
        name: another(fields[name].annotation, getattr(plain, name))
        for name in fields.keys() - EVERY_SERVER.keys() - OF_THE_LAB - (NOT_FOR_UWSGI if server is Uwsgi else set())
    }

    assert EVERY_SERVER.keys() <= fields.keys()
    for setting, value in (EVERY_SERVER | other).items():
        changed = plain.model_copy(update={setting: value})
        assert changed.factors() != plain.factors() or value == getattr(plain, setting), setting
        if setting not in NOT_AS_WRITTEN and not isinstance(value, Unreleased):
            assert changed.factors()[f"LAB_{setting.upper()}"] in (str(value).lower(), f"{value}.0")
    only = {name for name in ("server", "app") if name == "server" or len(get_args(fields[name].annotation)) == 1}
    assert {name for name in other if other[name] == getattr(plain, name)} <= only


def example_of(server: type[Variant]) -> Variant:
    """Return a server's example, for the first word that its key ``server`` can be."""
    return server.model_validate({"server": get_args(server.model_fields["server"].annotation)[0], **server.example})


def another(annotation: Any, value: Any) -> Any:
    if annotation == Unreleased | None:
        return Unreleased(patch="servers/gunicorn/idle-thread.patch")
    if (words := get_args(annotation)) and not any(isinstance(word, type) for word in words):
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
    """k6/classes.env is what Compose uses by hand; it must not drift from the experiment."""
    by_hand = dict(line.split("=", 1) for line in (K6 / "classes.env").read_text().splitlines() if "=" in line)

    load = load_experiment("heavy-mix").all_loads["heavy-mix"]
    said = load.environment() | load.derived_environment("30s") | {"DURATION": "30s", "START_AT_MS": "0"}
    classes = [json.loads(found.pop("CLASSES")) for found in (by_hand, said)]
    assert classes[0] == classes[1]
    assert by_hand == said
