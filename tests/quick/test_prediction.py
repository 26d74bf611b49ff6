"""predict.prediction: what theory predicts of a run, and whether the statistics are those of measured requests."""

import json
import shutil
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock

import pytest

from stampede.evaluate.metrics.families import FAMILIES
from stampede.experiment.file import load_experiment, names
from stampede.experiment.loads.script import as_variables
from stampede.experiment.loads.scripts import K6_SCRIPTS
from stampede.pipeline import derive, derive_summary, stored_summary
from stampede.plan import lay_out
from stampede.predict import prediction
from stampede.predict.prediction import _trials, predict_run, predict_summary
from stampede.predict.system import NotModelled, servers_of, system_of
from stampede.records.checksums import seal
from stampede.records.folder import read_run
from stampede.records.predicted import PredictedRun
from stampede.records.run import THEORY, ClientRecord, LoadRecord, Run, VariantRecord
from stampede.records.summary import Summary
from stampede.records.traffic import Traffic, TrafficClass, Work, traffic_of_settings
from stampede.run.record import record_of
from stampede.servers import KINDS, SERVERS
from stampede.servers.base import Variant
from stampede.theory.model import Servers
from stampede.verification import compute_summary, derived_elsewhere, verify_run
from tests.in_memory import measure
from tests.synthetic import Request, make_run
from tools.validate import compare_predictions, sharing_policy, validation_tables

HEAVY_MIX = {"LIGHT_VUS": "5", "LIGHT_DELAY_MAX_S": "1", "HEAVY_VUS": "2", "HEAVY_DELAY_S": "10"}


def variant(name: str = "one", accept: Any = "shared", **settings: Any) -> VariantRecord:
    settings = {"server": "gunicorn-gthread", "workers": 4, "threads": 2} | settings
    server: Any = KINDS[str(settings["server"])]
    queueing = server.model_construct(**settings).queueing
    return VariantRecord(name=name, workers=4, accept=accept, queueing=queueing, settings=settings)


def load(script: str = "heavy-mix.js", duration: str = "60s", **changed: Any) -> LoadRecord:
    changed = {"settings": HEAVY_MIX} | changed
    return LoadRecord(name="mix", script=script, duration=duration, **changed)


def planned(name: str, trials: int = 5, **how: Any) -> Run:
    """Return the record of a run of an experiment."""
    experiment = load_experiment(name)
    plan = lay_out(experiment, trials=trials, memory=None, **how)
    return record_of(name, experiment, plan, full=False, command="")


def test_the_statistics_are_those_of_measured_requests() -> None:
    """The requests of a simulated trial are written as k6 writes points; the pipeline finds the same statistics."""
    one, mix = variant(), load(duration="30s")
    trial = next(_trials(system_of(one, mix), one, mix))
    requests = [
        Request(
            overhead_ms=overhead_ms, service_time_ms=duration_ms - overhead_ms, request_class=trial.classes[place],
            worker=f"box:{10 + worker}", sent_s=sent_us / 1e6, waits_ms=1000 * began_s - sent_us / 1000, user=user,
        )
        for place, user, worker, sent_us, began_s, duration_ms, overhead_ms in zip(
            trial.of_class, trial.user, trial.worker, trial.sent_us, trial.began_s, trial.duration_ms,
            trial.overhead_ms, strict=True,
        )
    ]  # fmt: skip
    measured = measure(requests, *FAMILIES, load=mix, variant=one)
    simulated = {
        (finding.request_class, finding.metric.name, stat): value
        for family in FAMILIES
        for finding in family.measure(trial, one, mix)
        for stat, value in finding.stats.items()
    }

    assert {key[1] for key in simulated} >= {"overhead", "throughput", "requests_by_worker", "avoidable_wait"}
    for key, value in simulated.items():
        assert measured[key] == pytest.approx(value, rel=0.001, abs=0.5), key


def test_heavy_mix_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The waits, the cures, and how far chance spreads the median of five trials."""
    monkeypatch.setattr(prediction, "SIMULATED", 20)
    run = planned("heavy-mix")
    found = PredictedRun(settings="", cells=predict_run(run))

    def of(name: str, metric: str, stat: str) -> Any:
        return found.figures[(name, run.loads[0].name, "light"), metric, stat]

    assert found.not_predicted == []
    for cured in ("one-process", "connection-limit", "least-conn", "busy-accept"):
        assert of(cured, "avoidable_wait", "share").high == 0
        assert of(cured, "overhead", "p90").high == pytest.approx(2, abs=1)
    for waiting in ("shared-socket", "reuse-port", "random-accept"):
        assert 0.2 < of(waiting, "avoidable_wait", "share").median < 0.6
        assert of(waiting, "overhead", "p90").low > 500


@pytest.mark.parametrize("name", names())
def test_each_variant_of_each_experiment_has_a_prediction_or_a_reason(name: str) -> None:
    run = planned(name, trials=1)

    for under in run.loads:
        for one in run.variants_under(under.name):
            missing = ""
            try:
                system_of(one, under)
            except NotModelled as reason:
                missing = str(reason)
            assert missing in {"", *REASONS}


REASONS = {
    "Django on an event loop", "a listen queue that is full", "a server that answers 503 at a limit of connections",
    "idle connections that count against a limit", "the policy ewma", "a pool of connections that requests share",
    "an event loop that accepts all connections of a burst that wait when it wakes",
    "clients that keep their connections open", "connections that the server closes while a request comes",
    "what the application does on a path", "probes that need no thread, beside requests that do", "uWSGI's router",
    "visitors who give up, and the application's own work and database", "what a build does that is not released",
    "workers that are killed", "workers that are replaced",
}  # fmt: skip


def examples() -> list[Variant]:
    """Return the example of each server, with the first word that chooses it."""
    words = {get_args(server.model_fields["server"].annotation)[0]: server for server in SERVERS}
    return [server.model_validate({"server": word, **server.example}) for word, server in words.items()]


def test_every_server_and_every_load_is_known_or_says_what_is_missing() -> None:
    for one in examples():
        if one.queueing.missing:
            with pytest.raises(NotModelled, match=one.queueing.missing):
                system_of(one.record("one"), load())
        else:
            assert system_of(one.record("one"), load()).servers.all_workers == one.workers
    for script in K6_SCRIPTS:
        with pytest.raises(
            NotModelled,
            match=r"without the setting|machine computes|killed|give up|own application|the load|server closes|"
            r"requests share",
        ):
            system_of(variant(), load(script, settings={}))


BURSTS = [{"burst": 4, "every_s": 2, "does": does, "rounds": 3, "wait_ms": 5, "cpu_ms": 10, "delay_s": 0.5}
          for does in ("wait", "compute", "call")]  # fmt: skip


@pytest.mark.parametrize(
    ("script", "example"),
    [*((script, K6_SCRIPTS[script].example) for script in K6_SCRIPTS), *(("burst.js", burst) for burst in BURSTS)],
)
def test_a_load_whose_record_has_no_traffic_has_that_of_its_settings(script: str, example: dict[str, Any]) -> None:
    found = traffic_of_settings(script, as_variables(example))

    assert found in (None, K6_SCRIPTS[script].traffic(example))
    if example in BURSTS:
        assert found
        assert found.classes["burst"].work[-1].does == example["does"]


DREAMS = Traffic(classes={"page": TrafficClass(users=1, work=[Work(does="dream", takes_s=1)])})


@pytest.mark.parametrize(
    ("of", "under", "missing"),
    [
        (variant(replicas=2, accept="per-worker", reuse_port=True), load(),
         "a balancer before sockets among which the kernel chooses"),
        (variant(keepalive_s=5, upstream_keepalive=16, replicas=2), load(), "keeps to each of several sockets"),
        (variant(keepalive_s=5, upstream_keepalive=16, balancer="haproxy"), load(), "keeps to each of several sockets"),
        (variant(keepalive_s=5, balancer="none"), load(), "connections that users keep"),
        (variant(), load(client=ClientRecord(script="silent.py", settings={})), "clients that keep"),
        (variant(server="uvicorn", app="django"), load(), "Django on an event loop"),
        (variant(server="gunicorn-sync", threads=1, somaxconn=5),
         load("burst.js", kind="burst", settings={"BURST": "10", "EVERY_S": "9", "DOES": "wait", "DELAY_S": "1"}),
         "a listen queue that is full"),
        (variant(), load("classes.js", settings={"CLASSES": '{"page": {"per_second": 900, "takes_s": 1}}'}),
         "the open loops keep 900.8 threads busy, and there are 8"),
        (variant(), load("users.js", settings={"USERS": "1", "DELAY_MIN_S": "0", "DELAY_MAX_S": "0", "PAUSE_S": "0"}),
         "a load in which class user neither works nor pauses"),
        (variant(), load("mine.js"), r"the load mine\.js"),
        (variant(), load("dreams.js", traffic=DREAMS), "requests that dream"),
        (variant(accept=None), load(), "whether the workers share a socket"),
        (variant(accept="per-worker", reuse_port=True, max_conns=8), load(), "among which the kernel chooses"),
    ],
)  # fmt: skip
def test_what_theory_cannot_simulate_has_a_reason(of: VariantRecord, under: LoadRecord, missing: str) -> None:
    with pytest.raises(NotModelled, match=missing):
        system_of(of, under, cores=2)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"keepalive_s": 5, "upstream_keepalive": 16}, 16),
        ({"keepalive_s": 5}, 0),
        ({"upstream_keepalive": 16}, 0),
        ({"keepalive_s": 5, "upstream_keepalive": 16, "worker_connections": 2}, 0),
        ({"keepalive_s": 5, "upstream_keepalive": 16, "worker_class": "idle_thread.IdleThreadWorker"}, 16),
    ],
)
def test_connections_are_kept_if_both_ends_keep_them(settings: dict[str, Any], kept: int) -> None:
    assert servers_of(variant(**settings)).idle_kept == kept


def test_which_figures_came_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait inside the interval, a wait 20 ms above it, a share far below it, and a figure that is not compared."""
    monkeypatch.setattr(prediction, "SIMULATED", 20)
    run = planned("heavy-mix", variants=["shared-socket", "one-process"])
    summary = predict_summary(run)
    rows = {(row.variant, row.request_class, row.metric, row.stat): row for row in summary.rows}
    waits = "shared-socket", "light", "overhead", "p90"
    measured = {waits: (rows[waits].predicted_high or 0) - 1, ("one-process", "light", "overhead", "p90"): 40,
                ("shared-socket", "light", "avoidable_wait", "share"): 0.01,
                ("shared-socket", "light", "overhead", "max"): 1}  # fmt: skip
    told = [rows[key].model_copy(update={"measured": value}) for key, value in measured.items()]
    compared = list(compare_predictions(run, summary.model_copy(update={"rows": told})))

    assert [one.is_inside for one in compared] == [True, False, False]
    by_policy, by_experiment, _, outside = validation_tables(compared)
    assert by_policy.rows == [("a race", "2", "1", "50%"), ("one worker", "1", "0", "0%")]
    assert by_experiment.rows == [("heavy-mix", "3", "1", "33%"), ("all", "3", "1", "33%")]
    assert [line[:3] for line in outside.rows] == [
        ("heavy-mix", "one-process heavy-mix light", "overhead p90"),
        ("heavy-mix", "shared-socket heavy-mix light", "avoidable_wait share"),
    ]


@pytest.mark.parametrize(
    ("of", "says"),
    [
        ({"sockets": 4}, "by chance"),
        ({"sockets": 4, "balance": "turns"}, "in turns"),
        ({"sockets": 4, "balance": "least", "max_per_socket": 2}, "fewest requests, with a limit"),
        ({"workers": 4, "threads": 2, "max_connections": 2}, "a race with a limit"),
        ({"workers": 4, "hesitates": True}, "a race of free workers"),
        ({"workers": 4}, "a random worker"),
        ({"workers": 4, "sockets": 2, "bias": 0.3}, "several sockets with a race"),
    ],
)
def test_the_policy_in_words(of: dict[str, Any], says: str) -> None:
    assert sharing_policy(Servers(**of)) == says


def test_a_load_of_too_many_requests_is_not_simulated() -> None:
    run = planned("thread-headroom", trials=1, duration="1440m")

    assert {cell.missing for cell in predict_run(run)} == {"time for a load of more than 200,000 requests"}


@pytest.mark.parametrize("of", [variant(), variant(server="gunicorn-tornado", threads=None)])
def test_a_stall_comes_again_after_an_hour_unless_the_file_says_when(of: VariantRecord) -> None:
    settings = {"CALL_RPS": "4", "CALL_DELAY_S": "0.05", "QUICK_RPS": "20", "QUICK_DELAY_S": "0.02"}
    model = system_of(of, load("calls.js", settings=settings, api={"stall_s": 5, "takes_s": 10}))

    [stalls] = [step.stalls for one in model.classes for step in one.steps if step.stalls]
    assert (stalls.first, stalls.every, stalls.lasts, stalls.takes) == (0, 3600, 5, 10)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run whose predictions are stored."""
    requests = {"one": [Request(overhead_ms=5)]}
    run = make_run(
        tmp_path_factory.mktemp("predicted") / "run", requests, variants=[variant()], loads=[load(duration="10s")]
    )
    compute_summary(run)
    return run


@pytest.fixture
def predicted(tmp_path: Path, original: Path) -> Path:
    """A copy of the run, to be changed."""
    return shutil.copytree(original, tmp_path / "run")


def test_a_run_is_predicted_once(predicted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """predicted.json gives the same predictions as a simulation, and nothing is simulated as long as it fits."""
    simulated = predict_run(read_run(predicted))
    monkeypatch.setattr(prediction, "predict_run", lambda _: pytest.fail("simulated again"))

    assert prediction.predictions_of(predicted).cells == simulated
    assert any(cell.figures for cell in simulated)
    with derived_elsewhere(predicted) as (again, summary):
        assert any(row.predicted is not None for row in summary.rows)
        assert (again / "summary.json").read_bytes() == (predicted / "summary.json").read_bytes()


@pytest.mark.parametrize("broken", ["settings", "theory", "text", "missing"])
def test_a_prediction_of_other_settings_or_versions_is_not_trusted(
    predicted: Path, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulate = Mock(return_value=prediction.predictions_of(predicted).cells)
    monkeypatch.setattr(prediction, "predict_run", simulate)
    path = predicted / "predicted.json"
    text = path.read_text()
    path.write_text({
        "settings": text.replace('"settings": "', '"settings": "0'),
        "theory": text.replace(f'"theory": {THEORY}', f'"theory": {THEORY + 1}'),
    }.get(broken, text[:100]))  # fmt: skip
    if broken == "missing":
        path.unlink()

    def predict_only(folder: Path) -> Summary:
        prediction.predictions_of(folder)
        return Summary.of_nothing("made-up")

    with derived_elsewhere(predicted, predict_only):
        assert simulate.call_count == 1
    assert path.exists() == (broken != "missing"), "a command that reads a run writes nothing into it"
    prediction.predictions_of(predicted)
    assert simulate.call_count == 2
    assert json.loads(path.read_text())["theory"] == THEORY


@pytest.mark.usefixtures("without_pictures")
def test_an_edited_prediction_is_found(predicted: Path) -> None:
    """A summary without predictions says nothing of theory."""
    assert not any(row.predicted is not None for row in derive_summary(predicted).rows)
    assert any(row.predicted is not None for row in derive(predicted).rows)
    seal(predicted)
    path = predicted / "predicted.json"
    path.write_text(path.read_text().replace('"median": ', '"median": 1', 1))

    assert [str(difference) for difference in verify_run(predicted).differences] == [
        "predicted.json: does not follow from the raw points"
    ]


@pytest.mark.usefixtures("without_pictures")
def test_results_are_read_again_only_if_nothing_was_changed(predicted: Path) -> None:
    seal(predicted)
    derived = derive(predicted)

    assert stored_summary(predicted) == derived
    for name in ("summary.json", "predicted.json", "report.html", "run.json"):
        path, before = predicted / name, (predicted / name).read_bytes()
        path.write_bytes(before + b" ")
        assert stored_summary(predicted) is None, name
        path.write_bytes(before)
    (predicted / "report.html").unlink()
    assert stored_summary(predicted) is None


def test_a_record_without_queueing_is_understood() -> None:
    """Records of schema 1 do not say how a server queues; what is read into them is what the server says today."""
    for one in [*examples(), *(one for name in names() for one in load_experiment(name).variants.values())]:
        if one.unreleased:
            continue  # the record says that theory does not know it
        recorded = one.record("one")
        older = VariantRecord.model_validate(recorded.model_dump(exclude={"queueing"}))
        assert recorded.queueing == one.queueing
        assert older.queueing in (one.queueing, None), "a server that came later has always said it"
