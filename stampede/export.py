"""Pack runs into one file to hand on. The bytes of the file do not depend on the user or the time of packing.

The records of older runs contain paths, the host's name and the user's number. The archive has these records without
such places, and its manifest has the new hashes of these records. The manifest's lines for all other files are kept.
"""

import gzip
import json
import os
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import IO

import yaml

from stampede.docker.redaction import LOCAL, Words, local_words, read_factors, recorded_words, redact, redact_composed
from stampede.errors import LabError, WrongUse
from stampede.interruption import uninterrupted
from stampede.pipeline import derive
from stampede.records.checksums import MANIFEST, files, is_derived, read_manifest, seal, sha256
from stampede.records.folder import read_run, write_whole
from stampede.records.run import Run

_REASONED = ("run.json", "trial.json")
_OTHER_NAME = "stampede export … --to /path/name.tar.gz"


@dataclass(frozen=True)
class Archive:
    """The names of the records from which places were removed, and the hash of the archive's manifest."""

    cleaned: list[str]
    manifest: str


def archive_path(run_folder: Path, to: Path | None) -> Path:
    """Return the path of a run's archive: ``to``, or ``<experiment>-<run time>.tar.gz`` in the current folder.

    Raise WrongUse when the path exists already or lies in the run's folder, and BadRun when the folder is no run.
    """
    return checked(to or Path(f"{_top(run_folder, read_run(run_folder))}.tar.gz"), run_folder)


def checked(target: Path, folder: Path) -> Path:
    """Return the path of an archive. Raise WrongUse if it exists already or lies in the folder that is packed."""
    if target.is_dir():
        raise WrongUse(f"{target} is a folder, but an archive is a file.", hint=_OTHER_NAME)
    if os.path.lexists(target):
        raise WrongUse(f"{target} exists already.", hint=f"Remove the file, or choose another name: {_OTHER_NAME}")
    if folder.resolve() in target.resolve().parents:
        problem = f"{target} would lie in the run's own folder, among the measured files."
        raise WrongUse(problem, hint=f"Choose another place: {_OTHER_NAME}")
    return target


def pack(run_folders: Sequence[Path], target: Path, further: Mapping[str, bytes] | None = None) -> list[Archive]:
    """Write the folders of runs to an archive, completely or not at all, and never over an existing file.

    Remove paths, the host's name and the user's number from the records in the archive; leave the folders unchanged.
    ``further`` are further files by their names in the archive. Verify the runs first. Raise BadRun when a folder is no
    run, and LabError when the archive cannot be written.
    """
    runs = [read_run(folder) for folder in run_folders]
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as part:
            try:
                with _archive(part) as archive:
                    packed = [_pack(archive, *pair) for pair in zip(run_folders, runs, strict=True)]
                    for name, content in (further or {}).items():
                        _add(archive, BytesIO(content), len(content), name, 0)
                part.flush()
                os.fchmod(part.fileno(), 0o644)
                _name(Path(part.name), target)
            finally:
                Path(part.name).unlink(missing_ok=True)
            return packed
    except OSError as error:
        problem = f"{target} cannot be written: {error.strerror or error}."
        raise LabError(problem, hint=f"Free some space, or choose another place: {_OTHER_NAME}") from None


def _pack(archive: tarfile.TarFile, run_folder: Path, run: Run) -> Archive:
    with _clean(run_folder, _cleaned(run_folder)) as (folder, cleaned):
        for name in files(folder):
            path = folder / name
            with path.open("rb") as file:
                _add(archive, file, path.stat().st_size, f"{_top(run_folder, run)}/{name}", _began(run))
        return Archive(cleaned, sha256(folder / MANIFEST))


def _cleaned(run_folder: Path) -> dict[str, str]:
    """Return, by name, each record that tells where a run was made, with such places removed from its text."""
    kinds = {name: PurePosixPath(name).name for name in files(run_folder)}
    texts = {
        name: (run_folder / name).read_bytes().decode("utf-8", "surrogateescape")
        for name, kind in kinds.items()
        if kind in (*_REASONED, "factors.env", "compose.yml")
    }
    words = local_words(run_folder.resolve().parent.parent)
    clean = {}
    for name, text in texts.items():
        if kinds[name] == "factors.env":
            compose_file = str(PurePosixPath(name).with_name("compose.yml"))
            factors, composed = read_factors(text), yaml.load(texts.get(compose_file, "{}"), yaml.CSafeLoader)
            words |= recorded_words(factors, composed)
            lines = text.splitlines(keepends=True)
            clean[name] = "".join(line for line in lines if line.partition("=")[0] not in LOCAL)
            if (redacted := redact_composed(composed, factors)) != composed:
                clean[compose_file] = yaml.safe_dump(redacted, sort_keys=False)
    clean |= {name: _without(text, words) for name, text in texts.items() if kinds[name] in _REASONED}
    return {name: text for name, text in clean.items() if text != texts[name]}


def _without(record: str, words: Words) -> str:
    """Return a JSON record with the words for places in its reason, so that it does not tell where it was made."""
    values = json.loads(record)
    reason = values.get("reason") and redact(values["reason"], words)
    if reason == values.get("reason"):
        return record
    return json.dumps(values | {"reason": reason}, indent=2, ensure_ascii=False) + "\n"


@contextmanager
def _clean(run_folder: Path, cleaned: dict[str, str]) -> Iterator[tuple[Path, list[str]]]:
    """Yield a folder with the cleaned records and links to all other files, or the run's folder if none is cleaned."""
    if not cleaned:
        yield run_folder, []
        return
    reasons = any(PurePosixPath(name).name in _REASONED for name in cleaned)
    with tempfile.TemporaryDirectory(prefix="stampede-export-") as temporary:
        folder = Path(temporary)
        for name in files(run_folder):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if name in cleaned:
                (folder / name).write_bytes(cleaned[name].encode("utf-8", "surrogateescape"))
            elif not (reasons and is_derived(name)) and name != MANIFEST:
                (folder / name).symlink_to((run_folder / name).resolve())
        kept = {name: digits for name, digits in read_manifest(run_folder).items() if name not in cleaned}
        write_whole(folder / MANIFEST, "".join(f"{digits}  {name}\n" for name, digits in kept.items()))
        seal(folder)
        if reasons:
            with uninterrupted():
                derive(folder)
        yield folder, sorted(cleaned)


@contextmanager
def _archive(file: IO[bytes]) -> Iterator[tarfile.TarFile]:
    with (
        gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        yield archive


def _add(archive: tarfile.TarFile, file: IO[bytes], size: int, name: str, mtime: int) -> None:
    """Add the content of a file, without its owner and its mode on this machine."""
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mtime = mtime
    archive.addfile(entry, file)


def _name(part: Path, target: Path) -> None:
    """Give a finished file its name. Raise FileExistsError when another program has made a file of this name."""
    try:
        target.hardlink_to(part)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.lexists(target):
            raise
        part.rename(target)


def _top(run_folder: Path, run: Run) -> str:
    """Return ``<experiment>-<run time>``, the folder in the archive. A run that was unpacked has this name already."""
    experiment, folder = re.sub(r"[^\w.-]", "-", run.experiment), run_folder.resolve().name
    return folder if folder.startswith(f"{experiment}-") else f"{experiment}-{folder}"


def _began(run: Run) -> int:
    try:
        return max(0, int(datetime.fromisoformat(run.began).timestamp()))
    except ValueError:
        return 0
