"""stampede.run.trial: what is started for a trial, without starting it."""

import os
import re
import threading
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from python_on_whales import DockerClient
from python_on_whales.components.container.models import ContainerState
from python_on_whales.exceptions import DockerException

from stampede.docker.cluster.engines import Engines, UsageSamplers
from stampede.docker.cluster.machines import default_machine
from stampede.docker.commands import last_line
from stampede.docker.containers import ContainerInfo, owner
from stampede.docker.engine import ca_bundle
from stampede.docker.redaction import LOCAL, LOCAL_ENV
from stampede.errors import LabError
from stampede.experiment.model import Api, Client, Database, Durations, Load, Relative
from stampede.paths import ROOT
from stampede.plan import PlannedTrial
from stampede.records.classes import OwnRequestClass
from stampede.records.folder import read_trial
from stampede.run.trial import checking
from stampede.run.trial.alone import Answer
from stampede.run.trial.compose import Composed, compose, factors_of, share_load
from stampede.run.trial.containers import Phase, TrialContainers
from stampede.run.trial.rates import NoRate, rate_after
from stampede.run.trial.starting import start_services
from stampede.servers.asgi import Asgi
from stampede.servers.base import Variant
from stampede.servers.gunicorn import GunicornSync
from tests.conftest import PATIENCE_S
from tests.synthetic import Request, make_trial, visit

BEHIND = GunicornSync(server="gunicorn-sync", workers=2)
DIRECTLY = Asgi(server="uvicorn", app="fastapi-async", workers=2, balancer="none")
DJANGO = GunicornSync(server="gunicorn-sync", workers=2, app="django")
CLIENT = Client(script="silent.py", settings={"connections": 2, "silent_s": 15})


@pytest.mark.parametrize(
    ("variant", "through", "to"),
    [
        (BEHIND, False, "app:8000"),
        (BEHIND, True, "balancer:8080"),
        (BEHIND.model_copy(update={"balancer": "none"}), True, "app:8000"),
    ],
)
def test_a_client_connects_to_the_server_or_where_the_users_connect(variant: Variant, through: bool, to: str) -> None:
    client = CLIENT.model_copy(update={"through_balancer": through})
    burst = {"burst": 2, "every_s": 1, "does": "wait", "delay_s": 0}
    load = Load(script="burst.js", duration=Durations(short="1s", full="1s"), settings=burst, client=client)

    factors = factors_of(PlannedTrial("some", variant, "burst", load, "1s", 1))

    assert factors["LAB_CLIENT_CONNECTS_TO"] == to


@pytest.mark.parametrize(
    ("variant", "further", "started", "created"),
    [
        (BEHIND, {}, ["nginx"], ["k6"]),
        (BEHIND.model_copy(update={"balancer": "haproxy"}), {"client": CLIENT}, ["haproxy"], ["k6", "client"]),
        (BEHIND, {"api": Api()}, ["nginx", "api"], ["k6"]),
        (BEHIND.model_copy(update={"balancer": "none"}), {}, ["gunicorn"], ["k6"]),
        (DIRECTLY, {}, ["asgi"], ["k6"]),
        (DIRECTLY, {"api": Api(one_device=True)}, ["asgi", "api"], ["k6"]),
        (DJANGO, {"database": Database()}, ["nginx"], ["k6"]),
        (DJANGO.model_copy(update={"balancer": "none"}), {"database": Database()}, ["gunicorn"], ["k6"]),
        (BEHIND, {"generators": 3, "client": CLIENT}, ["nginx"], ["k6", "k6-2", "k6-3", "client"]),
    ],
)
def test_whom_k6_asks_is_started_and_what_the_application_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variant: Variant, further: dict[str, Any], started: list[str],
    created: list[str],
) -> None:  # fmt: skip
    """A balancer waits for the servers and the called service; without one nobody would start the latter.

    Servers wait for their database themselves.
    """
    asked: dict[str, list[str]] = {}
    compose = SimpleNamespace(
        up=lambda services, **_: asked.update(up=services), create=lambda services, **_: asked.update(create=services)
    )
    every = ("gunicorn", "asgi", "uwsgi", "flup", "nginx", "haproxy", "api", "mariadb", "k6", "k6-2", "k6-3", "client")
    composed = Composed(default_machine(), cast("DockerClient", SimpleNamespace(compose=compose)), every, {})
    monkeypatch.setattr("stampede.run.trial.containers.compose", lambda *_: [composed])
    monkeypatch.setattr("stampede.run.trial.containers.containers_of", lambda *_: [])
    burst = {"burst": 2, "every_s": 1, "does": "wait", "delay_s": 0}
    load = Load(script="burst.js", duration=Durations(short="1s", full="1s"), settings=burst, **further)
    stack = TrialContainers(PlannedTrial("some", variant, "burst", load, "1s", 1), tmp_path, 1, Engines())

    stack.start()

    assert stack.reason is None
    assert asked == {"up": started, "create": created}


@pytest.mark.parametrize(
    ("said", "failures", "attempts"),
    [("attaching to network failed, make sure …: context deadline exceeded", 2, 3),
     ("Error response from daemon: network k5zzayzxi7ft not found", 3, 4),
     ("attaching to network failed, make sure …: context deadline exceeded", 9, 4),
     ("no such image", 9, 1)],
)  # fmt: skip
def test_a_swarm_that_was_too_busy_to_attach_a_container_is_asked_again(
    said: str, failures: int, attempts: int
) -> None:
    """Four times in all, and only for these reasons."""
    asked: list[list[str]] = []

    def up(services: list[str], **_: object) -> None:
        asked.append(services)
        if len(asked) <= failures:
            raise DockerException(["docker"], 1, None, said.encode())

    client = cast("DockerClient", SimpleNamespace(compose=SimpleNamespace(up=up)))
    one = Composed(default_machine(), client, ("nginx",), {})
    with pytest.raises(DockerException) if failures >= attempts else nullcontext():
        start_services(["gunicorn", "nginx"], [one])

    assert asked == [["nginx"]] * attempts


DURATIONS = Durations(short="7s", full="1m")
CLIMB = Load(
    script="visits.js", duration=DURATIONS, overloads=True, database=Database(),
    settings={"first_per_s": 100, "last_per_s": 400, "step_s": 2, "timeout_steps": 1, "users_max": 9},
)  # fmt: skip
OVERLOAD = Load(
    script="visits.js", duration=DURATIONS, overloads=True, database=Database(max_connections=19),
    generators=2, relative=Relative(times=1.5, of="one", under="mix"),
    settings={"step_s": 7, "timeout_steps": 1, "users_max": 9},
)  # fmt: skip
FOLLOWED = PlannedTrial("one", DJANGO, "mix", CLIMB, "7s", 2)
RUN = "results/django-fastcgi/20260102T030405Z"


def rate_of(stack: TrialContainers, follows: PlannedTrial) -> float:
    """Return the rate of a trial that follows from another trial of its run."""
    return rate_after(stack.planned, follows, stack.folder.parents[2])


def overload(folder: Path) -> TrialContainers:
    """Return the stack of a trial in a run's folder whose rate follows from the second trial of one under mix."""
    (folder / RUN).mkdir(parents=True, exist_ok=True)
    return TrialContainers(
        PlannedTrial("two", DJANGO, "overload", OVERLOAD, "7s", 2, FOLLOWED), folder / RUN, 1, Engines()
    )


RESOLVED: dict[str, Any] = {
    "services": {
        "gunicorn": {"depends_on": {"mariadb": {"required": True}}},
        "mariadb": {},
        "nginx": {"depends_on": {"gunicorn": {"required": False}, "uwsgi": {"required": False}}},
        "k6": {"image": "grafana/k6", "command": ["", "/k6/visits.js"]},
    }
}


class Docker:
    """What python_on_whales would be: it resolves to RESOLVED and keeps what it was given."""

    given: tuple[dict[str, Any], ...] = ()

    def __init__(self, **given: Any) -> None:
        Docker.given += (given,)
        self.compose = SimpleNamespace(config=lambda **_: yaml.safe_load(yaml.safe_dump(RESOLVED)), up=self.up)

    def up(self, *_: object, **__: object) -> None:
        """Start nothing."""


def test_a_trial_with_a_database_and_two_generators_is_written_down_before_it_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What Compose is told, what the load reads, and the services that come of it."""
    monkeypatch.setattr("stampede.run.trial.compose.DockerClient", Docker)
    monkeypatch.setattr(Docker, "given", ())
    stack = overload(tmp_path)
    stack.part.mkdir(parents=True)
    stack.visits_per_s = 75.6

    compose(stack.planned, stack.part, stack.project, 1, stack.visits_per_s, stack.engines)

    asked, started = Docker.given
    assert asked["compose_profiles"] == started["compose_profiles"] == ["gunicorn", "nginx", "load", "mariadb"]
    assert started["compose_files"] == [stack.part / "compose.yml"]
    assert started["compose_env_files"] == [stack.part / LOCAL_ENV] == asked["compose_env_files"][1:]
    assert started["compose_project_directory"] == ROOT
    factors = dict(line.split("=", 1) for line in (stack.part / "factors.env").read_text().splitlines())
    assert (factors["LAB_DATABASE"], factors["LAB_DATABASE_CONNECTIONS"]) == ("'mariadb'", "'19'")
    assert factors["LAB_APP"] == "'django_app:app'"
    assert set((stack.part / "load.env").read_text().splitlines()) == {
        "STEP_S='7'", "TIMEOUT_STEPS='1'", "USERS_MAX='9'", "FIRST_PER_S='76'", "LAST_PER_S='76'", "DURATION='7s'",
        "RATES_PER_S='76'", "STEP_LASTS_S='7'", "TIMEOUT_S='7'", "GRACE_S='26'",
    }  # fmt: skip
    services = yaml.safe_load((stack.part / "compose.yml").read_text())["services"]
    assert set(services) == {"gunicorn", "mariadb", "nginx", "k6", "k6-2"}
    assert services["gunicorn"]["depends_on"] == {"mariadb": {"required": True}}
    assert services["nginx"]["depends_on"] == {"gunicorn": {"required": True}}
    assert [services[name]["command"][0] for name in ("k6", "k6-2")] == ["", "-2"]


def test_what_a_trial_keeps_does_not_tell_where_it_was_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compose reads the true values from a file that is gone as soon as nothing has to be started any more."""
    mounts = [{"source": f"{ROOT}/k6", "target": "/k6"}, {"source": "", "target": "/results"}]
    box = {"user": f"{os.getuid()}:{os.getgid()}", "labels": {"stampede.owner": owner()}, "volumes": mounts}
    monkeypatch.setattr("stampede.run.trial.compose.DockerClient", Docker)
    monkeypatch.setitem(RESOLVED["services"], "k6", RESOLVED["services"]["k6"] | box)
    stack = overload(tmp_path)
    mounts[1]["source"] = str(stack.part)
    read: list[dict[str, str]] = []

    def refuse(*_: object, **__: object) -> None:
        read.append(dict(re.findall(r"(\w+)='(.*)'", (stack.part / LOCAL_ENV).read_text())))
        raise DockerException(["docker"], 1, None, f"invalid mount: {stack.part} and {ROOT}/k6".encode())

    monkeypatch.setattr("stampede.run.trial.containers.rate_after", lambda *_: 75.6)
    monkeypatch.setattr(TrialContainers, "_why_not_healthy", lambda _, error: last_line(error))
    monkeypatch.setattr(Docker, "up", refuse)

    stack.start()
    stack.gone = True
    record = stack.save(None, None)

    assert read == [{
        "LAB_OWNER": owner(), "LAB_LOAD_SETTINGS": f"{stack.part}/load.env", "LAB_RESULTS": str(stack.part),
        "LAB_USER": f"{os.getuid()}:{os.getgid()}", "LAB_CA_BUNDLE": ca_bundle(),
    }]  # fmt: skip
    assert record.reason == f"the servers did not become healthy: invalid mount: {stack.part} and {ROOT}/k6"
    assert read_trial(stack.folder).reason == (
        "the servers did not become healthy: invalid mount: "
        "$RESULTS/django-fastcgi/20260102T030405Z/two/overload/.2.part and $CHECKOUT/k6"
    )
    assert {path.name for path in stack.folder.iterdir()} == {"compose.yml", "factors.env", "load.env", "trial.json"}
    kept = yaml.safe_load((stack.folder / "compose.yml").read_text())["services"]["k6-2"]
    assert {key: kept[key] for key in box} == {
        "user": "${LAB_USER:-1000:1000}", "labels": {"stampede.owner": "${LAB_OWNER:-by-hand}"},
        "volumes": [{"source": "./k6", "target": "/k6"},
                    {"source": "${LAB_RESULTS:-./results/by-hand}", "target": "/results"}],
    }  # fmt: skip
    factors = (stack.folder / "factors.env").read_text().splitlines()
    assert set(LOCAL) & {line.partition("=")[0] for line in factors} == set()


def test_one_generator_sends_everything() -> None:
    assert share_load({"image": "grafana/k6", "command": ["", "/k6/visits.js"]}, 1) == {}


def test_several_generators_share_the_load_without_a_gap_or_an_overlap() -> None:
    """What they write differs in its names; k6 itself knows which users and iterations a segment has."""
    shared = share_load({"image": "grafana/k6", "command": ["", "/k6/visits.js"]}, 4)

    sequence = ["--execution-segment-sequence", "0,1/4,2/4,3/4,1"]
    assert shared == {
        name: {
            "image": "grafana/k6",
            "command": [suffix, "--execution-segment", segment, *sequence, "/k6/visits.js"],
        }
        for name, suffix, segment in (
            ("k6", "", "0:1/4"), ("k6-2", "-2", "1/4:2/4"), ("k6-3", "-3", "2/4:3/4"), ("k6-4", "-4", "3/4:1"),
        )
    }  # fmt: skip


@pytest.mark.parametrize(
    ("exit_codes", "told"),
    [([0, 0], 0), ([0, 99], 99), ([99, 0], 99), ([107, 99, 0], 107), ([0, 137], 137), ([None], None), ([0, None], 0)],
)
def test_of_several_generators_the_one_that_failed_tells(
    tmp_path: Path, exit_codes: list[int | None], told: int | None
) -> None:
    """One whose threshold was crossed has measured; another exit code means that it has not."""
    stack = overload(tmp_path)
    for exit_code in exit_codes:
        stack._k6_ended(exit_code)

    assert stack.k6_exit_code == told


def test_all_generators_are_told_the_moment_at_which_the_load_begins(tmp_path: Path) -> None:
    stack = overload(tmp_path)
    stack.part.mkdir(parents=True)
    told: dict[str, str] = {}

    def start(generator: str) -> None:
        told[generator] = (stack.part / "start.env").read_text()

    machine = replace(
        default_machine(), client=cast("DockerClient", SimpleNamespace(container=SimpleNamespace(start=start)))
    )
    stack.containers = [
        ContainerInfo(name, name, f"{name}-1", ContainerState(), machine, "") for name in ("k6", "k6-2")
    ]

    stack.start_load(1795169100.0449, UsageSamplers(Engines()))

    assert told == dict.fromkeys(("k6", "k6-2"), "START_AT_MS=1795169100045\n")


def climbing(*failed: int) -> list[Request]:
    """Return two visits in each step of two seconds, so many of which fail."""
    return [
        one
        for step, failures in enumerate(failed)
        for place in range(2)
        for one in visit(
            f"{(0, 200, 600)[step] + place}", 2 * step + place, error="status 503" if place < failures else None
        )
    ]


def test_a_rate_follows_from_the_capacity_of_the_same_round(tmp_path: Path) -> None:
    """Of 100, 200 and 400 visits/s the last was too much; the first trial's capacity is another one."""
    make_trial(tmp_path / RUN, "one", 1, climbing(0, 0, 0))
    make_trial(tmp_path / RUN, "one", 2, climbing(0, 0, 1))

    assert rate_of(overload(tmp_path), FOLLOWED) == 300.0


@pytest.mark.parametrize(
    ("requests", "changed", "message"),
    [
        (climbing(1, 0), {}, "where visits already failed in the first step"),
        (climbing(0), {"outcome": "failed", "reason": "k6 ended with exit code 107: no"},
         "which was not measured: k6 ended with exit code 107: no"),
        ([Request()], {}, "which shows no capacity: no visit was made"),
        (climbing(0, 0, 0), {}, "which shows no capacity: 400 visits a second are too few to fail, raise last_per_s"),
    ],
)  # fmt: skip
def test_a_rate_that_nobody_knows_is_why_the_trial_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, requests: list[Request], changed: dict[str, Any], message: str
) -> None:
    """Nothing is started for it."""
    monkeypatch.delattr("stampede.run.trial.compose.DockerClient")
    make_trial(tmp_path / RUN, "one", 2, requests, **changed)
    stack = overload(tmp_path)

    stack.start()

    assert (stack.outcome, stack.reason) == ("failed", f"the rate is relative to one under mix, {message}")
    assert (stack.composed, stack.visits_per_s, stack.containers) == ([], None, [])


def test_a_rate_that_is_too_high_for_k6_is_why_the_trial_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The capacity of 200 visits a second, times 1.5, in three requests each, from two load generators."""
    monkeypatch.delattr("stampede.run.trial.compose.DockerClient")
    monkeypatch.setattr("stampede.experiment.loads.script.RATE_MAX_RPS", 400)
    make_trial(tmp_path / RUN, "one", 2, climbing(0, 0, 1))
    stack = overload(tmp_path)

    stack.start()

    assert stack.reason == (
        "the rate is relative to one under mix, and is too high: 450 requests a second are more than the 400 that one "
        "k6 container can send; reduce them, or increase generators (the k6 containers)"
    )


def test_a_rate_after_a_trial_that_left_nothing_or_did_not_climb_is_not_known(tmp_path: Path) -> None:
    stack = overload(tmp_path)
    relative = "the rate is relative to one under mix"
    start = f"{relative}, which shows no capacity: "
    folder = tmp_path / RUN / "one" / "mix" / "2"

    with pytest.raises(NoRate) as caught:
        rate_of(stack, FOLLOWED)
    assert str(caught.value) == f"{relative}, which has no record"
    make_trial(tmp_path / RUN, "one", 2, climbing(0))
    with pytest.raises(NoRate) as caught:
        rate_of(stack, PlannedTrial("one", DJANGO, "mix", CLIMB, "2s", 2))
    assert str(caught.value) == f"{start}the rate of visits does not climb"
    (folder / "points.json.gz").unlink()
    with pytest.raises(NoRate) as caught:
        rate_of(stack, FOLLOWED)
    assert str(caught.value) == f"{start}{folder} has no points.json.gz"


def test_a_command_before_the_application_that_does_not_end_has_a_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compose waits for it without a limit, so the lab ends its container, and Compose then fails."""
    over = threading.Event()

    def up(*_: object, **__: object) -> None:
        assert over.wait(PATIENCE_S)
        raise DockerException(["docker"], 1, None, b"service beside-before didn't complete successfully: exit 137")

    container = SimpleNamespace(kill=lambda _: over.set())
    machine = replace(default_machine(), client=cast("DockerClient", SimpleNamespace(container=container)))
    state = ContainerState(status="running", running=True)
    before = ContainerInfo("1", "beside-before", "beside-before-1", state, machine, "")
    composed = Composed(machine, cast("DockerClient", SimpleNamespace(compose=SimpleNamespace(up=up))), ("nginx",), {})
    monkeypatch.setattr("stampede.run.trial.starting.START_WITHIN_S", 0.1)
    monkeypatch.setattr("stampede.run.trial.containers.compose", lambda *_: [composed])
    monkeypatch.setattr("stampede.run.trial.containers.containers_of", lambda *_: [before])
    stack = overload(tmp_path)
    monkeypatch.setattr("stampede.run.trial.containers.rate_after", lambda *_: 75.6)
    monkeypatch.setattr("stampede.run.trial.containers.output_of", lambda _: b"migrating\n")

    stack.start()

    assert stack.reason == "the command of application.before was not ready within 0 s"


def test_an_interrupt_ends_containers_until_nothing_starts_any_more(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compose may start further containers after the first ones have ended."""
    killed: list[str] = []
    stack = overload(tmp_path)

    def kill(container: str) -> None:
        killed.append(container)
        if len(killed) == 3:
            stack.phase = Phase.STARTED

    machine = replace(
        default_machine(), client=cast("DockerClient", SimpleNamespace(container=SimpleNamespace(kill=kill)))
    )
    one = ContainerInfo("1", "nginx", "nginx-1", ContainerState(status="running", running=True), machine, "")
    monkeypatch.setattr("stampede.run.trial.containers.END_AGAIN_S", 0)
    monkeypatch.setattr("stampede.run.trial.containers.containers_of", lambda *_: [one])

    stack.abort_start()

    assert killed == ["1", "1", "1"]


def test_an_application_that_outgrows_its_memory_while_it_is_asked_is_told_by_this_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The balancer's 502 is only a consequence."""
    stack = overload(tmp_path)
    monkeypatch.setattr("stampede.run.trial.checking.USER_SERVICE", stack.planned.load.script)
    monkeypatch.setattr(TrialContainers, "asked_classes", {"home": OwnRequestClass(path="/", users=1)})
    monkeypatch.setattr(TrialContainers, "front", None)

    def ask(*_: object, **__: object) -> Answer:
        stack.fail("gunicorn needed more memory than its limit of 64 MiB")
        return Answer(502, 1, "", "", "")

    monkeypatch.setattr("stampede.run.trial.checking.ask", ask)

    with pytest.raises(LabError, match="gunicorn needed more memory than its limit of 64 MiB"):
        checking.ask_for_each_class(stack, lambda _: None)
