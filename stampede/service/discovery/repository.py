"""The folder of an application, and a command that starts a server there."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import yaml

from stampede.errors import WrongUse
from stampede.experiment.yaml_file import foreign_yaml
from stampede.foreign import read_text
from stampede.resources import Found
from stampede.service.layer import LEFT_OUT

UNKNOWN = "the value is not in the repository"
NO_APPLICATION = re.compile(
    r"(^|/)(nginx|redis|valkey|postgres|postgis|mysql|mariadb|mongo|memcached|rabbitmq|elasticsearch|envoy|haproxy|"
    r"traefik|caddy|pgadmin\d*|adminer|mailhog|mailpit|minio)\b"
)
"""The images of other containers of a pod or a Compose file."""
_OF_SYSTEM = re.compile(r"/$|[^/]|/(tmp|root|run|etc|usr|dev|proc|var/(run|cache|tmp|lib/(apt|dpkg)))(/|$)|.*[$*{]")
"""Folders that an image makes for its own programs."""
_DEEPEST = 4
"""How deep in a repository the files are that say how it starts."""


@dataclass
class Image:
    """What a Dockerfile makes; ``place`` is where its own command stands.

    ``copies`` are what was copied from the folder ``context``, and where it lies in the image: a target that is a
    folder ends with a slash. ``folders`` are those that RUN makes, and ``written`` are the texts that the Dockerfile
    itself has, by their paths. ``runs`` are the commands of RUN, and the variables of ENV, each with its place, and
    ``python`` is the release that the name of the base image says.
    """

    dockerfile: Path | None = None
    place: str = ""
    context: Path | None = None
    copies: Sequence[tuple[str, str]] = ()
    folders: Sequence[str] = ()
    written: Mapping[str, str] = field(default_factory=dict)
    runs: Sequence[tuple[str, list[str]]] = ()
    python: str = ""


@dataclass
class Start:
    """A command that starts a server in an image, as the Dockerfile has it, or as another file changes it.

    ``file`` has the command, at ``place``. ``folder`` is its working folder, a path of the image or host. ``given`` are
    the variables that the application gets beside those of ``env_files``, with the names of secrets in the place of
    their values; ``before`` are commands that prepare it, each with its place. ``mounts`` are what is mounted of the
    repository, and where; ``volumes`` are where volumes are. ``name`` is the service of the Compose file ``compose``.
    ``problems`` are what the lab cannot read in the file.
    """

    image: Image = field(default_factory=Image)
    command: Sequence[str] = ()
    entrypoint: Sequence[str] = ()
    file: str = ""
    place: str = ""
    folder: str = "/"
    given: Mapping[str, str] = field(default_factory=dict)
    env_files: Sequence[Path] = ()
    before: Sequence[tuple[str, str]] = ()
    replicas: int | None = None
    mounts: Sequence[tuple[str, str]] = ()
    volumes: Sequence[str] = ()
    name: str = ""
    compose: str = ""
    beside: Sequence[str] = ()
    resources: Found = field(default_factory=dict)
    problems: Sequence[str] = ()

    @property
    def words(self) -> list[str]:
        """The words that are run."""
        return [*self.entrypoint, *self.command]

    @property
    def is_of_dockerfile(self) -> bool:
        """Whether this is the command that the image has by itself."""
        return self.place == self.image.place


class _LaidOut(NamedTuple):
    """A file or a folder of the repository, and where it lies in an image."""

    path: Path
    there: PurePosixPath


def is_file(path: Path) -> bool:
    """Return whether a path is a file; it is none if its name is too long, with which Path.is_file fails."""
    return os.path.isfile(path)  # noqa: PTH113


def _files_named(start: Start) -> Iterator[PurePosixPath]:
    """Yield the files below its working folder that a command names, by their paths or as modules of Python."""
    for word in " ".join(start.words).split():
        path = PurePosixPath(start.folder, word.strip("\"';"))
        if path.is_relative_to(start.folder):
            yield path.relative_to(start.folder)
        if module := re.match(r"[\"']?([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?=[:\"']|$)", word):
            name = module[1].replace(".", "/")
            yield from (PurePosixPath(f"{name}.py"), PurePosixPath(name, "__init__.py"))


@dataclass
class Repository:
    """The folder of an application. ``problems`` are what was not understood, each with its place."""

    folder: Path
    problems: list[str] = field(default_factory=list)
    _documents: dict[Path, list[Any]] = field(default_factory=dict)

    def name(self, path: Path) -> str:
        """Return a path of the repository as it is named there."""
        return os.path.relpath(path, self.folder)

    def text(self, path: Path | str) -> str:
        """Return the text of a file of the repository; empty: there is none, or it cannot be read, which is noted."""
        there = self.folder / path
        with suppress(OSError, ValueError):
            if there.exists() and not there.is_dir():
                try:
                    return read_text(there)
                except WrongUse as error:
                    why = error.message.removeprefix(f"{there} ").rstrip(".")
                    self.problems.append(f"{self.name(there)}: it {why}")
        return ""

    def documents(self, path: Path) -> list[Any]:
        """Return the documents of a YAML file; none: there is none, or it cannot be read, which is noted."""
        if path not in self._documents:
            self._documents[path] = []
            try:
                self._documents[path] = foreign_yaml(self.text(path))
            except (yaml.YAMLError, RecursionError) as error:
                why = "it is nested too deeply" if isinstance(error, RecursionError) else "it is not valid YAML: " + (
                    getattr(error, "problem", None) or "it has a character that YAML does not allow")  # fmt: skip
                self.problems.append(f"{self.name(path)}: this file cannot be read: {why}")
        return self._documents[path]

    def files(self, *patterns: str) -> list[Path]:
        """Return the files with names such as these, those at the top first; folders of tools are left out."""
        named = [path for path in self._all if any(fnmatchcase(path.name, pattern) for pattern in patterns)]
        return sorted(named, key=lambda path: (len(path.parts), path))

    @cached_property
    def _all(self) -> list[Path]:
        """The files of the repository that are not too deep in it."""
        found: list[Path] = []
        for folder, inner, names in os.walk(self.folder):
            here = Path(folder)
            depth = len(here.relative_to(self.folder).parts)
            inner[:] = [name for name in inner if name not in LEFT_OUT and depth + 1 < _DEEPEST]
            found += [path for name in names if (path := here / name).exists()]
        return found

    def _laid_out(self, start: Start) -> list[_LaidOut]:
        """Return what a start has of the repository.

        What is in a folder that a pattern matched lies beside all else that it matched, so that this folder is not the
        working folder.
        """
        found: list[_LaidOut] = []
        context = start.image.context or self.folder
        copied = [*((self.folder, *pair) for pair in start.mounts), *((context, *pair) for pair in start.image.copies)]
        for base, source, target in copied:
            plain, is_pattern = source.strip("/"), re.search(r"[*?[]", source)
            is_working_folder = PurePosixPath(target) == PurePosixPath(start.folder)
            with suppress(OSError, ValueError, NotImplementedError):  # a name may be too long, or no pattern
                matches = [*base.glob(plain)] if is_pattern else [base / plain]
                is_folder = target.endswith("/") or len(matches) > 1
                for each in (path for path in matches if path.exists() and path.resolve().is_relative_to(self.folder)):
                    if each.is_file():
                        there = PurePosixPath(target, each.name) if is_folder else PurePosixPath(target)
                        found.append(_LaidOut(each.resolve(), there))
                    elif not (is_pattern and is_working_folder):
                        found.append(_LaidOut(each.resolve(), PurePosixPath(target)))
        return found

    def folder_of(self, start: Start) -> Path:
        """Return the folder of the repository that is the working folder of a start.

        It is the folder from which most of its files were copied. If nothing tells what was copied there, it is the
        folder with the same name: that of /srv/shop/src is src, unless another has what the command names, or that is a
        package.
        """
        whole, copied = PurePosixPath(start.folder), self._laid_out(start)
        for path, there in reversed(copied):
            if whole.is_relative_to(there) and os.path.isdir(inner := path / whole.relative_to(there)):  # noqa: PTH112
                return inner
        if start.folder and Path(start.folder).is_relative_to(self.folder):
            return Path(start.folder)
        if inside := Counter(path.parent for path, there in copied if there == whole / path.name):
            return max(inside, key=inside.__getitem__)
        parts = [part for part in whole.parts if part not in ("/", "..", ".")]
        root = start.image.context or self.folder
        named = [base.joinpath(*parts[first:]) for base in dict.fromkeys((root, self.folder))
                 for first in range(len(parts))]  # fmt: skip
        folders = [*filter(os.path.isdir, named), root]
        files = [*_files_named(start)]
        return (next((folder for folder in folders if any(is_file(folder / name) for name in files)), None)
                or next((folder for folder in folders if not is_file(folder / "__init__.py")), root))  # fmt: skip

    def paths_of(self, start: Start) -> dict[str, str]:
        """Return what the image of a start has of the repository: paths there, and what is there, seen from the root.

        The working folder is one of them, and so are folders to write. A file that lies in a folder which is there
        already is left out.
        """
        found: dict[str, str] = {}
        for path, there in self._laid_out(start):
            found.setdefault(str(there), self.name(path))
        if start.folder not in ("", "/") and not Path(start.folder).is_relative_to(self.folder):
            found.setdefault(str(PurePosixPath(start.folder)), self.name(self.folder_of(start)))
        for made in (*start.image.folders, *start.volumes):
            if not _OF_SYSTEM.match(made) and not any(PurePosixPath(made).is_relative_to(above) for above in found):
                found[made] = made.strip("/")
        return {there: source for there, source in found.items() if not any(
            there != above and PurePosixPath(there).is_relative_to(above)
            and source == os.path.normpath(Path(found[above], os.path.relpath(there, above)))
            for above in found)}  # fmt: skip

    def scripts_of(self, start: Start) -> Iterator[Path]:
        """Yield the files of the repository that a command names, such as the script of an entrypoint."""
        files = [(path, there.name) for path, there in self._laid_out(start) if path.is_file()]
        for word in " ".join(start.words).split():
            name = PurePosixPath(word.strip("\"';")).name
            if name and ("/" in word or name.endswith((".sh", ".py"))):
                yield from [path for path, there in files if there == name] or self.files(name)[:1]
