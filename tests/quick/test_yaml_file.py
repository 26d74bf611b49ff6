"""stampede.experiment.yaml_file: what would end the process is refused."""

from pathlib import Path

import pytest

from stampede.errors import WrongUse
from stampede.experiment.yaml_file import YamlFile


@pytest.mark.parametrize("text", ["[" * 100_000, "- " * 100_000, "{a: " * 100_000])
def test_a_file_that_is_nested_too_deeply_is_refused(tmp_path: Path, text: str) -> None:
    """The composer of LibYAML would end the process here."""
    path = tmp_path / "deep.yaml"
    path.write_text(text)

    with pytest.raises(WrongUse, match=r"deep\.yaml: not valid YAML: it is nested too deeply"):
        YamlFile(path)
