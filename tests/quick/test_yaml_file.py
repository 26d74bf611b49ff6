"""stampede.experiment.yaml_file: the quick loader reads what the loader that explains mistakes would read."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from stampede.errors import WrongUse
from stampede.experiment.yaml_file import YamlFile, _ExplainingLoader, _QuickLoader
from stampede.paths import ROOT


def read(node: yaml.Node) -> Any:
    """Return what a node says and where it stands, with the nodes in it."""
    inner = node.value
    if isinstance(node, yaml.MappingNode):
        inner = [(read(key), read(value)) for key, value in node.value]
    if isinstance(node, yaml.SequenceNode):
        inner = [read(one) for one in node.value]
    return node.tag, node.start_mark.line, node.start_mark.column, inner


@pytest.mark.parametrize("name", ["experiments/heavy-mix.yaml", "lessons/lesson.yaml", "docker-compose.yml"])
def test_both_loaders_read_the_same_at_the_same_place(name: str) -> None:
    text = (ROOT / name).read_text()

    (quick, values), (explaining, same) = _QuickLoader(text).parse(), _ExplainingLoader(text).parse()

    assert quick is not None
    assert explaining is not None
    assert (values, read(quick)) == (same, read(explaining))


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000])
def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path, text: str) -> None:
    """The composer of LibYAML would end the process here."""
    path = tmp_path / "deep.yaml"
    path.write_text(text)

    with pytest.raises(WrongUse, match=r"deep\.yaml: not valid YAML: it is nested too deeply"):
        YamlFile(path)
