"""What a container may use, as the files that deploy it or the kernel say: cores, memory and replicas.

Kubernetes, Helm's values, Compose and systemd each have their own words and units; here they become the keys of the
lab's files. A file that is silent leaves the key out: requests of Kubernetes, for instance, limit nothing.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from stampede.docker.compose_config import config
from stampede.errors import WrongUse
from stampede.experiment.yaml_file import foreign_yaml
from stampede.foreign import read_text
from stampede.records.run import cores_named
from stampede.servers.program import SERVES

Found = Mapping[str, tuple[float, str]]
"""``cpus`` in cores on average, ``memory_mib`` and ``replicas``, each with the place that says it."""

HINT = "--limits k8s/web.yaml, or another Kubernetes deployment, Compose file or unit of systemd that has limits."
MOST_NAMED = 3
LONG_ENOUGH = 5
"""A folder with a shorter name says nothing."""
LEAST = {"cpus": 0.01, "memory_mib": 64}
"""Less than this the lab gives to no container."""
_MULTIPLES = {"m": 1e-3, "": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15,
              "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}  # fmt: skip
WEB = re.compile(r"web|app|api|server|backend|django|flask|fastapi|site|\bmain\b")
OTHERS = re.compile(
    r"\b(celery\w*|\w*worker|beat|housekeeping|scheduler|cron|migrat\w*|nginx|redis|valkey|postgres\w*|mysql|mariadb|mongo\w*|rabbitmq|"
    r"kafka|elasticsearch|memcached|envoy|haproxy|traefik|caddy|prometheus|grafana|flower|minio|db|database)\b"
)
"""Containers beside the application."""
_IN_PRODUCTION = re.compile(r"prod")
_FOR_DEVELOPMENT = re.compile(r"\b(dev|devel\w*|local|test\w*|debug|staging|ci|examples?)\b")
_POD_KINDS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Rollout", "Pod", "Service", "List",
              "DeploymentConfig", "Template")  # fmt: skip
"""The objects of Kubernetes and OpenShift that have containers; a Service is that of Knative."""


class Container(NamedTuple):
    """A container of a deployment: its name, its image and command, the file, and what it may use."""

    name: str
    words: str
    file: str
    found: Found


def containers_in(files: Iterable[tuple[str, str]]) -> Iterator[Container]:
    """Yield the containers that files deploy, by names and texts: Kubernetes, Helm's values, Compose and systemd."""
    files = list(files)
    for name, text in files:
        if name.endswith(".service"):
            yield _unit(name, text, files)
        elif name.endswith((".yaml", ".yml")) and "{{" not in text:
            with suppress(yaml.YAMLError, AttributeError, TypeError):
                for said in foreign_yaml(text):
                    if isinstance(said, dict) and "kind" not in said and isinstance(said.get("services"), dict):
                        yield from compose_containers(said["services"], name)
                    elif isinstance(said, dict) and (said.get("kind") in _POD_KINDS or "values" in name):
                        yield from _kubernetes_containers(said, name, None)


def _kubernetes_containers(said: Any, file: str, replicas: object, key: str = "") -> Iterator[Container]:  # noqa: ANN401  # any document
    """Yield the containers of pods, or the parts of Helm's values, at any depth."""
    for each in said if isinstance(said, list) else ():
        yield from _kubernetes_containers(each, file, replicas, key)
    if not isinstance(said, dict):
        return
    replicas = said.get("replicas", said.get("replicaCount", replicas))
    of = said.get("resources")
    limits, requests = ((of.get(part) or {}) if isinstance(of, dict) else {} for part in ("limits", "requests"))
    if {"cpu", "memory"} & {*limits, *requests} or (said.get("image") and said.get("name")):
        name = str(said.get("name") or key)
        found = {"cpus": _number(limits.get("cpu")), "memory_mib": _mib(limits.get("memory")),
                 "replicas": _count(replicas)}  # fmt: skip
        yield Container(name, _words(name, said), file, _placed(found, f"{file}, {name}" if name else file))
    for inner, value in said.items():
        if inner not in ("resources", "initContainers"):
            yield from _kubernetes_containers(value, file, replicas, str(inner))


def _words(name: str, said: Mapping[str, Any]) -> str:
    return " ".join([name, *(str(said.get(key) or "") for key in ("image", "build", "entrypoint", "command", "args"))])


def compose_containers(services: Mapping[str, Any], file: str) -> Iterator[Container]:
    """Yield the services of a Compose file, as they stand there or as ``docker compose config`` resolves them."""
    for name, said in services.items():
        if isinstance(said, dict):
            yield Container(name, _words(name, said), file, of_compose_service(said, f"{file}, {name}"))


def of_compose_service(said: Mapping[str, Any], place: str) -> Found:
    """Return what a service of a Compose file may use."""
    deploy = said.get("deploy") or {}
    limits = (deploy.get("resources") or {}).get("limits") or {}
    quota = _number(said.get("cpu_quota"))
    cores = [_number(said.get("cpus")), _number(limits.get("cpus")), _cores_of(said.get("cpuset")),
             quota and quota / (_number(said.get("cpu_period")) or 1e5)]  # fmt: skip
    memory = [_mib(each, binary=True) for each in (said.get("mem_limit"), limits.get("memory"))]
    replicas = _count(deploy.get("replicas")) or _count(said.get("scale"))
    return _placed({"cpus": _least(cores), "memory_mib": _least(memory), "replicas": replicas}, place)


def _unit(name: str, text: str, files: Iterable[tuple[str, str]]) -> Container:
    """Return what a unit of systemd may use; its drop-ins come after it, so that they count."""
    drop_ins = [each for each in files if f"/{name.rpartition('/')[2]}.d/" in f"/{each[0]}"]
    said = {key: (value, place) for place, lines in [(name, text), *drop_ins]
            for key, value in re.findall(r"^[ \t]*(\w+)[ \t]*=[ \t]*(\S*)", lines, re.MULTILINE)}  # fmt: skip
    given = {key: pair for key, pair in said.items() if pair[0]}  # an empty value takes back what was said before
    above = f" (limits of {given['Slice'][0]} are not read)" if "Slice" in given else ""
    quota, of_quota = given.get("CPUQuota", ("", name))
    allowed, of_allowed = given.get("AllowedCPUs", ("", name))
    memory, of_memory = given.get("MemoryMax") or given.get("MemoryLimit", ("", name))
    percent = re.fullmatch(r"([\d.]+)%", quota)
    cores = [_placed({"cpus": float(percent[1]) / 100 if percent else None}, of_quota + above),
             _placed({"cpus": _cores_of(allowed)}, of_allowed + above)]  # fmt: skip
    least = min(filter(None, cores), key=lambda found: found["cpus"][0], default={})
    found = {**least, **_placed({"memory_mib": _mib(memory, binary=True)}, of_memory + above)}
    return Container(name, text, name, found)


def choose_container(containers: Iterable[Container], first: str = "", name: str = "") -> tuple[Found, str]:
    """Return what the container of the application may use, and what to say if nothing tells which it is.

    The containers of one name in several files are one; what a file for production says counts more. A container whose
    image or name is the ``name`` of the application counts more than others, then one that names a server, one in the
    file ``first``, and one with a usual name.
    """
    named: dict[str, list[Container]] = {}
    for each in containers:
        if SERVES.search(each.words) or not OTHERS.search(each.words.lower()):
            named.setdefault(each.name, []).append(each)
    known = name.lower() if len(name) >= LONG_ENOUGH and not WEB.fullmatch(name.lower()) else ""

    def unlikely(group: Sequence[Container]) -> tuple[bool, ...]:
        return (
            bool(OTHERS.search(group[0].name.lower())),
            all(_FOR_DEVELOPMENT.search(each.file) for each in group),
            not (known and any(re.search(rf"(^|[/' ]){re.escape(known)}($|[:@' ])", each.words.lower())
                               for each in group)),
            not (serves := any(SERVES.search(each.words) for each in group)),
            not (serves and any({"cpus", "memory_mib"} & each.found.keys() for each in group)),
            all(each.file != first for each in group),
            not WEB.search(group[0].name.lower()),
        )  # fmt: skip

    def of(group: Sequence[Container]) -> Found:
        kept = [each for each in group if not _FOR_DEVELOPMENT.search(each.file)] or group
        ordered = sorted(kept, key=lambda each: not _IN_PRODUCTION.search(each.file))
        return {key: value for each in reversed(ordered) for key, value in each.found.items()}

    if not named:
        return {}, ""
    least = min(map(unlikely, named.values()))
    likely = {name: of(group) for name, group in named.items() if unlikely(group) == least}
    values = {str(sorted((key, value) for key, (value, _) in found.items())) for found in likely.values()}
    if len(values) == 1:
        return next(iter(likely.values())), ""
    if not any({"cpus", "memory_mib"} & found.keys() for found in likely.values()):
        return {}, ""
    files = ", ".join(f"{named[name][0].file} ({name})" for name in [*likely][:MOST_NAMED])
    more = f" and {len(likely) - MOST_NAMED} more" if len(likely) > MOST_NAMED else ""
    return {}, f"{files}{more}: nothing says which container serves, so its limits are left out"


def read_resources(path: Path) -> Found:
    """Read what the container of an application may use from a file that deploys it, or from the ``cgroup``.

    Raise WrongUse if the file cannot be read, or limits neither cores nor memory.
    """
    found, problem = of_cgroup(), ""
    if str(path) != "cgroup":
        drop_ins = sorted(path.parent.glob(f"{path.name}.d/*.conf"))
        files = [(str(each.relative_to(path.parent)), read_text(each)) for each in (path, *drop_ins)]
        containers = list(containers_in(files))
        if re.search(r"^services:", files[0][1], re.MULTILINE):
            with suppress(ValueError):  # as it stands there, if Compose cannot resolve it
                containers = list(compose_containers(config([path])[0]["services"], path.name))
        found, problem = choose_container(containers)
    if not {"cpus", "memory_mib"} & found.keys():
        raise WrongUse(f"{problem or f'{path} limits neither cores nor memory'}.", hint=HINT)
    return found


def of_cgroup(root: Path = Path("/")) -> Found:
    """Return what the cgroup of this process may use, version 2 or 1: the least of all cgroups that it is in."""

    def read(path: Path) -> str:
        with suppress(OSError, UnicodeDecodeError):
            return path.read_text(encoding="utf-8").strip()
        return ""

    cores: list[float | None] = []
    memory: list[float | None] = []
    for line in read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        base = root / "sys/fs/cgroup" / (controllers.partition("=")[2] or controllers)
        for folder in [base / path.strip("/"), *(base / path.strip("/")).parents]:
            if not folder.is_relative_to(base):  # a container may see its own cgroup as the root
                break
            of_version_1 = f"{read(folder / 'cpu.cfs_quota_us')} {read(folder / 'cpu.cfs_period_us')}"
            found = [re.fullmatch(r"(\d+) (\d+)", each) for each in (read(folder / "cpu.max"), of_version_1)]
            cores += [int(each[1]) / int(each[2]) for each in found if each]
            memory += [_mib(read(folder / name), binary=True) for name in ("memory.max", "memory.limit_in_bytes")]
    least = {"cpus": _least(cores), "memory_mib": _least([each for each in memory if each and each < 2**30])}
    return _placed(least, "the cgroup of this command")


def _placed(found: Mapping[str, float | None], place: str) -> Found:
    return {key: (int(value) if value == int(value) else value, place) for key, value in found.items()
            if value and value >= LEAST.get(key, 1)}  # fmt: skip


def _least(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value), default=None)


def _number(said: object, *, binary: bool = False) -> float | None:
    """Return a quantity such as ``500m``, ``2`` or ``1Gi``; None: it is none, or nobody knows the value of a variable.

    ``binary``: a k is 1024, as for Compose and systemd.
    """
    text = re.sub(r"^\$\{\w+:?-([^}]*)\}$", r"\1", str(said).strip())
    found = re.fullmatch(r"(\d+\.?\d*(?:[eE]\d+)?|\.\d+)\s*([a-zA-Z]*)", text)
    if not found or isinstance(said, bool):
        return None
    unit = found[2]
    if binary:
        unit = f"{unit[0].upper()}i" if unit.lower().strip("b") else ""
    multiple = _MULTIPLES.get(unit)
    return float(found[1]) * multiple if multiple else None


def _mib(said: object, *, binary: bool = False) -> int | None:
    size = _number(said, binary=binary)
    return int(size / 2**20) if size else None


def _count(said: object) -> int | None:
    size = _number(said)
    return int(size) if size and size == int(size) else None


def _cores_of(said: object) -> float | None:
    return float(cores_named(str(said))) if re.fullmatch(r"\d+(-\d+)?([, ]\d+(-\d+)?)*", str(said)) else None
