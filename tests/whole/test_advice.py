"""stampede.advise: which ways to serve a load are ranked first, what is said of them, and what is refused."""

import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from inline_snapshot import snapshot

from stampede.advise import ranking
from stampede.advise.options import OfferedLoad, serving_options
from stampede.advise.ranking import best_of, capacity, predict_case, ranked_names
from stampede.advise.service import read_service, tries
from stampede.docker import provenance
from stampede.docker.client import Machine
from stampede.errors import WrongUse
from stampede.evaluate.metrics.waiting import Answered
from stampede.evaluate.statistics.losses import Figures
from stampede.experiment.file import load_experiment
from stampede.experiment.variations import computing
from stampede.paths import ROOT
from stampede.plan import lay_out
from stampede.predict import prediction
from stampede.predict.lanes import serve_otherwise
from stampede.predict.options import OPTION_KINDS
from stampede.predict.system import classes_of
from stampede.records.run import LoadRecord
from stampede.records.summary import Estimate, Summary
from stampede.resources import read_resources
from stampede.run.record import record_of
from stampede.theory.model import Bursts, Class, Closed, Constant, Open, Uniform, WorkStep
from tests.conftest import Lab
from tests.synthetic import NOWHERE
from tests.wrong import listed, refusal
from tools.measured_advice import compare, table

A_LAPTOP = NOWHERE.model_copy(update={"cores": 2, "memory_gib": 8})
MIX = [
    Class("light", Closed(5), [WorkStep(Uniform(0.0, 1.0))]),
    Class("heavy", Closed(2), [WorkStep(Constant(10.0))]),
]
CROWD = [Class("page", Open(4000.0), [WorkStep(Constant(0.005))])]


@pytest.fixture(autouse=True)
def roughly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a quarter of the requests, because no test reads a figure to the last digit."""
    monkeypatch.setattr(ranking, "REQUESTS", 5_000)
    monkeypatch.setattr(prediction, "SIMULATED", 12)


def load_of(name: str, load: str = "") -> OfferedLoad:
    """Return what an experiment's load asks for, on a laptop."""
    experiment = load_experiment(name)
    experiment = computing(experiment, "") if experiment.burns else experiment
    run = record_of(name, experiment, lay_out(experiment), full=False, command="", host=A_LAPTOP)
    [record] = [each for each in run.loads if load in ("", each.name)]
    return OfferedLoad(classes_of(record), cores=A_LAPTOP.cores, memory_mib=8192)


def test_a_load_that_grows_loses_no_class() -> None:
    bursts = Class("burst", Bursts(size=9, every=5.0), [WorkStep(Constant(0.01))])

    assert OfferedLoad([*CROWD, bursts]).times(2).classes == [replace(CROWD[0], arrivals=Open(8000.0)), bursts]


def test_what_heavy_mix_recommends_has_no_waits() -> None:
    ranked = predict_case(load_of("heavy-mix")).ranked

    assert ranked[0].p99_ms["light"] < 20
    assert ranked[0].beside == 0
    [shared] = [one for one in ranked if (one.option.kind.name, one.option.size) == ("shared", "4 x 2")]
    assert shared.p99_ms["light"] > 500
    assert [one.option.kind.name for one in ranked if one.option.size == "4 x 2"][-1] == "shared"


def test_a_limit_of_cores_is_shared_by_the_containers() -> None:
    for option in serving_options(replace(load_of("cpu-limit"), computes=True, cores=0.5, cpus=0.5)):
        assert option.variant.cpus * option.variant.replicas == pytest.approx(0.5)


def test_requests_that_compute_get_processes() -> None:
    """Four users compute all the time: four processes are faster than one, whose threads share one lock."""
    work = [Class("work", Closed(4), [WorkStep(Constant(0.1), "compute")])]
    on_four, on_one = (predict_case(OfferedLoad(work, computes=True, cores=cores)).ranked[0] for cores in (4, 1))

    assert on_four.option.workers == 4
    assert on_one.option.workers == 1


def test_no_way_needs_more_than_there_is() -> None:
    found = list(serving_options(OfferedLoad(MIX, memory_mib=60, worker_mib=20, threads=8)))

    assert found
    assert max(one.memory_mib for one in found) <= 60
    assert max(one.workers * one.threads for one in found) == 8


@pytest.mark.parametrize(
    ("threads", "classes", "times"),
    [(8, MIX, (1, 1.1)), (8, MIX[:1], (1.5, 1.6)), (4, MIX, (0, 0.99))],
    ids=["a thread for each of seven users", "three threads more than users", "too few threads"],
)
def test_head_room_ends_where_requests_wait(threads: int, classes: list[Class], times: tuple[float, float]) -> None:
    """An option carries about as many users as it has threads."""
    options = serving_options(OfferedLoad(MIX))
    one = next(one for one in options if (one.kind.name, one.threads) == ("one-process", threads))

    found = capacity(one, OfferedLoad(classes))

    assert found
    assert times[0] <= found.times <= times[1]
    assert found.rate == pytest.approx(OfferedLoad(classes).times(found.times).rate)


def test_each_kind_is_named_once() -> None:
    best = best_of(predict_case(OfferedLoad(MIX, threads=8)).ranked, 99)

    assert sorted(one.option.kind.name for one in best) == sorted(kind.name for kind in OPTION_KINDS)
    assert all(re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", one.option.name) for one in best)  # as a variant is named


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("limit", ["workers = 4", "threads = 2", "worker_connections = 2", "keepalive = 0"]),
        ("idle-thread", ['worker_class = "gunicorn_idle_thread.IdleThreadWorker"', "workers = 4", "threads = 2"]),
        ("uwsgi", ["[uwsgi]", "processes = 4", "threads = 2"]),
        ("least-conn", ["workers = 1", "least_conn;", "server 127.0.0.1:8004;", "zone app 64k;"]),
        ("queue", ["balance leastconn", "option http-server-close", "server w4 127.0.0.1:8004 maxconn 2"]),
        ("reuse-port", ["reuse_port = True", "workers = 4"]),
    ],
)
def test_the_configuration_to_paste(kind: str, lines: list[str]) -> None:
    way = next(way for way in serving_options(OfferedLoad(MIX)) if way.name == f"{kind}-4x2")

    assert set(lines) <= {line.strip() for line in way.variant.deployment().splitlines()}


EXAMPLE = re.search(
    r"```yaml\n(.*?)```", (ROOT / "docs" / "how-to" / "advise.md").read_text(encoding="utf-8"), re.DOTALL
)


def described(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_example_of_a_service_is_answered_on_one_screen(lab: Lab, tmp_path: Path) -> None:
    assert EXAMPLE
    service = read_service(described(tmp_path, EXAMPLE[1]))
    asked, screen = service.load(), lab.call("advise", str(tmp_path / "mine.yaml")).stdout.splitlines()

    assert asked.computes
    assert service.cores
    assert {type(one.arrivals) for one in asked.classes} == {Open, Closed}
    for one, described_as in zip(asked.classes, yaml.safe_load(EXAMPLE[1])["classes"].values(), strict=True):
        computed = sum(step.takes.mean for step in one.steps if step.does == "compute")
        assert computed == pytest.approx(described_as.get("computes", 0) * one.mean)
    assert predict_case(asked).ranked[0].option.workers <= service.cores
    assert "# gunicorn.conf.py" in screen
    assert len(screen) <= 24


MISTAKES = [
    "{per_second: 5, users: 2, takes_s: 1}",
    "{per_second: 5, pause_s: 1, takes_s: 1}",
    "{per_second: 5, takes_s: {least: 2, most: 1}}",
    "{per_second: 5, takes_s: soon}",
    "\n    per_second: 5\n    takes_s:  # write it",
]  # fmt: skip


def test_each_rule_of_a_description_has_its_message(tmp_path: Path) -> None:
    """The last file is what a log without durations becomes."""
    texts = [f"cores: 2\nmemory_mib: 512\nclasses:\n  page: {one}\n" for one in MISTAKES]
    hint = "docs/how-to/advise.md has an example of such a file."

    assert listed(refusal(read_service, tmp_path / "mine.yaml", one, hint) for one in texts) == snapshot("""\
mine.yaml:4: classes.page: give either users or per_second: who sends these requests, or how many come per
    second
mine.yaml:4: classes.page: pause_s is for users; requests per second come however long the last one takes
mine.yaml:4: classes.page.takes_s: least, 2 s, is more than most, 1 s
mine.yaml:4: classes.page.takes_s: 'soon' must be a number above 0, up to 3,600 or a mapping or a list of at
    least 2 entries
mine.yaml:6: classes.page.takes_s: no value; it must be how many seconds a request takes, which the log does
    not say
""")


@pytest.mark.parametrize(
    ("load", "says"),
    [
        (OfferedLoad([Class("work", Open(50.0), [WorkStep(Constant(1.0), "compute")])], computes=True, cores=2),
         r"There is no way to serve this load: the open loops keep 50 .* busy"),
        (OfferedLoad(MIX, memory_mib=64, worker_mib=600), "no worker fits into 64 MiB"),
        (OfferedLoad(CROWD, cores=2), r"the open loops need 1\.2 times the processors of this machine"),
    ],
)  # fmt: skip
def test_a_load_above_capacity_is_refused(load: OfferedLoad, says: str) -> None:
    with pytest.raises(WrongUse, match=says):
        ranked_names([predict_case(load)])


def test_a_larger_machine_passes_on_more_requests() -> None:
    assert predict_case(OfferedLoad(CROWD, cores=16, threads=32)).ranked


SLEEPING = """
cores: 2
memory_mib: 512
threads: 8
classes:
  page: {users: 5, takes_s: {least: 0, most: 1}}
  search: {per_second: 2.5, takes_s: {mean: 0.1}}
  report: {users: 2, pause_s: 1, takes_s: [8, 12]}
"""


def test_what_a_described_service_is_tried_with(tmp_path: Path) -> None:
    """Each way in containers that have room for it, under the load that the file describes and that theory knows."""
    service = read_service(described(tmp_path, SLEEPING))
    best = [one.option for one in best_of(predict_case(service.load()).ranked, 2)]
    experiment = tries(service, best)

    assert list(experiment.variants) == [way.name for way in best]
    assert all(256 <= one.memory_mib < 1024 for one in experiment.variants.values())
    assert experiment.load
    assert experiment.load.derived_environment("60s")["USERS_MAX"] == '{"page": 5, "search": 26, "report": 2}'
    record = LoadRecord(name="load", script="classes.js", duration="60s", settings=experiment.load.environment())
    asked = classes_of(record)
    assert [(one.name, one.mean, one.rate) for one in asked] == [
        (one.name, one.mean, one.rate) for one in service.load().classes
    ]


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        ("page: {users: 2, takes_s: 61}",
         "The classes cannot be tried: page: a request takes 61 s, but k6 gives up a request after 60 s."),
        ("page: {per_second: 5000, takes_s: 0.1}",
         "The classes cannot be tried: 51,425 virtual users are more than the 16,000 that one k6 container has files "
         "for; reduce them, or increase generators (the k6 containers)."),
    ],
)  # fmt: skip
def test_what_cannot_be_tried_says_why(tmp_path: Path, classes: str, says: str) -> None:
    service = read_service(described(tmp_path, f"cores: 64\nmemory_mib: 64000\nclasses:\n  {classes}"))

    with pytest.raises(WrongUse) as refused:
        tries(service, [])
    assert refused.value.message == says


COMPUTES = """
cores: 2
memory_mib: 1024
classes:
  price: {per_second: 18, takes_s: [0.076, 0.08, 0.082, 0.083, 0.085, 0.09]@}
  ping: {per_second: 4, takes_s: 0.001@}
"""


WAITING = "cores: 2\nmemory_mib: 512\nwaits: true\nclasses:\n  page: {per_second: 6, takes_s: [0.1, 0.2, 9, 20]}"
UNKNOWN, WAITS, WORKS = (COMPUTES.replace("@", computes) for computes in ("", ", computes: 0", ", computes: 1"))
AS_GOOD = "as good as the fastest (in no class is p99 more than 10% and 5 ms above)"
ADVICE = {
    "one process, if nothing computes": (
        WAITS, ["serve with 1 worker x 8 threads (one process; others: --ways)", AS_GOOD], ["unknown"]),
    "one process cannot carry 1.5 cores of work": (
        WORKS, ["One process is left out", AS_GOOD, "memory 1024 MiB hold workers of up to ",
                "MiB (stampede try measures them)", "beside up to"], ["unknown", " 1 x "]),
    "nobody knows what computes": (
        UNKNOWN, ["serve with 2 workers x", "unknown how much requests compute: from none to all of their time",
                  *(f"if requests compute {part} of their time" for part in ("0%", "50%", "100%")),
                  "One process is left out"], [" 1 x "]),
    "twice the work in the busiest minute is more than two cores, if all of it computes": (
        UNKNOWN.replace("classes", "peak: 2\nclasses"),
        ["It depends on how much requests compute, which the file does not say:", "100% more cores",
         "To find out, let stampede try measure processor time"], ["# gunicorn.conf.py"]),
    "the memory of a worker is known": (
        WAITS.replace("classes", "worker_mib: 120\nclasses"),
        ["of 1024 MiB, for workers of 120 MiB each", "beside MiB"], ["hold workers"]),
    "durations with waits give bounds": (
        WAITING, ["between 0.60 and 44.0 workers", "gunicorn's %(L)s"], ["serve with"]),
}  # fmt: skip


@pytest.mark.parametrize("case", ADVICE)
def test_the_advice_with_its_ways_fits_80_columns_and_says(lab: Lab, tmp_path: Path, case: str) -> None:
    text, parts, others = ADVICE[case]

    said = lab.call("advise", str(described(tmp_path, text)), "--ways")

    assert (said.returncode, said.stderr) == (0, "")
    assert max(map(len, said.stdout.splitlines())) <= 80
    told = " ".join(said.stdout.split())
    assert ([part for part in parts if part not in told], [part for part in others if part in told]) == ([], [])


def test_ways_are_ranked_as_the_advice_says(tmp_path: Path) -> None:
    """Those that are as good as the fastest come first, and of them the way with the least memory."""
    [case] = read_service(described(tmp_path, WAITS)).cases()
    names, good = ranked_names([case])

    assert names[: len(good)] == good
    assert 1 < len(good) < len(names)
    memory = [case.ways[name].option.memory_mib for name in good]
    assert memory == sorted(memory)


POD = """
cpus: 0.5
memory_mib: 1024
replicas: 3
worker_mib: 80
classes:
  page: {per_second: 20, takes_s: {least: 0.02, most: 0.1}, computes: 0.5}
  report: {per_second: 0.5, takes_s: {mean: 0.4}, computes: 0.2}
"""


def test_what_a_pod_stands_on_one_screen(lab: Lab, tmp_path: Path) -> None:
    """Size, memory, rate, settings and the rule of the autoscaler; reports take longer than the bound even alone."""
    said = lab.call("advise", str(described(tmp_path, POD)), "--p99", "300ms")

    assert (said.returncode, said.stderr) == (0, "")
    lines = said.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    text = " ".join(said.stdout.split())
    assert re.search(r"serve with \d workers? x \d threads?, \d containers? \([a-zA-Z =]+; others: --ways\)", text)
    assert re.search(r"memory \d+ of 1024 MiB, for workers of 80 MiB each now 20\.5/s on 3: p99 report", text)
    rate = re.search(r"stands ([\d.]+)/s a container: p99 within 300 ms, but report takes longer even alone", text)
    assert rate
    assert 4 < float(rate[1]) < 20.5, "computing alone allows 20 pages a second in each container"
    assert "throttling at 0.5 cores" in text
    assert "unknown threads that compute within a limit" in text
    assert "# gunicorn.conf.py" in lines
    unbound = " ".join(lab.call("advise", str(tmp_path / "mine.yaml")).stdout.split())
    assert ", 3 containers (" in unbound, "who names no bound gets as many as there are"
    rule = yaml.safe_load(said.stdout[said.stdout.index("# KEDA") :])
    assert rule[0]["metadata"]["query"] == "sum(stampede_busy_threads) / sum(stampede_threads)"
    assert 0 < float(rule[0]["metadata"]["threshold"]) < 1


def test_limits_of_a_deployment_count_more_than_the_file(tmp_path: Path) -> None:
    deployment = tmp_path / "web.yaml"
    deployment.write_text(
        "kind: Deployment\nspec:\n  replicas: 2\n  template: {spec: {containers: [{name: web, image: shop, resources: "
        "{limits: {cpu: 250m, memory: 256Mi}}}]}}\n", encoding="utf-8",
    )  # fmt: skip
    mine = described(tmp_path, COMPUTES.replace("@", ", computes: 0.1"))
    service = read_service(mine, read_resources(deployment))

    assert (service.cores, service.cpus, service.memory_mib, service.replicas) == (None, 0.25, 256, 2)
    assert {option.variant.cpus for option in serving_options(service.load())} == {0.25}
    assert {option.variant.replicas for option in serving_options(service.load())} == {2}
    with pytest.raises(WrongUse, match="give either cores, which the machine has, or cpus"):
        read_service(described(tmp_path, COMPUTES.replace("@", "").replace("cores: 2\n", "")))


def test_a_quota_costs_what_it_stops() -> None:
    """Requests that compute for 0.1 s in all take 0.2 s in a container that has half a core."""
    work = [Class("work", Open(1.0), [WorkStep(Constant(0.1), "compute")])]
    load = OfferedLoad(work, computes=True, pods=1, cpus=0.5, cores=0.5)
    way = predict_case(load).fastest

    assert 40 < way.p50_ms["work"] < 60
    free = predict_case(replace(load, cpus=None, cores=8)).fastest
    assert free.p50_ms["work"] < 10


@pytest.mark.parametrize(
    ("text", "options", "says"),
    [
        ("", (), "error: Name the file that describes a service."),
        (
            POD,
            ("--p99", "300"),
            "error: --p99 300: it must be a time with its unit.\n\nhint: --p99 300ms, or --p99 2s",
        ),
        (POD, ("--json", "--try", "1"), "error: --json prints the ranking, and --try measures it."),
        (WAITING, ("--try", "2"), "error: mine.yaml: the durations include waits, so there is nothing to try."),
        (WAITING, ("--json",), "error: mine.yaml: the durations include waits, so no way can be ranked."),
    ],
)
def test_what_cannot_be_asked_is_refused(
    lab: Lab, tmp_path: Path, text: str, options: tuple[str, ...], says: str
) -> None:  # fmt: skip
    said = lab.call("advise", *([str(described(tmp_path, text))] if text else []), *options)

    assert (said.returncode, said.stdout) == (2, "")
    assert said.stderr.startswith(says)


def test_classes_that_compute_are_tried_with_a_real_processor(tmp_path: Path) -> None:
    service = read_service(described(tmp_path, POD.replace("replicas: 3", "replicas: 2")))
    best = [one.option for one in best_of(predict_case(service.load()).ranked, 2)]
    experiment = tries(service, best)

    assert experiment.load
    assert experiment.load.settings["cpu"] == "burn"
    assert not experiment.parallel
    assert {(one.cpus, one.replicas) for one in experiment.variants.values()} == {(0.5, 2)}


@pytest.mark.parametrize(("advised_ms", "held"), [(17.0, True), (20.0, False)])
def test_measured_advice_holds_within_ten_percent_and_5_ms_of_the_best(advised_ms: float, held: bool) -> None:
    rows = [
        Estimate(
            variant=name, load="mix", request_class="light", metric="overhead", stat="p99", unit="ms", published=None,
            predicted=1.6, measured=ms, low=ms, high=ms, n=200, trials=1, values={1: ms},
        )
        for name, ms in (("one", advised_ms), ("two", 12.0))
    ]  # fmt: skip
    found = compare(Figures(Summary.of_nothing("mix").model_copy(update={"rows": rows})), "light", ["one", "two"])

    assert (found["advised"], found["best"], found["best_ms"], found["held"]) == ("one", "two", 12.0, held)
    [line] = [line for line in table([{"load": "mix", **found}]) if "mix" in line]
    assert line.startswith("| mix, light p99 | one | 1.6 ms | ")


def mix_measured() -> Answered:
    """Three light requests beside two heavy ones; the first worker of two, with one thread, got all but the last."""
    return Answered(
        workers=["a", "b"], classes=["heavy", "light"], first=0.0, last=21.0, last_sent=3.0,
        worker=np.array([0, 0, 0, 1]), request_class=np.array([0, 1, 1, 0]), sent_s=np.array([0.0, 1.0, 2.0, 3.0]),
        began_s=np.array([0.0, 10.0, 10.5, 3.0]), ended_s=np.array([10.0, 10.5, 11.0, 13.0]),
    )  # fmt: skip


def test_the_same_requests_served_otherwise() -> None:
    found = {one.kind.name: one for one in serve_otherwise(mix_measured(), 2, 1)}

    assert set(found) == {kind.name for kind in OPTION_KINDS}
    for cure in ("one-process", "limit", "idle-thread", "uwsgi", "least-conn", "queue"):
        assert found[cure].waits_s.tolist() == [0.0, 0.0, 0.0, 0.0], cure
    assert (found["one-process"].workers, found["one-process"].threads) == (1, 2)
    for one in serve_otherwise(mix_measured(), 1, 1):  # more requests than threads wait with every way
        assert (one.waits_s > 0.05).tolist() == [False, True, True, True]
        assert one.waits_s[3] == pytest.approx(8)
    names = {one.kind.name for one in serve_otherwise(mix_measured(), 50, 1)}
    assert "limit" in names
    assert "least-conn" not in names, "the lab starts at most 32 containers"


def test_predict_prints_tables_and_what_is_missing(lab: Lab) -> None:
    said = lab.call("predict", "worker-types")

    assert (said.returncode, said.stderr) == (0, "")
    assert "predicted" in said.stdout
    assert "because theory lacks" in said.stdout
    assert max(map(len, said.stdout.splitlines())) <= 80


def test_only_the_newest_lists_of_packages_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(provenance, "MOST_KEPT", 2)
    monkeypatch.setattr(Machine, "told", lambda *_, **__: "k6 2.1.0")
    for place in range(4):
        provenance.packages_of(f"sha256:{place}")
        [file] = (tmp_path / "stampede" / "packages").glob(f"{place}-*.json")
        os.utime(file, (place, place))

    left = sorted(one.name[0] for one in (tmp_path / "stampede" / "packages").iterdir())
    assert left == ["2", "3"]


def test_users_who_pause_need_few_threads() -> None:
    """A thousand users who pause for ten seconds have about ten requests under way at once."""
    pausing = [Class("page", Closed(1000, Constant(10.0)), [WorkStep(Constant(0.1))])]
    best = predict_case(OfferedLoad(pausing, memory_mib=240, worker_mib=60, cores=2)).ranked[0]

    assert best.option.workers * best.option.threads <= 64
    assert best.p99_ms["page"] < 50


def test_a_rare_class_counts() -> None:
    """One report takes all of the only thread for half a minute, every two seconds another one comes."""
    often = Class("page", Open(40.0), [WorkStep(Constant(0.05))])
    rare = Class("report", Open(0.5), [WorkStep(Constant(30.0))])
    ranked = predict_case(OfferedLoad([often, rare], cores=2, threads=32)).ranked

    assert set(ranked[0].p99_ms) == {"page", "report"}
    assert all(set(one.p99_ms) == {"page", "report"} for one in ranked)
