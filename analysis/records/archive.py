"""Runs in an archive of ``lab export``, read in one pass without unpacking: every file is hashed, few are kept."""

import hashlib
import lzma
import shutil
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path

from analysis.records.checksums import MANIFEST, Hashes

KEPT = ("run.json", "summary.json", MANIFEST)
MOST_KEPT_BYTES = 64 * 2**20
MOST_BYTES = 16 * 2**30
"""How much one file that is kept, and all files of an archive together, may have at most."""


class BadArchive(Exception):
    """A file is not an archive that can be read. The message goes on after the file's name."""


@dataclass(frozen=True)
class PackedRun:
    """A run in an archive: where it is, the hash of each of its files, and the content of the files in ``KEPT``."""

    top: str
    hashes: Hashes
    kept: Mapping[str, bytes]


@dataclass(frozen=True)
class Packed:
    """What an archive has. ``beside``: the content of the file that was asked for; None: there is none."""

    runs: list[PackedRun]
    beside: bytes | None


def read_archive(path: Path, beside: str = "") -> Packed:
    """Read an archive, perhaps with a file of the name ``beside`` that lies beside the runs.

    Raise BadArchive if the archive is damaged, or has entries that no export has, such as links.
    """
    hashes: Hashes = {}
    kept: dict[str, bytes] = {}
    left = MOST_BYTES
    try:
        with tarfile.open(path, "r|*") as archive:
            for name, member, file in _entries(archive):
                left -= member.size
                if left < 0:
                    raise BadArchive(f"has more than {MOST_BYTES // 2**30} GiB of files")
                if any(part.startswith(".") for part in name.split("/")):
                    continue
                hashes[name], content = _read(file, member, (*KEPT, beside))
                if content is not None:
                    kept[name] = content
    except (EOFError, OSError, TypeError, ValueError, zlib.error, lzma.LZMAError, tarfile.TarError):
        raise BadArchive("is damaged, or not an archive of lab export") from None
    return _packed(hashes, kept, beside)


def unpack(path: Path, run: PackedRun, folder: Path) -> None:
    """Write the files of a run in an archive into a folder. They must be the files that were hashed before.

    Raise BadArchive or OSError if that is not possible.
    """
    with tarfile.open(path, "r|*") as archive:
        for name, _, file in _entries(archive):
            inside = name.removeprefix(f"{run.top}/") if run.top else name
            if inside not in run.hashes or (run.top and inside == name):
                continue
            (folder / inside).parent.mkdir(parents=True, exist_ok=True)
            with (folder / inside).open("wb") as target:
                shutil.copyfileobj(file, target)


def _entries(archive: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo, BufferedReader]]:
    """Yield the files of an archive with their names. Raise BadArchive for an entry that no export has."""
    for member in archive:
        if not member.isdir():
            name = _checked_name(member)
            file = archive.extractfile(member)
            assert isinstance(file, BufferedReader)
            yield name, member, file


def _checked_name(member: tarfile.TarInfo) -> str:
    """Return the name of an entry. Raise BadArchive unless it is a file inside the archive's own folders."""
    name = member.name.removeprefix("./")
    if not member.isfile() or name.startswith("/") or any(part in ("", "..") for part in name.split("/")):
        raise BadArchive(f"has an entry that no export has: {member.name!a}")
    return name


def _read(file: BufferedReader, member: tarfile.TarInfo, names: tuple[str, ...]) -> tuple[str, bytes | None]:
    """Return the hash of an entry, and its content if that is kept."""
    name = member.name.rpartition("/")[2]
    if name not in names:
        return hashlib.file_digest(file, "sha256").hexdigest(), None
    if member.size > MOST_KEPT_BYTES:
        raise BadArchive(f"has a {name} of more than {MOST_KEPT_BYTES // 2**20} MiB")
    content = file.read()
    return hashlib.sha256(content).hexdigest(), content


def _packed(hashes: Hashes, kept: Mapping[str, bytes], beside: str) -> Packed:
    tops = sorted(name.rpartition("/")[0] for name in kept if name.rpartition("/")[2] == "run.json")
    runs = []
    for top in tops:
        start = f"{top}/" if top else ""
        inside = {name.removeprefix(start): digits for name, digits in hashes.items() if name.startswith(start)}
        own = {name: content for name in KEPT if (content := kept.get(f"{start}{name}")) is not None}
        runs.append(PackedRun(top, inside, own))
    others = sorted(name for name in kept if beside and name.rpartition("/")[2] == beside)
    return Packed(runs, kept[others[0]] if others else None)
