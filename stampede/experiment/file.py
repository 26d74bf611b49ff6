"""Find and read experiment files. Each YAML file asks one question."""

import json
import re
from pathlib import Path

from stampede.errors import WrongUse
from stampede.experiment.model import DURATION_PATTERN, SETTING_NAME_PATTERN, SETTING_TEXT_PATTERN, Experiment
from stampede.experiment.yaml_file import YamlFile
from stampede.paths import EXPERIMENTS
from stampede.records.mistakes import Wording
from stampede.records.model import NAME_PATTERN
from stampede.records.words import nearest_first
from stampede.servers import KINDS
from stampede.servers.base import CPUSET_PATTERN, RELEASE_PATTERN
from stampede.typed import typed


def names() -> list[str]:
    """Return the names of all experiments."""
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yaml") if re.fullmatch(NAME_PATTERN, path.stem))


def load_experiment(name: str) -> Experiment:
    """Read and check experiments/<name>.yaml. Raise WrongUse with the place of the first mistake."""
    if name not in (known := names()):
        problem = f"There is no experiment {name!r}." if name else "No experiment was named."
        raise WrongUse(problem, hint=f"{typed('run', '…')}, one of {nearest_first(name, known)}")
    return read_experiment(EXPERIMENTS / f"{name}.yaml")


def read_experiment(path: Path) -> Experiment:
    """Read and check one experiment file. Raise WrongUse with the place of the first mistake."""
    return YamlFile(path, WORDING).read_as(Experiment)


def editor_schema() -> str:
    """Return the JSON schema of experiment files, for editors."""
    return json.dumps(Experiment.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


_WORD, _SERVER = next(iter(KINDS.items()))
WORDING = Wording(
    patterns={
        DURATION_PATTERN: ("whole seconds or minutes", "90s"),
        RELEASE_PATTERN: ("a release, digits with dots between them", "27.0.1"),
        CPUSET_PATTERN: ("the numbers of cores", "0-1"),
        SETTING_NAME_PATTERN: ("a name of lower-case letters, digits and underscores", "every_s"),
        SETTING_TEXT_PATTERN: ("a word without quotes and backslashes", "wait"),
    },
    examples={
        "Api": "{first_s: 5, every_s: 20, stall_s: 5, takes_s: 10}",
        "ClaimEntry": "{says: One process is quick, value: {variant: one-process, metric: overhead, stat: p99}, "
        "at_most: 50}",
        "Client": "{script: silent.py, settings: {connections: 2, silent_s: 10}}",
        "CurveEntry": "{over: threads, values: [{metric: overhead, stat: p99}]}",
        "Database": "{max_connections: 151}",
        "Durations": "{short: 60s, full: 5m}",
        "Experiment": "title: …, question: …, load: {…}, variants: {…}",
        "Load": "{duration: {short: 60s, full: 5m}, classes: {page: {users: 5, takes_s: 0.1}}}",
        "MeasureEntry": "{request_class: light, metric: overhead, stat: p99}",
        "PublishedEntry": "{variant: one-process, request_class: light, metric: overhead, stats: {p99: 13.07}}",
        "QuantityEntry": "{variant: one-process, request_class: light, metric: overhead, stat: p99}",
        "Relative": "{times: 2, of: gunicorn-5, under: capacity}",
        "Source": "{title: …, publisher: …, year: 2025}",
        "server": f"{{server: {_WORD}, {', '.join(f'{key}: {value}' for key, value in _SERVER.example.items())}}}",
    },
)
