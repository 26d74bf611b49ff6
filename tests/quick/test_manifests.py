"""stampede manifests: an experiment for Kubernetes is valid there, and has the same box as in Compose."""

import json
import re
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import kubernetes_validate
import pytest
import yaml
from inline_snapshot import snapshot

from stampede.docker.images import LAB_USER
from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment, names
from stampede.kubernetes.box import (
    ALLOWED_SYSCTLS,
    KERNEL_DEFAULTS,
    LEFT_OUT,
    ONLY_COMPOSE,
    TRANSLATED,
    check_keys,
    pod_spec,
)
from stampede.kubernetes.commands import BEGINS_AFTER_S, trial_of
from stampede.kubernetes.documents import Setup, begins_together, documents, services_of
from stampede.kubernetes.text import as_yaml
from stampede.paths import CLIENTS, K6, ROOT
from stampede.run.trial.compose import share_load
from stampede.service.layer import Layer
from stampede.service.variants import UserSync
from tests.conftest import PATIENCE_S, Lab
from tests.wrong import problem_of

RELEASES = ("1.29", "1.37")
"""The oldest and the newest release of Kubernetes whose schemas the manifests are checked against."""
START_AT_MS = 1_790_000_000_000
Document = dict[str, Any]


@cache
def setup_of(name: str, variant: str = "", load: str = "", generators: int = 0) -> Setup:
    """Return what the command makes of an experiment; its generators begin at START_AT_MS if there are several."""
    trial = trial_of(load_experiment(name), variant, load, generators, full=False, duration="")
    return Setup(name, trial, services_of(trial), START_AT_MS if begins_together(trial) else 0)


@cache
def made(name: str, variant: str = "", load: str = "", generators: int = 0) -> tuple[Document, ...]:
    """Return the documents that the command prints, as a cluster reads them."""
    return tuple(yaml.load_all(as_yaml(documents(setup_of(name, variant, load, generators))), yaml.CSafeLoader))


def named(made: tuple[Document, ...], kind: str, name: str) -> Document:
    """Return the only document of a kind with a name."""
    [found] = [one for one in made if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


schema_contents = cache(kubernetes_validate.utils.schema_contents)


def problem(document: Document, release: str) -> str:
    """Return what a release of Kubernetes refuses in a document; empty if nothing."""
    try:
        with patch("kubernetes_validate.utils.schema_contents", schema_contents):  # reads a megabyte each time
            kubernetes_validate.validate(document, release, strict=True)
    except kubernetes_validate.ValidationError as error:
        return f"{'.'.join(map(str, error.path))}: {error.message}"
    return ""


@pytest.mark.parametrize(
    ("kind", "place", "value", "said"),
    [
        ("Deployment", ["spec", "template", "spec", "pidsLimit"], 512,
         "spec.template.spec: Additional properties are not allowed ('pidsLimit' was unexpected)"),
        ("Job", ["spec", "completions"], "four",
         "spec.completions: 'four' is not of type 'integer', 'null'"),
        ("Deployment", ["spec", "selector"], None, "spec: 'selector' is a required property"),
    ],
)  # fmt: skip
def test_a_spoilt_manifest_is_not_valid(kind: str, place: list[str], value: object, said: str) -> None:
    """So the test above means something."""
    document = json.loads(json.dumps(next(one for one in made("heavy-mix") if one["kind"] == kind)))
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    if value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value

    assert problem(document, RELEASES[-1]) == said


def bytes_of(quantity: str) -> str:
    """Return an amount of memory such as 256Mi in bytes, as Compose writes it."""
    assert quantity.endswith("Mi")
    return str(int(quantity[:-2]) * 2**20)


def template_of(made: tuple[Document, ...], service: str) -> Document:
    """Return the template of the pods of a service of docker-compose.yml."""
    kind = "Job" if service in ("k6", "client") else "Deployment"
    template = named(made, kind, service)["spec"]["template"]
    assert isinstance(template, dict)
    return template


def by_key(made: tuple[Document, ...], service: str) -> dict[str, Callable[[], object]]:
    """Return how to read each key of the box of Compose off a manifest."""
    template = template_of(made, service)
    pod, labels = template["spec"], template["metadata"]["labels"]
    [container] = pod["containers"]
    limits, requests = container["resources"]["limits"], container["resources"]["requests"]
    rights, rights_of_pod = container["securityContext"], pod["securityContext"]
    in_memory = {one["name"] for one in pod["volumes"] if one.get("emptyDir", {}).get("medium") == "Memory"}
    return {
        "image": lambda: container["image"],
        "init": lambda: pod["shareProcessNamespace"],
        "cap_drop": lambda: rights["capabilities"]["drop"],
        "security_opt": lambda: ["no-new-privileges"] * (not rights["allowPrivilegeEscalation"]),
        "read_only": lambda: rights["readOnlyRootFilesystem"],
        "tmpfs": lambda: [one["mountPath"] for one in container["volumeMounts"] if one["name"] in in_memory],
        "mem_limit": lambda: bytes_of(limits["memory"]),
        "memswap_limit": lambda: bytes_of(requests["memory"]),  # as large as the limit, so no swap is used
        "cpus": lambda: float(limits["cpu"]),
        "cpu_shares": lambda: int(requests["cpu"].removesuffix("m")) * 1024 // 100,
        "sysctls": lambda: {one["name"]: one["value"] for one in rights_of_pod.get("sysctls", [])},
        "user": lambda: f"{rights_of_pod['runAsUser']}:{rights_of_pod['runAsGroup']}",
        "scale": lambda: named(made, "Deployment", service)["spec"]["replicas"],
        "labels": lambda: {key: value for key, value in labels.items() if key == "stampede.owner"},
    }


OTHERWISE = {"command", "depends_on", "entrypoint", "environment", "healthcheck", "networks", "volumes"}
"""The keys of a service that are no part of the box; further tests follow each of them."""
BOXES = [
    ("heavy-mix", "least-conn", ""), ("stalled-api", "haproxy-queue", ""), ("gil-sharing", "4x4-one-core", ""),
    ("django-fastcgi", "fastcgi-prefork", "capacity"), ("thousand-at-once", "granian-async", ""),
    ("connection-deadlock", "", ""), ("one-gpu", "", ""), ("free-threading", "granian-free", "computing"),
]  # fmt: skip
"""Variants of every server that an experiment measures, and with every service beside them."""


def test_every_service_of_a_trial_is_among_the_boxes() -> None:
    taking_part = {name for box in BOXES for name in setup_of(*box).services}
    measured = {one.service for name in names() for one in load_experiment(name).variants.values()}

    assert taking_part == measured | {"nginx", "haproxy", "mariadb", "api", "k6", "client"}


@pytest.mark.parametrize("box", BOXES, ids=lambda box: f"{box[0]}-{box[1]}")
def test_the_box_is_the_box_of_compose_key_by_key(box: tuple[str, str, str]) -> None:
    """Each key of each service has the same value in the manifest, or is left out with a reason, which the pod says."""
    for service, one in setup_of(*box).services.items():
        there = by_key(made(*box), service)
        safe = {name: value for name, value in one.get("sysctls", {}).items() if name in ALLOWED_SYSCTLS}
        wanted = one if not one.get("sysctls") else {**one, "sysctls": safe}
        unsafe = one.get("sysctls", {}).items() - safe.items() - KERNEL_DEFAULTS.items()
        lacking = {key: one[key] for key in LEFT_OUT if one.get(key)} | dict(unsafe)

        assert one.keys() <= there.keys() | OTHERWISE | LEFT_OUT.keys() | ONLY_COMPOSE, service
        assert {key: there[key]() for key in one.keys() & there.keys()} == {
            key: wanted[key] for key in one.keys() & there.keys()
        }, service
        assert json.loads(template_of(made(*box), service)["metadata"]["annotations"]["stampede.left-out"]) == lacking


def test_every_pod_is_as_closed_as_the_standard_restricted_wants() -> None:
    """Also the containers that only wait, and the pod from which the results are copied."""
    box = ("connection-deadlock", "", "")
    pods = [template_of(made(*box), name)["spec"] for name in setup_of(*box).services]
    pods.append(named(made(*box), "Pod", "results")["spec"])

    assert len(pods) == 5
    for pod in pods:
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] > 0
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in (*pod["containers"], *pod.get("initContainers", [])):
            assert container["imagePullPolicy"] == "Never"
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
            }  # fmt: skip
    level = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "audit", "warn")}
    assert named(made(*box), "Namespace", setup_of(*box).name)["metadata"]["labels"].items() >= level.items()


def test_pods_run_as_the_user_of_their_images() -> None:
    """The images name this user; a cluster only believes a number."""
    files = [
        path for folder in ("servers", "nginx", "haproxy", "mariadb") for path in (ROOT / folder).glob("Dockerfile")
    ]

    assert [re.findall(r"useradd --uid (\d+)", path.read_text()) for path in files] == [[LAB_USER]] * 4


def test_a_key_without_a_translation_is_an_error() -> None:
    """A new line in docker-compose.yml cannot be forgotten here."""
    service = setup_of("heavy-mix").services["gunicorn"]

    check_keys("gunicorn", service)
    assert problem_of(check_keys, "gunicorn", {**service, "privileged": True}) == snapshot("""\
The service gunicorn of docker-compose.yml has the key privileged, which has no place in a manifest yet.
Translate it in stampede/kubernetes/box.py, or add it to LEFT_OUT there with the reason.\
""")
    assert not TRANSLATED & (LEFT_OUT.keys() | ONLY_COMPOSE)


@pytest.mark.parametrize("left_out", [*LEFT_OUT, "net.ipv4.tcp_tw_reuse"])
def test_what_a_pod_lacks_is_in_the_documents(left_out: str) -> None:
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text(encoding="utf-8")

    assert f"| `{left_out}` | " in page
    assert left_out not in LEFT_OUT or f"| `{left_out}` | {LEFT_OUT[left_out]}" in page


def queue_of_128() -> Setup:
    """Return a trial whose servers have a listen queue of 128 instead of the kernel's default."""
    setup = setup_of("heavy-mix")
    variant = setup.trial.variant.model_copy(update={"somaxconn": 128})
    trial = replace(setup.trial, variant=variant)
    return replace(setup, trial=trial, services=services_of(trial))


def test_a_variant_that_needs_a_sysctl_that_clusters_refuse_says_how_to_allow_it() -> None:
    assert problem_of(documents, queue_of_128()) == snapshot("""\
This variant sets net.core.somaxconn to 128, which a cluster refuses unless its nodes allow it.
--unsafe-sysctls, on nodes whose kubelet has --allowed-unsafe-sysctls=net.core.somaxconn\
""")


def test_with_unsafe_sysctls_all_are_set_and_the_namespace_allows_them() -> None:
    setup = replace(queue_of_128(), unsafe_sysctls=True)
    box = tuple(documents(setup))

    for service in ("gunicorn", "nginx"):
        assert by_key(box, service)["sysctls"]() == setup.services[service]["sysctls"]
    labels = named(box, "Namespace", setup.name)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"
    assert [problem(one, RELEASES[-1]) for one in box if problem(one, RELEASES[-1])] == []


@pytest.mark.parametrize("box", BOXES, ids=lambda box: f"{box[0]}-{box[1]}")
def test_the_programs_get_the_environment_of_compose(box: tuple[str, str, str]) -> None:
    """Load generators get a part of it from a config map, with the moment when the load begins."""
    setup = setup_of(*box)
    for service, one in setup.services.items():
        [container] = template_of(made(*box), service)["spec"]["containers"]
        environment = {each["name"]: each["value"] for each in container["env"]}
        for source in container.get("envFrom", []):
            environment |= named(made(*box), "ConfigMap", source["configMapRef"]["name"])["data"]

        known = {"START_AT_MS": str(setup.start_at_ms)} if service in setup.scripts else {}
        if service == "k6" and setup.trial.load.computes:
            known |= {"ASKS": "/work?rounds=5&wait_ms=10&cpu_ms=10&cpu=burn", "ASKED_MS": "100"}
        assert environment == one["environment"] | known, service


def test_servers_start_as_their_images_say_and_are_asked_as_in_compose() -> None:
    box = ("heavy-mix", "least-conn", "")
    service = setup_of(*box).services["gunicorn"]
    [container] = template_of(made(*box), "gunicorn")["spec"]["containers"]

    assert {"command", "args"} & container.keys() == set()
    assert {service["entrypoint"], service["command"]} == {None}
    assert container["startupProbe"] == {
        "exec": {"command": service["healthcheck"]["test"][1:]},
        "periodSeconds": 1, "timeoutSeconds": 24 * 3600, "failureThreshold": service["healthcheck"]["retries"],
    }  # fmt: skip
    assert {"readinessProbe", "livenessProbe"} & container.keys() == set()  # nothing disturbs the load


def test_nothing_is_replaced_in_what_a_program_gets() -> None:
    """Kubernetes would take $(NAME) for a variable."""
    service = {
        **setup_of("heavy-mix").services["gunicorn"],
        "command": ["echo", "$(HOME)"],
        "environment": {"A": "$(B)"},
    }

    [container] = pod_spec("gunicorn", service)["containers"]

    assert container["args"] == ["echo", "$$(HOME)"]
    assert container["env"] == [{"name": "A", "value": "$$(B)"}]


def test_names_on_the_network_stand_for_the_pods_that_are_ready() -> None:
    """Without the proxy of the cluster between k6 and the balancer, or between the balancer and a server."""
    box = ("one-gpu", "", "")
    services = {one["metadata"]["name"]: one["spec"] for one in made(*box) if one["kind"] == "Service"}

    assert services == {
        "app": {"clusterIP": "None", "selector": {"stampede.service": "gunicorn"}},
        "api": {"clusterIP": "None", "selector": {"stampede.service": "api"}},
    }
    balanced = [one["metadata"]["name"] for one in made("stalled-api", "haproxy-queue") if one["kind"] == "Service"]
    assert balanced == ["app", "balancer", "api"]


@pytest.mark.parametrize(
    ("box", "service", "waits_for"),
    [
        (("heavy-mix", "least-conn", ""), "nginx", ["app", "4"]),
        (("heavy-mix", "least-conn", ""), "k6", ["balancer", "1"]),
        (("heavy-mix", "least-conn", ""), "gunicorn", None),
        (("django-fastcgi", "fastcgi-prefork", "capacity"), "flup", ["mariadb", "1"]),
        (("one-gpu", "", ""), "k6", ["app", "1", "api", "1"]),
        (("stalled-api", "haproxy-queue", ""), "haproxy", ["api", "1", "app", "1"]),
        (("connection-deadlock", "", ""), "client", ["balancer", "1"]),
    ],
)
def test_who_depends_on_others_waits_until_all_of_their_pods_are_ready(
    box: tuple[str, str, str], service: str, waits_for: list[str] | None
) -> None:
    """Otherwise nginx would take the addresses of the pods that are ready first, and never ask for the others."""
    waits = template_of(made(*box), service)["spec"].get("initContainers", [])

    assert [wait["args"] for wait in waits] == ([waits_for] if waits_for else [])


def test_waiting_ends_when_as_many_addresses_are_known_as_there_are_pods(tmp_path: Path) -> None:
    """The DNS server first knows one of two pods; each address is said three times, as getent does."""
    [wait] = template_of(made("heavy-mix", "least-conn"), "nginx")["spec"]["initContainers"]
    getent = tmp_path / "getent"
    getent.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/asked\n'
        'for kind in STREAM DGRAM RAW; do echo "10.0.0.1 $kind app"; done\n'
        f"if [ $(wc -l < {tmp_path}/asked) -gt 1 ]; then echo '10.0.0.2 STREAM app'; fi\n"
    )
    getent.chmod(0o755)
    command = [*wait["command"], "app", "2", "balancer", "1"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}

    assert subprocess.run(command, env=environment, timeout=PATIENCE_S, check=False).returncode == 0
    assert (tmp_path / "asked").read_text().splitlines() == ["ahostsv4 app"] * 2 + ["ahostsv4 balancer"]


def test_generators_are_the_containers_of_compose_as_the_pods_of_one_job() -> None:
    """They share the load by the same arithmetic, and none is started again after a failure."""
    box = ("django-fastcgi", "", "capacity", 3)
    setup = setup_of(*box)
    job = named(made(*box), "Job", "k6")["spec"]
    files = named(made(*box), "ConfigMap", "generators")["data"]
    [container] = job["template"]["spec"]["containers"]

    assert (job["completions"], job["parallelism"], job["completionMode"], job["backoffLimit"]) == (3, 3, "Indexed", 0)
    assert job["template"]["spec"]["restartPolicy"] == "Never"
    assert job["activeDeadlineSeconds"] == 300 + 7 + setup.trial.load.grace_s("7s") + 60
    assert container["command"] == ["sh", "/generators/in-pod"]
    assert container["args"] == ["/generators/k6-$(JOB_COMPLETION_INDEX)"]
    shared = share_load(dict(setup.services["k6"]), 3)
    assert files == {"in-pod": (K6 / "in-pod").read_text()} | {
        f"k6-{index}": f"exec {shlex.join([*one['entrypoint'], *one['command']])}\n"
        for index, one in enumerate(shared.values())
    }
    assert files["k6-2"].split()[:5] == ["exec", "sh", "/k6/run", "-3", "--execution-segment"]


def test_one_generator_sends_the_whole_load_at_once() -> None:
    assert setup_of("heavy-mix").start_at_ms == 0
    assert named(made("heavy-mix"), "ConfigMap", "generators")["data"]["k6-0"] == (
        "exec sh /k6/run '' /k6/heavy-mix.js\n"
    )


def start(tmp_path: Path, start_at_ms: int) -> "subprocess.CompletedProcess[str]":
    """Run k6/in-pod with a generator that prints what it knows of the beginning."""
    (tmp_path / "generator").write_text('exec echo "begins after ${START_AFTER:-0s}"\n')
    return subprocess.run(
        ["sh", K6 / "in-pod", tmp_path / "generator"], env={"PATH": "/usr/bin:/bin", "START_AT_MS": str(start_at_ms)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_generator_begins_at_once_or_at_the_moment_of_all(tmp_path: Path) -> None:
    assert start(tmp_path, 0).stdout == "begins after 0s\n"
    soon = start(tmp_path, 1000 * (int(time.time()) + 60)).stdout

    assert soon in {f"begins after {left_s}s\n" for left_s in range(50, 61)}


def test_a_generator_that_is_late_does_not_begin(tmp_path: Path) -> None:
    """Its share of the load would come when the others have sent theirs."""
    late = start(tmp_path, 1000 * (int(time.time()) - 60))

    assert (late.returncode, late.stdout) == (1, "")
    assert re.fullmatch(
        r"The load begins in -6\d s, too soon for this generator. "
        r"Print the manifests again, and apply them at once.\n",
        late.stderr,
    )


@pytest.mark.parametrize(("service", "folder"), [("k6", K6), ("client", CLIENTS)])
def test_generators_find_their_scripts_where_compose_mounts_them(service: str, folder: Path) -> None:
    box = ("connection-deadlock", "", "")
    setup = setup_of(*box)
    pod = template_of(made(*box), service)["spec"]
    [container] = pod["containers"]
    texts = named(made(*box), "ConfigMap", folder.name)["data"]
    [items] = [one["configMap"]["items"] for one in pod["volumes"] if one["name"] == folder.name]

    mounted = {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}
    mounts = setup.services[service]["volumes"]
    assert mounted == {"/tmp": False, "/generators": True} | {
        one["target"]: one.get("read_only", False) for one in mounts
    }
    assert {one["path"]: texts[one["key"]] for one in items} == {
        path: (folder / path).read_text() for path in (one["path"] for one in items)
    }
    script = setup.scripts[service].script
    assert {one["path"] for one in items} == {script} | ({"run"} if service == "k6" else set()) | {
        f"lib/{path.name}" for path in (folder / "lib").iterdir() if path.is_file()
    }


def test_results_are_on_a_claim_which_one_node_mounts() -> None:
    box = ("django-fastcgi", "", "capacity", 3)
    pods = [template_of(made(*box), "k6")["spec"], named(made(*box), "Pod", "results")["spec"]]

    assert named(made(*box), "PersistentVolumeClaim", "results")["spec"]["accessModes"] == ["ReadWriteOnce"]
    for pod in pods:
        [term] = pod["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert {"name": "results", "persistentVolumeClaim": {"claimName": "results"}} in pod["volumes"]
        assert {"name": "results", "mountPath": "/results"} in pod["containers"][0]["volumeMounts"]
        assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsGroup"] == 1000
    for labels in (
        template_of(made(*box), "k6")["metadata"]["labels"],
        named(made(*box), "Pod", "results")["metadata"]["labels"],
    ):
        assert labels.items() >= term["labelSelector"]["matchLabels"].items()


def test_nothing_passes_but_between_the_pods_and_to_the_dns_server() -> None:
    policies = {one["metadata"]["name"]: one["spec"] for one in made("heavy-mix") if one["kind"] == "NetworkPolicy"}

    both = {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert policies["closed"] == both
    inside: list[Document] = [{"podSelector": {}}]
    dns = policies["lab"]["egress"][1]
    assert policies["lab"] == both | {"ingress": [{"from": inside}], "egress": [{"to": inside}, dns]}
    assert [one["port"] for one in dns["ports"]] == [53, 53]
    assert dns["to"] == [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
            "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
        }
    ]


def test_everything_is_in_a_namespace_of_its_own_whose_name_fits() -> None:
    """However long the names of an experiment, a variant and a load are together."""
    setup = setup_of("heavy-mix")
    [namespace, *rest] = made("heavy-mix")
    long = replace(setup, trial=replace(setup.trial, variant_name="v" * 40, load_name="l" * 40))

    assert {one["metadata"]["namespace"] for one in rest} == {namespace["metadata"]["name"]} == {setup.name}
    assert setup.name == "stampede-heavy-mix-shared-socket-heavy-mix"
    assert namespace["metadata"]["annotations"] == {
        "stampede.experiment": "heavy-mix", "stampede.variant": "shared-socket", "stampede.load": "heavy-mix",
        "stampede.duration": "20s",
    }  # fmt: skip
    assert len(long.name) == 63


def test_your_own_application_has_no_manifests(tmp_path: Path) -> None:
    variant = UserSync(server="gunicorn-sync", workers=1, callable="site:app", layer=Layer(tmp_path, "abc"))
    trial = replace(setup_of("heavy-mix").trial, variant=variant)

    assert problem_of(services_of, trial) == snapshot("""\
Manifests are for the lab's experiments, not for your own application.
make try SERVICE=my-service.yaml\
""")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("heavy-mix --variant one-proces", "'one-proces' / --variant / one-process, busy-accept"),
        ("fastcgi-mechanisms --variant prefork-50", "patient / gunicorn-5 under capacity / make experiment NAME=…"),
        ("heavy-mix --duration soon", "'soon' / DURATION=90s or DURATION=5m"),
    ],
)
def test_a_trial_that_cannot_be_printed_is_named_with_what_can(lab: Lab, arguments: str, says: str) -> None:
    done = lab.call("manifests", *arguments.split())

    assert (done.returncode, done.stdout) == (2, "")
    assert [word for word in says.split(" / ") if word not in done.stderr] == []


@pytest.mark.parametrize("name", names())
def test_a_variant_under_a_load_is_printed_or_refused_with_a_way_out_that_works(name: str) -> None:
    """Of each experiment every variant under every load, and a variant and a load that it lacks."""
    experiment = load_experiment(name)
    refusals: list[tuple[str, str, WrongUse]] = []
    for variant, load in product([*experiment.variants, "nobody"], [*experiment.all_loads, "nothing"]):
        try:
            trial = trial_of(experiment, variant, load, 0, full=False, duration="")
        except WrongUse as refused:
            refusals.append((variant, load, refused))
        else:
            assert (trial.variant_name, trial.load_name) == (variant, load)
            assert trial.load.is_for(variant)

    for variant, load, problem in refusals:
        assert variant in problem.message or load in problem.message
        option, _, known = problem.hint.partition(" …, one of ")
        if option == "--load":
            assert all(trial_of(experiment, variant, word, 0, full=False, duration="") for word in known.split(", "))
        elif option == "--variant":
            assert {*known.split(", ")} == experiment.variants.keys()
        else:
            assert (option, known) == ("make experiment NAME=…", "")
            assert all(one.relative for one in experiment.all_loads.values() if one.is_for(variant))


def test_too_few_generators_for_a_load_are_refused() -> None:
    experiment = load_experiment("django-fastcgi")
    capacity = experiment.all_loads["capacity"]
    many = capacity.model_copy(update={"settings": capacity.settings | {"users_max": 40_000}})
    crowded = experiment.model_copy(update={"loads": {"capacity": many}})

    assert problem_of(lambda: trial_of(crowded, "", "", 1, full=False, duration="")) == snapshot("""\
--generators 1: 40,000 virtual users are more than the 16,000 that one k6 container has files for; reduce them, or \
increase generators (the k6 containers).
--generators 4\
""")


def test_requests_that_compute_really_compute() -> None:
    """To hold the interpreter lock without computing, each machine would have to be calibrated first."""
    assert setup_of("gil-sharing").trial.load.settings["cpu"] == "burn"


def test_the_command_prints_documents_and_says_the_rest_elsewhere(lab: Lab) -> None:
    done = lab.call("manifests", "heavy-mix", "--variant", "least-conn", "--duration", "5s")

    assert done.returncode == 0
    printed = list(yaml.safe_load_all(done.stdout))
    assert named(tuple(printed), "ConfigMap", "k6-settings")["data"]["DURATION"] == "5s"
    assert named(tuple(printed), "ConfigMap", "k6")["data"]["run"] == (K6 / "run").read_text()
    assert "  run: |\n    #!/bin/sh\n" in done.stdout
    assert done.stderr == "least-conn under heavy-mix, 5s, in the namespace stampede-heavy-mix-least-conn-heavy-mix\n"


def test_the_command_says_what_is_lost_and_when_the_load_begins(lab: Lab) -> None:
    now_ms = 1000 * time.time()
    done = lab.call("manifests", "django-fastcgi", "--generators", "2")

    assert done.stderr == (
        "gunicorn-5 under capacity, 7s, in the namespace stampede-django-fastcgi-gunicorn-5-capacity\n"
        "warning: the servers may run on all cores of their nodes; cpuset 0 has no place in Kubernetes.\n"
        f"The load begins in {BEGINS_AFTER_S} s, so apply the manifests at once.\n"
    )
    settings = named(tuple(yaml.safe_load_all(done.stdout)), "ConfigMap", "k6-settings")["data"]
    assert 0 <= int(settings["START_AT_MS"]) - now_ms - 1000 * BEGINS_AFTER_S + 1000 < 60_000


def test_without_compose_the_command_says_what_is_missing(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    done = lab.call("manifests", "heavy-mix")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == snapshot("""\
error: Compose v2 is missing, which reads docker-compose.yml.

hint: stampede doctor
""")
