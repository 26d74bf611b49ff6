"""experiment.loads, plan: what would harm the machine is refused before it starts, with the reckoning."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from inline_snapshot import snapshot

from stampede.docker.client import HERE
from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment, names, read_experiment
from stampede.experiment.loads.script import RATE_MAX_RPS, Described, Number, Word, WrongSetting
from stampede.experiment.loads.scripts import CLIENT_SCRIPTS, K6_SCRIPTS
from stampede.paths import CLIENTS, COMPOSE_FILE, EXPERIMENTS, K6
from stampede.plan import MemoryBudget, MemoryBudgets, lay_out
from stampede.records.classes import Between, LoadClass, Range
from stampede.records.traffic import of_classes
from stampede.servers.gunicorn import GunicornSync
from tests.wrong import allowed, listed, refusal, shown, wrong_values

TIMES = 10**6


def this_machine(total_mib: int, available_mib: int) -> MemoryBudgets:
    """Return the memory of the lab's own machine."""
    return MemoryBudgets([HERE], [MemoryBudget(total_mib, available_mib)])


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
                message = why_not(path)
                room = ("does not fit into this machine", " workers need about ", " processes and threads ")
                if not any(word in message for word in (name, *room)):
                    unexplained[experiment, kind, name] = message
    assert unexplained == {}
    assert {("burst.js", "burst"), ("", "per_second"), ("gunicorn-gthread", "threads")} <= tried


def why_not(path: Path) -> str:
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
    assert lay_out(load_experiment("heavy-mix"), memory=this_machine(total_mib=8192, available_mib=3072), jobs=8).trials


def test_of_a_large_machine_no_more_than_four_gibibytes_stay_free() -> None:
    budget = MemoryBudget(total_mib=512 * 1024, available_mib=40 * 1024)
    most_mib = 36 * 1024 - 512

    assert budget.problem({"gunicorn": most_mib}) is None
    assert f"can have only {most_mib:,} MiB" in str(budget.problem({"gunicorn": most_mib + 1}))


SCRIPTS = [(K6, name) for name in K6_SCRIPTS] + [(CLIENTS, name) for name in CLIENT_SCRIPTS]


def test_every_shape_and_every_client_has_its_grace() -> None:
    """A client ends before k6."""
    shapes = (K6 / "lib" / "shapes.js").read_text(encoding="utf-8")

    assert shapes.count("    gracefulStop: GRACE,\n") == shapes.count("    executor: ") == 5
    assert {script.grace_s({}, 60) for script in CLIENT_SCRIPTS.values()} == {55}


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
BURST = "burst: 10, every_s: 2"
COMPUTES = BURST + ", does: compute, rounds: 5, wait_ms: 10, cpu_ms: 10"
IDLE = "gets: 5, posts: 2, every_s: 5, spread_s: 0.1, delay_s: 10, busy_ms: 20"
OWN = """classes: '{"home": {"path": "/", "users": 2}}', login: '{"path": "/in", "body": "ada"}'"""
VISITS = "first_per_s: 8, last_per_s: 80, step_s: 4, timeout_steps: 1, users_max: 40"


def _schema(declared: Number | Word | Described) -> dict[str, Any]:
    if isinstance(declared, Word):
        return {"type": "number", "enum": [*declared.needs]}
    if isinstance(declared, Described):
        return {"type": "string"}
    most = {} if declared.most == inf else {"maximum": declared.most}
    return {"type": "integer" if declared.whole else "number", "minimum": declared.least, **most}


@pytest.mark.parametrize(("folder", "name"), SCRIPTS)
def test_a_wrong_setting_is_named_with_its_value_and_what_is_allowed(folder: Path, name: str) -> None:
    """Each setting of each script, with values of other types and beyond each bound."""
    script = (K6_SCRIPTS if folder == K6 else CLIENT_SCRIPTS)[name]
    for setting, declared in script.declared(script.example).items():
        for wrong in wrong_values(_schema(declared)):
            if isinstance(wrong, int | float | str):
                with pytest.raises(WrongSetting) as caught:
                    script.check(name, script.example | {setting: wrong}, generators=1)
                assert caught.value.place == ("settings", setting)
                said = str(caught.value)
                assert said.startswith(f"{shown(wrong)} must be ")
                words = [declared.allowed] if isinstance(declared, Described) else allowed({}, _schema(declared))
                assert all(word in said for word in words)
        if not isinstance(declared, Word):  # without a word, settings that the word needs are unknown
            others = {key: value for key, value in script.example.items() if key != setting}
            with pytest.raises(WrongSetting, match=f"{name} also needs {setting}"):
                script.check(name, others, generators=1)


MISTAKES = [
    ("idle.js", IDLE, ("gets: 5", "gets: 100000000")),
    ("idle.js", IDLE, ("gets: 5", "gest: 5")),
    ("burst.js", BURST + ", does: wait, delay_s: 1", ("does: wait", "does: compute")),
    ("burst.js", BURST + ", does: compute", ("", "")),
    ("burst.js", COMPUTES, ("rounds: 5", "rounds: 5000")),
    ("visits.js", VISITS, ("timeout_steps: 1", "timeout_steps: 20")),
    ("user-service.js", OWN, ("ada", "it''s")),
    ("idle.js", IDLE, ("workers: 4", "workers: 1000000000")),
    ("idle.js", IDLE, ("threads: 2", "threads: 100000, memory_mib: 100000")),
    ("idle.js", IDLE, ("short: 60s", "short: 60")),
    ("idle.js", IDLE, ("short: 60s", "short: 1h")),
    ("idle.js", IDLE, ("full: 5m", "full: 5000000m")),
]  # fmt: skip


def refused(folder: Path, script: str, settings: str, change: tuple[str, str]) -> str:
    """Return the message with which an experiment is refused after a change."""
    text = GOOD.replace("SCRIPT", script).replace("SETTINGS", settings)
    assert change[0] in text
    return refusal(read_experiment, folder / "mine.yaml", text.replace(*change))


def test_each_rule_of_a_load_has_its_message(tmp_path: Path) -> None:
    assert listed(refused(tmp_path, *one) for one in MISTAKES) == snapshot("""\
mine.yaml:6: load.settings.gets: 100,000,002 virtual users are more than the 16,000 that one k6 container has
    files for; reduce them, or increase generators (the k6 containers)
mine.yaml:6: load.settings.gest: idle.js has no setting gest; it has gets, busy_ms, delay_s, …
mine.yaml:6: load.settings.delay_s: burst.js has no setting delay_s with does: compute; it has burst, cpu_ms,
    does, …
mine.yaml:6: load.settings: burst.js also needs cpu_ms, rounds, wait_ms with does: compute
mine.yaml:6: load.settings.rounds: a request takes 5000 x (10 + 10) ms = 100 s, but k6 gives up a request
    after 60 s
mine.yaml:6: load.settings.timeout_steps: a visitor waits 20 x 4 s = 80 s, but k6 gives up a request after 60
    s
mine.yaml:6: load.settings.login: '{"path": "/in", "body": "it\\'s"}' must be a whole number or a number or a
    word without quotes and backslashes
mine.yaml:8: variants.one: 1,000,000,000 workers need about 14 + 1,000,000,000 x 8.04 = 8,040,000,014 MiB, but
    memory_mib is 256; at most 30 fit
mine.yaml:8: variants.one: 4 x (1 + 100,000) = 400,004 processes and threads are more than the 2,048 that a
    container may have
mine.yaml:5: load.duration.short: 60 must be whole seconds or minutes, e.g. short: 90s
mine.yaml:5: load.duration.short: '1h' must be whole seconds or minutes, such as 90s or 5m
mine.yaml:5: load.duration.full: 5000000m must be at most a day (24 hours)
""")


OF_CLASSES = GOOD.replace("  script: SCRIPT\n", "").replace("settings: {SETTINGS}", "classes: {page: CLASS}")
WRONG_CLASSES = [
    "{users: 5, per_second: 2, takes_s: 1}",
    "{users: 100000000}",
    "{users: 20000}",
    "{per_second: 100000, users_max: 100}",
    "{users: 5, takes_s: 61}",
    "{users: 5, takes_s: {least: 2, most: 1}}",
    "{users: 5, takes: 1}",
    "{users: 5, does: call, takes_s: 1, computes: 0.5}",
    "{users: 5, takes_s: 1, rounds: 3}",
    "{users: 5, does: stream, takes_s: {mean: 1}, rounds: 3}",
    "{users: 5, does: dream}",
    "{per_second: 1, does: probe}",
    "{users: 5, asks: /fibonacci?n=3, takes_s: 1}",
    "{users: 5, asks: nowhere}",
    "{users: 5, users_max: 9}",
    "5",
]


def test_users_who_never_pause_are_no_rate() -> None:
    """How many requests they send depends on the answers."""
    K6_SCRIPTS["user-service.js"].check("user-service.js", {"classes": '{"a": {"path": "/", "users": 900}}'}, 1)
    K6_SCRIPTS["classes.js"].check("classes.js", {"classes": '{"a": {"users": 900}}'}, 1)


def test_each_rule_of_a_class_has_its_message(tmp_path: Path) -> None:
    files = [OF_CLASSES.replace("CLASS", one) for one in WRONG_CLASSES]

    assert listed(refusal(read_experiment, tmp_path / "mine.yaml", one) for one in files) == snapshot("""\
mine.yaml:5: load.classes.page: give either users or per_second: who sends these requests, or how many come
    per second
mine.yaml:5: load.classes.page.users: 100,000,000 must be a whole number from 1 to 100,000, e.g. users: 1
mine.yaml:5: load.classes: 20,000 virtual users are more than the 16,000 that one k6 container has files for;
    reduce them, or increase generators (the k6 containers)
mine.yaml:5: load.classes: 100,000 requests a second are more than the 20,000 that one k6 container can send;
    reduce them, or increase generators (the k6 containers)
mine.yaml:5: load.settings.classes: page: a request takes 61 s, but k6 gives up a request after 60 s
mine.yaml:5: load.classes.page.takes_s: least, 2 s, is more than most, 1 s
mine.yaml:5: load.classes.page.takes: unknown key; there are takes_s, asks, computes, …
mine.yaml:5: load.classes.page: computes is for requests that wait
mine.yaml:5: load.classes.page: rounds are for requests that compute, and for streams that all take the same
    time
mine.yaml:5: load.classes.page: rounds are for requests that compute, and for streams that all take the same
    time
mine.yaml:5: load.classes.page.does: 'dream' must be one of stream, call, probe, …
mine.yaml:5: load.classes.page: a probe has timeout_s, and no takes_s; other requests have no timeout_s
mine.yaml:5: load.classes.page: asks is a path of its own; leave out takes_s, does, computes and rounds
mine.yaml:5: load.classes.page.asks: 'nowhere' must be the path of a request, e.g. asks: /items?page=2
mine.yaml:5: load.classes.page: users_max is for per_second
mine.yaml:5: load.classes.page: 5 must be a mapping
""")


def test_a_class_asks_for_what_it_does() -> None:
    asked = {
        "waits": LoadClass(users=1, takes_s=0.5),
        "computes": LoadClass(users=1, takes_s=0.1, computes=0.5, rounds=5),
        "calls": LoadClass(users=1, does="call", takes_s=1),
        "queries": LoadClass(users=1, does="query", takes_s=1),
        "streams": LoadClass(users=1, does="stream", takes_s=2.5, rounds=25),
        "probes": LoadClass(per_second=2, does="probe", timeout_s=1.5),
        "anything": LoadClass(users=1, asks="/fibonacci?n=28"),
    }

    assert {name: of.path_of(of.mean_s) for name, of in asked.items()} == {
        "waits": "/?delay=0.5",
        "computes": "/work?rounds=5&wait_ms=10&cpu_ms=10",
        "calls": "/call?delay=1",
        "queries": "/query?takes=1",
        "streams": "/stream?parts=25&every=0.1",
        "probes": "/health",
        "anything": "/fibonacci?n=28",
    }
    assert asked["probes"].users_at_once == 4  # three are under way at most, and one begins as another gives up
    assert of_classes({"queries": asked["queries"]}).missing == "a pool of connections that requests share"
    assert of_classes({"anything": asked["anything"]}).missing == "what the application does on a path"
    traffic = of_classes({name: of for name, of in asked.items() if name not in ("queries", "anything")}).classes
    assert [(step.does, step.takes_s) for step in traffic["computes"].work] == [("wait", 0.01), ("compute", 0.01)]
    varied = of_classes({"page": LoadClass(users=1, takes_s=Between(least=0.1, most=0.3), computes=0.5, rounds=2)})
    assert [step.takes_s for step in varied.classes["page"].work] == [Range(least=0.025, most=0.075)] * 2
    assert (traffic["streams"].rounds, traffic["streams"].work[0].takes_s) == (25, 0.1)
    assert (traffic["probes"].patience_s, traffic["calls"].work[0].does) == (1.5, "call")


def test_a_script_without_an_entry_is_told_from_one_that_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [*K6_SCRIPTS][-1] == "visits.js"  # so that the order stays when it comes back
    monkeypatch.delitem(K6_SCRIPTS, "visits.js")

    said = refused(tmp_path, "visits.js", VISITS, ("", ""))

    assert said.startswith(
        "mine.yaml:4: load.script: k6/visits.js has no declaration in stampede/experiment/loads/scripts"
    )


def test_several_load_generators_share_users_and_rate(tmp_path: Path) -> None:
    text = OF_CLASSES.replace("CLASS", "{per_second: 40000, users_max: 32000}")
    (tmp_path / "mine.yaml").write_text(text.replace("  duration:", "  generators: 2\n  duration:"))

    load = read_experiment(tmp_path / "mine.yaml").all_loads["classes"]

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


def test_services_beside_an_own_application_need_memory_too() -> None:
    class WithDatabase(GunicornSync):
        @property
        def workload(self) -> Any:
            return SimpleNamespace(memory_mib={"beside-db": 900})

    [trial] = lay_out(load_experiment("heavy-mix"), variants=["one-process"]).trials
    trial = replace(trial, variant=WithDatabase(server="gunicorn-sync", workers=1))

    assert "(gunicorn 256, nginx 256, k6 133, beside-db 900)" in str(this_machine(2000, 1900).problem([trial]))


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
    traffic = load.traffic(load.example)

    if script != "crash.js":
        assert 0 < load.rate_at_most_rps(load.example, generators=1) < RATE_MAX_RPS
    assert bool(traffic.classes) != bool(traffic.missing)
    opens = load.open_loop or script in ("classes.js", "user-service.js")  # a class may have a rate
    assert opens == any(f"{shape}(" in text for shape in ("openSteps", "openAtTimes", "atRate"))
