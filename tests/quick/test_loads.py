"""experiment.loads, servers.limits: what would harm the machine is refused before it starts, with the reckoning."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from inline_snapshot import snapshot

from stampede.docker.cluster.machines import default_machine
from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment, names, read_experiment
from stampede.experiment.loads.clients import CLIENT_SCRIPTS
from stampede.experiment.loads.k6 import K6_SCRIPTS
from stampede.experiment.loads.script import RATE_MAX_RPS, WrongSetting
from stampede.experiment.loads.settings import Word
from stampede.paths import CLIENTS, COMPOSE_FILE, EXPERIMENTS, K6
from stampede.plan import lay_out
from stampede.plan.placement import MemoryBudgets
from stampede.servers import limits
from stampede.servers.limits import MemoryBudget
from tests.wrong import listed, shown, wrong_values

TIMES = 10**6


def this_machine(total_mib: int, available_mib: int) -> MemoryBudgets:
    """Return the memory of the lab's own machine."""
    return MemoryBudgets([default_machine()], [MemoryBudget(total_mib, available_mib)])


THIS_MACHINE = this_machine(total_mib=24_000, available_mib=23_000)


def misspelt(value: Any, kind: str = "") -> Iterator[tuple[str, str, Any]]:
    """Yield each number in a value, times a million: what it is a number of, its name, and the value with it."""
    if isinstance(value, dict):
        kind = str(value.get("script") or value.get("server") or kind)
        for key, one in value.items():
            for of, name, changed in misspelt(one, kind):
                yield of, name or key, value | {key: changed}
    elif isinstance(value, int | float) and not isinstance(value, bool) and value:
        yield kind, "", value * TIMES
    elif isinstance(value, str) and value[:-1].isdecimal() and value[-1:] in ("s", "m"):
        yield kind, "", f"{int(value[:-1]) * TIMES}{value[-1]}"


def test_any_number_of_a_load_or_a_variant_times_a_million_is_refused(tmp_path: Path) -> None:
    """By the setting's name, or because there is no room for it; nothing has to be tried.

    Each setting of each script and server is tried in the first experiment that has it.
    """
    path, tried, unexplained = tmp_path / "mine.yaml", set(), {}
    for experiment in names():
        text = yaml.load((EXPERIMENTS / f"{experiment}.yaml").read_bytes(), yaml.CSafeLoader)
        text = {key: value for key, value in text.items() if key not in ("source", "published", "claims", "curve")}
        for part in ("load", "loads", "variants"):
            for kind, name, changed in misspelt(text.get(part, {})):
                if (kind, name) in tried:
                    continue
                tried.add((kind, name))
                path.write_text(json.dumps(text | {part: changed}), encoding="utf-8")  # which is YAML, too
                message = refusal(path)
                room = ("does not fit into this machine", " workers need about ", " processes and threads ")
                if not any(word in message for word in (name, *room)):
                    unexplained[experiment, kind, name] = message
    assert unexplained == {}
    assert {("heavy-mix.js", "light_vus"), ("gunicorn-gthread", "threads")} <= tried


def refusal(path: Path) -> str:
    """Return why a file is refused, in full length too; empty when it is not."""
    try:
        experiment = read_experiment(path)
        for full in (False, True):
            lay_out(experiment, memory=THIS_MACHINE, jobs=8, full=full)
    except WrongUse as error:
        return error.message
    return ""


@pytest.mark.parametrize("name", names())
def test_every_experiment_fits_into_a_small_machine(name: str) -> None:
    """With 8 GiB, of which a quarter is in use; in full length with 7 GiB available."""
    experiment = load_experiment(name)
    for full, available_mib in ((False, 6144), (True, 7168)):
        assert lay_out(
            experiment, memory=this_machine(total_mib=8192, available_mib=available_mib), jobs=8, full=full
        ).trials


def test_a_newcomers_first_experiment_fits_beside_a_browser() -> None:
    """With 8 GiB, of which 3 are available."""
    assert lay_out(load_experiment("heavy-mix"), memory=this_machine(total_mib=8192, available_mib=3072), jobs=8).trials


def test_of_a_large_machine_no_more_than_four_gibibytes_stay_free() -> None:
    assert MemoryBudget(total_mib=512 * 1024, available_mib=40 * 1024).for_containers_mib == 36 * 1024 - 512


SCRIPTS = [(K6, name) for name in K6_SCRIPTS] + [(CLIENTS, name) for name in CLIENT_SCRIPTS]


def test_every_script_has_a_declaration() -> None:
    assert sorted(K6_SCRIPTS) == sorted(path.name for path in K6.glob("*.js"))
    assert sorted(CLIENT_SCRIPTS) == sorted(path.name for path in CLIENTS.glob("*.py"))


@pytest.mark.parametrize(("folder", "name"), SCRIPTS)
def test_the_example_of_a_script_is_allowed_and_names_all_request_classes(folder: Path, name: str) -> None:
    text = (folder / name).read_text(encoding="utf-8")
    script = (K6_SCRIPTS if folder == K6 else CLIENT_SCRIPTS)[name]
    said = set(script.request_classes(script.example))

    script.check(name, script.example, generators=1)
    assert said
    assert set(re.findall(r"\b(?:get|send|run)\(['\"]([\w-]+)['\"]", text)) <= said
    assert "classes" in script.settings or all(re.search(f"['\"]{one}['\"]", text) for one in said)


GOOD = """\
title: A title
question: Why?
load:
  script: SCRIPT
  duration: {short: 60s, full: 5m}
  settings: {SETTINGS}
variants:
  one: {server: gunicorn-gthread, workers: 4, threads: 2}
"""
MIX = "light_vus: 5, light_delay_max_s: 1, heavy_vus: 2, heavy_delay_s: 10"
RATE = "rate_rps: 40, users_max: 4, delay_s: 0.5"
USERS = "users: 8, delay_min_s: 0.05, delay_max_s: 0.15, pause_s: 0"
BURST = "burst: 10, every_s: 2"
ROUNDS = "users: 4, rounds: 5, wait_ms: 10, cpu_ms: 10"
STREAMS = "viewers: 5, parts: 50, every_s: 0.1, quick_rps: 10, quick_delay_s: 0.01, users_max: 200"
OWN = """classes: '{"home": {"path": "/", "users": 2}}', login: '{"path": "/in", "body": "ada"}'"""
VISITS = "first_per_s: 8, last_per_s: 80, step_s: 4, timeout_steps: 1, users_max: 40"


@pytest.mark.parametrize(("folder", "name"), SCRIPTS)
def test_a_wrong_setting_is_named_with_its_value_and_what_is_allowed(folder: Path, name: str) -> None:
    """Each setting of each script, with values of other types and beyond each bound."""
    script = (K6_SCRIPTS if folder == K6 else CLIENT_SCRIPTS)[name]
    for setting, declared in script.declared(script.example).items():
        for wrong in wrong_values({"type": "number"} | declared.schema):
            if isinstance(wrong, int | float | str):
                with pytest.raises(WrongSetting) as caught:
                    script.check(name, script.example | {setting: wrong}, generators=1)
                assert caught.value.place == ("settings", setting)
                said = str(caught.value)
                assert said.startswith(f"{shown(wrong)} must be ")
                assert all(word in said for word in re.findall(r"[\w.]+", declared.allowed))
        if not isinstance(declared, Word):  # without a word, settings that the word needs are unknown
            others = {key: value for key, value in script.example.items() if key != setting}
            with pytest.raises(WrongSetting, match=f"{name} also needs {setting}"):
                script.check(name, others, generators=1)


MISTAKES = [
    ("heavy-mix.js", MIX, ("light_vus: 5", "light_vus: 100000000")),
    ("heavy-mix.js", MIX, ("light_vus: 5", "lite_vus: 5")),
    ("users.js", USERS, ("delay_min_s: 0.05", "delay_min_s: 0.5")),
    ("arrivals.js", RATE, ("rate_rps: 40", "rate_rps: 1000000")),
    ("burst.js", BURST + ", does: wait, delay_s: 1", ("does: wait", "does: compute")),
    ("burst.js", BURST + ", does: compute", ("", "")),
    ("rounds.js", ROUNDS, ("rounds: 5", "rounds: 5000")),
    ("streams.js", STREAMS, ("parts: 50", "parts: 5000")),
    ("visits.js", VISITS, ("timeout_steps: 1", "timeout_steps: 20")),
    ("user-service.js", OWN, ("ada", "it''s")),
    ("heavy-mix.js", MIX, ("workers: 4", "workers: 1000000000")),
    ("heavy-mix.js", MIX, ("threads: 2", "threads: 100000, memory_mib: 100000")),
    ("heavy-mix.js", MIX, ("short: 60s", "short: 60")),
    ("heavy-mix.js", MIX, ("short: 60s", "short: 1h")),
    ("heavy-mix.js", MIX, ("full: 5m", "full: 5000000m")),
]  # fmt: skip


def refused(folder: Path, script: str, settings: str, change: tuple[str, str]) -> str:
    """Return the message with which an experiment is refused after a change."""
    text = GOOD.replace("SCRIPT", script).replace("SETTINGS", settings)
    assert change[0] in text
    (folder / "mine.yaml").write_text(text.replace(*change))
    with pytest.raises(WrongUse) as caught:
        read_experiment(folder / "mine.yaml")
    return caught.value.message


def test_each_rule_of_a_load_has_its_message(tmp_path: Path) -> None:
    assert listed(refused(tmp_path, *one) for one in MISTAKES) == snapshot("""\
mine.yaml:6: load.settings.light_vus: 100,000,002 virtual users are more than the 16,000 that one k6 container
    has files for; reduce them, or increase generators (the k6 containers)
mine.yaml:6: load.settings.lite_vus: heavy-mix.js has no setting lite_vus; it has light_vus, heavy_delay_s,
    heavy_vus, light_delay_max_s
mine.yaml:6: load.settings.delay_max_s: 0.15 must be at least delay_min_s, which is 0.5
mine.yaml:6: load.settings.rate_rps: 1,000,000 requests a second are more than the 20,000 that one k6
    container can send; reduce them, or increase generators (the k6 containers)
mine.yaml:6: load.settings.delay_s: burst.js has no setting delay_s with does: compute; it has burst, cpu_ms,
    does, …
mine.yaml:6: load.settings: burst.js also needs cpu_ms, rounds, wait_ms with does: compute
mine.yaml:6: load.settings.rounds: a request takes 5000 x (10 + 10) ms = 100 s, but k6 gives up a request
    after 60 s
mine.yaml:6: load.settings.parts: a stream takes 5000 x 0.1 s = 500 s, but k6 gives up a request after 60 s
mine.yaml:6: load.settings.timeout_steps: a visitor waits 20 x 4 s = 80 s, but k6 gives up a request after 60
    s
mine.yaml:6: load.settings.login: '{"path": "/in", "body": "it\\'s"}' must be JSON of a request, e.g. {"path":
    "/login", "body": "user=ada"}, without single quotes and backslashes
mine.yaml:8: variants.one: 1,000,000,000 workers need about 14 + 1,000,000,000 x 8.04 = 8,040,000,014 MiB, but
    memory_mib is 256; at most 30 fit
mine.yaml:8: variants.one: 4 x (1 + 100,000) = 400,004 processes and threads are more than the 2,048 that a
    container may have
mine.yaml:5: load.duration.short: 60 must be whole seconds or minutes, e.g. short: 90s
mine.yaml:5: load.duration.short: '1h' must be whole seconds or minutes, such as 90s or 5m
mine.yaml:5: load.duration.full: 5000000m must be at most a day (24 hours)
""")


def test_a_script_without_an_entry_is_told_from_one_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(K6_SCRIPTS, "users.js")
    (tmp_path / "mine.yaml").write_text(GOOD.replace("SCRIPT", "users.js").replace("SETTINGS", USERS))

    with pytest.raises(WrongUse) as caught:
        read_experiment(tmp_path / "mine.yaml")

    assert caught.value.message.startswith(
        "mine.yaml:4: load.script: k6/users.js has no declaration in stampede/experiment/loads/k6.py; there are "
    )


def test_several_load_generators_share_users_and_rate(tmp_path: Path) -> None:
    text = GOOD.replace("SCRIPT", "arrivals.js").replace("SETTINGS", "rate_rps: 40000, users_max: 32000, delay_s: 0")
    (tmp_path / "mine.yaml").write_text(text.replace("  duration:", "  generators: 2\n  duration:"))

    load = read_experiment(tmp_path / "mine.yaml").all_loads["arrivals"]

    assert load.k6_mib("60s") == 128 + 16_000 * 0.6 + 20_000 * 60 * 0.0005


def test_k6_may_use_what_its_users_and_requests_need() -> None:
    mix = load_experiment("heavy-mix").all_loads["heavy-mix"]
    overload = load_experiment("django-fastcgi").all_loads["overload"]

    assert mix.k6_mib("60s") == 133  # 128, 7 users, 10.2 requests a second
    assert mix.k6_mib("5m") == 134
    assert overload.k6_mib("4s") == 128 + 400 * 0.6 + 20_000 * 4 * 0.0005  # a rate that nobody knows yet


def test_a_trial_that_does_not_fit_is_refused_with_the_reckoning() -> None:
    with pytest.raises(WrongUse) as caught:
        lay_out(
            load_experiment("heavy-mix"),
            variants=["least-conn"],
            memory=this_machine(total_mib=3000, available_mib=2000),
        )

    assert caught.value.message == (
        "least-conn under heavy-mix does not fit into this machine: the memory limits of its containers add up to "
        "1,413 MiB (gunicorn 1,024, nginx 256, k6 133), but containers can have only 1,188 MiB: 2,000 of 3,000 MiB are "
        "available, 300 MiB must stay free, and the lab itself needs 512 MiB."
    )
    assert caught.value.hint == (
        "Reduce the users, the replicas, memory_mib or the duration of the load, or end other programs."
    )


def test_fewer_variants_run_side_by_side_where_more_do_not_fit() -> None:
    """Each of the seven with one container may use 645 MiB, least-conn 1413."""
    experiment = load_experiment("heavy-mix")

    def sizes(available_mib: int) -> list[int]:
        memory = this_machine(total_mib=available_mib, available_mib=available_mib)
        return [len(batch) for batch in lay_out(experiment, jobs=8, memory=memory).batches]

    assert sizes(24_000) == [8]
    assert sizes(5_500) == [4, 4]
    assert sizes(2_300) == [1] * 8


def test_every_container_has_a_limit_of_memory_and_no_swap() -> None:
    services = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))["services"]

    assert all(service["mem_limit"] == service["memswap_limit"] for service in services.values())
    assert {service["oom_score_adj"] for service in services.values()} == {500}
    assert [limits.fixed_mib(name) for name in ("nginx", "haproxy", "client", "api", "mariadb")] == [256] * 4 + [768]
    assert limits.pids_limit() == 2048


def test_a_burst_that_does_not_compute_knows_what_it_asks_for_before_it_starts() -> None:
    burst = K6_SCRIPTS["burst.js"]
    settings = {"burst": 10, "every_s": 2, "delay_s": 0.07}

    assert burst.derived_environment(settings | {"does": "wait"}, "9s") == {
        "GRACE_S": "60", "ASKS": "/?delay=0.07", "ASKED_MS": "70",
    }  # fmt: skip
    assert burst.derived_environment(settings | {"does": "call"}, "9s")["ASKS"] == "/call?delay=0.07"


@pytest.mark.parametrize("script", K6_SCRIPTS)
def test_a_load_knows_its_rate_its_traffic_and_its_loop(script: str) -> None:
    """The rate decides how much memory k6 gets; only crash.js sends each request once.

    Theory knows every load, or says what it lacks. A load is open if its script uses an open shape.
    """
    load, text = K6_SCRIPTS[script], (K6 / script).read_text(encoding="utf-8")
    traffic = load.recorded_traffic(load.example)

    if script != "crash.js":
        assert 0 < load.rate_at_most_rps(load.example, generators=1) < RATE_MAX_RPS
    assert bool(traffic.classes) != bool(traffic.missing)
    assert load.open_loop == any(f"{shape}(" in text for shape in ("openLoop", "openSteps", "openAtTimes"))
