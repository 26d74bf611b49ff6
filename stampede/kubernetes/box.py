"""Translate a service of docker-compose.yml into a pod: the same program, environment, limits and rights.

Each key of a service is either translated, or listed in LEFT_OUT because Kubernetes has nothing like it.
"""

import re
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from stampede.docker.images import LAB_USER
from stampede.errors import LabError, WrongUse
from stampede.servers.base import SOMAXCONN

Service = Mapping[str, Any]
"""A service of docker-compose.yml after Compose has resolved its variables."""
Document = dict[str, Any]
"""A document of Kubernetes, or a part of one."""

TRANSLATED = frozenset({
    "cap_drop", "command", "cpu_shares", "cpus", "depends_on", "entrypoint", "environment", "healthcheck", "image",
    "init", "labels", "mem_limit", "memswap_limit", "networks", "read_only", "scale", "security_opt", "sysctls",
    "tmpfs", "user", "volumes",
})  # fmt: skip
"""The keys of a service that become something in its manifests."""
ONLY_COMPOSE = frozenset({"build", "profiles"})
"""The keys that say how Compose makes and chooses containers; no container knows them."""
LEFT_OUT = {
    "cpuset": "a pod cannot name the cores that it runs on",
    "dns": "pods ask the cluster's DNS server for each other's addresses",
    "logging": "the node limits the size of logs, for all pods alike",
    "oom_score_adj": "the node computes it from the pod's memory request",
    "pids_limit": "the node limits the processes of a pod, for all pods alike",
    "ulimits": "the node's container runtime sets the limit of open files",
}
"""The keys that Kubernetes has nothing for, each with the reason."""
ALLOWED_SYSCTLS = frozenset({"net.ipv4.ip_local_port_range"})
"""The lab's sysctls that every node allows, and the pod security standard *restricted*, too."""
KERNEL_DEFAULTS = {"net.core.somaxconn": str(SOMAXCONN)}
"""Sysctls that a new network namespace has anyway."""
FULL_SHARES, FULL_SHARES_M = 1024, 100
"""The processor weight of an ordinary container, and the request for processor time that gives a pod this weight.

A request also reserves time. 100 thousandths of a core keep the ratio of the weights, and let a trial fit on two cores.
"""


def check_keys(name: str, service: Service) -> None:
    """Raise LabError if a service has a key of which nobody has decided what it becomes."""
    if unknown := sorted(service.keys() - TRANSLATED - ONLY_COMPOSE - LEFT_OUT.keys()):
        raise LabError(
            f"The service {name} of docker-compose.yml has the key {unknown[0]}, which has no place in a manifest yet.",
            hint="Translate it in stampede/kubernetes/box.py, or add it to LEFT_OUT there with the reason.",
        )


def left_out(service: Service, *, unsafe_sysctls: bool) -> dict[str, Any]:
    """Return what a service has and its pod lacks, by key; sysctls by their own names."""
    keys = {key: service[key] for key in sorted(LEFT_OUT) if service.get(key)}
    sysctls = {} if unsafe_sysctls else _unsafe(service)
    return keys | {name: value for name, value in sysctls.items() if KERNEL_DEFAULTS.get(name) != value}


def pod_spec(name: str, service: Service, *, unsafe_sysctls: bool = False) -> Document:
    """Return the specification of a service's pod, which has one container of the service's name.

    A folder that the container only reads is a config map of the folder's name; other folders are claims.
    ``unsafe_sysctls``: also set the sysctls that a node must be told to allow. Raise WrongUse if the service cannot do
    without them, and LabError for a key that has no translation.
    """
    check_keys(name, service)
    if not unsafe_sysctls:
        _check_sysctls(service)
    user, _, group = str(service.get("user", LAB_USER)).partition(":")
    sysctls = service.get("sysctls", {})
    allowed = sysctls.keys() if unsafe_sysctls else sysctls.keys() & ALLOWED_SYSCTLS
    pod_security: Document = {
        "runAsNonRoot": True,
        "runAsUser": int(user),
        "runAsGroup": int(group or user),
        "fsGroup": int(group or user),
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    if allowed:
        pod_security["sysctls"] = [{"name": sysctl, "value": sysctls[sysctl]} for sysctl in sorted(allowed)]
    volumes, mounts = _volumes(service)
    check = service.get("healthcheck")
    container: Document = {
        "name": name,
        "image": service["image"],
        "imagePullPolicy": "Never",
        "command": escaped(service["entrypoint"]) if service.get("entrypoint") else None,
        "args": escaped(service["command"]) if service.get("command") else None,
        "env": [{"name": key, "value": escaped([value])[0]} for key, value in service["environment"].items()],
        "resources": _resources(service),
        "securityContext": _security(service),
        "volumeMounts": mounts,
        "startupProbe": check and _startup_probe(check),
    }
    return {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "shareProcessNamespace": bool(service["init"]),  # process 1 is then Kubernetes' own, which ends with its pod
        "securityContext": pod_security,
        "containers": [{key: value for key, value in container.items() if value is not None}],
        "volumes": volumes,
    }


def waiting_for(ready: Mapping[str, int], pod: Document, image: str) -> Document:
    """Return a container that waits until each name stands for as many pods as ``ready`` says, and then ends.

    A name of a headless Service stands for the pods that are ready. The container has the rights and the limits of the
    container of ``pod``.
    """
    [container] = pod["containers"]
    script = (
        'while [ $# -gt 0 ]; do until getent ahostsv4 "$1" | '
        "awk -v wanted=\"$2\" '!seen[$1]++ { found++ } END { exit found < wanted }'; do sleep 0.5; done; shift 2; done"
    )
    return {
        "name": "wait",
        "image": image,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script, "wait"],
        "args": [word for name, count in ready.items() for word in (name, str(count))],
        "resources": container["resources"],
        "securityContext": container["securityContext"],
    }


def escaped(words: Sequence[str]) -> list[str]:
    """Return words in which Kubernetes replaces nothing: it would take ``$(NAME)`` for a variable."""
    return [word.replace("$(", "$$(") for word in words]


def _unsafe(service: Service) -> dict[str, str]:
    return {name: value for name, value in service.get("sysctls", {}).items() if name not in ALLOWED_SYSCTLS}


def _check_sysctls(service: Service) -> None:
    for name, default in KERNEL_DEFAULTS.items():
        if (value := _unsafe(service).get(name, default)) != default:
            raise WrongUse(
                f"This variant sets {name} to {value}, which a cluster refuses unless its nodes allow it.",
                hint=f"--unsafe-sysctls, on nodes whose kubelet has --allowed-unsafe-sysctls={name}",
            )


def _resources(service: Service) -> Document:
    """Return limits and requests. The memory request equals the limit, so the container cannot use swap."""
    memory = f"{int(service['mem_limit']) // 2**20}Mi"
    cpus = service.get("cpus")
    weight_m = FULL_SHARES_M * service["cpu_shares"] // FULL_SHARES
    request_m = min(weight_m, ceil(1000 * cpus)) if cpus else weight_m
    limits = {"cpu": f"{cpus:g}"} if cpus else {}
    return {"limits": limits | {"memory": memory}, "requests": {"cpu": f"{request_m}m", "memory": memory}}


def _security(service: Service) -> Document:
    return {
        "allowPrivilegeEscalation": "no-new-privileges" not in service["security_opt"],
        "capabilities": {"drop": list(service["cap_drop"])},
        "readOnlyRootFilesystem": service["read_only"],
    }


def _startup_probe(check: Mapping[str, Any]) -> Document:
    """Return the probe that asks whether a container is ready, until it is. No probe disturbs the load afterwards."""
    return {
        "exec": {"command": escaped(check["test"][1:])},
        "periodSeconds": max(1, round(_seconds(check["interval"]))),  # Kubernetes knows whole seconds only
        "timeoutSeconds": round(_seconds(check["timeout"])),
        "failureThreshold": check["retries"],
    }


_UNITS_S = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}


def _seconds(duration: str) -> float:
    """Return a duration such as 24h0m0s or 100ms in seconds."""
    return sum(float(number) * _UNITS_S[unit] for number, unit in re.findall(r"([\d.]+)(ms|h|m|s)", duration))


def _volumes(service: Service) -> tuple[list[Document], list[Document]]:
    size = f"{int(service['mem_limit']) // 2**20}Mi"
    volumes: list[Document] = []
    mounts: list[Document] = []
    for target in service["tmpfs"]:
        name = Path(target).name
        volumes.append({"name": name, "emptyDir": {"medium": "Memory", "sizeLimit": size}})
        mounts.append({"name": name, "mountPath": target})
    for volume in service.get("volumes", []):
        name = Path(volume["target"]).name
        closed = bool(volume.get("read_only"))
        files = {"configMap": {"name": name}} if closed else {"persistentVolumeClaim": {"claimName": name}}
        volumes.append({"name": name, **files})
        mounts.append({"name": name, "mountPath": volume["target"]} | ({"readOnly": True} if closed else {}))
    return volumes, mounts
