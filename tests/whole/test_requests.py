"""stampede.evaluate.read.rows: damaged points are sound rows or an error."""

import copy
import gzip
import json
import math
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stampede.evaluate.read.rows import UnreadablePoints
from tests.quick.test_requests import rows
from tests.synthetic import Request, lines

VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.just(10**400), st.floats(), st.text(max_size=12),
        st.sampled_from(["", "nan", "-inf", "1e999", "\0", "x" * 100_000, "request_sent", "Metric", "1-1", "1-2"]),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def places(node: object) -> list[tuple[dict[str, Any], str]]:
    """Return every place in a line where a value stands: what holds it, and under which key."""
    pairs = list(node.items()) if isinstance(node, dict) else []
    return [place for key, value in pairs for place in [(node, key), *places(value)]]  # type: ignore[misc]


@st.composite
def damaged_lines(draw: st.DrawFn) -> list[str]:
    """Change k6's points in one to three places: a value, a key, a line that is gone, moved or there twice."""
    points = list(lines([Request(), Request(error="status 502"), Request(answered=False), Request(sent_s=1)]))
    texts: list[str] = []
    for _ in range(draw(st.integers(1, 3))):
        number = draw(st.integers(0, len(points) - 1))
        holder, key = draw(st.sampled_from(places(points[number]) or [({}, "")]))
        match draw(st.sampled_from(["value", "value", "remove", "rename", "add", "drop", "double", "move", "text"])):
            case "value":
                holder[key] = draw(VALUES)
            case "remove":
                holder.pop(key, None)
            case "rename":
                holder[draw(st.text(max_size=8))] = holder.pop(key, None)
            case "add":
                holder[draw(st.text(max_size=8))] = draw(VALUES)
            case "drop" if len(points) > 1:
                del points[number]
            case "double":
                points.append(copy.deepcopy(points[number]))
            case "move":
                points.append(points.pop(number))
            case _:
                texts.append(draw(st.text(max_size=20)))
    written = [json.dumps(point, ensure_ascii=draw(st.booleans())) for point in points]
    return draw(st.permutations(texts)) + written if draw(st.booleans()) else written + texts


def sound(row: dict[str, Any]) -> bool:
    """Whether a row is one request: told apart, timed, and failed or with numbers that are numbers."""
    numbers = [row["service_time_ms"]] + ([row["duration_ms"], row["overhead_ms"]] if row["error"] is None else [])
    return bool(row["id"] is not None and row["request_class"] is not None and row["sent"] is not None) and all(
        number is not None and math.isfinite(number) for number in numbers
    )


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    texts=damaged_lines(), end=st.sampled_from(["\n", "\r\n", "\n\n"]), members=st.booleans(), cut=st.integers(0, 60)
)
def test_damaged_points_are_sound_rows_or_an_error(
    tmp_path: Path, texts: list[str], end: str, members: bool, cut: int
) -> None:
    """Also in several gzip members, and cut short, as a killed k6 leaves them."""
    raw = [(text + end).encode("utf-8", "surrogatepass") for text in texts]
    content = b"".join(gzip.compress(line) for line in raw) if members else gzip.compress(b"".join(raw))
    (tmp_path / "points.json.gz").write_bytes(content[: len(content) - cut] if cut < 20 else content)
    (tmp_path / "requests.parquet").unlink(missing_ok=True)
    sent = sum(text.count('"metric": "request_sent"') for text in texts)

    try:
        found = rows(tmp_path)
    except UnreadablePoints:
        assert not (tmp_path / "requests.parquet").exists()
        return

    assert all(sound(row) for row in found)
    assert len({row["id"] for row in found}) == len(found) <= sent
