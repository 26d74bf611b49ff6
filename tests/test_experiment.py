"""lab.experiment: what a file asks for is what is measured, and every mistake is named with its place."""

import contextlib
import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lab.errors import WrongUse
from lab.experiment import Experiment, load_experiment, names, read_experiment, schema
from lab.paths import EXPERIMENTS

GOOD = """\
title: A title
question: Why?
load:
  script: heavy-mix.js
  duration: {short: 60s, full: 5m}
  settings: {light_vus: 5}
variants:
  shared-socket:
    server: gunicorn-gthread
    workers: 4
    threads: 2
  one-process: {server: gunicorn-gthread, workers: 1, threads: 8}
published:
  - {variant: shared-socket, request: light, metric: overhead, stats: {p99: 1000}}
claims:
  - says: It waits
    value: {variant: shared-socket, request: light, metric: overhead, stat: p99}
    at_least: 1000
"""


def refused(tmp_path: Path, text: str) -> str:
    """Return the message with which a file is refused."""
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(WrongUse) as caught:
        read_experiment(path)
    return caught.value.message


def test_a_good_file_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)

    experiment = read_experiment(tmp_path / "mine.yaml")

    assert list(experiment.variants) == ["shared-socket", "one-process"]
    assert list(experiment.all_loads) == ["heavy-mix"]
    assert experiment.all_loads["heavy-mix"].environment() == {"LIGHT_VUS": "5"}
    assert experiment.variants["one-process"].environment()["LAB_THREADS"] == "8"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("threads: 2\n", "threds: 2\n"), "mine.yaml:11: variants.shared-socket.threds: unknown key"),
        (("threads: 2\n", "threads: 2\n    spare: 1\n"), "mine.yaml:12: variants.shared-socket.spare: unknown key"),
        (("question: Why?\n", ""), "mine.yaml:1: question: missing key"),
        (("workers: 4", "workers: 0"),
         "mine.yaml:10: variants.shared-socket.workers: Input should be greater than or equal to 1; it is 0"),
        (("workers: 4", "workers: many"),
         "mine.yaml:10: variants.shared-socket.workers: Input should be a valid integer, unable to parse string as an "
         "integer; it is 'many'"),
        (("heavy-mix.js", "heavy-mx.js"),
         "mine.yaml:3: load: k6/heavy-mx.js does not exist; there are heavy-mix.js, arrivals.js, users.js"),
        (("short: 60s", "short: 60"),
         "mine.yaml:5: load.duration.short: Input should be a valid string; it is 60"),
        (("threads: 2\n", "threads: 2\n    release: 22.0.0\n"),
         "mine.yaml:8: variants.shared-socket: gunicorn 22.0.0 has no lock file; there are 23.0.0, 27.0.1"),
        (("{variant: shared-socket, request: light, metric: overhead, stat: p99}",
          "{variant: shared, request: light, metric: overhead, stat: p99}"),
         "mine.yaml: claims.0: there is no variant shared; there are shared-socket, one-process"),
        (("at_least: 1000", "at_leats: 1000"), "mine.yaml:18: claims.0.at_leats: unknown key"),
        (("    at_least: 1000\n", ""),
         "mine.yaml:16: claims.0: a claim needs exactly one of at_least and at_most"),
        (("metric: overhead, stat: p99", "metric: throughput, stat: p99"),
         "mine.yaml:17: claims.0.value: metric throughput has no stat p99; it has per_second"),
        (("stats: {p99: 1000}", "counts: [1, 2]"),
         "mine.yaml:14: published.0: counts belong to metric requests_by_worker"),
        (("threads: 2\n", "threads: 2\n    release: 23.0.0\n    reuse_port: true\n"),
         "mine.yaml:8: variants.shared-socket: gunicorn 23.0.0 ignores reuse_port; it works from 24 on"),
        (("light_vus: 5", "duration: 5"), "mine.yaml:3: load: settings.duration is set by the lab; choose another"),
        (("question: Why?\n", "question: Why?\nsource: {title: T, publisher: P, yaer: 2025}\n"),
         "mine.yaml:3: source.yaer: unknown key"),
        (("  one-process:", "  shared-socket:"), "mine.yaml:12: not YAML: the key shared-socket stands twice"),
        (("  one-process:", "  One_Process:"),
         "mine.yaml:12: variants.One_Process.[key]: String should match pattern '^[a-z0-9]+(-[a-z0-9]+)*$'; it is "
         "'One_Process'"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    assert change[0] in GOOD
    assert refused(tmp_path, GOOD.replace(change[0], change[1], 1)) == message


def test_text_that_is_not_yaml_is_named_with_its_line(tmp_path: Path) -> None:
    message = refused(tmp_path, "title: A title\nload: {script: x\n")

    assert message == "mine.yaml:3: not YAML: expected ',' or '}', but got '<stream end>'"


@pytest.mark.parametrize("text", ["", "[]", "just text", "- a\n- b\n"])
def test_a_file_without_keys_is_refused(tmp_path: Path, text: str) -> None:
    assert refused(tmp_path, text).startswith("mine.yaml: Input should be a valid dictionary")


def test_load_and_loads_exclude_each_other(tmp_path: Path) -> None:
    both = GOOD + "loads:\n  a: {script: heavy-mix.js, duration: {short: 1s, full: 1s}}\n"
    assert refused(tmp_path, both) == "mine.yaml: give either load or loads"


def test_an_unknown_experiment_lists_the_known_ones_nearest_first() -> None:
    with pytest.raises(WrongUse) as caught:
        load_experiment("hevy-mix")

    assert caught.value.message == "There is no experiment 'hevy-mix'."
    assert caught.value.hint.startswith("make experiment NAME=…, one of heavy-mix")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.text(max_size=80), st.binary(max_size=40).map(lambda raw: raw.decode("latin-1"))))
def test_no_text_makes_the_reader_fail_otherwise(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    with pytest.raises(WrongUse):
        read_experiment(path)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from(list(Experiment.model_fields)), value=VALUES)
def test_no_value_of_a_key_makes_the_reader_fail_otherwise(tmp_path: Path, key: str, value: object) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(GOOD) | {key: value}))
    with contextlib.suppress(WrongUse):
        read_experiment(path)


@pytest.mark.parametrize("name", names())
def test_every_experiment_of_the_lab_is_read(name: str) -> None:
    assert load_experiment(name).title


def test_the_schema_describes_the_files() -> None:
    described = json.loads(schema())

    assert set(Experiment.model_fields) == set(described["properties"])
    assert not described["additionalProperties"]


def test_the_schema_for_editors_is_the_one_in_force() -> None:
    """Mend with: lab schema > experiments/schema.json."""
    assert schema() == (EXPERIMENTS / "schema.json").read_text(encoding="utf-8")
