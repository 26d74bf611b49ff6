"""The packages that an application requires, as lines of requirements, from whichever file says it, and its scripts."""

import json
import re
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name as plain

from stampede.errors import WrongUse
from stampede.foreign import MIB, read_text

FILES = (
    "requirements.txt",
    "requirements/production.txt",
    "requirements/prod.txt",
    "requirements/base.txt",
    "requirements/common.txt",
    "requirements/main.txt",
    "requirements-prod.txt",
    "pyproject.toml",
    "Pipfile",
)
"""Where requirements usually are, the file that counts most first."""


def read_document(path: Path, text: str | None = None) -> Any:  # noqa: ANN401  # any document
    """Return what a file of JSON or TOML says, or its text; an empty mapping: nothing, or it is not well formed."""
    with suppress(WrongUse, ValueError, RecursionError):
        text = read_text(path, most_bytes=16 * MIB) if text is None else text
        return json.loads(text) if path.name.endswith((".json", "Pipfile.lock")) and text else tomllib.loads(text)
    return {}


def required_lines(path: Path, extras: Iterable[str] = ()) -> list[str]:
    """Return what a file requires: requirements of pip, pyproject.toml (PEP 621 or Poetry) or Pipfile.

    ``extras`` are those of the project, or groups of dependencies; names that the file lacks require nothing.
    If a lock file lies beside it, the releases are those of the lock. Raise WrongUse if the file cannot be read.
    """
    try:
        match path.name:
            case "pyproject.toml":
                said = tomllib.loads(read_text(path))
                project, poetry = said.get("project", {}), said.get("tool", {}).get("poetry", {})
                chosen = {plain(name) for extra in extras for name in poetry.get("extras", {}).get(extra, [])}
                found = [*project.get("dependencies", []), *_of_poetry(poetry.get("dependencies", {}), chosen)]
                for extra in extras:
                    found += project.get("optional-dependencies", {}).get(extra, [])
                    group = said.get("dependency-groups", {}).get(extra, [])
                    found += [each for each in group if isinstance(each, str)]
                    found += _of_poetry(poetry.get("group", {}).get(extra, {}).get("dependencies", {}))
            case "Pipfile":
                found = [*_of_poetry(tomllib.loads(read_text(path)).get("packages", {}))]
            case _:
                return [*_of_pip(path)]
    except tomllib.TOMLDecodeError as error:
        raise WrongUse(f"{path.name} cannot be read: {error}") from None
    releases, lines = locked_releases(path.parent), []
    for line in found:  # of which some are no requirements of pip, such as those of Poetry with two bounds
        named = re.match(r"\s*([A-Za-z0-9][\w.-]*)\s*(\[[^\]]*\])?", line)
        release = releases.get(plain(named[1])) if named and "@" not in line else None
        marker = f" ; {line.partition(';')[2].strip()}" if ";" in line else ""
        lines.append(f"{named[1]}{named[2] or ''}=={release}{marker}" if named and release else line)
    return lines


def pinned_release(name: str, lines: Iterable[str]) -> str | None:
    """Return the release of a package that lines of requirements pin; None: they pin none."""
    pinned = re.compile(rf"^\s*{name}\s*(?:\[[^\]]*\])?\s*={{2,3}}\s*([0-9][0-9.]*)", re.IGNORECASE)
    return next((found[1] for line in lines if (found := pinned.match(line))), None)


def locked_releases(folder: Path) -> dict[str, str]:
    """Return the releases of the packages that the lock files of a folder have."""
    found: dict[str, str] = {}
    for name in ("uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock"):
        with suppress(KeyError, AttributeError, TypeError):
            said = read_document(folder / name)
            found |= {plain(each["name"]): each["version"] for each in said.get("package", []) if "version" in each}
            default = said.get("default", {})  # of Pipenv
            found |= {plain(name): str(each.get("version", "")).removeprefix("==") for name, each in default.items()}
    return found


def _of_pip(path: Path, including: tuple[Path, ...] = ()) -> Iterator[str]:
    """Yield the lines of a file of requirements, and of the files that it includes. Raise WrongUse if there is none."""
    if path in including:
        raise WrongUse(f"{path.name} includes itself.")
    for line in read_text(path).replace("\\\n", " ").splitlines():
        if further := re.match(r"\s*(?:-r|--requirement)[\s=]+(\S+)", line):
            if not (path.parent / further[1]).is_file():
                raise WrongUse(f"{path.name} includes {further[1]}, but there is no such file.")
            yield from _of_pip((path.parent / further[1]).resolve(), (*including, path.resolve()))
        else:
            yield line


def _of_poetry(said: Mapping[str, Any], chosen: Container[str] = ()) -> Iterator[str]:
    """Yield Poetry's or Pipenv's requirements as pip writes them: ``^1.2`` is ``>=1.2,<2``, ``~1.2`` ``>=1.2,<1.3``.

    Those that are optional are required if they are ``chosen``.
    """
    for name, of in said.items():
        each = of if isinstance(of, dict) else {"version": of}
        if name.lower() == "python" or "path" in each or (each.get("optional") and plain(name) not in chosen):
            continue
        extras = f"[{','.join(each['extras'])}]" if each.get("extras") else ""
        bounds = str(each.get("version", "*")).strip().removeprefix("*")
        if each.get("git"):
            at = next((f"@{each[key]}" for key in ("rev", "tag", "branch") if key in each), "")
            bounds = f" @ git+{each['git']}{at}"
        elif found := re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)", bounds):
            parts = found[2].split(".")
            place = next((place for place, part in enumerate(parts) if part != "0"), len(parts) - 1)
            place = min(1, len(parts) - 1) if found[1] == "~" else place
            above = ".".join([*parts[:place], str(int(parts[place]) + 1)])
            bounds = f">={found[2]},<{above}"
        elif bounds and bounds[0] not in "<>=!~":
            bounds = f"=={bounds}"
        marker = f"; {each['markers']}" if each.get("markers") and not each.get("git") else ""
        yield f"{name}{extras}{bounds}{marker}"


def scripts_of(*bases: Path) -> dict[str, Sequence[str]]:
    """Return the scripts of a project by name, each the function ``[module, name]``."""
    found: dict[str, Sequence[str]] = {}
    for base in dict.fromkeys(bases):
        said = read_document(base / "pyproject.toml")
        with suppress(AttributeError, TypeError):
            for table in (said.get("project", {}), said.get("tool", {}).get("poetry", {})):
                pairs = ((script, str(each).partition(":")) for script, each in table.get("scripts", {}).items())
                found |= {script: [module, function] for script, (module, _, function) in pairs if function}
    return found
