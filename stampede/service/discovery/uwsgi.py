"""The settings of uWSGI: of its files, and of its variables in the environment."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import yaml

from stampede.experiment.yaml_file import foreign_yaml
from stampede.service.discovery.arithmetic import computed

_INCLUDES = ("ini", "include", "inherit")
_SETS = ("env", "set-placeholder", "set-ph", "set")
"""Options that give a value to a name."""
_DEEPEST = 5


def variables_of_uwsgi(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the options that variables such as UWSGI_PROCESSES stand for."""
    return {name.removeprefix("UWSGI_").lower().replace("_", "-"): value
            for name, value in environment.items() if name.startswith("UWSGI_")}  # fmt: skip


def uwsgi_settings(
    text: str, suffix: str, cores: int, environment: Mapping[str, str], section: str = "",
    read: Callable[[str], str] = lambda _: "",
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Yield the options of uWSGI's settings file, whose suffix says whether it is an ini file, YAML or JSON."""
    if suffix == ".ini":
        yield from ini_settings(text, cores, environment, section, read)
        return
    with suppress(yaml.YAMLError, AttributeError, IndexError):  # JSON is YAML
        said = (foreign_yaml(text)[0] or {}).get(section or "uwsgi", {})
        for each in said if isinstance(said, list) else [said]:
            for name, value in each.items():
                yield str(name), str(value).lower() if isinstance(value, bool) else str(value)


def ini_settings(
    text: str, cores: int, environment: Mapping[str, str] | None = None, section: str = "",
    read: Callable[[str], str] = lambda _: "", depth: int = 0,
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """Yield the options of a section of uWSGI's ini file, and of those that it includes.

    ``%k`` (cores), ``%(name)`` (an earlier option), ``$(NAME)`` (a variable) and ``if-env`` are computed. ``read``
    returns the text of another file.
    """
    found: dict[str, str] = {}
    environment = dict(environment or {})
    inside, is_taken = True, True
    for line in text.splitlines():
        if heading := re.match(r"\s*\[([^\]]*)\]", line):
            inside = heading[1] == (section or "uwsgi")
        stated = re.match(r"\s*([\w-]+)\s*(?:=\s*(.*?))?\s*$", line)
        if not inside or not stated:
            continue
        name, value = stated[1], _filled(stated[2] or "true", found, environment, cores)
        if name.startswith("if-") or name == "endif":
            is_taken = _is_taken(name, value, environment)
        elif is_taken and name in _INCLUDES and depth < _DEEPEST:
            file, _, further = value.partition(":")
            yield from ini_settings(read(file), cores, environment, further, read, depth + 1)
            if not read(file):
                yield "unread", value
        elif is_taken:
            sets, equals, to = value.partition("=")
            if equals and name in _SETS:
                {"env": environment}.get(name, found)[sets] = to
            found[name] = value
            yield name, value


def _is_taken(name: str, value: str, environment: Mapping[str, str]) -> bool:
    """Return whether what follows a condition counts: a variable that nobody sets is absent."""
    variable, equals, said = value.partition("=")
    is_so = variable in environment and (not equals or environment[variable] == said)
    return {"if-env": is_so, "if-not-env": not is_so}.get(name, True)


def _filled(text: str, found: Mapping[str, str], environment: Mapping[str, str], cores: int) -> str:
    text = re.sub(r"\$\((\w+)\)", lambda name: environment.get(name[1], name[0]), text.replace("%k", str(cores)))
    text = re.sub(r"%\((\w+)\)", lambda name: found.get(name[1], name[0]), text)
    return re.sub(r"%\(([^()]*)\)", lambda sum_: computed(sum_[1], found) or sum_[0], text)
