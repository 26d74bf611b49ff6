"""Access logs become classes of requests: formats, routes, rates, durations, and what must not leave a log."""

import gzip
import io
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

from lab.advice.access_log import Log, described, read_logs, route_of
from lab.advice.ranking import rank
from lab.advice.service import read_service
from tests.conftest import Lab

AGENT = '"https://shop.example/?token=s3cret" "Mozilla/5.0 (X11; 3.5)"'


def combined(second: int, request: str, further: str = "", status: int = 200) -> str:
    at = f"[24/Nov/2026:10:{second // 60:02}:{second % 60:02} +0000]"
    return f'203.0.113.9 - alice {at} "{request} HTTP/1.1" {status} 512 {AGENT}{further}'


def log_of(tmp_path: Path, lines: Sequence[str], name: str = "access.log") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read(tmp_path: Path, lines: Sequence[str], methods: Sequence[str] = ("GET", "HEAD"), unit: str = "") -> Log:
    return read_logs([log_of(tmp_path, lines)], methods, unit)


@pytest.mark.parametrize(
    ("lines", "unit", "seconds"),
    [
        pytest.param([combined(n, "GET /a", " 0.250") for n in (0, 10)], "", 0.25, id="nginx with $request_time"),
        pytest.param([combined(n, "GET /a", ' "-" rt=0.250 uct="0.001"') for n in (0, 10)], "", 0.25, id="named"),
        pytest.param([combined(n, "GET /a", " 250000") for n in (0, 10)], "us", 0.25, id="gunicorn's D"),
        pytest.param([combined(n, "GET /a", " 0.250000") for n in (0, 10)], "", 0.25, id="gunicorn's L"),
        pytest.param([combined(n, "GET /a", " 250ms") for n in (0, 10)], "", 0.25, id="with a unit"),
        pytest.param([combined(n, "GET /a") for n in (0, 10)], "", None, id="without durations"),
        pytest.param(
            [json.dumps({"time_iso8601": f"2026-11-24T10:00:{n:02}+00:00", "request": "GET /a?b=1 HTTP/1.1",
                         "status": "200", "request_time": "0.250"}) for n in (0, 10)], "", 0.25, id="nginx's JSON"),
        pytest.param(
            [json.dumps({"ts": 1795514400.5 + n, "method": "GET", "path": "/a", "status_code": 200, "duration_ms": 250})
             for n in (0, 10)], "", 0.25, id="an application's JSON"),
    ],
)  # fmt: skip
def test_formats(tmp_path: Path, lines: list[str], unit: str, seconds: float | None) -> None:
    log = read(tmp_path, lines, unit=unit)

    assert log.last - log.first == 10
    assert (log.unreadable, set(log.routes)) == (0, {("GET", "/a")})
    assert list(log.routes["GET", "/a"].seconds) == ([] if seconds is None else [pytest.approx(seconds)] * 2)


@pytest.mark.parametrize(
    ("target", "route"),
    [
        ("/", "/"),
        ("/items/17/?page=2&token=s3cret", "/items/{id}"),
        ("/users/alice@example.org/orders", "/users/{id}/orders"),
        ("/f/0b9d8ef2-4f3c-4a52-9f3c-6c1f6f0f7d10", "/f/{id}"),
        ("/reset/eyJhbGciOiJIUzI1NiJ9abc", "/reset/{id}"),
        ("http://shop.example/cart", "/cart"),
        ("/static/js/app.3f2a.js?v=1", "/{file}"),
        ("/api/v2/products", "/api/v2/products"),
    ],
)
def test_routes(target: str, route: str) -> None:
    assert route_of(target) == route


def test_many_names_of_things_are_one_route(tmp_path: Path) -> None:
    books = [combined(n, f"GET /books/{word}/pages", " 0.010") for n, word in enumerate("abcdefghijkl")]
    pages = [combined(n, f"GET /{word}", " 0.010") for n, word in enumerate(("about", "terms", "jobs"))]

    found = read(tmp_path, books + pages).routes

    assert {path: one.requests for (_, path), one in found.items()} == {
        "/books/{name}/pages": 12, "/about": 1, "/terms": 1, "/jobs": 1,
    }  # fmt: skip


def test_the_file_says_what_the_log_says(tmp_path: Path) -> None:
    """Thirty routes: nineteen classes and the rest; rates and mean durations are those of the log."""
    requests = [(n, "/n" * (n % 30 + 1), 0.010 * (1 + n % 7)) for n in range(3000)]
    lines = [combined(n // 10, f"GET {path}?card=4111", f" {took:.3f}", 503 if n % 1000 == 0 else 200)
             for n, path, took in requests]  # fmt: skip
    lines += [combined(3, "POST /pay"), "not a line of a log"]

    text = described(read(tmp_path, lines), "access.log", cores=2)
    classes = yaml.safe_load(text)["classes"]

    assert "# From access.log: 3,000 requests in 299 s." in text
    assert "# Left out: 1 POST." in text
    assert "# Lines without a format that the lab knows: 1." in text
    assert text.count("; 1 ended with a status from 500 on") == 3
    assert len(classes) == 20
    assert sum(one["per_second"] for one in classes.values()) == pytest.approx(3000 / 299, rel=0.01)
    assert classes["others"]["per_second"] == pytest.approx(11 * 100 / 299, rel=0.01)
    assert all(len(one["takes_s"]) == 50 for one in classes.values())
    mean = sum(one["per_second"] * sum(one["takes_s"]) / 50 for one in classes.values()) / (3000 / 299)
    assert mean == pytest.approx(sum(took for _, _, took in requests) / 3000, rel=0.01)
    for secret in ("s3cret", "alice", "203.0.113.9", "Mozilla", "4111", "shop.example"):
        assert secret not in text


def test_a_log_becomes_advice(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty quick requests a second, and a slow one every second, from a packed log and a second one on stdin."""
    lines = [combined(n // 20, "GET /quick", " 0.020") for n in range(2400)]
    lines += [combined(n, "GET /slow", " 2.000") for n in range(120)]
    packed = tmp_path / "access.log.1.gz"
    packed.write_bytes(gzip.compress("\n".join(lines[:1000]).encode()))
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(lines[1000:])))
    said = lab.call("requests", str(packed), "-")
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout.startswith("# From access.log.1.gz, standard input: 2,520 requests in 119 s.\n")

    mine = tmp_path / "mine.yaml"
    mine.write_text(said.stdout)
    asked = read_service(mine).load()
    assert {one.name: one.rate for one in asked.classes} == pytest.approx(
        {"get-quick": 2400 / 119, "get-slow": 120 / 119}, rel=0.01
    )
    assert rank(asked)[0].p99_ms["get-quick"] < 50


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ([], [], "The log has 0 requests with GET, HEAD, and no others."),
        ([combined(0, "POST /a"), combined(1, "PUT /a")], [], "0 requests with GET, HEAD, and 1 POST, 1 PUT."),
        (["nothing", "known"], [], "access.log:1: this line has no format that the lab knows."),
        (["{}", '{"time": "noon"}'], [], "access.log:1: this line has no format that the lab knows."),
        (["[1]", '{"half'], [], "access.log:1: this line has no format that the lab knows."),
        ([combined(0, "GET /a", " 120")] * 2, [], "access.log:1: the duration 120 has no unit."),
        ([combined(0, "GET /a")] * 2, ["--unit", "days"], "UNIT=days is unknown."),
    ],
)
def test_what_is_refused(lab: Lab, tmp_path: Path, lines: list[str], options: list[str], says: str) -> None:
    said = lab.call("requests", str(log_of(tmp_path, lines)), *options)

    assert (said.returncode, said.stdout) == (2, "")
    assert says in said.stderr


def test_logs_that_cannot_be_read(lab: Lab, tmp_path: Path) -> None:
    torn = tmp_path / "torn.log.gz"
    torn.write_bytes(gzip.compress(combined(0, "GET /a").encode() * 99)[:-20])
    for path in (tmp_path / "none.log", tmp_path, torn):
        said = lab.call("requests", str(path))
        assert said.returncode == 2
        assert f"{path} cannot be read: " in said.stderr
    assert "No access log is named." in lab.call("requests").stderr


def test_other_methods_count_if_they_are_named(tmp_path: Path) -> None:
    log = read(tmp_path, [combined(n, "POST /pay/17", " 0.100") for n in range(5)], methods=["POST"])

    assert set(log.routes) == {("POST", "/pay/{id}")}


def test_a_path_cannot_add_lines_to_the_file(tmp_path: Path) -> None:
    evil = json.dumps({"ts": 1795514400, "method": "GET", "path": "/a\n  b: {users: {}}", "status": 200})
    text = described(read(tmp_path, [evil, evil]), "access.log", cores=2)

    assert set(yaml.safe_load(text)["classes"]) == {"get-a-b-users"}
