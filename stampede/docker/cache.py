"""What is in each image, which takes long to find and never changes: it is kept in the user's cache folder."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter

from stampede.records.folder import write_whole

MOST = 200
"""How many answers are kept; the oldest go first."""
_PACKAGES = TypeAdapter(dict[str, str])


def recall_packages(question: str, find: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return the versions of the packages in an image: as they were kept, or found now.

    ``question`` becomes a part of a file's name. An empty answer is not kept, and an answer that cannot be read is
    found again. If the cache cannot be written, the next command asks again.
    """
    file: Path | None = None
    with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: the user has no home folder
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        file = folder / "stampede" / "packages" / f"{question}.json"
        return _PACKAGES.validate_json(file.read_bytes())
    packages = find()
    if packages and file:
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, _PACKAGES.dump_json(packages).decode())
            for _, path in sorted((path.stat().st_mtime_ns, path) for path in file.parent.glob("*.json"))[:-MOST]:
                path.unlink(missing_ok=True)
    return packages


def digest(content: bytes) -> str:
    """Return a digest that is short enough for the name of a file."""
    return hashlib.sha256(content).hexdigest()[:16]
