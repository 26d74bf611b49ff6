"""Archives of runs, unpacked and searched."""

import gzip
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

_NUMBER = re.compile(r"^\s*user: ['\"]?\d|\b(?:LAB_USER|LAB_OWNER)=|\bstampede\.owner: (?!\$)", re.MULTILINE)


def unpack(archive: Path, where: Path) -> Path:
    """Unpack an archive and return the one folder in it."""
    where.mkdir()
    subprocess.run(["tar", "--extract", "--file", str(archive), "--directory", str(where)], check=True)
    [folder] = where.iterdir()
    return folder


def telling(archive: Path, *values: str) -> list[str]:
    """Return which files of an archive have a value in them, or a user or an owner, each as a sentence."""
    found = []
    for name, text in _texts(archive):
        found += [f"{name} has {value}" for value in values if value in text]
        found += [f"{name} has an owner or a user"] if _NUMBER.search(text) else []
    return found


def _texts(archive: Path) -> Iterator[tuple[str, str]]:
    """Yield an archive as it is before it is compressed, and the content of every file in it, with their names."""
    yield "the archive", gzip.decompress(archive.read_bytes()).decode(errors="replace")
    with tarfile.open(archive) as packed:
        for member in packed:
            file = packed.extractfile(member)
            assert file
            content = file.read()
            if member.name.endswith(".parquet"):
                yield member.name, _rows(content)
            else:
                text = gzip.decompress(content) if member.name.endswith(".gz") else content
                yield member.name, text.decode(errors="replace")


def _rows(parquet: bytes) -> str:
    """Return all that a Parquet file says: its rows, its schema and its metadata."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(parquet)
        file.flush()
        rows = duckdb.read_parquet(file.name).fetchall()
        about = duckdb.execute("FROM parquet_schema($1)", [file.name]).fetchall()
        about += duckdb.execute("FROM parquet_kv_metadata($1)", [file.name]).fetchall()
        assert rows
        return repr((rows, about))
