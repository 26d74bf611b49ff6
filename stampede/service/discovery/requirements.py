"""What an application requires: the file that says it, and what the commands of a Dockerfile install besides."""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path, PurePosixPath

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from stampede.errors import WrongUse
from stampede.service.description import NO_REQUIREMENTS, PACKAGE_PATTERN
from stampede.service.discovery.repository import Image, Repository, is_file
from stampede.service.packages import FILES, read_document, required_lines

PYTHON = "3.13"
"""The Python of Debian trixie, on which the lab's images of servers stand."""
_APT = ("apt-get", "apt", "aptitude")
_APT_SCRIPTS = ("apt-install", "install_packages")
"""Usual names of scripts that hand their arguments on to apt-get install, such as that of Bitnami's images."""
_VALUE_OF_APT = ("-t", "--target-release", "--default-release", "-o", "--option", "-c", "--config-file", "-a")
"""apt-get's options whose value is the next word."""
_OTHER_MANAGERS = {"apk": "add", "yum": "install", "dnf": "install", "microdnf": "install", "zypper": "install"}
"""Programs that install packages of other distributions, and the word that follows."""
_NOT_NEEDED = re.compile(
    r"(lib)?python[0-9.]*(-(dev|pip|venv|distutils|setuptools|wheel|minimal|full))?|apt-transport-https|cron|curl|"
    r"dirmngr|dumb-init|gnupg2?|gosu|less|lsb-release|nano|net-tools|netcat(-openbsd|-traditional)?|nginx|procps|"
    r"software-properties-common|sudo|supervisor|tini|vim|wget"
)
"""Python itself, which the lab's image has in its own release, and packages for people, for the start of a container
and for other package archives. No application imports them."""
_ENVIRONMENTS = ("conda", "mamba", "micromamba", "make", "cmake", "pixi")
_PIP = ("pip", "pip3", "uv", "poetry", "pdm", "pipenv")
_INDEX = re.compile(r"^(-i$|--index-url|--extra-index-url|--index$|--index=|--default-index|--find-links|-f$)")
_INDEX_VARIABLE = re.compile(r"(PIP|UV)_(EXTRA_|DEFAULT_)?INDEX(_URL)?$")
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
"""Options of pip and its like whose value is the next word."""
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
    named, extras, packages = _installed(image)
    outside = {PurePosixPath(target).name: source.removeprefix("./") for source, target in image.copies}
    named = [*(outside[name] for name in named if name in outside), *named]
    for name in dict.fromkeys([*named, *(f"requirements/{each}" for each in named), *FILES]):
        for path in (base / name for base in bases):
            if is_file(path) and path.resolve().is_relative_to(repository.folder.resolve()):
                try:
                    lines = [*required_lines(path, extras), *packages]
                except WrongUse as error:
                    problems.append(error.message)
                    continue
                if any(line.strip() and not line.lstrip().startswith(("#", "-")) for line in lines):
                    problems += _other_python(repository, path.parent / "pyproject.toml", image)
                    has = [each for each in extras if required_lines(path, [each]) != required_lines(path)]
                    return Requirements(repository.name(path), lines, has, packages)
    for path in (base / name for base in bases for name in NO_REQUIREMENTS):
        if "install_requires" in repository.text(path):
            problems.append(f"{repository.name(path)}: the lab does not read install_requires; write them into a "
                            "requirements.txt")  # fmt: skip
    if repository.files("*.py") and not packages:
        problems.append("no file of requirements was found, so stampede try installs only the server")
    return Requirements(lines=packages, packages=packages)


def _other_python(repository: Repository, project: Path, image: Image) -> list[str]:
    """Return that the application needs, or its image has, another Python than the lab's images have."""
    with suppress(AttributeError):
        requires = str(read_document(project).get("project", {}).get("requires-python", ""))
        said = [(project, "requires", requires, requires)]
        said += [(image.dockerfile, "its image has", f"=={image.python}.*", image.python)] if image.dockerfile else []
        for path, has, release, shown in said:
            with suppress(InvalidSpecifier):
                if not SpecifierSet(release).contains(f"{PYTHON}.99"):
                    return [f"{repository.name(path)}: {has} Python {shown}, but the lab serves a folder with Python "
                            f"{PYTHON}: if it does not start, give your own image in application.image"]  # fmt: skip
    return []


def _installed(image: Image) -> tuple[list[str], list[str], list[str]]:
    """Return the files of requirements, the extras and groups, and the packages that an image installs."""
    named: list[str] = []
    extras: list[str] = []
    packages: list[str] = []
    for words in (words for _, words in image.runs if installs_python(words)):
        verb = next((place for place, word in enumerate(words) if word in _VERBS), len(words))
        by_pip = any(re.search(r"(^|/)pip3?$", word) for word in words[:verb])
        for before, word in pairwise(["", *words[verb + 1 :]]):
            option, _, value = word.partition("=") if word.startswith("-") else (before, "", word)
            if option in _FILE:
                parts = value.strip("/").split("/")
                named += ["/".join(parts[start:]) for start in range(len(parts))]  # the image may have it elsewhere
            elif option in _EXTRAS:
                extras += re.split(r"[,\s]+", value)
            elif option in _WITH_VALUE or word.startswith("-"):
                continue
            elif own := _OF_PROJECT.fullmatch(word):
                extras += own[1].split(",")
            elif word.endswith(".txt"):  # uv pip sync
                named.append(word)
            elif by_pip and _PACKAGE.fullmatch(word) and not _TOOLS.match(word):
                packages.append(word)
    extras = [extra.strip() for extra in extras if extra.strip() and not _FOR_DEVELOPMENT.search(extra)]
    return [*filter(None, named)], [*dict.fromkeys(extras)], [*dict.fromkeys(packages)]


def installs_python(words: Sequence[str]) -> bool:
    """Return whether a command of RUN installs packages of Python."""
    words = _bare(words)
    return bool(words) and (words[0].rpartition("/")[2] in _PIP or words[1:3] in (["-m", "pip"], ["-m", "uv"]))


def _bare(words: Sequence[str]) -> list[str]:
    """Return a command without the variables that it gets."""
    first = next((place for place, word in enumerate(words) if not re.match(r"[A-Za-z_]\w*=", word)), 0)
    return [*words[first:]]


def system_packages(problems: list[str], commands: Iterable[tuple[str, Sequence[str]]], build: str) -> dict[str, str]:
    """Return Debian's packages that commands of RUN install, each with its place.

    What else they do that the lab does not follow is a problem; ``build`` says how to build the image instead.
    """
    found: dict[str, str] = {}
    unknown: list[str] = []
    for place, words in ((place, _bare(words)) for place, words in commands if words):
        program = words[0].rpartition("/")[2]
        if (program in _APT and "install" in words) or program in _APT_SCRIPTS:
            after = words[words.index("install") + 1 if program in _APT else 1 :]
            for before, word in pairwise(["", *after]):
                if word.startswith("-") or before in _VALUE_OF_APT:
                    continue
                name = word if "$" in word or word.startswith(("/", ".")) else re.split(r"[=/:]", word)[0]
                if not re.fullmatch(PACKAGE_PATTERN, name):
                    unknown.append(f"{place}: the lab does not follow {program} install {name}")
                elif not _NOT_NEEDED.fullmatch(name):
                    found.setdefault(name, place)
        elif program in _OTHER_MANAGERS and _OTHER_MANAGERS[program] in words:
            problems.append(f"{place}: {' '.join(words)}: write Debian's names in application.system_packages")
        elif program in _ENVIRONMENTS or (program == "ENV" and _INDEX_VARIABLE.match(words[1])):
            unknown.append(f"{place}: the lab does not follow {' '.join(words)}")
        elif installs_python(words):
            options = [word.partition("=")[0] for word in words if _INDEX.match(word)  # the address may have a password
                       and not (word == "-f" and program in ("poetry", "pdm"))]  # fmt: skip  # a format
            unknown += [f"{place}: the lab does not follow {program} with {option}" for option in options]
    if unknown:
        problems += [*unknown, f"if the application needs these steps: {build}"]
    return found
