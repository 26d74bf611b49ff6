"""The scripts of a project by name, as its tools know them: texts for a shell, or functions."""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from stampede.errors import WrongUse
from stampede.foreign import read_text


def read_document(name: str, text: str) -> Any:  # noqa: ANN401  # any document
    """Return what a text of JSON or TOML says; an empty mapping: nothing, or it is not well formed."""
    with suppress(ValueError):
        return json.loads(text) if name.endswith(".json") and text else tomllib.loads(text)
    return {}


def scripts_of(*bases: Path) -> dict[str, str | Sequence[str]]:
    """Return the scripts of a project by name: texts for a shell, or the function ``[module, name]``."""
    found: dict[str, str | Sequence[str]] = {}
    for base in dict.fromkeys(bases):
        for text in (_text(base / "setup.py"), _text(base / "setup.cfg")):
            entries = re.findall(r"""["'\s]([\w-]+)\s*=\s*([A-Za-z_][\w.]*):([A-Za-z_]\w*)\s*["'\n]""", text)
            found |= {name: [module, function] for name, module, function in entries}
        said = read_document("pyproject.toml", _text(base / "pyproject.toml"))
        with suppress(AttributeError, TypeError):
            tool = said.get("tool", {})
            hatch = [each.get("scripts", {}) for each in tool.get("hatch", {}).get("envs", {}).values()]
            pipenv = read_document("Pipfile", _text(base / "Pipfile")).get("scripts", {})
            pixi = read_document("pixi.toml", _text(base / "pixi.toml")).get("tasks", {})
            for table in (said.get("project", {}).get("scripts", {}), tool.get("poetry", {}).get("scripts", {})):
                found |= {name: [module, function] for name, each in table.items()
                          for module, _, function in [str(each).partition(":")] if function}  # fmt: skip
            plain = [tool.get("pdm", {}).get("scripts", {}), tool.get("rye", {}).get("scripts", {}),
                     tool.get("poe", {}).get("tasks", {}), tool.get("taskipy", {}).get("tasks", {})]  # fmt: skip
            for table in (*plain, *hatch, pipenv, pixi):
                found |= {name: _text_of_script(each) for name, each in table.items() if _text_of_script(each)}
    return found


def _text_of_script(said: object) -> str:
    """Return a script of a project as a text for a shell: it may be a text, a list, or a table with one of them."""
    if isinstance(said, Mapping):
        said = said.get("cmd") or said.get("shell")
    return "\n".join(map(str, said)) if isinstance(said, list) else said if isinstance(said, str) else ""


def _text(path: Path) -> str:
    with suppress(WrongUse):
        return read_text(path) if path.is_file() else ""
    return ""
