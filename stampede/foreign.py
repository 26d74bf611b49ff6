"""The door for files that somebody else wrote: what a reader gets of them is bounded, whatever is in them.

Small files are read whole by ``read_bytes`` or ``read_text``, logs line by line by ``open_text``. No text has half a
character (a surrogate), all refuse devices, and all say which file is larger than what is read of one.
"""

import ast
import errno
import gzip
import io
import json
import os
import stat
import sys
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from shlex import quote
from typing import IO, TYPE_CHECKING, Any

from stampede.errors import WrongUse

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MIB = 1 << 20
LONGEST_LINE = 1 << 16
"""A line with more characters is not read: :data:`TOO_LONG` stands in its place."""
TOO_LONG = f"(a line of more than {LONGEST_LINE:,} characters)"
DEEPEST = 64
"""JSON is nested so deeply at most."""
MOST_TIMES, FREE_BYTES = 200, 1 << 28
"""A packed file may unpack to so many times its size; to FREE_BYTES in any case. Logs pack to a tenth or a fiftieth."""
MOST_JSON_BYTES = 1 << 28
"""A log that is one list of objects must be read whole, and may have so many characters."""


def read_text(path: Path, *, most_bytes: int = MIB) -> str:
    """Read a small regular file as UTF-8; what is no UTF-8 becomes U+FFFD.

    Raise WrongUse if the file is larger than ``most_bytes``, is a device, a pipe or a folder, or cannot be read.
    """
    try:
        return read_bytes(path, most_bytes=most_bytes).decode("utf-8-sig", "replace")
    except OSError as error:
        raise unreadable(path, error) from None


def read_bytes(path: Path, *, most_bytes: int = MIB) -> bytes:
    """Read a small regular file.

    Raise WrongUse if the file is larger than ``most_bytes``, and OSError if it is a device, a pipe or a folder, or
    cannot be read.
    """
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise WrongUse(f"{path} has more than {most_bytes / MIB:g} MiB, so it is not read.",
                       hint="Name a smaller file, or shorten this one.")  # fmt: skip
    return content


def open_regular(path: Path, *, may_be_pipe: bool = False) -> IO[bytes]:
    """Open a regular file, or a pipe if that is allowed. Raise OSError if it is anything else."""
    _check(path.stat().st_mode, may_be_pipe=may_be_pipe)  # first, because a pipe without a writer would never open
    file = path.open("rb")
    try:
        _check(os.fstat(file.fileno()).st_mode, may_be_pipe=may_be_pipe)
    except OSError:
        file.close()
        raise
    return file


def parse_json(text: str) -> Any:  # noqa: ANN401  # whatever somebody wrote
    """Parse JSON. Raise ValueError if it is broken, or nested more deeply than DEEPEST."""
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if text.count("[") + text.count("{") <= DEEPEST:
        return values
    level = [values]
    for _ in range(DEEPEST):
        level = [inner for value in level if isinstance(value, dict | list)
                 for inner in (value.values() if isinstance(value, dict) else value)]  # fmt: skip
        if not level:
            return values
    raise ValueError("it is nested too deeply")


def parse_python(text: str) -> ast.Module:
    """Parse Python. Raise SyntaxError if it is broken, or more than Python's own parser can hold."""
    with warnings.catch_warnings(action="ignore"):
        try:
            return ast.parse(text)
        except (ValueError, RecursionError, MemoryError) as error:
            raise SyntaxError(str(error)) from None


def unreadable(path: Path, error: Exception) -> WrongUse:
    """Return the error that says why a file cannot be read."""
    said = getattr(error, "strerror", None) or str(error).rstrip(".")
    is_damaged = isinstance(error, EOFError | zlib.error | gzip.BadGzipFile)
    hint = "Name a file that you may read."
    if is_damaged and str(path) != "-":
        hint = f"zcat {quote(str(path))} > left.log unpacks what is left of it."
    return WrongUse(f"{path} cannot be read: {said}.", hint=hint)


@contextmanager
def open_text(path: Path) -> Iterator["Lines"]:
    """Yield the lines of a log, which may be packed with gzip or come through a pipe; ``-`` is standard input.

    Raise WrongUse if the file is a device or a folder, if it cannot be read, or if it unpacks to more than MOST_TIMES
    its size.
    """
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else open_regular(path, may_be_pipe=True) as file:
            packed = _Counted(path, file)
            stream = io.BufferedReader(packed, _BLOCK)
            for packed_as, unpacks in _UNPACKS.items():
                if stream.peek(4).startswith(packed_as):
                    hint = f"{unpacks} {quote(str(path))} unpacks it."
                    raise WrongUse(f"{path} is packed, and not with gzip.", hint=hint)
            start = stream.peek(2)[:2]
            if start == b"\x1f\x8b":
                unpacked = gzip.GzipFile(fileobj=stream)
                stream = io.BufferedReader(_Counted(path, unpacked, packed), _BLOCK)
                start = stream.peek(2)[:2]
            encoding = "utf-16" if start in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
            yield Lines(io.TextIOWrapper(stream, encoding, "replace"))
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(path, error) from None


class Lines:
    """The lines of a text, read once from its beginning to its end. None has more than LONGEST_LINE characters."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._before = ""

    def unread(self, text: str) -> None:
        """Put back what was read; it is read again before all that follows."""
        self._before = text + self._before

    def read_whole(self, most: int) -> str:
        """Read all that is left, as it is, with lines of any length; at most so many characters."""
        text, self._before = self._before + self._stream.read(max(0, most - len(self._before))), ""
        return text

    def read(self, size: int) -> str:
        """Read whole lines of about so many characters, each with its end; empty: there is nothing left."""
        text, self._before = self._before, ""
        if len(text) < size:
            text += self._stream.read(size - len(text))
        if text and not text.endswith("\n"):
            text += self._stream.readline(LONGEST_LINE + 1)
            if not text.endswith("\n"):
                while (rest := self._stream.readline(MIB)) and not rest.endswith("\n"):
                    pass  # leave out the rest of a line that is too long
                text += rest[-1:]
        kept, first, at = [], 0, 0
        while at < len(text):
            end = text.rfind("\n", at, at + LONGEST_LINE + 1)
            if end < 0 and len(text) - at > LONGEST_LINE:
                kept += [text[first:at], TOO_LONG]
                end = text.find("\n", at)
                first = at = len(text) if end < 0 else end
            at = len(text) if end < 0 else end + 1
        return "".join([*kept, text[first:]]) if kept else text

    def take(self, count: int) -> list[str]:
        """Read so many lines, each with its end; fewer if there are no more."""
        taken: list[str] = []
        while len(taken) < count and (text := self.read(MIB)):
            taken += io.StringIO(text)
        self.unread("".join(taken[count:]))
        return taken[:count]

    def __iter__(self) -> Iterator[str]:
        """Yield all lines that are left, each with its end."""
        while lines := self.take(1000):
            yield from lines


_BLOCK = 1 << 17
_UNPACKS = {b"BZh": "bzcat", b"\xfd7zX": "xzcat", b"\x28\xb5\x2f\xfd": "zstdcat", b"PK\x03\x04": "unzip -p"}
"""What unpacks files that begin with these bytes."""


class _Counted(io.RawIOBase):
    """A stream that counts its bytes; an unpacked one ends with WrongUse after too many times those of its source."""

    def __init__(self, path: Path, source: IO[bytes] | gzip.GzipFile, of: "_Counted | None" = None) -> None:
        self.count, self._path, self._source, self._of = 0, path, source, of

    def readable(self) -> bool:
        """Say that the stream can be read."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read into a buffer. Raise WrongUse if that was too much."""
        count = self._source.readinto(buffer)  # type: ignore[union-attr]  # files and packed files have it
        self.count += count
        if self._of and self.count > max(FREE_BYTES, MOST_TIMES * self._of.count):
            raise WrongUse(f"{self._path} unpacks to more than {MOST_TIMES} times its size, as no log does.",
                           hint="If it is a log, unpack it, and name the unpacked file.")  # fmt: skip
        return int(count)


def _check(mode: int, *, may_be_pipe: bool) -> None:
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, "Is a directory")
    if not (stat.S_ISREG(mode) or (may_be_pipe and stat.S_ISFIFO(mode))):
        raise OSError(errno.EINVAL, "It is a device" if may_be_pipe else "It is a pipe or a device")
