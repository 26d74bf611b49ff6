"""Write the files of one trial for Compose: its factors, the settings of its load, and the resolved Compose file."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from stampede.docker.client import HERE, Machine
from stampede.docker.cluster.engines import Engines
from stampede.docker.containers import overlay_name, owner
from stampede.docker.engine import ca_bundle
from stampede.docker.images import K6_RELEASE
from stampede.docker.redaction import LOCAL_ENV, redact_composed
from stampede.experiment.model import Script
from stampede.paths import COMPOSE_FILE, ROOT
from stampede.plan import PlannedTrial, assign, k6_service
from stampede.plan.timing import generators_up_s
from stampede.records.folder import write_whole
from stampede.run.trial.files import RESULTS_THERE

Services = dict[str, dict[str, Any]]
"""The services of a Compose file after Compose has resolved its variables."""


@dataclass(frozen=True)
class Composed:
    """A machine's part of a trial whose files were written: the services, and how a command of Compose for it begins.

    ``limits_mib`` has the memory limits of the services.
    """

    machine: Machine
    words: tuple[str, ...]
    services: tuple[str, ...]
    limits_mib: dict[str, int]


def compose(
    trial: PlannedTrial,
    part: Path,
    project: str,
    side_by_side: int,
    visits_per_s: float | None,
    engines: Engines,
) -> list[Composed]:
    """Write a trial's factors and its resolved Compose files to its folder ``part``; return what starts its containers.

    Each machine that has containers of the trial has a Compose file. ``visits_per_s`` is the rate if the rate of the
    load is relative. Raise DockerError if Compose fails.
    """
    local = {
        "LAB_OWNER": owner(),
        "LAB_RESULTS": str(part),
        "LAB_USER": f"{os.getuid()}:{os.getgid()}",
        "LAB_CA_BUNDLE": ca_bundle(),
    }
    workload = trial.variant.workload
    if workload:
        local |= workload.variables
    load = trial.load
    settings = {"load": _variables(load.at(visits_per_s), trial.duration)}
    if load.client:
        start = {"START_AFTER": f"{generators_up_s(load, side_by_side):g}s"}
        settings["client"] = _variables(load.client, trial.duration) | start
    for name, variables in settings.items():
        local[f"LAB_{name.upper()}_SETTINGS"] = str(part / f"{name}.env")
        write_whole(part / f"{name}.env", env_text(variables))
    resolved = resolve(trial, part, local, project)
    # docker-compose.yml declares dependencies as optional, for Compose by hand; in a trial they are required
    for service in resolved["services"].values():
        service["depends_on"] = {
            other: condition | {"required": True}
            for other, condition in service.get("depends_on", {}).items()
            if other in resolved["services"]
        }
    resolved["services"] |= share_load(resolved["services"]["k6"], load.generators)
    if workload:
        workload.extend(resolved, trial.variant.service)
    whole = redact_composed(resolved, local)
    if not engines.overlay:
        [machine] = engines.machines
        return [_write(on_machine(whole, machine), machine, part / "compose.yml", trial, project)]
    shares = zip(engines.machines, assign(trial, engines.machines), strict=True)
    return [
        _write(split_over_machines(whole, machine, counts, project), machine,
               part / f"compose-{machine.name}.yml", trial, project)
        for machine, counts in shares if counts
    ]  # fmt: skip


def _write(composed: dict[str, Any], machine: Machine, file: Path, trial: PlannedTrial, project: str) -> Composed:
    write_whole(file, yaml.safe_dump(composed, sort_keys=False))
    words = _compose_words(trial, project, file, [file.with_name(LOCAL_ENV)])
    services = composed["services"]
    limited = {name: service["mem_limit"] for name, service in services.items() if "mem_limit" in service}
    limits_mib = {name: int(limit) // 2**20 for name, limit in limited.items()}
    return Composed(machine, words, tuple(services), limits_mib)


def split_over_machines(
    whole: dict[str, Any], machine: Machine, counts: Mapping[str, int], project: str
) -> dict[str, Any]:
    """Return the part of a resolved Compose file that one of several machines starts, in the project's overlay network.

    ``counts`` is how many containers of each service the machine has.
    """
    services = {}
    for name, service in whole["services"].items():
        if name not in counts:
            continue
        needed = {other: condition for other, condition in service["depends_on"].items() if other in counts}
        services[name] = service | {"depends_on": needed, "scale": counts[name]}
        if not {*service.get("volumes_from", ())} <= {*counts}:  # what a container of another machine wrote stays there
            del services[name]["volumes_from"]
    networks = {"lab": {"external": True, "name": overlay_name(project)}}
    return on_machine({**whole, "services": services, "networks": networks}, machine)


def on_machine(composed: dict[str, Any], machine: Machine) -> dict[str, Any]:
    """Return a resolved Compose file for a machine with its own cores; the box of each service stays the same.

    A machine that does not share the lab's files has volumes in the place of the lab's folders; the lab copies the
    files to the volumes.
    """
    services = {}
    for name, service in composed["services"].items():
        changes: dict[str, Any] = {}
        if machine.cpuset and not service.get("cpuset"):
            changes["cpuset"] = machine.cpuset
        if not machine.shares_files and any(mount["type"] == "bind" for mount in service.get("volumes", ())):
            changes["volumes"] = [{"type": "volume", "target": mount["target"]} for mount in service["volumes"]]
            changes["environment"] = service.get("environment", {}) | {"LAB_FOLDER": RESULTS_THERE}
        services[name] = service | changes
    return {**composed, "services": services}


def factors_of(trial: PlannedTrial) -> dict[str, str]:
    """Return the factors of a trial, which follow from its variant and its load alone."""
    load = trial.load
    factors = trial.variant.factors() | {
        "LAB_SCRIPT": load.script,
        "LAB_K6_MEMORY": f"{load.k6_mib(trial.duration)}m",
        "LAB_K6_RELEASE": K6_RELEASE,
    }
    if trial.live:
        factors |= {"LAB_POINTS": "json"}
    if load.api:
        factors |= load.api.factors()
    if load.database:
        factors |= load.database.factors()
    if load.client:
        front = f"balancer:{trial.variant.front_port}"
        through = load.client.through_balancer and trial.variant.balancer != "none"
        factors |= {"LAB_CLIENT": load.client.script, "LAB_CLIENT_CONNECTS_TO": front if through else "app:8000"}
    return factors


def resolve(trial: PlannedTrial, part: Path, local: Mapping[str, str], project: str) -> dict[str, Any]:
    """Write a trial's factors to the folder ``part``, and return what Compose makes of docker-compose.yml with them.

    The trials of a variant under a load differ in their folder and their project alone, so that Compose is asked once.
    This needs no engine. Raise DockerError if Compose fails.
    """
    write_whole(part / "factors.env", env_text(factors_of(trial)))
    write_whole(part / LOCAL_ENV, env_text(local))
    words = _compose_words(trial, project, COMPOSE_FILE, [part / "factors.env", part / LOCAL_ENV])
    places = {str(part): "<part>", project: "<project>"}

    def in_place(text: str, names: Mapping[str, str]) -> str:
        for name, instead in names.items():
            text = text.replace(name, instead)
        return text

    key = in_place("\0".join([*words, *(path.read_text() for path in sorted(part.glob("*.env")))]), places)
    if key in _resolved:
        said = in_place(_resolved[key], {place: name for name, place in places.items()})
    else:
        said = HERE.run(*words, "config", "--format", "json")
        anywhere = in_place(said, places)
        if part.name not in anywhere:  # else Compose writes some characters of a path in another way
            _resolved[key] = anywhere
    resolved: dict[str, Any] = json.loads(said)
    return resolved


_resolved: dict[str, str] = {}
"""What Compose made of docker-compose.yml in this process, by all that went into it."""


def _compose_words(trial: PlannedTrial, project: str, file: Path, variables: Sequence[Path]) -> tuple[str, ...]:
    """Return how a command of Compose for a trial begins, given its file and the files of variables."""
    profiles = dict.fromkeys([trial.variant.service, trial.variant.front, "load", *trial.services_beside])
    return (
        "compose", "--file", str(file), *(word for path in variables for word in ("--env-file", str(path))),
        "--project-directory", str(ROOT), "--project-name", project,
        *(word for profile in profiles for word in ("--profile", profile)),
    )  # fmt: skip


def share_load(k6: dict[str, Any], count: int) -> Services:
    """Return the services of ``count`` k6 containers, each of which sends its share; empty if ``count`` is 1."""
    if count == 1:
        return {}
    sequence = ",".join(["0", *(f"{number}/{count}" for number in range(1, count)), "1"])
    ends = sequence.split(",")
    suffix, *arguments = k6["command"]
    return {
        k6_service(number): k6 | {"command": [
            suffix if number == 1 else f"-{number}",
            "--execution-segment", f"{ends[number - 1]}:{ends[number]}", "--execution-segment-sequence", sequence,
            *arguments,
        ]}
        for number in range(1, count + 1)
    }  # fmt: skip


def _variables(script: Script, duration: str) -> dict[str, str]:
    """Return the variables that Compose passes to a script; k6/run adds the variables that become known later."""
    return script.environment() | script.derived_environment(duration) | {"DURATION": duration}


def env_text(values: Mapping[str, str]) -> str:
    """Return variables as an env file, which Compose and a shell can read."""
    text = ""
    for name, value in values.items():
        quoted = f"'{value}'" if "'" not in value else '"' + re.sub(r'(["\\$`])', r"\\\1", value) + '"'
        text += f"{name}={quoted}\n"
    return text
