"""stampede.run.trial: what is started for a trial, without starting it."""

import asyncio
import json
import os
import re
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from stampede.docker.client import DockerError, Machine
from stampede.docker.cluster.engines import Engines
from stampede.docker.containers import ContainerInfo, owner
from stampede.docker.engine import ca_bundle
from stampede.docker.redaction import LOCAL, LOCAL_ENV
from stampede.errors import LabError
from stampede.experiment.model import Api, Client, Database, Durations, Load, Relative
from stampede.paths import COMPOSE_FILE, K6, ROOT
from stampede.plan import PlannedTrial
from stampede.records.classes import OwnRequestClass
from stampede.records.folder import read_trial
from stampede.run.trial import checking
from stampede.run.trial import trial as of_trial
from stampede.run.trial.alone import Answer, Session
from stampede.run.trial.compose import Composed, compose, factors_of, share_load
from stampede.run.trial.files import bring_scripts
from stampede.run.trial.reasons import TrialFailed
from stampede.run.trial.trial import Trial, rate_after, worst_exit_code
from stampede.servers.asgi import Asgi
from stampede.servers.base import Variant
from stampede.servers.gunicorn import GunicornSync
from tests.conftest import PATIENCE_S
from tests.synthetic import Request, make_trial, visit
from tests.told import Told

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
    ("variant", "further", "started_services", "created"),
    [
        (BEHIND, {}, ["nginx"], ["k6"]),
        (BEHIND.model_copy(update={"balancer": "haproxy"}), {"client": CLIENT}, ["haproxy"], ["k6", "client"]),
        (BEHIND, {"api": Api()}, ["nginx", "api"], ["k6"]),
        (DIRECTLY, {}, ["asgi"], ["k6"]),
        (DIRECTLY, {"api": Api(one_device=True)}, ["asgi", "api"], ["k6"]),
        (DJANGO, {"database": Database()}, ["nginx"], ["k6"]),
        (BEHIND, {"generators": 3, "client": CLIENT}, ["nginx"], ["k6", "k6-2", "k6-3", "client"]),
    ],
)
def test_whom_k6_asks_is_started_and_what_the_application_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variant: Variant, further: dict[str, Any],
    started_services: list[str], created: list[str],
) -> None:  # fmt: skip
    """A balancer waits for the servers and the called service; without one nobody would start the latter.

    Servers wait for their database themselves.
    """
    machine = Told()
    every = ("gunicorn", "asgi", "uwsgi", "flup", "nginx", "haproxy", "api", "mariadb", "k6", "k6-2", "k6-3", "client")
    monkeypatch.setattr(of_trial, "compose", lambda *_: [Composed(machine, ("compose",), every, {})])
    burst = {"burst": 2, "every_s": 1, "does": "wait", "delay_s": 0}
    load = Load(script="burst.js", duration=Durations(short="1s", full="1s"), settings=burst, **further)
    stack = started(Trial(PlannedTrial("some", variant, "burst", load, "1s", 1), tmp_path, 1, Engines((machine,))))

    assert stack.reason is None
    asked = {words[1]: list(words[words.index("never") + 1 :]) for words in machine.calls if words[0] == "compose"}
    assert asked == {"up": started_services, "create": created}


def started(stack: Trial) -> Trial:
    asyncio.run(stack.attempt(Trial.start, "up"))
    return stack


@pytest.mark.parametrize(
    ("said", "failures", "attempts"),
    [("attaching to network failed, make sure …: context deadline exceeded", 2, 3),
     ("Error response from daemon: network k5zzayzxi7ft not found", 3, 4),
     ("attaching to network failed, make sure …: context deadline exceeded", 9, 4),
     ("no such image", 9, 1)],
)  # fmt: skip
def test_a_swarm_that_was_too_busy_to_attach_a_container_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, said: str, failures: int, attempts: int
) -> None:
    """Four times in all, and only for these reasons."""
    ups: list[tuple[str, ...]] = []

    def answer(words: tuple[str, ...]) -> None:
        if "up" in words:
            ups.append(words)
            if len(ups) <= failures:
                raise DockerError(said)

    stack = overload(tmp_path, Told(answers=answer))
    monkeypatch.setattr(of_trial, "rate_after", lambda *_: 75.6)
    monkeypatch.setattr(
        of_trial, "compose", lambda *_: [Composed(stack.engines.machines[0], ("compose",), ("nginx",), {})]
    )

    assert (started(stack).outcome == "measured") == (failures < attempts)
    assert len(ups) == attempts


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


def overload(folder: Path, machine: Machine | None = None) -> Trial:
    (folder / RUN).mkdir(parents=True, exist_ok=True)
    planned = PlannedTrial("two", DJANGO, "overload", OVERLOAD, "7s", 2, FOLLOWED)
    return Trial(planned, folder / RUN, 1, Engines((machine or Told(),)))


RESOLVED: dict[str, Any] = {
    "services": {
        "gunicorn": {"depends_on": {"mariadb": {"required": True}}},
        "mariadb": {},
        "nginx": {"depends_on": {"gunicorn": {"required": False}, "uwsgi": {"required": False}}},
        "k6": {"image": "grafana/k6", "command": ["", "/k6/visits.js"]},
    }
}


@pytest.fixture
def resolving(monkeypatch: pytest.MonkeyPatch) -> Told:
    """What stands for Compose when it resolves docker-compose.yml: it makes RESOLVED of it."""
    told = Told(answers=lambda _: json.dumps(RESOLVED).encode())
    monkeypatch.setattr("stampede.run.trial.compose.HERE", told)
    monkeypatch.setattr("stampede.run.trial.compose._resolved", {})
    return told


def test_a_trial_with_a_database_and_two_generators_is_written_down_before_it_starts(
    resolving: Told, tmp_path: Path
) -> None:
    """What Compose is told, what the load reads, and the services that come of it."""
    stack = overload(tmp_path)
    stack.part.mkdir(parents=True)

    [composed] = compose(stack.planned, stack.part, stack.project, 1, 75.6, stack.engines)

    [asked] = resolving.calls
    profiles = ("gunicorn", "nginx", "load", "mariadb")
    of_trial = ("--project-directory", str(ROOT), "--project-name", stack.project,
                *(word for profile in profiles for word in ("--profile", profile)))  # fmt: skip
    local = ("--env-file", f"{stack.part}/{LOCAL_ENV}")
    assert composed.words == ("compose", "--file", f"{stack.part}/compose.yml", *local, *of_trial)
    factors_file = ("--env-file", f"{stack.part}/factors.env")
    whole = ("compose", "--file", str(COMPOSE_FILE), *factors_file, *local, *of_trial)
    assert asked == (*whole, "config", "--format", "json")
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


def test_compose_is_asked_once_for_the_trials_of_a_variant_under_a_load(
    resolving: Told, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:  # fmt: skip
    """Each has its own folder and project all the same; another rate of visits is another question."""

    def resolved(words: tuple[str, ...]) -> bytes:
        there = {"name": words[words.index("--project-name") + 1], "from": str(Path(words[4]).parent)}
        return json.dumps(RESOLVED | there).encode()

    told = replace(resolving, answers=resolved)
    monkeypatch.setattr("stampede.run.trial.compose.HERE", told)
    trials = [overload(tmp_path), overload(tmp_path), overload(tmp_path)]
    trials[1].part, trials[1].project = tmp_path / ".3.part", "stampede-3"
    trials[2].part, trials[2].project = tmp_path / ".4.part", "stampede-4"

    for trial, rate in zip(trials, (75.6, 75.6, 80), strict=True):
        trial.part.mkdir(parents=True)
        compose(trial.planned, trial.part, trial.project, 1, rate, trial.engines)

    kept = [yaml.safe_load((trial.part / "compose.yml").read_text()) for trial in trials]
    assert [(each["name"], each["from"]) for each in kept] == [(each.project, str(each.part)) for each in trials]
    assert len(told.calls) == 2


@pytest.mark.usefixtures("resolving")
def test_what_a_trial_keeps_does_not_tell_where_it_was_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Compose reads the true values from a file that is gone as soon as nothing has to be started any more."""
    read: list[dict[str, str]] = []

    def refuse(words: tuple[str, ...]) -> None:
        if "up" in words:
            read.append(dict(re.findall(r"(\w+)='(.*)'", (stack.part / LOCAL_ENV).read_text())))
            raise DockerError(f"invalid mount: {stack.part} and {ROOT}/k6")

    user = f"{os.getuid()}:{os.getgid()}"
    monkeypatch.setitem(RESOLVED["services"], "k6", RESOLVED["services"]["k6"] | {"user": user})
    monkeypatch.setattr(of_trial, "rate_after", lambda *_: 75.6)
    stack = overload(tmp_path, Told(answers=refuse))

    started(stack)
    record = stack.save(None, None)

    assert read == [{
        "LAB_OWNER": owner(), "LAB_LOAD_SETTINGS": f"{stack.part}/load.env", "LAB_RESULTS": str(stack.part),
        "LAB_USER": user, "LAB_CA_BUNDLE": ca_bundle(),
    }]  # fmt: skip
    assert record.reason == f"the servers did not become healthy: invalid mount: {stack.part} and {ROOT}/k6"
    assert read_trial(stack.folder).reason == (
        "the servers did not become healthy: invalid mount: "
        "$RESULTS/django-fastcgi/20260102T030405Z/two/overload/.2.part and $CHECKOUT/k6"
    )
    assert {path.name for path in stack.folder.iterdir()} == {"compose.yml", "factors.env", "load.env", "trial.json"}
    kept = yaml.safe_load((stack.folder / "compose.yml").read_text())["services"]["k6-2"]
    assert kept["user"] == "${LAB_USER:-1000:1000}"
    factors = (stack.folder / "factors.env").read_text().splitlines()
    assert set(LOCAL) & {line.partition("=")[0] for line in factors} == set()


def test_several_generators_share_the_load_without_a_gap_or_an_overlap() -> None:
    """What they write differs in its names; k6 itself knows which users and iterations a segment has."""
    shared = share_load({"image": "grafana/k6", "command": ["", "/k6/visits.js"]}, 4)

    sequence = ["--execution-segment-sequence", "0,1/4,2/4,3/4,1"]
    assert share_load({"image": "grafana/k6", "command": ["", "/k6/visits.js"]}, 1) == {}, "one sends everything"
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
    [([0, 0], 0), ([0, 99], 99), ([99, 0], 99), ([107, 99, 0], 107), ([0, 137], 137), ([], None), ([0], 0)],
)
def test_of_several_generators_the_one_that_failed_tells(exit_codes: list[int], told: int | None) -> None:
    """One whose threshold was crossed has measured; another exit code means that it has not."""
    assert worst_exit_code(exit_codes) == told


def climbing(*failed: int) -> list[Request]:
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
    trial = overload(tmp_path)

    assert rate_after(trial.planned, FOLLOWED, trial.run_folder) == 300.0


NO_RATE: dict[str, tuple[list[Request] | None, dict[str, Any], str]] = {
    "no record": (None, {}, ", which has no record"),
    "the first step was too much": (climbing(1, 0), {}, ", where visits already failed in the first step"),
    "not measured": (
        climbing(0), {"outcome": "failed", "reason": "k6 ended with exit code 107: no"},
        ", which was not measured: k6 ended with exit code 107: no",
    ),
    "no visit": ([Request()], {}, ", which shows no capacity: no visit was made"),
    "never too much": (
        climbing(0, 0, 0), {},
        ", which shows no capacity: 400 visits a second are too few to fail, raise last_per_s",
    ),
    "more than k6 can send": (  # 200 visits a second, times 1.5, in three requests each, from two load generators
        climbing(0, 0, 1), {},
        ", and is too high: 450 requests a second are more than the 400 that one k6 container can send; reduce them, "
        "or increase generators (the k6 containers)",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("requests", "changed", "message"), NO_RATE.values(), ids=NO_RATE)
def test_a_rate_that_nobody_knows_is_why_the_trial_failed_and_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, requests: list[Request] | None, changed: dict[str, Any],
    message: str,
) -> None:  # fmt: skip
    monkeypatch.delattr("stampede.run.trial.compose.HERE")
    if "k6 container" in message:
        monkeypatch.setattr("stampede.experiment.loads.script.RATE_MAX_RPS", 400)
    if requests is not None:
        make_trial(tmp_path / RUN, "one", 2, requests, **changed)

    stack = started(overload(tmp_path))

    assert (stack.outcome, stack.reason) == ("failed", f"the rate is relative to one under mix{message}")
    assert (stack.composed, stack.visits_per_s, stack.containers) == ([], None, [])


def test_a_rate_after_a_trial_that_did_not_climb_or_whose_points_are_gone_is_not_known(tmp_path: Path) -> None:
    trial, folder = overload(tmp_path), make_trial(tmp_path / RUN, "one", 2, climbing(0))
    for follows, why in ((replace(FOLLOWED, duration="2s"), "the rate of visits does not climb"),
                         (FOLLOWED, f"{folder} has no points.json.gz")):  # fmt: skip
        with pytest.raises(TrialFailed) as caught:
            rate_after(trial.planned, follows, trial.run_folder)
        assert str(caught.value) == f"the rate is relative to one under mix, which shows no capacity: {why}"
        (folder / "points.json.gz").unlink(missing_ok=True)


def test_a_command_before_the_application_that_does_not_end_has_a_limit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compose waits for it without a limit, so the lab gives up, and ends its container."""

    class Waiting(Told):
        async def both(self, *words: str, **given: Any) -> tuple[bytes, bytes]:
            if "up" in words:
                await asyncio.sleep(PATIENCE_S)
            return await super().both(*words, **given)

    machine = Waiting()

    async def there(*_: object) -> list[ContainerInfo]:
        return [ContainerInfo("1", "beside-before", "beside-before-1", machine)]

    monkeypatch.setattr(of_trial, "START_WITHIN_S", 0.1)
    monkeypatch.setattr(of_trial, "compose", lambda *_: [Composed(machine, ("compose",), ("nginx",), {})])
    monkeypatch.setattr(of_trial, "containers_of", there)
    monkeypatch.setattr(of_trial, "rate_after", lambda *_: 75.6)

    stack = started(overload(tmp_path, machine))

    assert stack.reason == "the command of application.before was not ready within 0 s"
    assert machine.calls == [("container", "kill", "1")]


def test_an_application_that_outgrows_its_memory_while_it_is_asked_is_told_by_this_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The balancer's 502 is only a consequence."""
    stack = overload(tmp_path)
    monkeypatch.setattr("stampede.run.trial.checking.USER_SERVICE", stack.planned.load.script)
    monkeypatch.setattr(Trial, "asked_classes", {"home": OwnRequestClass(path="/", users=1)})
    monkeypatch.setattr(Trial, "front", None)

    async def ask(*_: object, **__: object) -> Answer:
        stack.fail("gunicorn needed more memory than its limit of 64 MiB")
        return Answer(502, 1, "", "", "")

    monkeypatch.setattr("stampede.run.trial.checking.ask", ask)

    with pytest.raises(LabError, match="gunicorn needed more memory than its limit of 64 MiB"):
        asyncio.run(checking.ask_for_each_class(stack, lambda _: None))


def test_what_is_said_of_a_class_that_is_answered_wrongly_has_no_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stack, said = overload(tmp_path), list[str]()
    stack.sessions = [Session(token="hush-hush")]
    classes = {name: OwnRequestClass(path="/", users=1) for name in ("moved", "broken")}
    answers = [Answer(302, 1, "/cart?of=hush-hush", "", ""), Answer(500, 1, "", "no cart of hush-hush", "")]
    monkeypatch.setattr("stampede.run.trial.checking.USER_SERVICE", stack.planned.load.script)
    monkeypatch.setattr("stampede.run.trial.checking.LOGGED_WITHIN_S", 0)
    monkeypatch.setattr(Trial, "asked_classes", classes)
    monkeypatch.setattr(Trial, "front", None)

    async def ask(*_: object, **__: object) -> Answer:
        return answers.pop(0)

    monkeypatch.setattr("stampede.run.trial.checking.ask", ask)

    with pytest.raises(LabError) as caught:
        asyncio.run(checking.ask_for_each_class(stack, said.append))

    told = f"{said} {caught.value.hint} {caught.value.message} {stack.reason}"
    assert ("/cart?of=$token" in told, "no cart of $token" in told, "hush-hush" in told) == (True, True, False)


BRINGING = """#!/bin/sh
n=$(ls {folder} | grep -c tar)
cat > {folder}/$n.tar
echo "$*" >> {folder}/commands
"""


def test_the_scripts_that_an_engine_elsewhere_is_brought_belong_to_the_labs_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load generator runs as this user, and writes into a folder of its own. A link is no script over there."""
    (tmp_path / "docker").write_text(BRINGING.format(folder=tmp_path))
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "linked").mkdir()
    for path in K6.iterdir():
        (tmp_path / "linked" / path.name).symlink_to(path)
    monkeypatch.setattr("stampede.run.trial.files.K6", tmp_path / "linked")
    container = ContainerInfo("abc", "k6", "k6-1", Machine("bench", "bench", shares_files=False))

    asyncio.run(bring_scripts(container, None))

    said = (tmp_path / "commands").read_text().splitlines()
    assert said == [f"--context bench cp - abc:{folder}" for folder in ("/k6", "/results")]
    with tarfile.open(tmp_path / "0.tar") as scripts, tarfile.open(tmp_path / "1.tar") as results:
        found = [*scripts.getmembers(), *results.getmembers()]
    assert {(member.uid, member.gid, member.uname) for member in found} == {(os.getuid(), os.getgid(), "")}
    kept = {str(path.relative_to(K6)) for path in K6.rglob("*") if "__pycache__" not in path.parts}
    assert {member.name for member in found} == kept | {"own"}
    assert found[-1].isdir()
    assert [member.name for member in found if member.issym()] == []
