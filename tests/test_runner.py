"""lab.runner: what is started for a trial, without starting it."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.experiment import Api, Asgi, Client, Durations, GunicornSync, Load, Variant
from lab.plan import Trial
from lab.runner import Stack

BEHIND = GunicornSync(server="gunicorn-sync", workers=2)
DIRECTLY = Asgi(server="uvicorn", app="fastapi-async", workers=2, balancer="none")
CLIENT = Client(script="silent.py", settings={"connections": 2, "silent_s": 15})


@pytest.mark.parametrize(
    ("variant", "further", "started", "created"),
    [
        (BEHIND, {}, ["nginx"], ["k6"]),
        (BEHIND.model_copy(update={"balancer": "haproxy"}), {"client": CLIENT}, ["haproxy"], ["k6", "client"]),
        (BEHIND, {"api": Api()}, ["nginx", "api"], ["k6"]),
        (BEHIND.model_copy(update={"balancer": "none"}), {}, ["gunicorn"], ["k6"]),
        (DIRECTLY, {}, ["asgi"], ["k6"]),
        (DIRECTLY, {"api": Api(one_device=True)}, ["asgi", "api"], ["k6"]),
    ],
)
def test_whom_k6_asks_is_started_and_what_the_application_calls(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variant: Variant, further: dict[str, Any], started: list[str],
    created: list[str],
) -> None:  # fmt: skip
    """A balancer waits for the servers and the called service; without one nobody would start the latter."""
    asked: dict[str, list[str]] = {}
    compose = SimpleNamespace(
        up=lambda services, **_: asked.update(up=services), create=lambda services, **_: asked.update(create=services)
    )
    monkeypatch.setattr(Stack, "_client", lambda _: SimpleNamespace(compose=compose))
    monkeypatch.setattr(Stack, "_containers", lambda _: [])
    load = Load(script="burst.js", duration=Durations(short="1s", full="1s"), **further)
    stack = Stack(Trial("some", variant, "burst", load, "1s", 1), tmp_path, side_by_side=1)

    stack.up()

    assert stack.reason is None
    assert asked == {"up": started, "create": created}
