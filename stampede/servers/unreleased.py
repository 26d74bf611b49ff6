"""A build of a server that is not released: a wheel, or a patch of a release."""

import hashlib
import shutil
from pathlib import Path
from typing import Self

from pydantic import ConfigDict, Field, model_validator

from stampede.paths import ROOT
from stampede.records.model import Model


class Unreleased(Model):
    """A build of a server that is not released. It is installed over the locked packages of a release.

    Paths count from the checkout. ``sha256`` is that of the file. If an experiment gives it, the build must have it; a
    record of a run always has it.
    """

    model_config = ConfigDict(json_schema_extra={"examples": ["{wheel: FILE}"]})

    wheel: str | None = Field(None, min_length=1, description="A wheel, e.g. dist/gunicorn-28.0.dev0-py3-none-any.whl.")
    patch: str | None = Field(None, min_length=1, description="A patch of the release, as git diff writes it.")
    sha256: str = Field("", description="The SHA-256 that the build must have.")

    @model_validator(mode="after")
    def _is_there(self) -> Self:
        if (self.wheel is None) == (self.patch is None):
            raise ValueError("give either wheel or patch")
        if not self.path.is_file():
            kind, make = ("wheel", "build it with: pip wheel --no-deps --wheel-dir dist FOLDER") if self.wheel else (
                "patch", "write it with: git diff > FILE")  # fmt: skip
            raise ValueError(f"{kind}: {self.name} does not exist; {make}")
        sha256 = hashlib.sha256(self.path.read_bytes()).hexdigest()
        if self.sha256 not in ("", sha256):
            raise ValueError(f"sha256: {self.name} has {sha256}; correct sha256, or leave it out to measure any build")
        self.__dict__["sha256"] = sha256
        return self

    @property
    def name(self) -> str:
        """The wheel or the patch, as the experiment names it."""
        return str(self.wheel or self.patch)

    @property
    def path(self) -> Path:
        """Where the wheel or the patch is."""
        return ROOT / self.name

    def problem(self, program: str) -> str | None:
        """Return why this is no build of a program; None if it is."""
        if self.wheel:
            return None if self.path.name.startswith(f"{program}-") else f"wheel: {self.name} is no wheel of {program}"
        changed = self._patch_of(program)
        return None if changed else f"patch: {self.name}: it changes no file of {program}/, as git diff names them"

    def lay_out(self, program: str, folder: Path) -> None:
        """Copy the build of a program into the subfolder ``build`` of a folder, without what does not change it."""
        target = folder / "build"
        target.mkdir()
        if self.patch:
            (target / "of.patch").write_text(self._patch_of(program), encoding="utf-8", errors="surrogateescape")
        else:
            shutil.copy(self.path, target)

    def _patch_of(self, program: str) -> str:
        """Return what changes a program's modules; a patch of a repository has other parts, such as tests."""
        patch = self.path.read_text(encoding="utf-8", errors="surrogateescape")
        parts = ["diff --git " + part for part in ("\n" + patch).split("\ndiff --git ")[1:]]
        kept = [part for part in parts if part.partition(" b/")[2].startswith(f"{program}/")]
        return "".join(part if part.endswith("\n") else part + "\n" for part in kept)
