"""The door through which files of others are read: bounded bytes, lines and depths."""

import bz2
import gzip
import io
import lzma
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from stampede import foreign
from stampede.errors import WrongUse
from stampede.foreign import LONGEST_LINE, MIB, TOO_LONG, Lines, open_text, parse_json, parse_python, read_text


def _read(lines: Lines, size: int) -> str:
    return "".join(iter(partial(lines.read, size), ""))


def _read_log(path: Path) -> str:
    with open_text(path) as lines:
        return _read(lines, 1000)


def test_a_small_file_is_read_whole(tmp_path: Path) -> None:
    """Bytes that are no UTF-8 become U+FFFD, and the mark of its order is no text."""
    (tmp_path / "Procfile").write_bytes(b"\xef\xbb\xbfweb: caf\xc3\xa9 \xed\xa0\x80\xff")
    assert read_text(tmp_path / "Procfile") == "web: caf\u00e9 " + 4 * "\ufffd"


def test_a_file_that_is_too_large_is_named_with_the_limit(tmp_path: Path) -> None:
    """A file may have exactly the limit."""
    (tmp_path / "conf").write_bytes(b"a" * 2 * MIB)
    assert len(read_text(tmp_path / "conf", most_bytes=2 * MIB)) == 2 * MIB
    with pytest.raises(WrongUse, match=r"conf has more than 1 MiB"):
        read_text(tmp_path / "conf")


def test_no_device_pipe_or_folder_is_a_small_file(tmp_path: Path) -> None:
    """A link to a device is a device, and a pipe without a writer does not keep anybody waiting."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link", "."):
        with pytest.raises(WrongUse, match="cannot be read"):
            read_text(tmp_path / name)


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 100 + "]" * 100, '{"a":' * 70 + "1" + "}" * 70, "{"])
def test_json_that_is_nested_too_deeply_is_no_json(text: str) -> None:
    """Whoever reads the values may go down into them. The bound is far from what programs write."""
    assert parse_json("[" * 50 + "1" + "]" * 50) is not None
    with pytest.raises(ValueError, match=r"deeply|Expecting"):
        parse_json(text)


@pytest.mark.parametrize("text", ["a = (", "-" * 20_000 + "1", "a" + ".b" * 100_000, "\x00"])
def test_python_that_cannot_be_parsed_is_broken_whatever_the_parser_says(text: str) -> None:
    """Python's parser raises MemoryError, RecursionError and ValueError, too."""
    with pytest.raises(SyntaxError):
        parse_python(text)


@pytest.mark.parametrize("packed", [False, True])
def test_a_log_comes_through_a_pipe_from_its_first_byte(tmp_path: Path, *, packed: bool) -> None:
    """A pipe can be read once only, so nothing looks into it before."""
    text = "".join(f"line {number}\n" for number in range(20_000))
    os.mkfifo(tmp_path / "pipe")
    content = gzip.compress(text.encode()) if packed else text.encode()
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
    writer.start()
    assert _read_log(tmp_path / "pipe") == text
    writer.join()


def test_no_device_is_a_log() -> None:
    """A device has no end."""
    with pytest.raises(WrongUse, match=r"/dev/zero cannot be read: It is a device"):
        _read_log(Path("/dev/zero"))


def test_a_long_line_is_left_out_wherever_reading_stops() -> None:
    """What stands before and behind it is read, whatever the size of a piece."""
    long, longer = "b" * LONGEST_LINE, "c" * (LONGEST_LINE + 1)
    text = f"a\n{long}\n{longer}\n{longer}\nd\n{longer}"
    for size in (1, 100, LONGEST_LINE, LONGEST_LINE + 5, 10 * LONGEST_LINE):
        lines = Lines(io.StringIO(text))
        assert _read(lines, size) == f"a\n{long}\n{TOO_LONG}\n{TOO_LONG}\nd\n{TOO_LONG}"


def test_a_packed_file_that_grows_without_end_is_no_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message names the file, and the way out."""
    monkeypatch.setattr(foreign, "FREE_BYTES", 1 << 20)
    (tmp_path / "bomb.log.gz").write_bytes(gzip.compress(b"a" * (1 << 22)))
    with pytest.raises(WrongUse, match=r"bomb\.log\.gz unpacks to more than 200 times its size") as caught:
        _read_log(tmp_path / "bomb.log.gz")
    assert "unpack it" in caught.value.hint


def test_a_part_may_be_read_again() -> None:
    """What was read to find the format comes before all that follows."""
    lines = Lines(io.StringIO("a\nb\nc\n"))
    first = lines.read(1)
    lines.unread(first)
    assert (first, lines.read(100)) == ("a\n", "a\nb\nc\n")


@pytest.mark.parametrize(("pack", "unpacks"), [(bz2.compress, "bzcat"), (lzma.compress, "xzcat")])
def test_what_unpacks_another_archive_is_named(tmp_path: Path, pack: Callable[[bytes], bytes], unpacks: str) -> None:
    (tmp_path / "a.log").write_bytes(pack(b"a\n"))
    with pytest.raises(WrongUse, match="is packed, and not with gzip") as refused:
        _read_log(tmp_path / "a.log")
    assert str(refused.value.hint).startswith(unpacks)
