"""Keep private values out of a run's records: paths, the host's name, the user's name and number.

Compose needs the true values only while it starts containers. Records contain variables of docker-compose.yml instead
of these values, and texts contain words such as $HOME.
"""

import os
import platform
import re
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import suppress
from getpass import getuser
from pathlib import Path
from typing import Any

from stampede.docker.engine import ca_bundle
from stampede.paths import ROOT

LOCAL = {
    "LAB_OWNER": "${LAB_OWNER:-by-hand}",
    "LAB_USER": "${LAB_USER:-1000:1000}",
    "LAB_RESULTS": "${LAB_RESULTS:-./results/by-hand}",
    "LAB_LOAD_SETTINGS": "${LAB_LOAD_SETTINGS:-k6/classes.env}",
    "LAB_CLIENT_SETTINGS": "${LAB_CLIENT_SETTINGS:-clients/silent.env}",
    "LAB_CA_BUNDLE": "${LAB_CA_BUNDLE:-/etc/ssl/certs/ca-certificates.crt}",
    "LAB_SECRETS": "${LAB_SECRETS:-}",
}
"""The local factors, which tell where a run is made or are secrets, each with the variable of docker-compose.yml."""
SECRET_FROM = 6
"""How many characters a secret has at least."""
LOCAL_ENV = ".local.env"
"""The file of a trial's local factors, which is removed as soon as Compose has created the containers."""

_TELLING = ("stampede.owner", "user", "source", "context", "file", "env_file", "path", "LAB_SECRETS")
"""The keys of a Compose file under which a value may be local."""
_NOBODYS = ("", "/", "/tmp", "/private/tmp", "/dev/null")  # noqa: S108  # compared, never written
_ANYWHERE = {
    r"(?<![\w.-])(?:/var)?/(?:home|Users)/[\w@+-]+(?:\.[\w@+-]+)*": "$HOME",
    r"(?<![\w.-])/root(?![\w-])": "$HOME",
    r"(?<=/run/user/)\d+": "$UID",
}
"""Patterns for the home folder and the number of any user on any machine, each with its word."""

Composed = dict[str, Any]
"""A Compose file after Compose has resolved its variables."""
Words = dict[str, str]
"""Regular expressions for private values, each with the word that replaces the values in a text."""


def local_words(results: Path) -> Words:
    """Return the words for the private values of this user and this machine, given the folder of results."""
    paths = {
        str(results): "$RESULTS",
        str(ROOT): "$CHECKOUT",
        tempfile.gettempdir(): "$TMPDIR",
        os.path.expanduser("~"): "$HOME",  # noqa: PTH111  # Path.home() raises if there is no home folder
        ca_bundle(): "$CA_BUNDLE",
    }
    words = {
        rf"(?<![\w.-]){re.escape(path)}(?![\w-])": word
        for path, word in paths.items()
        if path.startswith("/") and path not in _NOBODYS and not path.startswith("/etc/")
    }
    name = platform.node()
    for host in {name, name.partition(".")[0]} - {"", "localhost"}:
        plain = re.escape(host)
        words[rf"(?<![\w.-]){plain}-\d+(?!\w)"] = "$OWNER"
        words[  # a name that may be an ordinary word (server) counts only in an address
            rf"(?:(?<=//)|(?<=@)){plain}(?!\w)|(?<![\w.-]){plain}(?=:\d)"
            if host.isalpha() else rf"(?<![\w.-]){plain}(?!\w)"
        ] = "$HOST"  # fmt: skip
    with suppress(KeyError, OSError):  # the user's number has no name
        user, folders = getuser(), "|".join(f"(?<=/{folder}/)" for folder in ("media", "mnt", "scratch", "var/lib"))
        if user != "root":
            words[rf"(?:{folders}){re.escape(user)}(?![\w-])"] = "$USER"
    return words


def redact(text: str, words: Words) -> str:
    """Return a text whose private values are replaced by words, the longest pattern first."""
    for pattern, word in sorted((words | _ANYWHERE).items(), key=lambda entry: len(entry[0]), reverse=True):
        text = re.sub(pattern, word, text)
    return text


def mask(said: bytes, secrets: Iterable[tuple[str, str]]) -> bytes:
    """Return what a program said, with the names of secrets in the place of their values.

    ``secrets`` are names and values. Shorter values than SECRET_FROM are no secrets, and may be parts of other words.
    """
    for name, value in sorted(secrets, key=lambda secret: -len(secret[1])):
        said = said.replace(value.encode(), f"${name}".encode()) if len(value) >= SECRET_FROM else said
    return said


def redact_composed(composed: Composed, factors: Mapping[str, str]) -> Composed:
    """Return a resolved Compose file with variables instead of the values of local factors.

    Paths in the checkout become relative to the checkout. With the local factors, and with the checkout as the
    project's folder, Compose resolves the returned file to the given file.
    """
    variables = {factors[name].replace("$", "$$"): asked for name, asked in LOCAL.items() if name in factors}
    # the checkout is where k6's scripts are mounted from
    mounts = composed.get("services", {}).get("k6", {}).get("volumes", [])
    sources = [Path(mount["source"]) for mount in mounts if mount["target"] == "/k6" and "source" in mount]
    checkout = sources[0].parent if sources and sources[0].is_absolute() else None
    return {key: _redact_value(value, key, variables, checkout) for key, value in composed.items()}


def _redact_value(value: object, key: str, variables: Mapping[str, str], checkout: Path | None) -> object:
    if isinstance(value, dict):
        return {name: _redact_value(item, name, variables, checkout) for name, item in value.items()}
    if isinstance(value, list):
        return [_redact_value(item, key, variables, checkout) for item in value]
    if key not in _TELLING or not isinstance(value, str):
        return value
    if value in variables:
        return variables[value]
    if checkout and Path(value).is_relative_to(checkout):
        inside = Path(value).relative_to(checkout)
        return f"./{inside}" if inside.parts else "."
    return value
