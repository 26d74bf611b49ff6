"""stampede.docker.cluster alone: the file of machines, what runs where, and what swarms and images are told to be."""

import json
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from inline_snapshot import snapshot

from stampede.docker.client import Machine
from stampede.docker.cluster import images, swarm
from stampede.docker.cluster.engines import offset_s
from stampede.docker.cluster.machines import read_machines
from stampede.docker.containers import ContainerInfo, overlay_name
from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment
from stampede.experiment.variations import generated_on
from stampede.paths import COMPOSE_FILE
from stampede.plan import MemoryBudget, MemoryBudgets, PlannedTrial, assign, lay_out
from stampede.records.run import Exchange
from stampede.run.trial.compose import on_machine, split_over_machines
from tests.told import Told
from tests.wrong import listed, problem_of, refusal

THREE = """\
machines:
  bench-1: {context: one, role: servers, cores: 4}
  bench-2: {context: two, role: servers}
  laptop:  {context: three, role: load, cores: 1}
"""


def three_machines(folder: Path, text: str = THREE) -> tuple[Machine, ...]:
    file = folder / "machines.yaml"
    file.write_text(text)
    return read_machines(file)


def test_machines_have_an_engine_a_role_and_cores(tmp_path: Path) -> None:
    """Machines for load come last, because the first machine builds the images."""
    machines = three_machines(tmp_path, THREE.replace("bench-1", "z-1", 1))

    assert [(one.name, one.role, one.cpuset, one.shares_files) for one in machines] == [
        ("z-1", "servers", "0-3", False), ("bench-2", "servers", "", False), ("laptop", "load", "0", False),
    ]  # fmt: skip
    assert machines[2].docker[-2:] == ["--context", "three"]


HINT = "A complete machine: bench-1: {context: bench-1, role: servers}"
MISTAKES = [
    "machines: {}",
    "machines:\n  a: {role: load}",
    "machines:\n  a: {context: b, role: load}",
    "machines:\n  a: {context: same}\n  b: {context: same}",
]  # fmt: skip


def test_each_rule_of_the_file_of_machines_has_its_message(tmp_path: Path) -> None:
    file = tmp_path / "machines.yaml"
    with pytest.raises(WrongUse, match=f"^{file} cannot be read: "):
        read_machines(file)

    assert listed(refusal(read_machines, file, one, HINT) for one in MISTAKES) == snapshot("""\
machines.yaml:1: machines: {} must be a mapping that is not empty, e.g. machines: {bench-1: {context: bench-1,
    role: servers}}
machines.yaml:2: machines.a.context: missing key; it must be text that is not empty, e.g. context: bench-1
machines.yaml: no machine is for servers; give a machine role: servers, or leave its role out
machines.yaml: a and b have the same context same
""")


def trial(experiment: str, variant: str, generators: int = 1) -> PlannedTrial:
    planned = lay_out(generated_on(load_experiment(experiment), generators), variants=[variant])
    return planned.trials[0]


def test_replicas_and_generators_take_turns_among_their_machines(tmp_path: Path) -> None:
    """Everything else stands on the first machine for servers, but a client that misbehaves is part of the load."""
    assert assign(trial("heavy-mix", "least-conn"), three_machines(tmp_path)) == [
        {"gunicorn": 2, "nginx": 1}, {"gunicorn": 2}, {"k6": 1},
    ]  # fmt: skip
    both = "machines: {a: {context: a}, b: {context: b}, c: {context: c}}"
    assert assign(trial("heavy-mix", "shared-socket", 3), three_machines(tmp_path, both)) == [
        {"gunicorn": 1, "nginx": 1, "k6": 1}, {"k6-2": 1}, {"k6-3": 1},
    ]  # fmt: skip
    client = next(iter(load_experiment("silent-clients").variants))
    assert assign(trial("silent-clients", client), three_machines(tmp_path))[2] == {"k6": 1, "client": 1}


def test_no_load_has_more_generators_than_users() -> None:
    """Two heavy users and five light users share up to seven generators; a file that asks for more keeps its own."""
    heavy_mix = load_experiment("heavy-mix")
    assert [generated_on(heavy_mix, count).all_loads["heavy-mix"].generators for count in (1, 3, 12)] == [1, 3, 7]


def test_a_plan_has_room_on_every_machine(tmp_path: Path) -> None:
    """The message names the machine and its own containers."""
    machines = three_machines(tmp_path)
    enough = MemoryBudgets(machines, [MemoryBudget(8192, 8192), MemoryBudget(8192, 8192), MemoryBudget(8192, 8192)])
    one = trial("heavy-mix", "least-conn")
    assert enough.problem([one, one]) is None

    little = MemoryBudgets(machines, [MemoryBudget(8192, 8192), MemoryBudget(1024, 1024), MemoryBudget(8192, 8192)])
    assert little.problem([one]) == (
        "on bench-2, the memory limits of its containers add up to 512 MiB (gunicorn 512), but containers can have "
        "only 410 MiB: 1,024 of 1,024 MiB are available, 102 MiB must stay free, and the lab itself needs 512 MiB"
    )
    with pytest.raises(WrongUse, match=r"^least-conn under heavy-mix does not fit into these machines: on bench-2, "):
        lay_out(load_experiment("heavy-mix"), variants=["least-conn"], memory=little)


def resolved() -> dict[str, Any]:
    volumes = [{"type": "bind", "source": "./k6", "target": "/k6"}, {"type": "bind", "target": "/results"}]
    box = {key: value for key, value in yaml.safe_load(COMPOSE_FILE.read_text())["x-lab"].items() if key != "networks"}
    return {
        "services": {
            "gunicorn": {**box, "depends_on": {}, "cpus": 1},
            "nginx": {**box, "depends_on": {"gunicorn": {"condition": "service_healthy"}}},
            "k6": {**box, "depends_on": {}, "volumes": volumes, "cpuset": "1"},
        },
        "networks": {"lab": {"internal": True}},
    }


DIFFERS = {"cpuset", "depends_on", "environment", "scale", "volumes"}


def test_the_box_is_the_same_on_every_machine(tmp_path: Path) -> None:
    """A machine changes the cores, the number of containers, whom Compose waits for, and where files come from."""
    whole = resolved()
    for machine, counts in zip(
        three_machines(tmp_path), ({"gunicorn": 2, "nginx": 1}, {"gunicorn": 2}, {"k6": 1}), strict=True
    ):
        here = split_over_machines(whole, machine, counts, "stampede-x")
        assert set(here["services"]) == set(counts)
        for name, service in here["services"].items():
            kept = {key: value for key, value in service.items() if key not in DIFFERS}
            assert kept == {key: value for key, value in whole["services"][name].items() if key not in DIFFERS}
            assert service["scale"] == counts[name]
        assert here["networks"] == {"lab": {"external": True, "name": overlay_name("stampede-x")}}
        assert len(overlay_name("stampede-x" * 20)) <= 63


def test_a_machine_waits_only_for_its_own_servers_and_uses_only_its_own_cores(tmp_path: Path) -> None:
    first, second, load = three_machines(tmp_path)
    here = split_over_machines(resolved(), first, {"gunicorn": 2, "nginx": 1}, "p")["services"]
    assert here["nginx"]["depends_on"] == {"gunicorn": {"condition": "service_healthy"}}
    assert here["gunicorn"]["cpuset"] == "0-3"
    assert split_over_machines(resolved(), second, {"nginx": 1}, "p")["services"]["nginx"]["depends_on"] == {}
    assert "cpuset" not in split_over_machines(resolved(), second, {"nginx": 1}, "p")["services"]["nginx"]
    k6 = split_over_machines(resolved(), load, {"k6": 1}, "p")["services"]["k6"]
    assert k6["cpuset"] == "1", "the cores that a variant asks for come first"
    assert k6["volumes"] == [{"type": "volume", "target": "/k6"}, {"type": "volume", "target": "/results"}]


def test_a_server_has_what_another_service_wrote_if_both_are_on_its_machine(tmp_path: Path) -> None:
    """A volume of the engine itself needs no files of the lab."""
    own, elsewhere, _ = three_machines(tmp_path)
    whole = resolved()
    whole["services"]["gunicorn"] |= {"volumes_from": ["nginx"]}
    whole["services"]["nginx"] |= {"volumes": [{"type": "volume", "target": "/opt/application"}], "environment": {}}
    assert split_over_machines(whole, own, {"gunicorn": 1, "nginx": 1}, "p")["services"]["gunicorn"]["volumes_from"]
    there = split_over_machines(whole, elsewhere, {"gunicorn": 1}, "p")["services"]["gunicorn"]
    assert "volumes_from" not in there
    assert on_machine(whole, replace(elsewhere, name="bench"))["services"]["nginx"]["environment"] == {}


def test_one_engine_elsewhere_has_all_containers_and_the_labs_own_network(tmp_path: Path) -> None:
    """Only files are brought to it."""
    here = on_machine(resolved(), three_machines(tmp_path)[1])
    assert here["networks"] == {"lab": {"internal": True}}
    assert set(here["services"]) == {"gunicorn", "nginx", "k6"}
    assert here["services"]["k6"]["volumes"][0] == {"type": "volume", "target": "/k6"}


def test_a_clock_is_read_in_the_middle_of_the_quickest_exchanges() -> None:
    """Three of four exchanges were held up on their way back, which says nothing about the clock."""
    asked = [Exchange(asked=0, told=5.001, answered=0.002), *[Exchange(asked=0, told=5.1, answered=8.0)] * 3]
    assert offset_s(asked) == pytest.approx(5.0)


def member(name: str, engine: str, node: str, manages: bool) -> Machine:
    """Return a machine whose engine is a member of a swarm (empty: of none)."""

    def answer(words: tuple[str, ...]) -> bytes:
        if words[0] == "node":  # those whose name does not begin with other are in the manager's swarm
            return b"n1 n2"
        state = {"LocalNodeState": "active" if node else "inactive", "NodeID": node, "ControlAvailable": manages}
        return json.dumps({"ID": engine, "Swarm": state}).encode()

    return Told(name, name, shares_files=False, answers=answer)


STRANGE = "These machines are in no swarm that a machine of the file manages: {}. So containers share no network."


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ([("1", "n1", True), ("2", "", False)], f"{STRANGE.format('b')} / docker --context a swarm join-token worker"),
        ([("1", "", False), ("2", "", False)], f"{STRANGE.format('a, b')} / context a swarm init / UDP 7946"),
        (
            [("1", "n1", False), ("2", "", False)],
            f"{STRANGE.format('a, b')} / docker node promote NODE makes a manager",
        ),
        ([("1", "n1", False), ("2", "n2", False)], f"{STRANGE.format('a, b')} / \nAdd the swarm's manager to the file"),
        ([("1", "n1", True), ("2", "other-2", True)], f"{STRANGE.format('b')} / swarm leave"),
        ([("1", "n1", True), ("1", "n1", True)], "a and b are the same engine / Remove one of them"),
    ],
)
def test_machines_that_cannot_share_a_network_are_named(members: list[tuple[str, str, bool]], says: str) -> None:
    machines = [member(name, *told) for name, told in zip("ab", members, strict=True)]

    problem = problem_of(lambda: swarm.check_joined(swarm.nodes_of(machines)))
    assert [word for word in says.split(" / ") if word not in problem] == []


def test_images_that_differ_after_copying_are_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Such as images for another kind of processor: nothing starts. Images that are the same are not copied."""
    machines = three_machines(tmp_path)
    copied: list[tuple[list[str], str]] = []
    monkeypatch.setattr(
        images, "content_of", lambda image, machine: f"{image} {machine.name == 'laptop' and image == 'b'}"
    )
    monkeypatch.setattr(images, "_copy", lambda names, _, machine: copied.append((names, machine.name)))
    said: list[str] = []

    assert problem_of(images.bring_images, ["a", "b"], machines, said.append) == snapshot("""\
laptop has another image b than bench-1 after the image was copied.
Machines of one run need the same kind of processor: stampede machines\
""")
    assert copied == [(["b"], "laptop")]
    assert said == ["Copying b from bench-1 to laptop …"]


@pytest.mark.parametrize(
    ("used", "difference"),
    [
        ([("gunicorn", 0, "1"), ("gunicorn", 1, "1")], None),
        ([("gunicorn", 0, "1"), ("gunicorn", 1, "like 1")], None),
        ([("gunicorn", 0, "1"), ("nginx", 2, "other")], None),
        ([("k6", 0, "1"), ("k6-2", 0, "1"), ("k6-3", 2, "other")], "k6 has another image on bench-1 than on laptop"),
    ],
)
def test_a_service_with_different_images_is_named_with_its_machines(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, used: list[tuple[str, int, str]], difference: str | None
) -> None:
    """Ids may differ although the contents are the same, because engines store images in different ways."""
    machines = three_machines(tmp_path)
    monkeypatch.setattr(images, "content_of", lambda identity, _: identity.removeprefix("like "))

    there = (ContainerInfo("", service, service, machines[at], image=identity) for service, at, identity in used)
    assert images.image_difference(there) == difference


@pytest.mark.parametrize(("listens", "why"), [(False, ""), (True, "no answer within 1 s\n")])
def test_an_engine_that_cannot_be_reached_or_is_stopped_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, listens: bool, why: str
) -> None:
    """A real client asks a socket; that of an engine that is stopped accepts connections and never answers."""
    monkeypatch.setattr(swarm, "ANSWERS_WITHIN_S", 1)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    with socket.socket(socket.AF_UNIX) as stopped:
        if listens:
            stopped.bind(str(tmp_path / "engine.sock"))
            stopped.listen()
        problem = problem_of(swarm.nodes_of, [Machine("bench", shares_files=False)])

    assert problem.startswith(f"The engine of bench does not answer: {why}")
    assert "docker context ls" in problem
