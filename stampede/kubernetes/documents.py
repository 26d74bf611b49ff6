"""Make the documents of a trial for Kubernetes: its namespace, servers, balancer, load generators and their files."""

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from stampede.errors import WrongUse
from stampede.experiment.loads.script import request_environment
from stampede.experiment.model import Script
from stampede.kubernetes.box import Document, Service, left_out, pod_spec, waiting_for
from stampede.paths import K6
from stampede.plan import PlannedTrial
from stampede.records.duration import in_seconds
from stampede.run.trial.batch import K6_SLACK_S
from stampede.run.trial.compose import resolve, share_load, write_settings
from stampede.servers.services import services as services_of_the_file

READY_WITHIN_S = 300
"""How long the servers may take until they are ready. After this time, the load is given up."""
RESULTS_SIZE = "1Gi"
NAME_MAX = 63
"""How long the name of a namespace may be."""
SERVICE, LEFT_OUT, SHARES_RESULTS = "stampede.service", "stampede.left-out", "stampede.shares-results"
GENERATORS, IN_POD = "generators", "in-pod"
_UNSAFE_LEVEL, _LEVEL = "privileged", "restricted"


@dataclass(frozen=True)
class Setup:
    """A trial that becomes manifests. ``start_at_ms`` is when its load begins, in ms since 1970; 0: at once.

    ``services`` are the trial's services as Compose resolves them, by name. ``unsafe_sysctls``: pods set the sysctls,
    too, that a node must be told to allow.
    """

    experiment: str
    trial: PlannedTrial
    services: Mapping[str, Service]
    start_at_ms: int = 0
    unsafe_sysctls: bool = False

    @property
    def name(self) -> str:
        """The name of the namespace."""
        trial = self.trial
        return f"stampede-{self.experiment}-{trial.variant_name}-{trial.load_name}"[:NAME_MAX].rstrip("-")

    @property
    def scripts(self) -> dict[str, Script]:
        """The scripts that send the load, by the service that runs each of them."""
        load = self.trial.load
        return {"k6": load} | ({"client": load.client} if load.client else {})

    @property
    def generators(self) -> dict[str, list[Service]]:
        """The containers that send the load, by their service."""
        shared = share_load(dict(self.services["k6"]), self.trial.load.generators)
        return {
            name: list(shared.values()) if name == "k6" and shared else [self.services[name]] for name in self.scripts
        }

    @property
    def serving(self) -> dict[str, Service]:
        """The services that serve: the servers, the balancer, and what the application needs."""
        return {name: service for name, service in self.services.items() if name not in self.scripts}

    @property
    def front(self) -> str:
        """The service that k6 sends its requests to."""
        return self.trial.variant.front


def begins_together(trial: PlannedTrial) -> bool:
    """Whether a trial has several load generators, which have to begin at the same moment."""
    return trial.load.generators > 1 or trial.load.client is not None


def services_of(trial: PlannedTrial) -> dict[str, Service]:
    """Return the services that take part in a trial, as Compose resolves them. This needs no engine.

    Raise WrongUse for somebody's own application, and DockerException if Compose fails.
    """
    if trial.variant.workload:
        raise WrongUse(
            "Manifests are for the lab's experiments, not for your own application.",
            hint="make try SERVICE=my-service.yaml",
        )
    with TemporaryDirectory() as folder:
        part = Path(folder)
        resolved = resolve(trial, part, write_settings(trial, part), "stampede")["services"]
    return {name: _plain(resolved[name]) for name in (trial.variant.service, *trial.services_beside, "k6")}


def documents(setup: Setup) -> list[Document]:
    """Return the documents of a trial, in the order in which they are to be applied."""
    made = [*_policies()]
    for name, service in setup.serving.items():
        made += [_headless(name, service), _deployment(setup, name, service)]
    made += [_config(GENERATORS, _commands(setup)), _claim(), _collector(setup)]
    for name, script in setup.scripts.items():
        folder, _ = script.programs
        made += [_config(folder.name, _files(script)), _config(f"{name}-settings", _settings(setup, name))]
        made += [_job(setup, name)]
    placed = [document | {"metadata": {**document["metadata"], "namespace": setup.name}} for document in made]
    return [_namespace(setup), *placed]


def _plain(value: Any) -> Any:  # noqa: ANN401  # a value of a Compose file
    """Return a resolved value without Compose's own escaping of dollars."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    return value.replace("$$", "$") if isinstance(value, str) else value


def _document(api: str, kind: str, name: str, **parts: object) -> Document:
    labels = {"app.kubernetes.io/part-of": "stampede", "app.kubernetes.io/name": name}
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": labels}, **parts}


def _namespace(setup: Setup) -> Document:
    trial = setup.trial
    made = _document("v1", "Namespace", setup.name)
    level = _UNSAFE_LEVEL if setup.unsafe_sysctls else _LEVEL
    made["metadata"]["labels"] |= {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "audit", "warn")}
    made["metadata"]["annotations"] = {
        "stampede.experiment": setup.experiment,
        "stampede.variant": trial.variant_name,
        "stampede.load": trial.load_name,
        "stampede.duration": trial.duration,
    }
    return made


def _policies() -> list[Document]:
    specs = yaml.safe_load((Path(__file__).parent / "policies.yaml").read_text(encoding="utf-8"))
    api = "networking.k8s.io/v1"
    return [_document(api, "NetworkPolicy", name, spec=spec) for name, spec in specs.items()]


def _name_on_the_network(name: str, service: Service) -> str:
    """Return the name by which other services reach a service: its alias, such as ``app``, or else its own name."""
    aliases: list[str] = (service["networks"]["lab"] or {}).get("aliases") or [name]
    return aliases[0]


def _headless(name: str, service: Service) -> Document:
    """Return the name of a service: it stands for the addresses of all pods that are ready, with no proxy between."""
    spec = {"clusterIP": "None", "selector": {SERVICE: name}}
    return _document("v1", "Service", _name_on_the_network(name, service), spec=spec)


def _ready(setup: Setup, names: Iterable[str]) -> dict[str, int]:
    """Return the names on the network for which somebody waits, and how many pods each of them stands for."""
    waited_for = {name: setup.serving[name] for name in names if name in setup.serving}
    return {_name_on_the_network(name, service): service.get("scale", 1) for name, service in waited_for.items()}


def _template(setup: Setup, name: str, service: Service, pod: Document) -> Document:
    lacking = left_out(service, unsafe_sysctls=setup.unsafe_sysctls)
    labels = {"app.kubernetes.io/part-of": "stampede", SERVICE: name, **service["labels"]}
    return {"metadata": {"labels": labels, "annotations": {LEFT_OUT: json.dumps(lacking)}}, "spec": pod}


def _deployment(setup: Setup, name: str, service: Service) -> Document:
    pod = pod_spec(name, service, unsafe_sysctls=setup.unsafe_sysctls)
    if ready := _ready(setup, service.get("depends_on", {})):
        pod["initContainers"] = [waiting_for(ready, pod, service["image"])]
    spec = {
        "replicas": service.get("scale", 1),
        "selector": {"matchLabels": {SERVICE: name}},
        "strategy": {"type": "Recreate"},
        "template": _template(setup, name, service, pod),
    }
    return _document("apps/v1", "Deployment", name, spec=spec)


def _job(setup: Setup, name: str) -> Document:
    """Return the load: a pod for each generator. A generator that fails is not started again."""
    [service, *_] = generators = setup.generators[name]
    pod = pod_spec(name, service, unsafe_sysctls=setup.unsafe_sysctls) | {"restartPolicy": "Never"}
    [container] = pod["containers"]
    container["command"] = ["sh", f"/{GENERATORS}/{IN_POD}"]
    container["args"] = [f"/{GENERATORS}/{name}-$(JOB_COMPLETION_INDEX)"]  # Kubernetes numbers the pods from 0
    settings = _settings(setup, name)
    container["env"] = [variable for variable in container["env"] if variable["name"] not in settings]
    container["envFrom"] = [{"configMapRef": {"name": f"{name}-settings"}}]
    container["volumeMounts"] += [{"name": GENERATORS, "mountPath": f"/{GENERATORS}", "readOnly": True}]
    folder, _ = setup.scripts[name].programs
    for volume in pod["volumes"]:
        if volume["name"] == folder.name:
            volume["configMap"]["items"] = [{"key": _key(path), "path": path} for path in _files(setup.scripts[name])]
    pod["volumes"] += [{"name": GENERATORS, "configMap": {"name": GENERATORS}}]
    ready = _ready(setup, [setup.front, "api"])
    pod["initContainers"] = [waiting_for(ready, pod, setup.services[setup.front]["image"])]
    load, duration = setup.trial.load, setup.trial.duration
    spec = {
        "completions": len(generators),
        "parallelism": len(generators),
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "activeDeadlineSeconds": round(READY_WITHIN_S + in_seconds(duration) + load.grace_s(duration) + K6_SLACK_S),
        "template": _on_the_node_of_the_results(_template(setup, name, service, pod)),
    }
    return _document("batch/v1", "Job", name, spec=spec)


def _on_the_node_of_the_results(template: Document) -> Document:
    """Return the template of a pod that runs where all pods with the results run: one node mounts their volume."""
    shared = {SHARES_RESULTS: "true"}
    term = {"labelSelector": {"matchLabels": shared}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    metadata = template["metadata"] | {"labels": template["metadata"]["labels"] | shared}
    return {"metadata": metadata, "spec": template["spec"] | {"affinity": affinity}}


def _claim() -> Document:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": RESULTS_SIZE}}}
    return _document("v1", "PersistentVolumeClaim", "results", spec=spec)


def _collector(setup: Setup) -> Document:
    """Return a pod that does nothing, so that the results can be copied out of it after the load has ended."""
    k6 = setup.services["k6"]
    results = [volume for volume in k6["volumes"] if volume["target"] == "/results"]
    idle = dict(k6) | {
        "image": setup.services[setup.front]["image"], "entrypoint": ["sleep", "infinity"], "command": None,
        "environment": {}, "volumes": results, "mem_limit": 64 * 2**20, "cpu_shares": 128,
    }  # fmt: skip
    template = _template(setup, "results", idle, pod_spec("results", idle))
    made = _document("v1", "Pod", "results")
    placed = _on_the_node_of_the_results(template)
    return made | {"metadata": made["metadata"] | placed["metadata"], "spec": placed["spec"]}


def _config(name: str, texts: Mapping[str, str]) -> Document:
    return _document("v1", "ConfigMap", name, data={_key(path): text for path, text in texts.items()})


def _key(path: str) -> str:
    """Return the key of a file in a config map, which must not contain a slash."""
    return path.replace("/", ".")


def _files(script: Script) -> dict[str, str]:
    folder, _ = script.programs
    paths = [folder / script.script, folder / "run", *sorted((folder / "lib").iterdir())]
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in paths if path.is_file()}


def _commands(setup: Setup) -> dict[str, str]:
    """Return the files of the generators: the program that every pod starts, and the command of each generator."""
    texts = {IN_POD: (K6 / IN_POD).read_text(encoding="utf-8")}
    for name, containers in setup.generators.items():
        for index, container in enumerate(containers):
            command = shlex.join([*(container.get("entrypoint") or []), *container["command"]])
            texts[f"{name}-{index}"] = f"exec {command}\n"
    return texts


def _settings(setup: Setup, name: str) -> dict[str, str]:
    """Return the settings of a generator: of its environment, what docker-compose.yml itself does not set."""
    load = setup.trial.load
    fixed = services_of_the_file()[name]["environment"]
    own = {key: value for key, value in setup.services[name]["environment"].items() if key not in fixed}
    known = request_environment(load.settings) if name == "k6" and load.computes else {}
    return own | known | {"START_AT_MS": str(setup.start_at_ms)}
