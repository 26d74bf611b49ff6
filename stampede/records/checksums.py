"""manifest.sha256: the hashes of all files that a run measured and recorded, in the format of ``sha256sum --check``.

The manifest reveals that a file was changed by accident. It does not prevent forgery, because whoever can change a
file can also change its hash. If you publish the hash of the manifest itself, everybody can detect later changes.
"""

import hashlib
import os
import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from stampede.records.folder import GENERATOR, OBSERVATIONS, POINTS, SERVED, BadRun, read_bounded, write_whole

MANIFEST = "manifest.sha256"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
DERIVED_FROM = "derived-from.sha256"
"""A hash of the manifest and of the code from which the results beside it follow."""
_DERIVED = {"predicted.json", "summary.json", "diagnosis.json", "report.html", DERIVED_FROM, MANIFEST}
_REWRITTEN = "run.json"  # the lab writes it again when the run ends

Hashes = dict[str, str]
"""The SHA-256 of each file in hexadecimal digits, by the file's path in the run's folder."""


@dataclass(frozen=True)
class FileDifference:
    """What is wrong with one file of a run."""

    path: str
    what: str

    def __str__(self) -> str:
        return f"{self.path if self.path.isprintable() else ascii(self.path)}: {self.what}"


def seal(run_folder: Path) -> None:
    """Write the hashes of everything that was measured and recorded so far, whole or not at all.

    Hashes in the manifest stay, so that a changed file keeps its old one; run.json, which is written again, gets a new
    one. Raise BadRun if the manifest cannot be understood.
    """
    hashes = sealed(run_folder)
    hashes.pop(_REWRITTEN, None)
    for name in files(run_folder):
        if name not in hashes and _can_be_listed(name) and (run_folder / name).is_file():
            hashes[name] = sha256(run_folder / name)
    write_whole(run_folder / MANIFEST, "".join(f"{hashes[name]}  {name}\n" for name in sorted(hashes)))


def sealed(run_folder: Path) -> Hashes:
    """Return the hashes in the manifest; an empty dictionary if there is no manifest, as in runs of older versions."""
    return read_manifest(run_folder) if (run_folder / MANIFEST).exists() else {}


def read_manifest(run_folder: Path) -> Hashes:
    """Read manifest.sha256. Raise BadRun if the file is missing or if a line cannot be understood."""
    path = run_folder / MANIFEST
    try:
        *lines, rest = read_bounded(path).split(b"\n")
    except FileNotFoundError:
        raise BadRun(f"{run_folder} has no {MANIFEST}") from None
    except OSError as error:
        raise BadRun(f"{path} cannot be read: {error.strerror or error}") from None
    hashes: Hashes = {}
    for number, line in enumerate([*lines, rest] if rest else lines, start=1):
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError:
            raise BadRun(f"{path}:{number}: not UTF-8") from None
        if not (found := _LINE.fullmatch(text)):
            raise BadRun(f"{path}:{number}: not a hash, two spaces and a path: {_short(text)}")
        digits, name = found.groups()
        if not _can_be_listed(name):
            raise BadRun(f"{path}:{number}: not the path of a file that a run records: {_short(name)}")
        if name in hashes:
            raise BadRun(f"{path}:{number}: listed twice: {name}")
        hashes[name] = digits
    if rest:
        raise BadRun(f"{path}:{len(lines) + 1}: cut short, the line does not end")
    return hashes


def changed_files(run_folder: Path) -> list[FileDifference]:
    """Return every recorded file that differs from the manifest, in the order of their paths.

    Raise BadRun if the manifest is missing or cannot be understood.
    """
    hashes = read_manifest(run_folder)
    there = {name for name in files(run_folder) if not is_derived(name)}
    return [*_differences(run_folder, sorted(hashes.keys() | there), there, hashes)]


def _differences(
    run_folder: Path, names: Iterable[str], there: Container[str], hashes: Hashes
) -> Iterator[FileDifference]:
    for name in names:
        try:
            if name not in there:
                yield FileDifference(name, f"missing, although {MANIFEST} lists it")
            elif name not in hashes:
                yield FileDifference(name, f"not in {MANIFEST}")
            elif sha256(run_folder / name) != hashes[name]:
                yield FileDifference(name, f"changed, its hash differs from {MANIFEST}")
        except OSError as error:
            yield FileDifference(name, f"cannot be read: {error.strerror or error}")


def raw_files_problem(run_folder: Path, trial_folder: Path, hashes: Hashes) -> str | None:
    """Return why the raw files of a trial are not what was measured; None: they are, or the trial was never sealed.

    ``hashes`` are the hashes in the manifest. If the manifest lists no file of a trial, the trial was never sealed.
    """
    trial = trial_folder.relative_to(run_folder).as_posix()
    of_trial = {name for name in hashes if name.startswith(f"{trial}/")}
    listed = {name for name in of_trial if name.rpartition("/")[0] == trial and _is_evidence(name)}
    there = {f"{trial}/{path.name}" for path in trial_folder.iterdir() if of_trial and _is_evidence(path.name)}
    names = sorted(listed | there, key=lambda name: (not PurePosixPath(name).match(POINTS), name))
    return next(map(str, _differences(run_folder, names, there, hashes)), None)


def _is_evidence(name: str) -> bool:
    """Whether results are derived from this file of a trial's folder; trial.json does not count."""
    return any(PurePosixPath(name).match(pattern) for pattern in (POINTS, SERVED, *OBSERVATIONS, GENERATOR))


def files(run_folder: Path) -> list[str]:
    """Return the path of every file in a run's folder, sorted.

    Names that begin with a dot are temporary and left out. A link to a folder counts as a file and is never followed.
    """

    def refuse(error: OSError) -> NoReturn:
        raise error

    found = []
    for parent, folders, names in os.walk(run_folder, onerror=refuse):
        inside = Path(parent).relative_to(run_folder)
        links = [name for name in folders if Path(parent, name).is_symlink()]
        found += [(inside / name).as_posix() for name in names + links if not name.startswith(".")]
        folders[:] = [name for name in folders if not name.startswith(".")]
    return sorted(found)


def is_derived(name: str) -> bool:
    """Whether a path in a run's folder is the path of a file that the lab can compute again from the other files."""
    return name in _DERIVED or (name.count("/") == 3 and name.endswith("/requests.parquet"))


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file of any size, in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _can_be_listed(name: str) -> bool:
    """Whether a path leads to a recorded file and can be written on one line that sha256sum reads."""
    plain = name.isprintable() and "\\" not in name
    return plain and not is_derived(name) and all(part and part[0] != "." for part in name.split("/"))


def _short(text: str) -> str:
    return ascii(text if len(text) <= 100 else text[:100] + "…")
