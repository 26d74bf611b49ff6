"""Requests that are asked alone before the load: which are asked, and what is kept of them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
from python_on_whales import DockerClient
from python_on_whales.components.container.models import ContainerState
from python_on_whales.exceptions import DockerException

from analysis.classes import Asked
from lab.cluster.machines import only_place
from lab.trial import alone
from lab.trial.containers import Seen


class Engine:
    """An engine whose curl takes so many seconds for each path, or fails with an exit code."""

    def __init__(self, answers: dict[str, list[float | int]]) -> None:
        self.answers = answers
        self.commands: list[list[str]] = []

    def execute(self, _: str, command: list[str]) -> str:
        """Answer as curl does."""
        self.commands.append(command)
        answer = self.answers[command[-1].removeprefix("http://127.0.0.1:8080")].pop(0)
        if isinstance(answer, int):
            raise DockerException(["docker", "exec"], answer)
        return str(answer)


def asked(engine: Engine, classes: dict[str, Asked]) -> dict[str, list[float]]:
    place = replace(only_place(), client=cast("DockerClient", SimpleNamespace(container=engine)))
    return alone.alone_ms(Seen("abc", "nginx", "nginx-1", ContainerState(), place, ""), 8080, classes)


def test_the_first_request_is_not_counted_and_harmful_classes_are_not_asked() -> None:
    engine = Engine({"/": [0.5, 0.02, 0.03], "/head": [0.1, 0.1, 0.1]})
    classes = {
        "home": Asked(path="/", users=1, headers={"X-Own": "a %22b%22"}),
        "search": Asked(path="/search", users=1, body="x"),
        "head": Asked(path="/head", method="HEAD", users=1),
        "buy": Asked(path="/buy", method="POST", users=1),
        "secret": Asked(path="/?t=${TOKEN}", users=1),
    }

    assert asked(engine, classes) == {"home": [20.0, 30.0], "head": [100.0, 100.0]}
    assert engine.commands[0][engine.commands[0].index("--header") + 1] == 'X-Own: a "b"'
    assert "--head" in engine.commands[3]


def test_a_class_that_is_not_answered_is_left_out_and_the_engine_may_fail() -> None:
    one = {"home": Asked(path="/", users=1)}
    assert asked(Engine({"/": [0.1, 22, 0.1]}), one) == {}
    with pytest.raises(DockerException):
        asked(Engine({"/": [126]}), one)


def test_no_further_class_is_asked_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alone, "MOST_S", -1)
    assert asked(Engine({}), {"home": Asked(path="/", users=1)}) == {}
