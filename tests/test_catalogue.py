"""Every experiment on real containers, a few seconds each: what it is about shows, in ratios or in counts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml

from analysis.folder import trial_folder
from lab.paths import ROOT
from lab.trial.calibration import ALONE
from tests.conftest import Lab, lab_objects
from tests.test_heavy_mix import values

pytestmark = pytest.mark.containers
MeasureSome = Callable[..., "Result"]


class Result:
    """A run of an experiment that was cut short."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        self.report = (folder / "report.html").read_text()

    def each(self, metric: str, stat: str, request: str | None = None, load: str | None = None) -> dict[str, float]:
        """Return one number by variant, of the only load unless one is named."""
        return {
            row["variant"]: row["measured"]
            for row in self.summary["rows"]
            if (row["metric"], row["stat"], row["request"], row["load"]) == (metric, stat, request, load or row["load"])
            and row["measured"] is not None
        }

    def measured(self, variant: str, metric: str, stat: str, request: str | None = None) -> float:
        """Return one number of one variant."""
        return self.each(metric, stat, request)[variant]

    def requests(self, variant: str, load: str, query: str) -> list[tuple[object, ...]]:
        """Run a query on the requests of a variant."""
        folder = trial_folder(self.folder, variant, load, 1)
        return values(duckdb.read_parquet(f"{folder}/requests.parquet"), query)


@pytest.fixture
def measure(tmp_path: Path) -> MeasureSome:
    """MeasureSome some variants of an experiment, and see that every trial is believed and nothing is left."""

    def measured(name: str, variants: str, duration: str, *further: str, lab: Lab | None = None) -> Result:
        lab = lab or Lab(ROOT, tmp_path / "results")
        done = lab.run("run", name, "--variants", variants, "--duration", duration, *further)
        assert done.returncode == 0, done.stdout + done.stderr
        assert lab_objects() == []
        assert max(len(line) for line in done.stdout.splitlines()) <= 80
        result = Result((lab.results / name / "latest").resolve())
        assert {trial["verdict"] for trial in result.summary["trials"]} <= {"valid", "suspect"}
        return result

    return measured


def only_load(lab: Lab, name: str, load: str) -> Lab:
    """Leave one of its loads to an experiment of a copy of the lab, and no claim or figure of another."""
    path = lab.root / "experiments" / f"{name}.yaml"
    document = yaml.safe_load(path.read_text())
    document["loads"] = {load: document["loads"][load]}
    document["published"] = [one for one in document.get("published", []) if one["load"] == load]
    of_load = [{one[part]["load"] for part in ("value", "relative_to") if part in one} for one in document["claims"]]
    document["claims"] = [one for one, loads in zip(document["claims"], of_load, strict=True) if loads == {load}]
    path.write_text(yaml.safe_dump(document))
    return lab


def test_thundering_herd_counts_every_attempt(measure: MeasureSome, copied_lab: Lab) -> None:
    """With reuse_port one worker tries, with a sleep all four do, and every attempt succeeds or fails."""
    variants = ("reuse-port", "random-accept", "sync", "shared-socket-23")
    lab = only_load(copied_lab, "thundering-herd", "one-at-a-time")
    result = measure("thundering-herd", ",".join(variants), "4s", lab=lab)

    attempts = result.each("accept_attempts", "per_connection")
    assert attempts["reuse-port"] == 1
    assert attempts["random-accept"] > 3.5
    assert 2 <= attempts["sync"] <= 5
    assert 1 <= attempts["shared-socket-23"] < attempts["random-accept"]
    for worker in result.summary["counters"]:
        counts = worker["counts"]
        assert counts["accept_attempts"] == counts["accepted"] + counts["accept_failures"]
    for name in variants:
        accepted = sum(one["counts"]["accepted"] for one in result.summary["counters"] if one["variant"] == name)
        assert [(accepted,)] == result.requests(name, "one-at-a-time", "SELECT count(*) FROM requests")
    assert "How many workers try for one connection" in result.report


def test_pid_skew_shows_what_waiting_costs(measure: MeasureSome, copied_lab: Lab) -> None:
    copied_lab.edit("experiments/pid-skew.yaml", "question:", "parallel: true\nquestion:")
    result = measure("pid-skew", "shared-socket-23,least-conn", "8s", lab=copied_lab)

    ideal = result.each("throughput", "of_ideal", "user")
    assert ideal["shared-socket-23"] < ideal["least-conn"] <= 1
    assert result.measured("least-conn", "requests_by_worker", "jain_index", "user") > 0.9
    assert len([one for one in result.summary["counters"] if one["variant"] == "shared-socket-23"]) == 8
    assert "Who wins the race: the share of each worker by its age" in result.report
    assert "Even shares and short waits are two things" in result.report


def test_keep_alive_brings_many_requests_on_a_connection_to_one_worker(measure: MeasureSome, copied_lab: Lab) -> None:
    lab = only_load(copied_lab, "keep-alive", "quick")
    result = measure("keep-alive", "neither,both,both-connection-limit", "5s", lab=lab)

    by_connection = "SELECT connection, count(*), count(DISTINCT worker) FROM requests GROUP BY 1"
    for name in ("neither", "both-connection-limit"):
        assert {row[1:] for row in result.requests(name, "quick", by_connection)} == {(1, 1)}
    kept = result.requests("both", "quick", by_connection)
    assert {workers for _, _, workers in kept} == {1}
    assert result.measured("both", "requests_by_connection", "avg") > 5
    assert "Which connection brought the requests to which worker" in result.report


def test_gunicorn_releases_are_served_by_the_releases_they_name(measure: MeasureSome, copied_lab: Lab) -> None:
    copied_lab.edit("experiments/gunicorn-releases.yaml", "heavy_delay_s: 10", "heavy_delay_s: 3")
    releases = {
        "shared-socket-23": "23.0.0",  # its limit may stop a worker for ever, see connection-deadlock
        "connection-limit-24": "24.1.1",
        "connection-limit-25": "25.3.0",
        "connection-limit-26": "26.2.0",
        "connection-limit-27": "27.0.1",
    }
    result = measure("gunicorn-releases", ",".join(releases), "6s", lab=copied_lab)

    for name, release in releases.items():
        served = "SELECT DISTINCT server FROM requests WHERE server IS NOT NULL"
        assert result.requests(name, "heavy-mix", served) == [(f"gunicorn/{release}",)]
        settings = trial_folder(result.folder, name, "heavy-mix", 1) / "gunicorn-1.before.txt"
        assert ('"worker_connections": "2"' in settings.read_text()) == name.startswith("connection-limit")
    run = json.loads((result.folder / "run.json").read_text())
    versions = {one["packages"].get("python/gunicorn") for one in run["images"]} - {None}
    assert versions == set(releases.values())
    assert "What changes with release" in result.report


def test_silent_clients_take_threads_from_24_on(measure: MeasureSome) -> None:
    """No absolute time: the longest wait with 24.1.1 is many times that with 23.0.0, and with a spare thread."""
    result = measure("silent-clients", "in-the-poller,in-a-thread,spare-thread", "8s")

    longest = result.each("overhead", "max", "user")
    assert longest["in-a-thread"] > 20 * longest["in-the-poller"]
    assert longest["in-a-thread"] > 20 * longest["spare-thread"]
    assert "; beside it silent.py, CONNECTIONS=2, SILENT_S=15" in result.report
    silent = "SELECT count(*), count(error) FROM requests WHERE request = 'silent'"
    assert result.requests("in-a-thread", "users", silent) == [(2, 0)]


def test_a_lingering_client_keeps_a_worker_from_accepting_from_26_on(measure: MeasureSome) -> None:
    result = measure("lingering-client", "closes-at-once,newest,another-process", "8s")

    longest = result.each("overhead", "max", "user")
    assert longest["newest"] > 20 * longest["closes-at-once"]
    assert longest["newest"] > 10 * longest["another-process"]


def test_connection_deadlock_ends_in_bounded_time_and_is_a_finding(measure: MeasureSome, copied_lab: Lab) -> None:
    """On 23.0.0 users are cut off after the load, on 27.0.1 all are answered; failures are no doubt."""
    copied_lab.edit("lab/loads.py", "\nGRACE_S = 60", "\nGRACE_S = 12")
    result = measure("connection-deadlock", "limit-23,limit-27", "4s", lab=copied_lab)

    assert result.measured("limit-23", "failures", "share", "silent") == 1
    assert result.measured("limit-23", "failures", "share", "user") > 0
    assert result.measured("limit-27", "failures", "share") == 0
    stopped = next(trial for trial in result.summary["trials"] if trial["variant"] == "limit-23")
    assert stopped["verdict"] in ("valid", "suspect")  # it takes a whole core, which others may miss
    assert any("all 2 silent requests failed" in reason for reason in stopped["reasons"])


def test_thread_headroom_draws_its_curve(measure: MeasureSome, copied_lab: Lab) -> None:
    copied_lab.edit("experiments/thread-headroom.yaml", "heavy_delay_s: 10", "heavy_delay_s: 3")
    result = measure("thread-headroom", "4x2,4x16,1x8", "6s", lab=copied_lab)

    assert result.measured("1x8", "memory", "total") < result.measured("4x2", "memory", "total")
    assert "What changes with threads" in result.report
    assert "total memory, MiB" in result.report


def test_accept_models_stand_side_by_side(measure: MeasureSome, copied_lab: Lab) -> None:
    """HAProxy balances as it is told to, and what it counts agrees with k6 and the workers."""
    copied_lab.edit("experiments/accept-models.yaml", "heavy_delay_s: 10", "heavy_delay_s: 3")
    variants = "haproxy-least-conn,random-two-least-conn,sync,round-robin"
    result = measure("accept-models", variants, "6s", lab=copied_lab)

    haproxy = trial_folder(result.folder, "haproxy-least-conn", "heavy-mix", 1) / "haproxy-1.before.txt"
    nginx = trial_folder(result.folder, "random-two-least-conn", "heavy-mix", 1) / "nginx-1.before.txt"
    assert "balance leastconn" in haproxy.read_text()
    assert "random two least_conn;" in nginx.read_text()
    assert result.measured("round-robin", "requests_by_worker", "jain_index", "light") > 0.9
    threads = "SELECT count(DISTINCT (worker, thread)) = count(DISTINCT worker) FROM requests"
    assert result.requests("sync", "heavy-mix", threads) == [(True,)]


def test_gil_sharing_needs_a_process_for_each_request_that_computes(measure: MeasureSome, copied_lab: Lab) -> None:
    """Ratios of throughput at four connections; every socket and process is what the variant says."""
    lab = only_load(copied_lab, "gil-sharing", "four-connections")
    lab.edit("experiments/gil-sharing.yaml", "question:", "parallel: true\nquestion:")
    variants = "1x4,4x1,4x4,4x4-map-least-conn"
    result = measure("gil-sharing", variants, "4s", "--cpu", "hold", "--jobs", "4", lab=lab)

    served = result.each("throughput", "per_second", "work")
    assert served["1x4"] < 0.7 * served["4x1"]
    assert served["4x4"] < 0.95 * served["4x1"]
    assert served["4x4-map-least-conn"] > 0.85 * served["4x1"]
    assert result.measured("4x4-map-least-conn", "requests_by_worker", "jain_index", "work") > 0.95
    for variant in served:
        trial = json.loads((trial_folder(result.folder, variant, "four-connections", 1) / "trial.json").read_text())
        assert trial["calibration"]["cpu"] == "hold"
        assert len(trial["calibration"]["alone_ms"]) == ALONE
        assert "protocol = uwsgi" in trial["settings"]["uwsgi-1"]
        assert "uwsgi_pass app;" in trial["settings"]["nginx-1"]
        servers = "SELECT DISTINCT server FROM requests"
        assert result.requests(variant, "four-connections", servers) == [("uwsgi/2.0.31",)]
    assert {one["verdict"] for one in result.summary["published"]} <= {"reproduced", "not reproduced", "undecided"}
    assert len(result.summary["published"]) == 2 * len(served)
    reasons = result.summary["validity"]["reasons"]
    assert any("requests held the interpreter lock without using a core (CPU=hold)" in one for one in reasons)


def test_burning_is_one_variant_at_a_time(copied_lab: Lab) -> None:
    """Of the four loads two are for other variants."""
    copied_lab.edit("experiments/gil-sharing.yaml", "question:", "parallel: true\nquestion:")
    side_by_side = copied_lab.run("plan", "gil-sharing", "--jobs", "8", "--cpu", "hold")
    assert "gil-sharing: 28 trials in 6 batches" in side_by_side.stdout
    assert "gil-sharing: 28 trials in 28 batches" in copied_lab.run("plan", "gil-sharing", "--cpu", "burn").stdout


@pytest.mark.soak
def test_burning_is_done_on_request(copied_lab: Lab) -> None:
    done = copied_lab.run("run", "gil-sharing", "--variants", "4x4", "--duration", "3s", "--cpu", "burn")

    assert done.returncode == 0, done.stdout + done.stderr
    folder = (copied_lab.results / "gil-sharing" / "latest").resolve()
    trial = json.loads((trial_folder(folder, "4x4", "four-connections", 1) / "trial.json").read_text())
    assert (trial["calibration"]["cpu"], trial["calibration"]["call_us"]) == ("burn", None)
    run = json.loads((folder / "run.json").read_text())
    assert [load["name"] for load in run["loads"]] == ["four-connections", "eight-connections"]
    assert (run["sleeping"], run["loads"][0]["settings"]["CPU"]) == (False, "burn")
    assert run["command"] == "make experiment NAME=gil-sharing VARIANTS=4x4 DURATION=3s CPU=burn"


def test_stalled_api_makes_requests_wait_beside_a_free_thread(measure: MeasureSome, copied_lab: Lab) -> None:
    """One stall of five seconds, from the first call on, in which calls take six: sixteen threads are stuck in four."""
    copied_lab.edit("experiments/stalled-api.yaml", "{first_s: 5, every_s: 20, stall_s: 5", "{every_s: 60, stall_s: 5")
    copied_lab.edit("experiments/stalled-api.yaml", "takes_s: 5}", "takes_s: 6}")
    result = measure("stalled-api", "shared,map-round-robin,map-max-conns,haproxy-queue", "8s", lab=copied_lab)

    longest = result.each("beside_free_thread", "max")
    assert longest["map-round-robin"] > 10 * max(longest["shared"], longest["haproxy-queue"], longest["map-max-conns"])
    refused = result.each("failures", "count")
    assert refused["map-max-conns"] > 0
    assert refused["shared"] == refused["haproxy-queue"] == refused["map-round-robin"] == 0
    kinds = "SELECT DISTINCT error FROM requests WHERE error IS NOT NULL"
    assert result.requests("map-max-conns", "calls", kinds) == [("status 502",)]
    assert result.measured("haproxy-queue", "recovery", "max") > 0
    haproxy = trial_folder(result.folder, "haproxy-queue", "calls", 1) / "haproxy-1.after.txt"
    settings = haproxy.read_text()
    assert "default-server maxconn 4" in settings
    assert int(settings.partition("queued ")[2].split()[0]) > 0
    assert "Who waited beside a free thread" in result.report
    assert "somebody waits here while another worker has a free thread" in result.report
    assert "the api stalls" in result.report
    assert "the service that they call: every_s=60.0, stall_s=5.0, takes_s=6.0" in result.report


def test_the_three_protocols_of_uwsgi_serve_the_same(measure: MeasureSome, copied_lab: Lab) -> None:
    """Each request is served once, by a worker that counts it, over a connection of its own."""
    path = copied_lab.root / "experiments" / "heavy-mix.yaml"
    document = yaml.safe_load(path.read_text())
    document["load"]["settings"] |= {"heavy_delay_s": 0.2}
    document["variants"] = {
        name: {"server": "uwsgi", "workers": 2, "threads": 2, "protocol": name, "thunder_lock": name == "http"}
        for name in ("http", "uwsgi", "fastcgi")
    }
    document |= {"published": [], "claims": []}
    path.write_text(yaml.safe_dump(document))

    result = measure("heavy-mix", "http,uwsgi,fastcgi", "3s", lab=copied_lab)

    for name in document["variants"]:
        rows = "SELECT count(*) > 20, count(*) = count(DISTINCT connection), count(error) FROM requests"
        assert result.requests(name, "heavy-mix", rows) == [(True, True, 0)]


def shorter(lab: Lab, name: str, loads: dict[str, dict[str, float]]) -> Lab:
    """Leave some of its loads to an experiment of a copy of the lab, with other settings, and no claim or figure."""
    path = lab.root / "experiments" / f"{name}.yaml"
    document = yaml.safe_load(path.read_text())
    if "load" in document:
        [document["load"]["settings"]] = [document["load"]["settings"] | settings for settings in loads.values()]
    else:
        document["loads"] = {load: document["loads"][load] for load in loads}
        for load, settings in loads.items():
            document["loads"][load]["settings"] |= settings
            document["loads"][load].pop("variants", None)
    path.write_text(yaml.safe_dump(document | {"published": [], "claims": [], "parallel": True}))
    return lab


def steps(result: Result, load: str) -> dict[str, list[float]]:
    """Return the response times of a burst in order of completion, in times of the shortest, by variant."""
    return {
        row["variant"]: [step / min(row["measured"]) for step in row["measured"]]
        for row in result.summary["steps"]
        if row["load"] == load
    }


def test_worker_types_climb_their_stairs_and_lose_what_they_had_accepted(measure: MeasureSome, copied_lab: Lab) -> None:
    """Half a second instead of two; by then every request of the burst has been sent."""
    lab = shorter(copied_lab, "worker-types", {"waiting-4": {"delay_s": 0.5}, "crash": {"delay_s": 0.6}})
    result = measure("worker-types", "sync,gthread,gevent,eventlet,tornado", "4s", lab=lab)

    stairs = steps(result, "waiting-4")
    assert stairs["sync"] == pytest.approx([1, 2, 3, 4], rel=0.25)
    assert stairs["gthread"] == pytest.approx([1, 1, 2, 2], rel=0.25)
    for at_once in ("gevent", "eventlet", "tornado"):
        assert stairs[at_once] == pytest.approx([1, 1, 1, 1], rel=0.25)
    burst = result.each("burst", "total", load="waiting-4")
    assert burst["tornado"] > 3 * burst["gevent"]
    lost = result.each("failures", "count", load="crash")
    assert lost["sync"] == 1
    assert lost["gthread"] >= 3
    assert lost["gevent"] == lost["eventlet"] == 6
    assert lost["tornado"] == 11
    notes = [reason for trial in result.summary["trials"] for reason in trial["reasons"]]
    assert any(" lost worker " in one for one in notes)
    assert any(" started worker " in one for one in notes)
    assert "One of 11 requests kills its worker" in result.report


def test_ten_at_once_are_ten_in_the_time_of_one_unless_the_worker_is_sync(
    measure: MeasureSome, copied_lab: Lab
) -> None:
    variants = ("uvicorn-fastapi-sync", "gunicorn-fastapi-sync", "gunicorn-fastapi-async", "gunicorn-flask-sync")
    lab = shorter(copied_lab, "ten-at-once", {"burst": {"delay_s": 0.4}})
    result = measure("ten-at-once", ",".join(variants), "5s", lab=lab)

    stairs = steps(result, "burst")
    assert stairs["gunicorn-flask-sync"] == pytest.approx(range(1, 11), rel=0.25)
    for name in variants[:3]:
        assert stairs[name][-1] < 1.5
    servers = "SELECT DISTINCT split_part(server, '/', 1) FROM requests"
    assert result.requests("uvicorn-fastapi-sync", "burst", servers) == [("uvicorn",)]
    assert result.requests("gunicorn-flask-sync", "burst", servers) == [("gunicorn",)]
    assert "10 requests at once" in result.report


def test_a_thousand_at_once_come_in_waves_of_the_threads_that_there_are(measure: MeasureSome) -> None:
    result = measure("thousand-at-once", "uvicorn-fastapi-sync", "5s")

    waves = result.summary["waves"]
    assert sum(row["requests"] for row in waves) == 1000
    assert max(row["requests"] for row in waves) <= 40 + 2  # one that is sent between two waves may count to either
    assert max(row["wave"] for row in waves) >= 5
    assert result.requests("uvicorn-fastapi-sync", "burst", "SELECT count(*), count(error) FROM requests") == [
        (1000, 0)
    ]
    assert "uvicorn-fastapi-sync: 1000 requests in " in result.report


def test_one_device_serves_two_at_once_in_twice_the_time(measure: MeasureSome, copied_lab: Lab) -> None:
    lab = shorter(copied_lab, "one-gpu", {"two-at-once": {"delay_s": 0.6, "every_s": 4}})
    result = measure("one-gpu", "fastapi-sync,fastapi-one-thread,fastapi-one-thread-model,flask-sync", "4s", lab=lab)

    stairs = steps(result, "two-at-once")
    for together in ("fastapi-sync", "fastapi-one-thread-model"):
        assert stairs[together] == pytest.approx([1, 1], rel=0.25)
    for in_turn in ("fastapi-one-thread", "flask-sync"):
        assert stairs[in_turn] == pytest.approx([1, 2], rel=0.25)
    assert "the service that they call: one_device=True" in result.report


def test_async_accept_is_even_only_where_somebody_chooses(measure: MeasureSome, copied_lab: Lab) -> None:
    """Each server holds the sockets that it should, or its trial would be invalid."""
    variants = ("uvicorn-uvloop", "gunicorn-reuse-port", "least-conn")
    lab = shorter(copied_lab, "async-accept", {"waiting": {}})
    result = measure("async-accept", ",".join(variants), "6s", lab=lab)

    share = result.each("burst", "largest_share")
    assert share["least-conn"] < 0.3
    assert max(share.values()) > 0.3
    assert set(share) == set(variants)
    assert "40 requests at once" in result.report


def test_replicas_in_turn_make_a_quick_request_wait_beside_a_free_process(
    measure: MeasureSome, copied_lab: Lab
) -> None:
    lab = shorter(copied_lab, "workers-or-replicas", {"mixed": {"heavy_delay_s": 2}})
    result = measure("workers-or-replicas", "flask-workers,flask-round-robin,flask-least-conn", "8s", lab=lab)

    longest = result.each("beside_free_thread", "max", "light")
    assert longest["flask-round-robin"] > 5 * max(longest["flask-workers"], longest["flask-least-conn"])


EVENT_LOOPS: dict[str, dict[str, object]] = {
    "uvicorn": {"app": "fastapi-async"},
    "granian": {"app": "fastapi-sync", "threads": 4},
    "hypercorn": {"app": "fastapi-typed", "threads": 4, "loop": "uvloop"},
    "gunicorn-asgi": {"app": "fastapi-async"},
    "gunicorn-uvicorn": {"app": "fastapi-sync", "threads": 4},
    "gunicorn-gevent": {},
    "gunicorn-tornado": {},
    "gunicorn-eventlet": {"release": "25.3.0"},
    "gunicorn-sync": {"app": "flask"},
}


def test_every_event_loop_serves_a_burst_and_counts_it(measure: MeasureSome, copied_lab: Lab) -> None:
    """Two k6 ask each at the same moment. Were a count or a socket another than is asked for, it would be invalid."""
    experiment = {
        "title": "Every event loop",
        "question": "Do they serve the same?",
        "load": {
            "script": "burst.js",
            "generators": 2,
            "duration": {"short": "3s", "full": "3s"},
            "settings": {"burst": 8, "every_s": 1, "does": "wait", "delay_s": 0.1},
        },
        "parallel": True,
        "variants": {
            name: {"server": name, "workers": 2, "balancer": "none", **settings}
            for name, settings in EVENT_LOOPS.items()
        },
    }
    (copied_lab.root / "experiments" / "event-loops.yaml").write_text(yaml.safe_dump(experiment))

    result = measure("event-loops", ",".join(EVENT_LOOPS), "3s", "--jobs", str(len(EVENT_LOOPS)), lab=copied_lab)

    for name in EVENT_LOOPS:
        rows = "SELECT count(*), count(error), count(DISTINCT worker) <= 2 FROM requests"
        assert result.requests(name, "burst", rows) == [(24, 0, True)], name
        counted = [one["counts"]["served"] for one in result.summary["counters"] if one["variant"] == name]
        assert (len(counted), sum(counted)) == (2, 24), name
        said = [path.name for path in trial_folder(result.folder, name, "burst", 1).glob("*.before.txt")]
        assert said == [f"{'gunicorn' if name.startswith('gunicorn') else 'asgi'}-1.before.txt"]
        log = trial_folder(result.folder, name, "burst", 1) / said[0].replace("before.txt", "log")
        assert "Traceback" not in log.read_text(), name
    accept = {one["name"]: one["accept"] for one in json.loads((result.folder / "run.json").read_text())["variants"]}
    assert [name for name, kind in accept.items() if kind == "per-worker"] == ["granian"]
    ours = ("not observed", "listen queue", "last burst", "failed")  # anything else is the machine's
    doubts = [reason for one in result.summary["trials"] for reason in one["reasons"]]
    assert [reason for reason in doubts if any(words in reason for words in ours)] == []


def test_django_fastcgi_asks_for_a_multiple_of_what_gunicorn_could_do(measure: MeasureSome) -> None:
    result = measure("django-fastcgi", "gunicorn-5", "3s")

    capacity_per_s = result.each("capacity", "per_second")["gunicorn-5"]
    record = json.loads((trial_folder(result.folder, "gunicorn-5", "overload", 1) / "trial.json").read_text())
    assert capacity_per_s in (8, 32)
    assert record["visits_per_s"] == 2 * capacity_per_s
    [(visits, generators)] = result.requests(
        "gunicorn-5", "overload", "SELECT count(DISTINCT visit), count(DISTINCT generator) FROM requests"
    )
    assert visits == pytest.approx(6 * capacity_per_s, rel=0.05)
    assert generators == 4
    assert "seconds since the first visit came" in result.report


def test_threads_that_may_not_queue_turn_visits_away_and_processes_that_stay_do_not(
    measure: MeasureSome, copied_lab: Lab
) -> None:
    """Every 502 is a connection that flup accepted and closed."""
    path = copied_lab.root / "experiments" / "fastcgi-mechanisms.yaml"
    document = yaml.safe_load(path.read_text())
    patient = {key: value for key, value in document["loads"]["patient"].items() if key != "relative"}
    document["loads"] = {"patient": patient | {"settings": patient["settings"] | {"first_per_s": 70, "last_per_s": 70}}}
    document["claims"] = []
    path.write_text(yaml.safe_dump(document))

    result = measure("fastcgi-mechanisms", "prefork-5,threaded-50", "3s", lab=copied_lab)

    failed = result.each("visits_failed", "share")
    assert failed["prefork-5"] == 0
    assert failed["threaded-50"] > 0.2
    errors = {(row["variant"], row["error"]) for row in result.summary["errors"]}
    assert errors == {("threaded-50", "status 502")}
    refused = sum(row["requests"] for row in result.summary["errors"])
    [closed] = [row["counts"]["closed"] for row in result.summary["counters"] if row["variant"] == "threaded-50"]
    assert closed == refused


GUEST_BOOKS: dict[str, dict[str, object]] = {
    "gunicorn-gevent": {},
    "uvicorn": {},
    "granian": {},
    "hypercorn": {},
    "uwsgi": {"threads": 2, "protocol": "fastcgi"},
    "flup-prefork": {"workers": 8, "threads": 1},
}
"""Of django-fastcgi, fastcgi-mechanisms and test_database the other ones."""
SAYS = {"flup-prefork": "flup6"}


def test_every_server_of_django_has_a_guest_book_and_a_row_of_each_visit(measure: MeasureSome, copied_lab: Lab) -> None:
    """Two generators share the visits. Were a count or a socket another than is asked for, a trial would be invalid."""
    experiment = {
        "title": "Every guest book",
        "question": "Do they write the same?",
        "load": {
            "script": "visits.js", "generators": 2, "database": {},
            "duration": {"short": "3s", "full": "3s"},
            "settings": {"first_per_s": 2, "last_per_s": 4, "step_s": 1, "timeout_steps": 10, "users_max": 40},
        },
        "parallel": True,
        "variants": {name: {"server": name, "app": "django", "workers": 2, **own} for name, own in GUEST_BOOKS.items()},
    }  # fmt: skip
    (copied_lab.root / "experiments" / "guest-books.yaml").write_text(yaml.safe_dump(experiment, sort_keys=False))

    result = measure("guest-books", ",".join(GUEST_BOOKS), "3s", "--jobs", str(len(GUEST_BOOKS)), lab=copied_lab)

    assert result.summary["errors"] == []
    written = result.each("rows_written", "count")
    for name in GUEST_BOOKS:
        visits = "SELECT count(DISTINCT visit), count(*) = 3 * count(DISTINCT visit) FROM requests"
        assert result.requests(name, "visits", visits) == [(written[name], True)], name
        assert 7 <= written[name] <= 10, name
        servers = "SELECT DISTINCT split_part(server, '/', 1) FROM requests"
        assert result.requests(name, "visits", servers) == [(SAYS.get(name, name.split("-")[0]),)]
        folder = trial_folder(result.folder, name, "visits", 1)
        assert {path.name for path in folder.glob("points*")} == {"points.json.gz", "points-2.json.gz"}, name
        assert "Traceback" not in "".join(path.read_text() for path in folder.glob("*-1.log")), name
