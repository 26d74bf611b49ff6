"""How the lab serves, on real containers: a server of each kind answers, and counts what it answers."""

import json

from stampede.records.folder import trial_folder
from stampede.servers import KINDS
from tests.conftest import Lab
from tests.measuring import Result, add_experiment, measure
from tools.probe_truth import counts

UWSGI: dict[str, object] = {"server": "uwsgi", "threads": 2, "balancer": "nginx"}
COUNTED: dict[str, object] = {"server": "gunicorn-gthread", "threads": 2, "worker_class": "acceptors.CountedThreads"}
EVERY_SERVER: dict[str, dict[str, object]] = {
    "uvicorn": {"app": "fastapi-async", "probe": True},
    "granian": {"app": "fastapi-sync", "threads": 4, "probe": True},
    "hypercorn": {"app": "fastapi-typed", "threads": 4, "loop": "uvloop"},
    "gunicorn-asgi": {"app": "fastapi-async"},
    "gunicorn-uvicorn": {"app": "fastapi-sync", "threads": 4},
    "gunicorn-sync": {"app": "flask", "probe": True, "balancer": "envoy"},
    "gunicorn-23": COUNTED | {"release": "23.0.0"},
    "gunicorn-24": COUNTED | {"release": "24.1.1", "worker_class": "acceptors.CountedRandomAccept"},
    "gunicorn-eventlet": {"release": "25.3.0"},
    "gunicorn-26": COUNTED | {"release": "26.2.0", "reuse_port": True, "balancer": "haproxy"},
    "uwsgi-http": UWSGI | {"protocol": "http", "thunder_lock": True},
    "uwsgi-uwsgi": UWSGI | {"protocol": "uwsgi", "map_socket": True},
    "uwsgi-fastcgi": UWSGI | {"protocol": "fastcgi"},
}
EVERY_SERVER |= {
    word: dict(server.example)
    for word, server in KINDS.items()
    if server.service not in ("flup", "python314")  # they have tests of their own
    and word not in {settings.get("server", name) for name, settings in EVERY_SERVER.items()}
}
SOME = {"uvicorn", "granian", "gunicorn-asgi", "gunicorn-gevent", "gunicorn-sync", "gunicorn-26", "uwsgi-uwsgi"}
"""One of each kind; make soak has the others."""
RELEASES = {
    "gunicorn-23": "gunicorn/23.0.0", "gunicorn-24": "gunicorn/24.1.1", "gunicorn-eventlet": "gunicorn/25.3.0",
    "gunicorn-26": "gunicorn/26.2.0", "gunicorn-sync": "gunicorn/27.0.1", "uwsgi-http": "uwsgi/2.0.31",
}  # fmt: skip


def variants_of(names: set[str]) -> dict[str, dict[str, object]]:
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
        if settings.get("probe"):
            assert (counts(folder, "after") - counts(folder, "before")).requests == sent, name
        front = {
            "none": set(),
            "nginx": {"nginx-1.before.txt"},
            "haproxy": {"haproxy-1.before.txt"},
            "envoy": {"envoy-1.before.txt"},
        }
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


def serve_bursts(lab: Lab, names: set[str]) -> None:
    load = {
        "script": "burst.js",
        "duration": {"short": "3s", "full": "3s"},
        "settings": {"burst": 8, "every_s": 1, "does": "wait", "delay_s": 0.1},
    }
    add_experiment(lab, "every-server", load, variants_of(names), parallel=True)

    assert_each_serves(
        measure(lab, "every-server", ",".join(names), "3s", "--jobs", str(len(names))), "burst", names, 24
    )


def test_a_server_of_each_kind_serves_bursts_and_counts_them(fast_lab: Lab) -> None:
    serve_bursts(fast_lab, SOME)
