"""How the lab serves, on real containers: each server, a database, a called service, a client, a rate that follows."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from analysis.records.folder import trial_folder
from lab.servers import KINDS
from tests.conftest import Lab, copy_lab
from tests.live import watch_all
from tests.measuring import Result, completion_times, measure, shorter
from tools.browser import free_port


def test_stalled_api_makes_requests_wait_beside_a_free_thread(copied_lab: Lab) -> None:
    """One stall of five seconds, from the first call on, in which calls take six: sixteen threads are stuck in four."""
    copied_lab.edit("experiments/stalled-api.yaml", "{first_s: 5, every_s: 20, stall_s: 5", "{every_s: 60, stall_s: 5")
    copied_lab.edit("experiments/stalled-api.yaml", "takes_s: 5}", "takes_s: 6}")
    variants = "shared,map-round-robin,map-max-conns,haproxy-queue"
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch_all, port := free_port())
        result = measure(copied_lab, "stalled-api", variants, "8s", "--port", str(port), command="watch")

    answered = [row for row in watching.result() if row["answered"] is not None]
    for variant in variants.split(","):
        told = sorted((row["worker"] or "", row["thread"] or 0) for row in answered if row["variant"] == variant)
        kept = result.requests(variant, "calls", "SELECT worker, thread FROM requests WHERE answered IS NOT NULL")
        assert told == sorted((worker or "", thread or 0) for worker, thread in kept)
        assert not [*trial_folder(result.folder, variant, "calls", 1).glob("points*.json")]
    longest = result.each("avoidable_wait", "max")
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
    assert "waited although another worker had a free thread; with " in result.report
    assert '"stalls":[' in result.report
    assert "the service that the servers call: every_s=60.0, stall_s=5.0, takes_s=6.0" in result.report


UWSGI: dict[str, object] = {"server": "uwsgi", "threads": 2, "balancer": "nginx"}
COUNTED: dict[str, object] = {"server": "gunicorn-gthread", "threads": 2, "worker_class": "acceptors.CountedThreads"}
EVERY_SERVER: dict[str, dict[str, object]] = {
    "uvicorn": {"app": "fastapi-async"},
    "granian": {"app": "fastapi-sync", "threads": 4},
    "hypercorn": {"app": "fastapi-typed", "threads": 4, "loop": "uvloop"},
    "gunicorn-asgi": {"app": "fastapi-async"},
    "gunicorn-uvicorn": {"app": "fastapi-sync", "threads": 4},
    "gunicorn-sync": {"app": "flask"},
    "gunicorn-23": COUNTED | {"release": "23.0.0"},
    "gunicorn-24": COUNTED | {"release": "24.1.1", "worker_class": "acceptors.CountedRandomAccept"},
    "gunicorn-26": COUNTED | {"release": "26.2.0", "reuse_port": True, "balancer": "haproxy"},
    "uwsgi-http": UWSGI | {"protocol": "http", "thunder_lock": True},
    "uwsgi-uwsgi": UWSGI | {"protocol": "uwsgi", "map_socket": True},
    "uwsgi-fastcgi": UWSGI | {"protocol": "fastcgi"},
}
ELSEWHERE = {"gunicorn-gevent", "gunicorn-tornado", "gunicorn-eventlet"}
"""In the test of worker-types. flup and Python 3.14 have tests of their own."""
EVERY_SERVER |= {
    word: dict(server.example)
    for word, server in KINDS.items()
    if word not in ELSEWHERE
    and server.service not in ("flup", "python314")
    and word not in {settings.get("server", name) for name, settings in EVERY_SERVER.items()}
}
SOME = {"uvicorn", "granian", "gunicorn-asgi", "gunicorn-sync", "gunicorn-26", "uwsgi-uwsgi"}
"""One of each kind; make soak has the others."""
RELEASES = {
    "gunicorn-23": "gunicorn/23.0.0", "gunicorn-24": "gunicorn/24.1.1",
    "gunicorn-26": "gunicorn/26.2.0", "gunicorn-sync": "gunicorn/27.0.1", "uwsgi-http": "uwsgi/2.0.31",
}  # fmt: skip


TYPES = ("sync", "gthread", "gevent", "eventlet", "tornado")


@pytest.fixture(scope="module")
def bursts(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The burst of worker-types for each type and for one server of each kind, and its crash for each type.

    A request takes half a second instead of two; by then every request of the burst has been sent.
    """
    lab = copy_lab(tmp_path_factory.mktemp("bursts"))
    lab.start_loads_at_once()
    shorter(lab, "worker-types", {"waiting-4": {"delay_s": 0.5}, "crash": {"delay_s": 0.6}})
    path = lab.root / "experiments" / "worker-types.yaml"
    document = yaml.safe_load(path.read_text())
    document["variants"] |= variants_of(SOME)
    document["loads"]["crash"]["variants"] = [*TYPES]
    path.write_text(yaml.safe_dump(document))
    return measure(lab, "worker-types", ",".join([*TYPES, *SOME]), "4s", "--jobs", "11")


def test_worker_types_climb_their_stairs_and_lose_what_they_had_accepted(bursts: Result) -> None:
    eventlet = "SELECT DISTINCT server FROM requests WHERE server IS NOT NULL"
    assert bursts.requests("eventlet", "waiting-4", eventlet) == [("gunicorn/25.3.0",)]
    answered_s = completion_times(bursts, "waiting-4")
    assert answered_s["sync"] == pytest.approx([1, 2, 3, 4], rel=0.25)
    assert answered_s["gthread"] == pytest.approx([1, 1, 2, 2], rel=0.25)
    for at_once in ("gevent", "eventlet", "tornado"):
        assert answered_s[at_once] == pytest.approx([1, 1, 1, 1], rel=0.25)
    burst = bursts.each("burst", "total", load="waiting-4")
    assert burst["tornado"] > 2 * burst["gevent"]
    lost = bursts.each("failures", "count", load="crash")
    assert lost["sync"] == 1
    assert lost["gthread"] >= 3
    assert lost["gevent"] == lost["eventlet"] == 6
    assert lost["tornado"] == 11
    notes = [reason for trial in bursts.summary["trials"] for reason in trial["reasons"]]
    assert any(" lost worker " in one for one in notes)
    assert any(" started worker " in one for one in notes)
    assert "One of 11 requests kills its worker" in bursts.report


def variants_of(names: set[str]) -> dict[str, dict[str, object]]:
    """Return variants for servers of EVERY_SERVER, two workers each."""
    settings = {name: EVERY_SERVER[name] for name in EVERY_SERVER if name in names}
    return {name: {"server": name, "balancer": "none", **one, "workers": 2} for name, one in settings.items()}


def assert_each_serves(result: Result, load: str, names: set[str], sent: int) -> None:
    """Assert that each server answers and counts the requests that were sent to it.

    Were a count or a socket another than is asked for, a trial would be invalid.
    """
    for name, settings in variants_of(names).items():
        rows = "SELECT count(*), count(error), count(DISTINCT worker) <= 2 FROM requests"
        assert result.requests(name, load, rows) == [(sent, 0, True)], name
        counted = [one["counts"] for one in result.summary["counters"] if one["variant"] == name]
        assert (len(counted), sum(one["served"] for one in counted)) == (2, sent), name
        if "worker_class" in settings:
            assert sum(one["accepted"] for one in counted) == sent, name
            assert all(one["accept_attempts"] == one["accepted"] + one["accept_failures"] for one in counted), name
        folder = trial_folder(result.folder, name, load, 1)
        front = {"none": set(), "nginx": {"nginx-1.before.txt"}, "haproxy": {"haproxy-1.before.txt"}}
        [server] = {path.name for path in folder.glob("*.before.txt")} - front[str(settings.get("balancer", "none"))]
        assert server.partition("-")[0] == KINDS[str(settings.get("server", name))].service
        assert "Traceback" not in (folder / server.replace("before.txt", "log")).read_text(), name
    for name, release in ((name, release) for name, release in RELEASES.items() if name in names):
        assert result.requests(name, load, "SELECT DISTINCT server FROM requests") == [(release,)]
    for name in names & {"uwsgi-http", "uwsgi-uwsgi", "uwsgi-fastcgi"}:  # a connection for each request
        assert result.requests(name, load, "SELECT count(DISTINCT connection) FROM requests") == [(sent,)], name
    accept = {one["name"]: one["accept"] for one in json.loads((result.folder / "run.json").read_text())["variants"]}
    own_sockets = {"granian", "granian-wsgi", "gunicorn-26", "uwsgi-uwsgi"}
    assert {name for name in names if accept[name] == "per-worker"} == names & own_sockets
    ours = ("not observed", "listen queue", "last burst", "failed")  # anything else is the machine's
    doubts = [reason for one in result.summary["trials"] if one["variant"] in names for reason in one["reasons"]]
    assert [reason for reason in doubts if any(words in reason for words in ours)] == []


def test_servers_and_releases_serve_a_burst_and_count_it(bursts: Result) -> None:
    assert_each_serves(bursts, "waiting-4", SOME, 4)
