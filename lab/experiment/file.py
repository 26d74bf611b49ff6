"""Read experiment files. Each YAML file asks one question, and an unknown or repeated key in it is an error."""

import json
import re
import reprlib
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from analysis.records.model import NAME_PATTERN
from analysis.records.nearest import nearest_first
from lab.errors import WrongUse
from lab.experiment.messages import explain
from lab.experiment.model import Experiment
from lab.paths import EXPERIMENTS


def names() -> list[str]:
    """Return the names of all experiments."""
    return sorted(path.stem for path in EXPERIMENTS.glob("*.yaml") if re.fullmatch(NAME_PATTERN, path.stem))


def load_experiment(name: str) -> Experiment:
    """Read and check experiments/<name>.yaml. Raise WrongUse with the place of the first mistake."""
    path = EXPERIMENTS / f"{name}.yaml"
    if not name:
        raise WrongUse("No experiment was named.", hint=f"NAME=…, one of {nearest_first(name, names())}")
    if name not in names():
        raise WrongUse(
            f"There is no experiment {name!r}.", hint=f"make experiment NAME=…, one of {nearest_first(name, names())}"
        )
    return read_experiment(path)


def read_experiment(path: Path) -> Experiment:
    """Read and check one experiment file. Raise WrongUse with the place of the first mistake."""
    document, values = read_yaml(path)
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise WrongUse(explain(path.name, document, values, error)) from None


def read_yaml(path: Path) -> tuple[yaml.Node | None, Any]:
    """Read a YAML file as nodes, which know their lines, and as values. Raise WrongUse if it is not valid."""
    try:
        text = path.read_text(encoding="utf-8")
        document = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_duplicates(document)
        values = yaml.load(text, Loader=_Loader)  # noqa: S506  # _Loader is a SafeLoader
    except (OSError, UnicodeDecodeError) as error:
        raise WrongUse(f"{path} cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise WrongUse(f"{path.name}{line}: not valid YAML: {error.problem}") from None
    except yaml.reader.ReaderError as error:
        raise WrongUse(f"{path.name}: not valid YAML: {error.reason} (#x{error.character:04x})") from None
    except RecursionError:
        raise WrongUse(f"{path.name}: not valid YAML: it is nested too deeply") from None
    return document, values


def editor_schema() -> str:
    """Return the JSON schema of experiment files, for editors."""
    return json.dumps(Experiment.model_json_schema(), indent=2, ensure_ascii=False) + "\n"


class _Loader(yaml.SafeLoader):
    """A safe loader that names the line of each value that cannot be read, or that could not be written again."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:  # noqa: ANN401  # YAML allows any type
        try:
            value = super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, OverflowError):
            kind = node.tag.rsplit(":", 1)[-1]
            raise _refused(f"{reprlib.repr(node.value)} cannot be read as {kind}", node) from None
        if isinstance(value, int) and value.bit_length() > BITS:
            raise _refused(f"the number has more than {BITS} bits", node)
        if isinstance(value, str) and (odd := _UNPRINTABLE.search(value)):
            raise _refused(f"the text must not contain {odd[0]!r}", node)
        return value


BITS = 63
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def _refused(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)


def _refuse_duplicates(node: yaml.Node | None, seen_nodes: set[int] | None = None) -> None:
    """Raise a YAML error if a mapping has the same key twice: PyYAML would silently keep only the last value.

    Each node is visited once, even if several aliases refer to it.
    """
    seen_nodes = set() if seen_nodes is None else seen_nodes
    if id(node) in seen_nodes:
        return
    seen_nodes.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_duplicates(item, seen_nodes)
    elif isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise _refused(f"the key {key.value} appears twice", key)
                seen.add(key.value)
            _refuse_duplicates(value, seen_nodes)
