"""The scripts of a project by name, as its tools know them: texts for a shell, or functions."""

import json
import re
import shlex
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
            hatch = tool.get("hatch", {}).get("envs", {}).values()
            pipenv = read_document("Pipfile", _text(base / "Pipfile")).get("scripts", {})
            pixi = read_document("pixi.toml", _text(base / "pixi.toml")).get("tasks", {})
            for table in (said.get("project", {}).get("scripts", {}), tool.get("poetry", {}).get("scripts", {})):
                found |= {name: [module, function] for name, each in table.items()
                          for module, _, function in [str(each).partition(":")] if function}  # fmt: skip
            pdm, poe = tool.get("pdm", {}).get("scripts", {}), tool.get("poe", {})
            tables = [(pdm, pdm.get("_", {})), (tool.get("rye", {}).get("scripts", {}), {}), (pipenv, {}), (pixi, {}),
                      (tool.get("taskipy", {}).get("tasks", {}), {}),
                      (poe.get("tasks", {}), {key: poe[key] for key in ("env", "envfile") if key in poe}),
                      *((each.get("scripts", {}), {"env": each.get("env-vars", {})}) for each in hatch)]  # fmt: skip
            for table, of_all in tables:
                found |= {name: text for name, each in table.items() if (text := _text_of_script(name, each, of_all))}
    return found


def _text_of_script(name: str, script: object, of_all: Mapping[str, Any]) -> str:
    """Return a script of a project as a text for a shell: it may be a text, a list, or a table with one of them.

    ``of_all`` is a table for all scripts. A script with a key that is not followed, such as a file of variables, fails
    and says so.
    """
    table = {**of_all, **(script if isinstance(script, Mapping) else {"shell": script})}
    steps = next((table[key] for key in ("cmd", "shell", "composite", "sequence") if table.get(key)), "")
    unknown = [key for key in table if key not in _FOLLOWED]
    if isinstance(steps, list):
        unknown += ["a table among the steps"] if any(isinstance(each, Mapping) for each in steps) else []
        then = "\n" if "shell" in table else " && "
        steps = shlex.join(map(str, steps)) if "cmd" in table else then.join(map(str, steps))
    given = {**(of_all.get("env") or {}), **(table.get("env") or {})}
    if steps and (unknown or not all(isinstance(value, str) for value in given.values())):
        said = f"{name}: {' and '.join(unknown) or 'env'} of this script is not followed"
        return f"echo {shlex.quote(said)} >&2; exit 1 #"
    exports = "".join(f"export {key}={shlex.quote(value)}; " for key, value in given.items())
    if usual := next((each[1:] for each in _ARGUMENTS.findall(str(steps)) if each), ""):
        exports += f"[ $# -gt 0 ] || set -- {usual}; "
    return f"{exports}{_ARGUMENTS.sub(_ALL, str(steps))}" if steps else ""


_FOLLOWED = ("cmd", "shell", "composite", "sequence", "env", "help", "description")
_ARGUMENTS, _ALL = re.compile(r"\{args(:[^{}]*)?\}"), '"$@"'
"""Where Hatch's scripts have the arguments of a command, or its usual ones, and how a shell has them."""


def _text(path: Path) -> str:
    with suppress(WrongUse):
        return read_text(path) if path.is_file() else ""
    return ""
