"""analysis.requests: k6's points become one row per request, and no row is lost or made up."""

import contextlib
import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.requests import UnreadablePoints, write_requests
from tests.synthetic import Request, lines, write_points


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the requests of a trial's folder as dictionaries."""
    write_requests(folder, "one", "mix", 3)
    relation = duckdb.read_parquet(str(folder / "requests.parquet"))
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def test_a_request_is_one_row_with_what_was_asked_and_what_it_took(tmp_path: Path) -> None:
    write_points(tmp_path / "points.json.gz", [Request(overhead_ms=12.5, asked_ms=400, worker="box:7")])

    [row] = rows(tmp_path)

    assert (row["variant"], row["load"], row["trial"]) == ("one", "mix", 3)
    assert (row["request"], row["asked_ms"], row["duration_ms"]) == ("light", 400, 412.5)
    assert row["overhead_ms"] == 12.5
    assert (row["worker"], row["thread"], row["status"], row["error"]) == ("box:7", 9, 200, None)
    assert row["sent"].isoformat() == "2026-01-02T03:04:05"
    assert row["began"] == pytest.approx(1767323045.0)


def test_a_request_that_failed_is_a_row_that_failed(tmp_path: Path) -> None:
    """A failure has its reason and no overhead, so that it can never pass for a fast success."""
    write_points(tmp_path / "points.json.gz", [Request(), Request(error="status 502", overhead_ms=-99)])

    first, second = rows(tmp_path)

    assert first["error"] is None
    assert (second["error"], second["status"], second["overhead_ms"]) == ("status 502", 502, None)


def test_a_request_that_the_end_cut_off_is_not_missing(tmp_path: Path) -> None:
    write_points(tmp_path / "points.json.gz", [Request(answered=False)])

    [row] = rows(tmp_path)

    assert row["error"] == "no answer before the end of the run"
    assert (row["duration_ms"], row["overhead_ms"], row["worker"]) == (None, None, None)


def test_several_generators_make_one_table(tmp_path: Path) -> None:
    """Two k6 processes number their requests alike; their rows must not be joined to each other."""
    write_points(tmp_path / "points-1.json.gz", [Request(worker="box:1")])
    write_points(tmp_path / "points-2.json.gz", [Request(worker="box:2", sent_s=1)])

    assert [(row["generator"], row["worker"]) for row in rows(tmp_path)] == [
        ("points-1", "box:1"),
        ("points-2", "box:2"),
    ]


def test_the_order_of_keys_does_not_matter(tmp_path: Path) -> None:
    turned = [json.dumps(dict(reversed(line.items()))) + "\n" for line in lines([Request(overhead_ms=7)])]
    (tmp_path / "points.json.gz").write_bytes(gzip.compress("".join(turned).encode()))

    assert [row["overhead_ms"] for row in rows(tmp_path)] == [7]


def damaged(content: bytes) -> dict[str, bytes]:
    """Return what can become of a points file, by what the reader should say of it."""
    return {
        "Unexpected end of GZIP stream": content[: len(content) // 2],
        "Input is not a GZIP stream": b"not gzip",
        "Malformed JSON": gzip.compress(b"hello world\n"),
        "points.json.gz cannot be read": content[:500] + bytes(100) + content[600:],
    }


@pytest.mark.parametrize("says", list(damaged(b"")))
def test_a_damaged_points_file_is_an_error_and_leaves_no_table(tmp_path: Path, says: str) -> None:
    write_points(tmp_path / "points.json.gz", [Request(overhead_ms=n / 7) for n in range(500)])
    content = (tmp_path / "points.json.gz").read_bytes()
    (tmp_path / "points.json.gz").write_bytes(damaged(content)[says])

    with pytest.raises(UnreadablePoints, match=says):
        write_requests(tmp_path, "one", "mix", 1)

    assert [path.name for path in tmp_path.iterdir()] == ["points.json.gz"]


def test_a_folder_without_points_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnreadablePoints) as caught:
        write_requests(tmp_path, "one", "mix", 1)

    assert str(caught.value) == f"{tmp_path} has no points.json.gz"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=400), compressed=st.booleans())
def test_no_bytes_make_the_reader_fail_otherwise(tmp_path: Path, content: bytes, compressed: bool) -> None:
    (tmp_path / "points.json.gz").write_bytes(gzip.compress(content) if compressed else content)

    with contextlib.suppress(UnreadablePoints):
        write_requests(tmp_path, "one", "mix", 1)
