"""The packages that an application requires, as lines of requirements, from whichever file says it."""

import configparser
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stampede.errors import WrongUse
from stampede.foreign import MIB, read_text

FILES = ("requirements.txt", "requirements/production.txt", "requirements/prod.txt", "requirements/base.txt",
         "requirements/common.txt", "requirements/main.txt", "requirements-prod.txt", "pyproject.toml", "Pipfile",
         "setup.cfg")  # fmt: skip
"""Where requirements usually are, the file that counts most first."""


def required_lines(path: Path, extras: Iterable[str] = ()) -> list[str]:
    """Return what a file requires: requirements of pip, pyproject.toml (PEP 621 or Poetry), Pipfile or setup.cfg.

    ``extras`` are those of the project, or groups of dependencies; names that the file lacks require nothing.
    If a lock file lies beside it, the releases are those of the lock. Raise WrongUse if the file cannot be read.
    """
    try:
        match path.name:
            case "pyproject.toml":
                return [*_locked(_of_pyproject(tomllib.loads(read_text(path)), extras), path.parent)]
            case "Pipfile":
                said = tomllib.loads(read_text(path)).get("packages", {})
                return [*_locked(_of_poetry(said), path.parent)]
            case "setup.cfg":
                parser = configparser.ConfigParser(interpolation=None)
                parser.read_string(read_text(path))
                of_extras = [parser.get("options.extras_require", extra, fallback="") for extra in extras]
                said = "\n".join([parser.get("options", "install_requires", fallback=""), *of_extras])
                return [line for line in said.splitlines() if line.strip()]
            case _:
                return [*_of_pip(path)]
    except (tomllib.TOMLDecodeError, configparser.Error) as error:
        raise WrongUse(f"{path.name} cannot be read: {error}") from None


def required_python(path: Path) -> str:
    """Return the releases of Python that a pyproject.toml requires, such as ``>=3.14``; empty: it says none."""
    with suppress(WrongUse, tomllib.TOMLDecodeError, AttributeError):
        said = tomllib.loads(read_text(path))
        return str(said.get("project", {}).get("requires-python", ""))
    return ""


def pinned_release(name: str, lines: Iterable[str]) -> str | None:
    """Return the release of a package that lines of requirements pin; None: they pin none."""
    pinned = re.compile(rf"^\s*{name}\s*(?:\[[^\]]*\])?\s*={{2,3}}\s*([0-9][0-9.]*)", re.IGNORECASE)
    return next((found[1] for line in lines if (found := pinned.match(line))), None)


def locked_release(name: str, folders: Iterable[Path]) -> tuple[str, Path] | None:
    """Return the release of a package that a lock file has, and its folder, though no file of requirements names it."""
    return next(((releases[name], folder) for folder in folders if name in (releases := dict(_of_lock(folder)))), None)


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


def _of_pyproject(said: Mapping[str, Any], extras: Iterable[str]) -> list[str]:
    project = said.get("project", {})
    poetry = said.get("tool", {}).get("poetry", {})
    found = [*project.get("dependencies", []), *_of_poetry(poetry.get("dependencies", {}))]
    for extra in extras:
        found += project.get("optional-dependencies", {}).get(extra, [])
        found += [each for each in said.get("dependency-groups", {}).get(extra, []) if isinstance(each, str)]
        found += _of_poetry(poetry.get("group", {}).get(extra, {}).get("dependencies", {}))
    return found


def _of_poetry(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield Poetry's or Pipenv's requirements as pip writes them."""
    for name, of in said.items():
        if name.lower() == "python":
            continue
        each = of if isinstance(of, dict) else {"version": of}
        extras = f"[{','.join(each['extras'])}]" if each.get("extras") else ""
        marker = f"; {each['markers']}" if each.get("markers") else ""
        if each.get("git"):
            yield f"{name}{extras} @ git+{each['git']}" + (
                f"@{each[key]}" if (key := next((k for k in ("rev", "tag", "branch") if k in each), "")) else ""
            )
        elif "path" not in each and not each.get("optional"):
            yield f"{name}{extras}{_bounds(str(each.get('version', '*')))}{marker}"


def _bounds(version: str) -> str:
    """Return Poetry's bounds as pip writes them: ``^1.2`` is ``>=1.2,<2``, ``~1.2`` is ``~=1.2.0``, ``*`` nothing."""
    version = version.strip()
    if version in ("*", ""):
        return ""
    if found := re.fullmatch(r"\^\s*(\d+)((?:\.\d+)*)", version):
        parts = [found[1], *found[2].split(".")[1:]]
        place = next((place for place, part in enumerate(parts) if part != "0"), len(parts) - 1)
        above = ".".join([*parts[:place], str(int(parts[place]) + 1)])
        return f">={'.'.join(parts)},<{above}"
    if found := re.fullmatch(r"~\s*(\d+)(?:\.(\d+))?((?:\.\d+)*)", version):
        return f">={version[1:].strip()},<{f'{found[1]}.{int(found[2]) + 1}' if found[2] else int(found[1]) + 1}"
    return version if version[0] in "<>=!~" else f"=={version}"


def _locked(lines: Iterable[str], folder: Path) -> Iterator[str]:
    """Yield requirements with the releases of the lock file in a folder, if there is one."""
    releases = dict(_of_lock(folder))
    for line in lines:
        named = re.match(r"\s*([A-Za-z0-9][\w.-]*)\s*(\[[^\]]*\])?", line)
        release = releases.get(_plain(named[1])) if named and "@" not in line else None
        marker = f" ; {line.partition(';')[2].strip()}" if ";" in line else ""
        yield f"{named[1]}{named[2] or ''}=={release}{marker}" if named and release else line


def _of_lock(folder: Path) -> Iterator[tuple[str, str]]:
    for name in ("uv.lock", "poetry.lock", "pdm.lock"):
        with suppress(WrongUse, tomllib.TOMLDecodeError, KeyError, AttributeError, TypeError):
            for package in tomllib.loads(read_text(folder / name, most_bytes=16 * MIB)).get("package", []):
                if "version" in package:
                    yield _plain(package["name"]), package["version"]
    with suppress(WrongUse, ValueError):
        locked = json.loads(read_text(folder / "Pipfile.lock", most_bytes=16 * MIB))
        for name, said in locked.get("default", {}).items():
            yield _plain(name), str(said.get("version", "")).removeprefix("==")


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
