"""A build of a server that is not released: a wheel, the sources, or a patch of a release."""

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, Self

from pydantic import ConfigDict, Field, model_validator

from stampede.paths import ROOT
from stampede.records.model import Model

NO_SOURCES = {".git", ".venv", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", "node_modules", "target"}
"""Folders beside sources that do not change a build."""
_LONGEST = 1 << 20


class Unreleased(Model):
    """A build of a server that is not released. It is installed over the locked packages of a release.

    Paths count from the checkout. ``sha256`` is that of the file, or of all files of the folder with their names. If an
    experiment gives it, the build must have it; a record of a run always has it.
    """

    model_config = ConfigDict(json_schema_extra={"examples": ["{wheel: FILE}"]})

    wheel: str | None = Field(None, min_length=1, description="A wheel, e.g. dist/gunicorn-28.0.dev0-py3-none-any.whl.")
    source: str | None = Field(None, min_length=1, description="A folder with sources that pip can build.")
    patch: str | None = Field(None, min_length=1, description="A patch of the release, as git diff writes it.")
    sha256: str = Field("", description="The SHA-256 that the build must have.")

    @model_validator(mode="after")
    def _is_there(self) -> Self:
        if len(self._given) != 1:
            raise ValueError("give one of wheel, source and patch")
        if not (self.path.is_dir() if self.kind == "source" else self.path.is_file()):
            raise ValueError(f"{self.kind}: {self.name} does not exist; {_MAKE_IT[self.kind]}")
        if self.kind == "source" and (self.path / "Cargo.toml").is_file():
            raise ValueError(
                f"source: {self.name} has parts in Rust, which the lab's images cannot compile; give a wheel for "
                "Python 3.13, built with: maturin build --release --interpreter python3.13"
            )
        sha256 = digest_of(self.path)
        if self.sha256 not in ("", sha256):
            raise ValueError(f"sha256: {self.name} has {sha256}; correct sha256, or leave it out to measure any build")
        self.__dict__["sha256"] = sha256
        return self

    @property
    def _given(self) -> list[Literal["wheel", "source", "patch"]]:
        return [kind for kind in ("wheel", "source", "patch") if getattr(self, kind) is not None]

    @property
    def kind(self) -> Literal["wheel", "source", "patch"]:
        """What the build is made from."""
        return self._given[0]

    @property
    def name(self) -> str:
        """The wheel, the folder or the patch, as the experiment names it."""
        return str(getattr(self, self.kind))

    @property
    def path(self) -> Path:
        """Where the wheel, the folder or the patch is."""
        return ROOT / self.name

    @property
    def tag(self) -> str:
        """What names the build in the tag of its image."""
        return self.sha256[:12]


_MAKE_IT = {
    "wheel": "build it with: pip wheel --no-deps --wheel-dir dist FOLDER",
    "source": "name the folder that has pyproject.toml",
    "patch": "write it with: git diff > FILE",
}


def files_of(path: Path) -> Iterator[Path]:
    """Yield the files of a build in a fixed order: the file itself, or the sources of a folder."""
    if path.is_file():
        yield path
        return
    for there in sorted(path.iterdir()):
        if there.is_dir() and not there.is_symlink() and there.name not in NO_SOURCES:
            yield from files_of(there)
        elif there.is_file():
            yield there


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file, or of the names and contents of all files of a folder."""
    digest = hashlib.sha256()
    for file in files_of(path):
        if file != path:
            digest.update(str(file.relative_to(path)).encode() + b"\0" + str(file.stat().st_size).encode() + b"\0")
        with file.open("rb") as opened:
            while part := opened.read(_LONGEST):
                digest.update(part)
    return digest.hexdigest()


def patch_of(patch: str, program: str) -> str:
    """Return the parts of a patch that change a package's modules; a patch of a repository has others, such as tests.

    Raise ValueError if no part does.
    """
    parts = ["diff --git " + part for part in ("\n" + patch).split("\ndiff --git ")[1:]]
    kept = [part for part in parts if part.partition(" b/")[2].startswith(f"{program}/")]
    if not kept:
        raise ValueError(f"it changes no file of {program}/, as git diff names them")
    return "".join(part if part.endswith("\n") else part + "\n" for part in kept)


def lay_out(build: Unreleased, program: str, folder: Path) -> None:
    """Copy a build of a program into the subfolder ``build`` of a folder, without what does not change it."""
    target = folder / "build"
    target.mkdir()
    if build.kind == "patch":
        kept = patch_of(build.path.read_text(encoding="utf-8"), program)
        (target / "of.patch").write_text(kept, encoding="utf-8")
        return
    for file in files_of(build.path):
        copy = target / (file.name if file == build.path else Path("source", file.relative_to(build.path)))
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
