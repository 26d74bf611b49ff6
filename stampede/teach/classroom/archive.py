"""Unpack what somebody handed in. An archive may come from anybody, so it can write only below its own folder."""

import lzma
import shutil
import tarfile
import zlib
from pathlib import Path

from stampede.records.folder import MOST_BYTES as FILE_BYTES

MOST_BYTES = 4 * 2**30
"""How much all files of an archive together may have at most."""


class BadArchive(Exception):
    """A file is not an archive that can be used. The message goes on after the file's name."""


def unpack(path: Path, folder: Path) -> None:
    """Write the files of an archive into a folder, without hidden files.

    Raise BadArchive if the archive is damaged, too large, or has entries that no export has, such as links. Raise
    OSError if the archive cannot be read, or if the folder has no room.
    """
    left = MOST_BYTES
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                if member.isdir():
                    continue
                name, left = member.name.removeprefix("./"), left - member.size
                parts = name.split("/")
                if not member.isfile() or name.startswith("/") or "" in parts or ".." in parts:
                    raise BadArchive(f"has an entry that no export has: {member.name!a}")
                if left < 0:
                    raise BadArchive(f"has more than {MOST_BYTES // 2**30} GiB of files")
                if name.endswith(".json") and member.size > FILE_BYTES:
                    raise BadArchive(f"has {name} of {member.size / 2**20:,.0f} MiB; at most "
                                     f"{FILE_BYTES // 2**20} MiB are read")  # fmt: skip
                file = archive.extractfile(member)
                if file and not any(part.startswith(".") for part in parts):
                    (folder / name).parent.mkdir(parents=True, exist_ok=True)
                    with (folder / name).open("wb") as target:
                        shutil.copyfileobj(file, target)
    except (EOFError, OSError, TypeError, ValueError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        if isinstance(error, OSError) and error.errno:  # else it comes from damaged data
            raise
        raise BadArchive("is damaged, or not an archive of stampede export") from None
