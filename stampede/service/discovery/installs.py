"""What the RUN instructions of a Dockerfile install beside the packages of Python."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from stampede.service.description import PACKAGE_PATTERN

_APT = ("apt-get", "apt", "aptitude")
_APT_SCRIPTS = ("apt-install", "install_packages")
"""Usual names of scripts that hand their arguments on to apt-get install, such as that of Bitnami's images."""
_WITH_VALUE = ("-t", "--target-release", "--default-release", "-o", "--option", "-c", "--config-file", "-a")
"""apt-get's options whose value is the next word."""
_OTHER_MANAGERS = {"apk": "add", "yum": "install", "dnf": "install", "microdnf": "install", "zypper": "install"}
"""Programs that install packages of other distributions, and the word that follows."""
_OF_PYTHON = re.compile(r"(lib)?python[0-9.]*(-(dev|pip|venv|distutils|setuptools|wheel|minimal|full))?")
"""Packages of Python itself, which the lab's image has in its own release."""
_FOR_PEOPLE = {
    "apt-transport-https", "cron", "curl", "dirmngr", "dumb-init", "gnupg", "gnupg2", "gosu", "less", "lsb-release",
    "nano", "net-tools", "netcat", "netcat-openbsd", "netcat-traditional", "nginx", "procps",
    "software-properties-common", "sudo", "supervisor", "tini", "vim", "wget",
}  # fmt: skip
"""Packages for people, for the start of a container and for other package archives. No application imports them."""
_ENVIRONMENTS = ("conda", "mamba", "micromamba", "make", "cmake", "pixi")
_PIP = ("pip", "pip3", "uv", "poetry", "pdm", "pipenv")
_INDEX = re.compile(r"^(-i$|--index-url|--extra-index-url|--index$|--index=|--default-index|--find-links|-f$)")

_INDEX_VARIABLE = re.compile(r"(PIP|UV)_(EXTRA_|DEFAULT_)?INDEX(_URL)?$")


@dataclass(frozen=True)
class Installs:
    """Debian's packages by name, each with its place, and the commands that install packages of Python.

    ``unknown`` has installations of other kinds, each as a place and a command. ``foreign`` has those of other
    distributions' packages.
    """

    packages: tuple[tuple[str, str], ...] = ()
    unknown: tuple[tuple[str, str], ...] = ()
    foreign: tuple[tuple[str, str], ...] = ()
    python: tuple[tuple[str, ...], ...] = ()

    def __add__(self, other: "Installs") -> "Installs":
        """Return both."""
        return Installs(
            self.packages + other.packages, self.unknown + other.unknown, self.foreign + other.foreign,
            self.python + other.python,
        )  # fmt: skip


def installs_of(commands: Iterable[Sequence[str]], place: str) -> Installs:
    """Return what the commands of one RUN instruction install."""
    found = Installs()
    for words in commands:
        ahead = next((at for at, word in enumerate(words) if not re.match(r"[A-Za-z_]\w*=", word)), 0)
        found += _of_command(words[ahead:], place)
    return found


def indexes_of(environment: Iterable[str], place: str) -> Installs:
    """Return the variables that lead pip or uv to another index than PyPI."""
    return Installs(unknown=tuple((place, f"ENV {name}") for name in environment if _INDEX_VARIABLE.match(name)))


def _of_command(words: Sequence[str], place: str) -> Installs:
    program, said = words[0].rpartition("/")[2] if words else "", (place, " ".join(words))
    if (program in _APT and "install" in words) or program in _APT_SCRIPTS:
        named = [*_packages(words[words.index("install") + 1 if program in _APT else 1 :])]
        unread = [name for name in named if not re.fullmatch(PACKAGE_PATTERN, name)]
        taken = [name for name in named if not _OF_PYTHON.fullmatch(name) and name not in _FOR_PEOPLE | {*unread}]
        unknown = tuple((place, f"{program} install {name}") for name in unread)
        return Installs(tuple((name, place) for name in taken), unknown)
    if program in _OTHER_MANAGERS and _OTHER_MANAGERS[program] in words:
        return Installs(foreign=(said,))
    if program in _ENVIRONMENTS:
        return Installs(unknown=(said,))
    if program in _PIP or words[1:3] in (["-m", "pip"], ["-m", "uv"]):
        options = [word.partition("=")[0] for word in words if _INDEX.match(word)  # the address may have a password
                   and not (word == "-f" and program in ("poetry", "pdm"))]  # fmt: skip  # a format
        return Installs(
            unknown=tuple((place, f"{program} with {option}") for option in options), python=(tuple(words),)
        )
    return Installs()


def _packages(words: Sequence[str]) -> Iterator[str]:
    """Yield the packages that follow ``apt-get install``, without their releases and architectures."""
    before = ""
    for word in words:
        if not word.startswith("-") and before not in _WITH_VALUE:
            yield word if "$" in word or word.startswith(("/", ".")) else re.split(r"[=/:]", word)[0]
        before = word
