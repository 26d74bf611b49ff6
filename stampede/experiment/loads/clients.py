"""The scripts of clients/: clients that misbehave beside k6 in ways that k6 cannot."""

from stampede.experiment.loads.script import GRACE_S, LoadScript, closed_loop_rps
from stampede.experiment.loads.settings import HOUR_S, Number, pause_s

CLIENT_GRACE_S = GRACE_S - 5
"""How long a client waits for the last answers after a load: it must end before k6 ends."""


def _connections(example: int) -> Number:
    return Number(example, 1, 500, "a client is one process, which may open 1024 files", whole=True)


CLIENT_SCRIPTS = {
    "lingering.py": LoadScript(
        "gets its answer, and keeps the connection open for `linger_s`",
        {"connections": _connections(1), "linger_s": Number(3, 0.1, HOUR_S), "pause_s": pause_s(1)},
        users=("connections",),
        classes=("lingering",),
        rate_rps=lambda asked: closed_loop_rps(asked["connections"], asked["linger_s"] + asked["pause_s"]),
        grace_s=lambda _asked, _duration_s: CLIENT_GRACE_S,
    ),
    "silent.py": LoadScript(
        "connects, says nothing for `silent_s`, and then sends its request",
        {"connections": _connections(2), "silent_s": Number(10, 0.1, HOUR_S)},
        users=("connections",),
        classes=("silent",),
        rate_rps=lambda asked: closed_loop_rps(asked["connections"], asked["silent_s"]),
        grace_s=lambda _asked, _duration_s: CLIENT_GRACE_S,
    ),
    "uploading.py": LoadScript(
        "sends a request with a body of `kib` KiB, slowly, so that it takes `upload_s`",
        {
            "connections": _connections(4),
            "kib": Number(256, 1, 1024, "nginx refuses a larger body", whole=True),
            "upload_s": Number(5, 0.1, HOUR_S),
        },
        users=("connections",),
        classes=("uploading",),
        rate_rps=lambda asked: closed_loop_rps(asked["connections"], asked["upload_s"]),
        grace_s=lambda _asked, _duration_s: CLIENT_GRACE_S,
    ),
}
"""The scripts of clients/ by name."""
