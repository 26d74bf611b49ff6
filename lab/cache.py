"""Answers that take long to find and never change: they are kept in the user's cache folder."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from analysis.records.folder import write_whole

MOST = 200
"""How many answers of a kind are kept; the oldest go first."""
Answer = TypeVar("Answer")


def kept(kind: str, question: str, of: TypeAdapter[Answer], find: Callable[[], Answer]) -> Answer:
    """Return the answer to a question: as it was kept, or found now.

    ``question`` becomes a part of a file's name. An empty answer is not kept, and an answer that cannot be read is
    found again. If the cache cannot be written, the next command asks again.
    """
    with suppress(OSError, ValueError):
        return of.validate_json(_file(kind, question).read_bytes())
    answer = find()
    if answer:
        with suppress(OSError):
            file = _file(kind, question)
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, of.dump_json(answer).decode())
            _forget_the_oldest(file.parent)
    return answer


def digest(*parts: bytes) -> str:
    """Return a digest of parts, short enough for the name of a file."""
    found = hashlib.sha256()
    for part in parts:
        found.update(hashlib.sha256(part).digest())
    return found.hexdigest()[:16]


def _file(kind: str, question: str) -> Path:
    """Return the file that keeps an answer. Raise OSError if the user has no home folder."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:
        raise FileNotFoundError(str(error)) from None
    return folder / "stampede" / kind / f"{question}.json"


def _forget_the_oldest(folder: Path) -> None:
    ages = sorted((path.stat().st_mtime_ns, path) for path in folder.glob("*.json"))
    for _, path in ages[:-MOST]:
        path.unlink(missing_ok=True)
