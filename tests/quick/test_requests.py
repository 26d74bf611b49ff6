"""stampede.evaluate.read.rows: k6's points become one row per request, and no row is lost or made up."""

import gzip
import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from stampede.evaluate.read.rows import UnreadablePoints, write_requests
from tests.synthetic import Request, lines, write_points


def rows(folder: Path) -> list[dict[str, Any]]:
    """Return the requests of a trial's folder as dictionaries."""
    write_requests(folder, "one", "mix", 3)
    relation = duckdb.read_parquet(str(folder / "requests.parquet"))
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]


def test_a_request_is_one_row_with_what_was_asked_and_what_it_took(tmp_path: Path) -> None:
    request = Request(overhead_ms=12.5, service_time_ms=400, worker="box:7", connection="4711")
    write_points(tmp_path / "points.json.gz", [request])

    [row] = rows(tmp_path)

    assert (row["variant"], row["load"], row["trial"]) == ("one", "mix", 3)
    assert (row["request_class"], row["service_time_ms"], row["duration_ms"]) == ("light", 400, 412.5)
    assert row["overhead_ms"] == 12.5
    assert (row["worker"], row["thread"], row["connection"]) == ("box:7", 9, "4711")
    assert (row["status"], row["error"]) == (200, None)
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
    (tmp_path / "points.json.gz").unlink()
    with pytest.raises(UnreadablePoints, match=f"{tmp_path} has no points.json.gz"):
        write_requests(tmp_path, "one", "mix", 1)


DAMAGES = [
    (("metric", "type"), None, "a line is not one of k6"),
    (("metric",), None, "a line is not one of k6"),
    (("type",), "Pint", "a line is not one of k6"),
    (("data",), None, "a point has no time"),
    (("data", "time"), None, "a point has no time"),
    (("data", "time"), "infinity", "a point has no time"),
    (("data", "value"), None, "the value of a point is not a number >= 0"),
    (("data", "value"), float("nan"), "the value of a point is not a number >= 0"),
    (("data", "value"), -1, "the value of a point is not a number >= 0"),
    (("data", "metadata"), None, "a request has no id or no class"),
    (("data", "tags", "request"), None, "a request has no id or no class"),
    (("data", "metadata", "asked_ms"), "inf", "a request does not say what it asked for"),
    (("data", "metadata", "worker"), None, "an answer does not say who gave it and when"),
    (("data", "metadata", "status"), "0", "an answer does not say who gave it and when"),
    (("data", "metadata", "status"), "301", "an answer does not say who gave it and when"),
    (("data", "metadata", "began"), "nan", "an answer does not say who gave it and when"),
    (("data", "metadata", "id"), "2-1", "an answer belongs to no request"),
]


@pytest.mark.parametrize(("keys", "value", "says"), DAMAGES)
def test_a_point_that_makes_no_sound_row_is_an_error(
    tmp_path: Path, keys: tuple[str, ...], value: object, says: str
) -> None:
    """A duration that is no number would be a fast success, an answer without its request a lost one."""
    points = list(lines([Request()]))
    answered = points[3]
    assert answered["metric"] == "request_answered"
    holders = [answered]
    for key in keys[:-1]:
        holders.append(holders[-1][key] if isinstance(holders[-1].get(key), dict) else holders[-1])
    holders[-1][keys[-1]] = value
    write_lines(tmp_path, [json.dumps(point) for point in points])

    with pytest.raises(UnreadablePoints) as caught:
        write_requests(tmp_path, "one", "mix", 1)

    assert str(caught.value) == f"{tmp_path}/points.json.gz cannot be read: {says}"


def test_several_generators_make_one_table_and_their_requests_are_of_the_same_visits(tmp_path: Path) -> None:
    """Two k6 processes number their requests alike, and their rows are not joined to each other."""
    page = Request(request_class="page", visit="17", worker="box:1")
    post = Request(request_class="post", visit="17", worker="box:1", sent_s=1)
    write_points(tmp_path / "points-1.json.gz", [page, post])
    write_points(tmp_path / "points-2.json.gz", [Request(worker="box:2", sent_s=2)])

    names = "generator", "id", "worker", "request_class", "visit", "status", "error"
    assert [tuple(row[name] for name in names) for row in rows(tmp_path)] == [
        ("points-1", "1-1", "box:1", "page", "17", 200, None), ("points-1", "1-2", "box:1", "post", "17", 302, None),
        ("points-2", "1-1", "box:2", "light", None, 200, None),
    ]  # fmt: skip


@pytest.mark.parametrize("second", ["points.json.gz", "points-2.json.gz"])
def test_two_requests_of_one_class_in_a_visit_are_an_error(tmp_path: Path, second: str) -> None:
    """The file is named in which the second one stands; - comes before . in their order."""
    first = [Request(request_class="page", visit="1"), Request(request_class="post", visit="1", sent_s=1)]
    again = [Request(request_class="post", visit="1", sent_s=2)]
    write_points(tmp_path / "points.json.gz", first + again if second == "points.json.gz" else first)
    if second != "points.json.gz":
        write_points(tmp_path / second, again)

    with pytest.raises(UnreadablePoints) as caught:
        write_requests(tmp_path, "one", "mix", 1)

    assert str(caught.value) == (
        f"{tmp_path}/points.json.gz cannot be read: a visit has two requests of the same class"
    )


@pytest.mark.parametrize("copied", [1, 3], ids=["a request", "an answer"])
def test_a_point_that_stands_twice_is_an_error(tmp_path: Path, copied: int) -> None:
    points = [json.dumps(point) for point in lines([Request(), Request()])]
    write_lines(tmp_path, [*points, points[copied]])

    with pytest.raises(UnreadablePoints, match="two requests have the same id"):
        write_requests(tmp_path, "one", "mix", 1)


def test_an_error_that_quotes_half_a_character_is_an_error_as_any_other(tmp_path: Path) -> None:
    """DuckDB cuts off what it quotes after some bytes, wherever that is."""
    for before in range(4):
        point = list(lines([Request()]))[1] | {"data": {"value": {"x" * before + "€" * 60: 1}}}
        write_lines(tmp_path, [json.dumps(point, ensure_ascii=False)])

        with pytest.raises(UnreadablePoints):
            write_requests(tmp_path, "one", "mix", 1)


def write_lines(folder: Path, texts: list[str], end: str = "\n") -> None:
    """Write lines as a points file."""
    (folder / "points.json.gz").write_bytes(gzip.compress("".join(text + end for text in texts).encode()))
