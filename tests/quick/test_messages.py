"""Mistakes in YAML files are said in a sentence, and an editor knows the settings of each script."""

import copy
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from lab.errors import WrongUse
from lab.experiment.file import WORDING, editor_schema, names, read_experiment
from lab.experiment.loads.clients import CLIENT_SCRIPTS
from lab.experiment.loads.k6 import K6_SCRIPTS
from lab.experiment.model import Experiment
from lab.experiment.yaml_file import explain
from lab.paths import EXPERIMENTS
from lab.servers import SERVERS
from lab.servers.base import Variant

OF_PYDANTIC = re.compile(
    r"Input should|should match pattern|valid (dictionary|string|integer|number|boolean|list)|Field required|pydantic"
    r"|Extra inputs|Keys should|Unable to|validation error|at least 1 item|constrained-str|\[key\]|\.(int|float)\b"
)
WRONG: tuple[Any, ...] = (
    None, True, 0, -1, 1, 1.5, 10**9, float("inf"), float("nan"), "", "x", "a b", "10", [], [1], ["x"], [None], {},
    {"x": 1}, {1: 1},
)  # fmt: skip


@cache
def document(name: str) -> Any:
    """Return the values of an experiment's file."""
    return yaml.safe_load((EXPERIMENTS / f"{name}.yaml").read_text(encoding="utf-8"))


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield every place in a file."""
    yield place
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from places(value[key], (*place, key))


def at(values: Any, place: tuple[Any, ...]) -> Any:
    """Return what is at a place."""
    for key in place:
        values = values[key]
    return values


def spoilt(values: Any, place: tuple[Any, ...]) -> Iterator[Any]:
    """Yield a file with each wrong value in one place, without it, and with a key too many there."""
    further = [at(values, place) | {"loop_": 1}] if isinstance(at(values, place), dict) else []
    for wrong in (*WRONG, *further):
        changed = copy.deepcopy(values)
        if not place:
            yield wrong
            continue
        at(changed, place[:-1])[place[-1]] = wrong
        yield changed
    if place:
        changed = copy.deepcopy(values)
        del at(changed, place[:-1])[place[-1]]
        yield changed


def kind_of(place: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a place without the names and numbers that files choose."""
    named = place[:1] in (("variants",), ("loads",), ("claims",), ("published",))
    return tuple("*" if isinstance(key, int) or (number == 1 and named) else key for number, key in enumerate(place))


KINDS: dict[tuple[Any, ...], tuple[str, tuple[Any, ...]]] = {}
for _name in names():
    for _place in places(document(_name)):
        KINDS.setdefault(kind_of(_place), (_name, _place))


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: ".".join(kind) or "file")
def test_no_mistake_is_said_in_the_words_of_a_library(kind: tuple[Any, ...]) -> None:
    """Every kind of place of all experiments, with every kind of value that does not belong there."""
    name, place = KINDS[kind]
    said = [message for changed in spoilt(document(name), place) if (message := explained(changed))]

    assert said
    assert [message for message in said if OF_PYDANTIC.search(message) or "\n" in message] == []


def explained(values: Any) -> str | None:
    """Return what is said of a file with these values; None: it is an experiment."""
    try:
        Experiment.model_validate(values)
    except ValidationError as error:
        place, problem = explain(error, Experiment, values, WORDING)
        return f"{'.'.join(map(str, place))}: {problem}"
    return None


GOOD = """\
title: A title
question: Why?
load:
  script: heavy-mix.js
  duration: {short: 60s, full: 5m}
  settings: {light_vus: 5, light_delay_max_s: 1, heavy_vus: 2, heavy_delay_s: 10}
variants:
  one: {server: gunicorn-gthread, workers: 4, threads: 2}
published:
  - {variant: one, request_class: light, metric: overhead, stats: {p99: 1000}}
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (GOOD, "mine.yaml: no value; it must be a mapping, e.g. title: …, question: …, load: {…}, variants: {…}"),
        ("title: A title", "mine.yaml:1: title: no value; it must be text, e.g. title: some words"),
        ("duration: {short: 60s, full: 5m}",
         "mine.yaml:5: load.duration: no value; it must be a mapping, e.g. duration: {short: 60s, full: 5m}"),
        ("settings: {light_vus: 5, light_delay_max_s: 1, heavy_vus: 2, heavy_delay_s: 10}",
         "mine.yaml:6: load.settings: no value; it must be a mapping with light_vus, light_delay_max_s, heavy_vus, "
         "heavy_delay_s"),
        ("light_vus: 5", "mine.yaml:6: load.settings.light_vus: no value; it must be a whole number, at least 1"),
        ("workers: 4",
         "mine.yaml:8: variants.one.workers: no value; it must be a whole number, at least 1, e.g. workers: 1"),
        ("one: {server: gunicorn-gthread, workers: 4, threads: 2}",
         "mine.yaml:8: variants.one: no value; it must be a mapping, e.g. one: {server: gunicorn-gthread, workers: 4, "
         "threads: 2}"),
        ("p99: 1000", "mine.yaml:10: published.0.stats.p99: no value; it must be a number, e.g. p99: 1"),
    ],
)  # fmt: skip
def test_a_value_that_is_missing_is_said_with_what_belongs_there(tmp_path: Path, change: str, message: str) -> None:
    assert change in GOOD
    key = change.partition(":")[0] + ": null" if change != GOOD else ""
    assert refusal(tmp_path, GOOD.replace(change, key)) == message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("title: A title", "title: 5"), "mine.yaml:1: title: 5 must be text, e.g. title: '5'"),
        (("question: Why?", "question: [Why]"),
         "mine.yaml:2: question: ['Why'] must be text, e.g. question: some words"),
        (("title: A title", "1: x\ntitle: A title"),
         "mine.yaml:1: 1: the key 1 is not text; there are because, claims, curve, load, loads, parallel, published, "
         "question, source, title, trials, variants"),
        (("script: heavy-mix.js", "script: 7"),
         f"mine.yaml:4: load.script: 7 must be one of {', '.join(sorted(K6_SCRIPTS))}"),
        (("{short: 60s, full: 5m}", "60s"),
         "mine.yaml:5: load.duration: '60s' must be a mapping, e.g. duration: {short: 60s, full: 5m}"),
        (("full: 5m", "full: 5h"),
         "mine.yaml:5: load.duration.full: '5h' must be whole seconds or minutes, such as 90s or 5m"),
        (("{light_vus: 5", "{Light: 5, light_vus: 5"),
         "mine.yaml:6: load.settings.Light: 'Light' must be a name of lower-case letters, digits and underscores, e.g. "
         "light_vus"),
        (("light_vus: 5", "light_vus: [5]"),
         "mine.yaml:6: load.settings.light_vus: [5] must be a whole number, at least 1"),
        (("{light_vus: 5, light_delay_max_s: 1, heavy_vus: 2, heavy_delay_s: 10}", "5"),
         "mine.yaml:6: load.settings: 5 must be a mapping with light_vus, light_delay_max_s, heavy_vus, heavy_delay_s"),
        (("variants:\n  one: {server: gunicorn-gthread, workers: 4, threads: 2}", "variants: {}"),
         "mine.yaml:7: variants: {} must be a mapping that is not empty, e.g. variants: {one-process: {server: "
         "gunicorn-gthread, workers: 4, threads: 2}}"),
        (("  one:", "  One:"),
         "mine.yaml:8: variants.One: 'One' must be a name of lower-case letters, digits and single hyphens, e.g. "
         "one-process"),
        (("threads: 2", "threads: 2, release: newest"),
         "mine.yaml:8: variants.one.release: 'newest' must be a release, digits with dots between them, e.g. release: "
         "27.0.1"),
        (("threads: 2", "threads: 2, cpuset: all"),
         "mine.yaml:8: variants.one.cpuset: 'all' must be the numbers of cores, e.g. cpuset: 0-1"),
        (("threads: 2", "threads: 2, reuse_port: 2"), "mine.yaml:8: variants.one.reuse_port: 2 must be true or false"),
        (("threads: 2", "threads: 2, replicas: 241"),
         "mine.yaml:8: variants.one.replicas: 241 must be a whole number from 1 to 240, e.g. replicas: 1"),
        (("workers: 4", "workers: 1.5"),
         "mine.yaml:8: variants.one.workers: 1.5 must be a whole number, at least 1, e.g. workers: 1"),
        (("published:\n  - {variant: one, request_class: light, metric: overhead, stats: {p99: 1000}}", "published: 5"),
         "mine.yaml:9: published: 5 must be a list, e.g. published: [{variant: one-process, request_class: light, "
         "metric: overhead, stats: {p99: 13.07}}]"),
        (("metric: overhead", "metric: overheat"),
         "mine.yaml:10: published.0.metric: there is no metric overheat; there are overhead, "),
        (("{p99: 1000}", "{p99: .inf}"),
         "mine.yaml:10: published.0.stats.p99: inf must be a finite number, e.g. p99: 1"),
        (("{p99: 1000}", "{p98: 1}"),
         "mine.yaml:10: published.0.stats.p98: there is no stat p98; there are p99, p95, "),
        (("{p99: 1000}", "{total: 1}"),
         "mine.yaml:10: published.0: metric overhead has no stat total; it has min, avg, stdev, p10, "),
    ],
)  # fmt: skip
def test_a_value_that_does_not_belong_there_is_said_with_what_does(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    """A message that ends with a comma here lists more."""
    assert change[0] in GOOD
    said = refusal(tmp_path, GOOD.replace(*change))

    assert said == message or (message.endswith(", ") and said.startswith(message))


def refusal(folder: Path, text: str) -> str:
    """Return the message with which a file is refused."""
    (folder / "mine.yaml").write_text(text)
    with pytest.raises(WrongUse) as caught:
        read_experiment(folder / "mine.yaml")
    return caught.value.message


EDITOR = Draft202012Validator(json.loads(editor_schema()))


@pytest.mark.parametrize("name", names())
def test_an_editor_accepts_every_experiment(name: str) -> None:
    assert list(EDITOR.iter_errors(document(name))) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("light_vus: 5", "lite_vus: 5"), ["Additional properties are not allowed ('lite_vus' was unexpected)",
                                           "'light_vus' is a required property"]),
        (("light_vus: 5, ", ""), ["'light_vus' is a required property"]),
        (("light_vus: 5", "light_vus: 0"), ["0 is less than the minimum of 1"]),
        (("light_vus: 5", "light_vus: 1.5"), ["1.5 is not of type 'integer'"]),
        (("heavy_delay_s: 10", "heavy_delay_s: 61"), ["61 is greater than the maximum of 60"]),
        (("heavy-mix.js", "heavy.js"), None),
        (("  duration", "  loop: open\n  duration"), ["Additional properties are not allowed ('loop' was unexpected)"]),
        (("  settings: {light_vus: 5, light_delay_max_s: 1, heavy_vus: 2, heavy_delay_s: 10}\n", ""),
         ["'settings' is a required property"]),
    ],
)  # fmt: skip
def test_an_editor_knows_the_settings_of_a_script(change: tuple[str, str], said: list[str] | None) -> None:
    assert change[0] in GOOD
    leaves: list[str] = []
    for error in EDITOR.iter_errors(yaml.safe_load(GOOD.replace(*change))):
        pending = [error]
        while pending:
            one = pending.pop()
            pending += one.context or []
            if not one.context:
                leaves.append(one.message)

    for message in said or ["'heavy.js' is not one of ['arrivals.js', 'burst.js', 'calls.js', "]:
        assert any(leaf.startswith(message) for leaf in leaves), leaves


@pytest.mark.parametrize(
    ("settings", "accepted"),
    [
        ("burst: 2, every_s: 1, does: wait, delay_s: 1", True),
        ("burst: 2, every_s: 1, does: compute, rounds: 1, wait_ms: 0, cpu_ms: 9", True),
        ("burst: 2, every_s: 1, does: compute, delay_s: 1", False),
        ("burst: 2, every_s: 1, does: sleep, delay_s: 1", False),
        ("burst: 2, every_s: 1", False),
    ],
)
def test_an_editor_knows_that_settings_depend_on_a_word(settings: str, accepted: bool) -> None:
    values = yaml.safe_load(GOOD)
    values["load"] |= {"script": "burst.js", "settings": yaml.safe_load(f"{{{settings}}}")}

    assert EDITOR.is_valid(values) == accepted


def test_an_editor_knows_that_a_rate_is_said_or_relative() -> None:
    values = copy.deepcopy(document("django-fastcgi"))
    assert EDITOR.is_valid(values)
    del values["loads"]["overload"]["relative"]
    assert not EDITOR.is_valid(values)
    values["loads"]["overload"]["settings"] |= {"first_per_s": 8, "last_per_s": 8}
    assert EDITOR.is_valid(values)


def test_an_editor_knows_every_script_and_the_clients_beside() -> None:
    definitions = json.loads(editor_schema())["$defs"]

    assert definitions["Load"]["properties"]["script"]["enum"] == list(K6_SCRIPTS)
    assert definitions["Client"]["properties"]["script"]["enum"] == list(CLIENT_SCRIPTS)


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server.__name__)
def test_the_example_of_every_server_is_a_variant(server: type[Variant]) -> None:
    words = get_args(server.model_fields["server"].annotation)

    assert server.model_validate({"server": words[0], **server.example}).service
