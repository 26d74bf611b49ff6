"""What an application requires: the file that says it, and what a Dockerfile installs besides."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from stampede.errors import WrongUse
from stampede.service.discovery.repository import Image, Repository
from stampede.service.packages import FILES, required_lines, required_python

PYTHON = "3.13"
"""The Python of Debian trixie, on which the lab's images of servers stand."""
_VERBS = ("install", "wheel", "sync", "export")
_FILE = ("-r", "--requirement")
_EXTRAS = ("--extra", "--group", "--with", "--extras", "-E", "-G")
_WITH_VALUE = {
    *_FILE, *_EXTRAS, "-c", "--constraint", "-i", "--index-url", "--extra-index-url", "-f", "--find-links", "-w",
    "--wheel-dir", "-t", "--target", "--prefix", "--cache-dir", "--python", "-o", "--output-file", "--format",
    "--progress-bar", "--timeout", "--retries", "--trusted-host", "--platform", "--python-version", "--root", "--src",
    "--log", "--proxy", "--no-binary", "--only-binary", "--upgrade-strategy", "--root-user-action", "--use-feature",
    "--exists-action", "--index-strategy", "--link-mode", "-b", "--build-constraint", "--python-preference", "-p",
}  # fmt: skip
"""Options whose value is the next word."""
_TOOLS = re.compile(r"(pip|setuptools|wheel|uv|poetry|pipenv|pip-tools|pdm|hatch|build)\b", re.IGNORECASE)
_FOR_DEVELOPMENT = re.compile(r"(^|[-_])(dev\w*|tests?|docs?|lint\w*)([-_]|$)")
_PACKAGE = re.compile(r"[A-Za-z0-9][\w.-]*(\[[^\]]*\])?\s*([=<>!~].*)?")
_OF_PROJECT = re.compile(r"[./~$][^\[]*\[([^\]]+)\]")
"""The project itself with its extras, such as ``.[server]``."""


@dataclass
class Requirements:
    """A file of requirements, as seen from the repository, and all lines; empty: there is none."""

    file: str = ""
    lines: list[str] = field(default_factory=list)
    extras: list[str] = field(default_factory=list)
    packages: list[str] = field(default_factory=list)


def find_requirements(problems: list[str], repository: Repository, bases: Sequence[Path], image: Image) -> Requirements:
    """Return what an application requires, whose folder is first of ``bases``; what a file has wrong is a problem.

    The commands of ``image`` install packages of Python; the files that they name may have other names outside.
    """
    named, extras, packages = _installed(image.installs.python)
    outside = {PurePosixPath(target).name: source.removeprefix("./") for source, target in image.copies}
    named = [*(outside[name] for name in named if name in outside), *named]
    for name in dict.fromkeys([*named, *(f"requirements/{each}" for each in named), *FILES]):
        for base in bases:
            path = base / name
            if path.is_file() and path.resolve().is_relative_to(repository.folder.resolve()):
                try:
                    lines = [*required_lines(path, extras), *packages]
                except WrongUse as error:
                    problems.append(error.message)
                    continue
                if any(line.strip() and not line.lstrip().startswith(("#", "-")) for line in lines):
                    problems += _other_python(repository, path.parent / "pyproject.toml", image)
                    has = [each for each in extras if required_lines(path, [each]) != required_lines(path)]
                    return Requirements(repository.name(path), lines, has, packages)
    if repository.files("*.py") and not packages:
        problems.append("no file of requirements was found, so stampede try installs only the server")
    return Requirements(lines=packages, packages=packages)


def _other_python(repository: Repository, project: Path, image: Image) -> list[str]:
    """Return that the application needs, or its image has, another Python than the lab's images have."""
    said = [(project, "requires", required_python(project))]
    said += [(image.file, "its image has", f"=={image.python}.*")] if image.file and image.python else []
    for path, has, release in said:
        with suppress(InvalidSpecifier):
            if not SpecifierSet(release).contains(f"{PYTHON}.99"):
                shown = image.python if path == image.file else release
                return [f"{repository.name(path)}: {has} Python {shown}, but the lab serves a folder with Python "
                        f"{PYTHON}: if it does not start, give your own image in application.image"]  # fmt: skip
    return []


def _installed(commands: Sequence[Sequence[str]]) -> tuple[list[str], list[str], list[str]]:
    """Return the files of requirements, the extras and groups, and the packages that commands install."""
    files: list[str] = []
    extras: list[str] = []
    packages: list[str] = []
    for command in commands:
        verb = next((place for place, word in enumerate(command) if word in _VERBS), len(command))
        by_pip = any(re.search(r"(^|/)pip3?$", word) for word in command[:verb])
        for option, word in _options(command[verb + 1 :]):
            if option in _FILE:
                parts = word.strip("/").split("/")
                files += ["/".join(parts[start:]) for start in range(len(parts))]  # the image may have it elsewhere
            elif option in _EXTRAS:
                extras += re.split(r"[,\s]+", word)
            elif not option and (own := _OF_PROJECT.fullmatch(word)):
                extras += own[1].split(",")
            elif not option and word.endswith(".txt"):  # uv pip sync
                files.append(word)
            elif not option and by_pip and _PACKAGE.fullmatch(word) and not _TOOLS.match(word):
                packages.append(word)
    kept = [extra.strip() for extra in extras if not _FOR_DEVELOPMENT.search(extra)]
    return files, [*dict.fromkeys(kept)], [*dict.fromkeys(packages)]


def _options(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the words of a command after its verb, each with the option that it belongs to."""
    rest = [*words]
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if word in _WITH_VALUE and rest:
            yield word, rest.pop(0)
        elif word.startswith("-"):
            yield name, value if equals else ""
        else:
            yield "", word
