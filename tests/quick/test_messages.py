"""Mistakes in files are said in a sentence, and an editor knows the settings of each script.

The messages of each kind of file stand in one snapshot beside the tests of its reader.
"""

import io
import json
import re
import tarfile
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel, TypeAdapter, ValidationError

from stampede.advise.service import WORDING as WORDING_OF_DESCRIPTIONS
from stampede.advise.service import Service
from stampede.docker.cluster.machines import WORDING as WORDING_OF_MACHINES
from stampede.docker.cluster.machines import Cluster
from stampede.experiment.file import WORDING, editor_schema, names
from stampede.experiment.loads.scripts import CLIENT_SCRIPTS, K6_SCRIPTS
from stampede.experiment.model import Experiment
from stampede.experiment.yaml_file import YamlFile
from stampede.paths import EXPERIMENTS, LESSONS
from stampede.records.classes import LOAD_CLASSES, OWN_CLASSES, Login
from stampede.records.mistakes import PLAIN, Kind, Wording, explain
from stampede.records.run import Run, TrialRecord
from stampede.records.summary import Summary
from stampede.servers import KINDS
from stampede.service.description import WORDING as WORDING_OF_SERVICES
from stampede.service.description import UserService
from stampede.teach.lesson.model import Lesson
from stampede.teach.lesson.notes import Notes
from tests.wrong import garbled, mistakes, places_in
from tools.real_runs import PACKED

OF_PYDANTIC = re.compile(
    r"Input should|should match pattern|valid (dictionary|string|integer|number|boolean|list)|Field required|pydantic"
    r"|Extra inputs|Keys should|Unable to|validation error|at least 1 item|constrained-str|\[key\]|\.(int|float)\b"
)


def values_of(text: str) -> Any:
    """Return the values of a file."""
    return yaml.load(text, yaml.CSafeLoader)


GOOD = """\
title: A title
question: Why?
load:
  script: idle.js
  duration: {short: 60s, full: 5m}
  settings: {gets: 5, posts: 2, every_s: 5, spread_s: 0.1, delay_s: 10, busy_ms: 20}
variants:
  one: {server: gunicorn-gthread, workers: 4, threads: 2}
"""
EXPERIMENTS_OF_THE_LAB = {name: values_of((EXPERIMENTS / f"{name}.yaml").read_text()) for name in names()}
SERVICE = """\
application: {folder: shop, command: "gunicorn app:app", packages: [b], system_packages: [gcc]}
served: {gunicorn: 27.0.1}
beside: {compose: compose.yml, services: [db]}
login: {path: /login, form: {a: b}, headers: {X: y}}
requests: {home: {path: /, users: 2, headers: {X: y}}}
"""
BAR = {"says": "a", "unit": "ms", "yours": 1, "theory": 1, "measured": 2, "low": 1, "high": 2}
CHECK = {"says": "a", "verdict": "b", "measured": 1, "low": 1, "high": 1, "bound": "c", "unit": "ms"}
NOTES = {"schema": 1, "steps": {"a-step": {
    "prediction": {"values": [1], "at": "d"}, "result": {"run": "e", "at": "f", "bars": [BAR], "claims": [CHECK]},
    "attempts": [{"change": "g", "run": "h", "at": "i", "check": CHECK}],
}}}  # fmt: skip
TAKES_S = (1, {"least": 1, "most": 2}, {"mean": 1}, [1, 2])


@cache
def recorded(kind: type[BaseModel], name: str) -> list[Any]:
    """Return the files of this name in a real run as this version has them; of their lists, the first two entries."""
    found = []
    with tarfile.open(PACKED / "worker-types.tar.xz") as packed:
        for member in packed:
            if member.name.endswith(f"/{name}"):
                values = json.load(packed.extractfile(member) or io.BytesIO())
                del values["schema"]
                values = kind.model_validate(values).model_dump(mode="json")
                found.append({key: one[:2] if isinstance(one, list) else one for key, one in values.items()})
    return found


KINDS_OF_FILES: dict[str, tuple[Kind, Wording, Callable[[], list[Any]]]] = {
    "experiment": (Experiment, WORDING, lambda: [
        *EXPERIMENTS_OF_THE_LAB.values(),
        *(values_of(GOOD) | {"variants": {"one": {"server": word, **one.example}}} for word, one in KINDS.items()),
    ]),
    "service": (UserService, WORDING_OF_SERVICES, lambda: [
        values_of(SERVICE),
        values_of(SERVICE.partition("requests")[0] + "replay: {log: access.log, methods: [GET]}"),
    ]),
    "machines": (Cluster, WORDING_OF_MACHINES, lambda: [{"machines": {"a": {"context": "b"}}}]),
    "lesson": (Lesson, WORDING, lambda: [values_of((LESSONS / "lesson.yaml").read_text())]),
    "description": (Service, WORDING_OF_DESCRIPTIONS, lambda: [
        {"cores": 2, "memory_mib": 512, "classes": {"page": {"per_second": 5, "takes_s": one}}} for one in TAKES_S
    ]),
    "classes": (LOAD_CLASSES, PLAIN, lambda: [{"page": {"users": 5, "takes_s": one}} for one in TAKES_S]),
    "own classes": (OWN_CLASSES, PLAIN, lambda: [values_of(SERVICE)["requests"]]),
    "login": (Login, PLAIN, lambda: [values_of(SERVICE)["login"]]),
    "notes": (Notes, PLAIN, lambda: [NOTES]),
    "run.json": (Run, PLAIN, lambda: recorded(Run, "run.json")),
    "trial.json": (TrialRecord, PLAIN, lambda: recorded(TrialRecord, "trial.json")),
    "summary.json": (Summary, PLAIN, lambda: recorded(Summary, "summary.json")),
}  # fmt: skip


def explained(kind: str, values: Any) -> tuple[tuple[Any, ...], str]:
    """Return the place and the problem that are said of the values of a file; nothing is wrong: an empty problem."""
    model, wording, _ = KINDS_OF_FILES[kind]
    try:
        (model.validate_python if isinstance(model, TypeAdapter) else model.model_validate)(values)
    except ValidationError as error:
        return explain(error, model, values, wording)
    return (), ""


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_a_mistake_is_named_with_its_place_its_value_and_what_is_allowed(kind: str) -> None:
    """Each kind of place of each kind of file, with every mistake that the declaration of the place knows.

    The declarations of the scripts know the settings of a load. A record may hold a number that is not finite.
    """
    model, _, files = KINDS_OF_FILES[kind]
    wrong = [mistake for mistake in mistakes(model, files()) if "settings" not in mistake.place or kind != "experiment"]
    if kind in ("notes", "run.json", "trial.json", "summary.json"):
        wrong = [mistake for mistake in wrong if "nan must be" not in mistake.names]
    said = [(mistake, *explained(kind, mistake.values)) for mistake in wrong]

    assert [
        (mistake.place, mistake.names, place, problem)
        for mistake, place, problem in said
        if place != mistake.place or not all(name in problem for name in mistake.names)
    ] == []
    assert [problem for *_, problem in said if OF_PYDANTIC.search(problem) or "text like" in problem] == []
    assert len(said) > 20


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
def test_no_mistake_is_said_in_the_words_of_a_library(kind: str) -> None:
    """Also of values that are allowed in some places."""
    model, _, files = KINDS_OF_FILES[kind]
    said = [explained(kind, values)[1] for values in garbled(model, files())]

    assert [problem for problem in said if OF_PYDANTIC.search(problem) or "\n" in problem] == []


@pytest.mark.parametrize("name", ["stalled-api", "ten-at-once"])
def test_the_line_of_a_mistake_is_the_line_of_its_place(name: str) -> None:
    """A place that is not there has the line of what encloses it."""
    path, before = EXPERIMENTS / f"{name}.yaml", 1
    file, lines = YamlFile(path), path.read_text().splitlines()

    for place in places_in(file.values):
        line = file.line_of(place)
        assert line >= before
        assert isinstance(place[-1], int) or f"{place[-1]}:" in lines[line - 1]
        assert file.line_of((*place, "nowhere")) == line
        before = line


EDITOR = Draft202012Validator(json.loads(editor_schema()))


@pytest.mark.parametrize("name", names())
def test_an_editor_accepts_every_experiment(name: str) -> None:
    assert list(EDITOR.iter_errors(EXPERIMENTS_OF_THE_LAB[name])) == []


def test_an_editor_knows_the_keys_of_a_load_and_every_script() -> None:
    wrong = yaml.safe_load(GOOD.replace("  duration", "  loop: open\n  duration"))
    pending, said = [*EDITOR.iter_errors(wrong)], ""
    while pending:
        error = pending.pop()
        pending += error.context or []
        said += error.message
    definitions = json.loads(editor_schema())["$defs"]

    assert "Additional properties are not allowed ('loop' was unexpected)" in said
    assert definitions["Load"]["properties"]["script"]["enum"] == list(K6_SCRIPTS)
    assert definitions["Client"]["properties"]["script"]["enum"] == list(CLIENT_SCRIPTS)
