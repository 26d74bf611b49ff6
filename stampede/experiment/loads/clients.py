"""The scripts of clients/: clients that misbehave beside k6 in ways that k6 cannot."""

from stampede.experiment.loads.script import GRACE_S, LoadScript, closed_loop_rps
from stampede.experiment.loads.settings import HOUR_S, Number


def _client(sends: str, request_class: str, connections: int, settings: dict[str, Number], *takes: str) -> LoadScript:
    """Return the declaration of a client whose every connection ``takes`` so long for a request and its pauses."""
    why = "a client is one process, which may open 1024 files"
    return LoadScript(
        sends,
        {"connections": Number(connections, 1, 500, why, whole=True), **settings},
        users=("connections",),
        classes=(request_class,),
        rate_rps=lambda asked: closed_loop_rps(asked["connections"], sum(asked[name] for name in takes)),
        grace_s=lambda _asked, _duration_s: GRACE_S - 5,  # it must end before k6 ends
    )


CLIENT_SCRIPTS = {
    "lingering.py": _client(
        "gets its answer, and keeps the connection open for `linger_s`", "lingering", 1,
        {"linger_s": Number(3, 0.1, HOUR_S), "pause_s": Number(1, 0, HOUR_S)}, "linger_s", "pause_s",
    ),
    "silent.py": _client(
        "connects, says nothing for `silent_s`, and then sends its request", "silent", 2,
        {"silent_s": Number(10, 0.1, HOUR_S)}, "silent_s",
    ),
    "uploading.py": _client(
        "sends a request with a body of `kib` KiB, slowly, so that it takes `upload_s`", "uploading", 4,
        {"kib": Number(256, 1, 1024, "nginx refuses a larger body", whole=True), "upload_s": Number(5, 0.1, HOUR_S)},
        "upload_s",
    ),
}  # fmt: skip
"""The scripts of clients/ by name."""
