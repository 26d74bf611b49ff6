"""Logs as people find them: formats of their own, other encodings, and lines of several programs in a file."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from stampede.errors import WrongUse
from stampede.logs import reading
from stampede.logs.access_log import read_logs
from tests.quick.test_access_log import AGAIN, KNOWN, TOOK_S, read, written

DAY = "03/Nov/2026:14:00:{n:02} +0000"
ISO = "2026-11-03T14:00:{n:02}+00:00"
REQUEST = '"GET /a HTTP/1.1"'
OWN = {
    # log_format of nginx.conf in public repositories
    "the duration first": f'{{s}} 203.0.113.9 - - [{DAY}] {REQUEST} 200 512 "-" "x 3.5"',
    "the duration between": f'203.0.113.9 - - [{DAY}] {{s}} {REQUEST} 200 512 "-" "x 3.5"',
    "the duration before the size": f'203.0.113.9 - - [{DAY}] {REQUEST} 200 {{s}} 512 "-"',
    "bars": f"203.0.113.9|-|{DAY}|GET /a HTTP/1.1|200|512|x (a; b) 3.5|{{s}}|0.001",
    "tabs": f"{ISO}\t203.0.113.9\tGET\t/a?b=1\t200\tx y\t{{s}}",
    "semicolons": f"{ISO};203.0.113.9;GET;/a;200;512;{{s}};0.001",
    "tildes": f"{ISO} ~ 203.0.113.9 ~ GET ~ /a ~ 200 ~ {{s}}",
    "dashes": f"{ISO} - 203.0.113.9 - GET - /a - 200 - {{s}}",
    "control characters": f"{ISO}\x01203.0.113.9\x01GET\x01/a\x01200\x01{{s}}",
    "milliseconds since 1970": "17937144{n:02}125 GET /a 200 {ms}ms",
    "commas and quotes": f'"{ISO}","203.0.113.9","GET","/a","200","{{s}}"',
    "everything in quotes": f'"203.0.113.9" "{DAY}" {REQUEST} "200" "512" "{{s}}"',
    "seconds since 1970": f"17937144{{n:02}}.125 203.0.113.9 {REQUEST} 200 512 {{s}}",
    "decimal commas": f'203.0.113.9 - - [{DAY}] {REQUEST} 200 512 "-" {{s_comma}}',
    # httpd.apache.org, mod_log_config
    "Apache's %T/%D": f'203.0.113.9 - - [{DAY}] {REQUEST} 200 512 "-" **{{whole_s}}/{{us}}**',
    "a name with a unit": f'203.0.113.9 - - [{DAY}] {REQUEST} 200 512 "-" time_ms={{ms}}',
    # gunicorn, loguru and Django applications
    "words after the duration": f"[{DAY}] 203.0.113.9 {REQUEST} 200 - ({{s}}000s)",
    "a middleware": "2026-11-03 14:00:{n:02}.123 | INFO     | app.log:22 - GET /a 200 {ms}ms",
    "a logger": "2026-11-03 14:00:{n:02},123 INFO request: GET /a?b=1 - 200 in {s}s",
    "structlog's quotes": f"timestamp='{ISO}' event='done' method='GET' path='/a' status=200 duration_ms={{ms}}",
    "a logger before keys": "2026-11-03 14:00:{n:02},123 [7] INFO method=GET path=/a status=200 time={s}s",
    "Tornado": "[I 261103 14:00:{n:02} web:2348] 200 GET /a?b=1 (203.0.113.9) {ms}ms",
    "Gin": '[GIN] 2026/11/03 - 14:00:{n:02} | 200 |   {ms}ms |  203.0.113.9 | GET      "/a?b=1"',
    "uWSGI's msecs": f"203.0.113.9 - - [{DAY}] {REQUEST} 200 512 msecs={{ms}} pid=7",
    # ltsv.org; fluentd and Filebeat; Caddy on a terminal
    "labels": f"time:{ISO}\thost:203.0.113.9\treq:GET /a HTTP/1.1\tstatus:200\tua:a b\treqtime:{{s}}\tapptime:0.001",
    "a program that collects logs": '{{"@timestamp": "' + ISO + '", "message": "203.0.113.9 - - [' + DAY + "] "
    '\\"GET /a HTTP/1.1\\" 200 512 \\"-\\" {s}"}}',
    "an object without a time": "2026/11/03 14:00:{n:02}.487\tinfo\taccess\thandled request\t"
    '{{"request": {{"method": "GET", "uri": "/a"}}, "duration": {s}, "status": 200}}',
    "an object in an object": '{{"timestamp": "' + ISO + '", "jsonPayload": {{"method": "GET", "path": "/a", '
    '"status": 200, "duration_ms": {ms}}}}}',
    "a day and a time": '{{"date": "2026-11-03", "time": "14:00:{n:02}", "verb": "GET", "url": "/a", "code": 200, '
    '"elapsed": {s}}}',
    "nanoseconds since 1970": '{{"ts": 17937144{n:02}000000000, "verb": "GET", "path": "/a", "code": 200, "rt": {s}}}',
    "bytes in JSON": '{{"time":"' + ISO + '","method":"get","uri":"/a","status":200,"ua":"\\xc3","request_time":{s}}}',
}


def lines_of(template: str) -> list[str]:
    """Return a line for each of TOOK_S."""
    return [
        template.format(n=n, s=f"{took_s:.3f}", s_comma=f"{took_s:.3f}".replace(".", ","), whole_s=int(took_s),
                        ms=f"{1000 * took_s:.0f}", us=f"{1e6 * took_s:.0f}")
        for n, took_s in enumerate(TOOK_S)
    ]  # fmt: skip


@pytest.mark.parametrize("name", OWN)
def test_a_format_of_its_own_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The fields may stand on all sides of the time and of the request; also after the first lines."""
    monkeypatch.setattr(reading, "SAMPLE", 20)

    log = read(tmp_path, lines_of(OWN[name]))

    assert list(log.routes["GET", "/a"].seconds) == pytest.approx(TOOK_S)
    assert (log.last - log.first, log.unreadable) == (len(TOOK_S) - 1, 0)


COLUMNS = "#Version: 1.0\n#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query c-ip sc-status time-taken"


@pytest.mark.parametrize(
    ("line", "unit"),
    [("2026-11-03 14:00:{n:02} 10.0.0.1 GET /a - 203.0.113.9 200 {ms}", "milliseconds"),
     ("2026-11-03\t14:00:{n:02}\tLHR\tGET\t/a\tb=1\t203.0.113.9\t200\t{s}", "seconds")],
)  # fmt: skip
def test_the_columns_of_the_w3c_are_named_by_the_file(tmp_path: Path, line: str, unit: str) -> None:
    """IIS writes milliseconds, and CloudFront seconds; the unit that was found is said, or the column to add."""
    log = read(tmp_path, [COLUMNS, *lines_of(line)[:9], "   ", "a line of something else", *lines_of(line)[9:]])

    assert log.unreadable == 3
    assert log.recognised[0].endswith(f"time-taken of the W3C extended format, in {unit}.")
    assert list(log.routes["GET", "/a"].seconds) == pytest.approx(TOOK_S)
    assert log.clock == "balancer"
    without = [
        COLUMNS.removesuffix(" time-taken"),
        *(text.rpartition("\t" if "\t" in text else " ")[0] for text in lines_of(line)),
        "   ",
        "a line of something else",
    ]
    (tmp_path / "without.log").write_text("\n".join(without))
    with pytest.raises(WrongUse, match="the W3C extended format, but no field is known") as refused:
        read_logs([tmp_path / "without.log"], ["GET"], need_durations=True)
    assert read_logs([tmp_path / "without.log"], ["GET"]).requests == len(TOOK_S)
    assert "Add it to the server's configuration.\ntime-taken\n" in refused.value.hint


@pytest.mark.parametrize(
    ("head", "line"),
    [("timestamp,method,path,status,agent,duration_ms", '{iso},GET,/a?b=1,200,"x, like 3.5",{ms}'),
     ("date;time;verb;url;code;elapsed", "2026-11-03;14:00:{n:02};GET;/a;200;{s}"),
     ("@timestamp,@message", '{iso},"203.0.113.9 - - [03/Nov/2026:14:00:{n:02} +0000] ""GET /a HTTP/1.1"" 200 9 {s}"')],
)  # fmt: skip
def test_the_columns_of_csv_are_named_by_its_first_line(tmp_path: Path, head: str, line: str) -> None:
    """Also of the lines of a program that CloudWatch exports."""
    log = read(tmp_path, [head, *lines_of(line.replace("{iso}", ISO))])

    assert list(log.routes["GET", "/a"].seconds) == pytest.approx(TOOK_S)
    assert log.last - log.first == len(TOOK_S) - 1


@pytest.mark.parametrize("events", ["5", "null", "[1, null]", "[" * 70 + "]" * 70])
def test_events_that_are_no_lines_are_no_format(tmp_path: Path, events: str) -> None:
    with pytest.raises(WrongUse, match="no format that the lab knows"):
        read(tmp_path, [f'{{"events": [{{"message": "a"}}], "events": {events}}}'])


def test_whole_numbers_that_are_longer_for_a_longer_path_may_be_durations(tmp_path: Path) -> None:
    """The length of a request grows by a character for each character of its path, and a duration by anything."""
    paths = "/a", "/reports/monthly"
    lines = [f'1.2.3.4 - - [{DAY.format(n=n)}] "GET {paths[n % 2]} HTTP/1" 200 5 {20_000 + n % 2 * 10**6 + n * n % 7}'
             for n in range(40)]  # fmt: skip

    assert read(tmp_path, lines, unit="us").routes["GET", "/reports/monthly"].seconds[0] == pytest.approx(
        1.02, abs=0.01
    )


@pytest.mark.parametrize(
    "encoded", [gzip.compress, lambda text: text.decode().encode("utf-16"), lambda text: b"\xef\xbb\xbf" + text,
                lambda text: text.replace(b"\n", b"\r\n")],
)  # fmt: skip
def test_a_log_is_read_however_its_file_is_encoded(tmp_path: Path, encoded: Callable[[bytes], bytes]) -> None:
    """Logrotate may name a compressed file access.log.1."""
    (tmp_path / "access.log.1").write_bytes(encoded("\n".join(written(AGAIN + " {s}")).encode()))

    log = read_logs([tmp_path / "access.log.1"], ["GET"])

    assert list(log.routes["GET", "/a"].seconds) == pytest.approx(TOOK_S)


def test_requests_that_two_programs_log_count_once(tmp_path: Path) -> None:
    """Heroku's log has the lines of the router and, for the same requests, those of the application."""
    router, application = (written(line) for line in (KNOWN["Heroku"][0], "<1>1 app[web.1]: " + AGAIN))

    log = read(tmp_path, [line for pair in zip(router, application, strict=True) for line in pair])

    assert log.requests == len(TOOK_S)
    [source] = log.sources.values()
    assert source.notes == (
        "Lines in the common or the combined format are left out, because they are of another program.",
    )


def test_the_logs_of_a_balancer_and_its_server_in_one_file_are_refused(tmp_path: Path) -> None:
    lines = [line for n in (1, 2) for name in ("nginx", "web") for line in written(f"{name}-{n}  | {AGAIN} {{s}}")]

    with pytest.raises(WrongUse, match="nginx and web log requests, perhaps the same ones") as refused:
        read(tmp_path, lines)

    assert "docker compose logs nginx > nginx.log" in str(refused.value.hint)


@pytest.mark.parametrize(
    "line",
    [
        "2026/11/03 14:00:{n:02} [error] 31#31: *3 upstream timed out (110: x), request: "
        + REQUEST
        + ', upstream: "http:"',
        '2026-11-03 14:00:{n:02},1 DEBUG urllib3.connectionpool https://api.example:443 "GET /a HTTP/1.1" 200 512',
        '2026-11-03 14:00:{n:02},1 INFO httpx HTTP Request: GET https://api.example/a "HTTP/1.1 200 OK"',
        "2026-11-03 14:00:{n:02} WARNING django.request Not Found: /a 404",
    ],
)
def test_other_lines_with_a_time_are_no_requests(tmp_path: Path, line: str) -> None:
    """An error, and what an application asks of others."""
    with pytest.raises(WrongUse, match="this line has no format that the lab knows"):
        read(tmp_path, lines_of(line))


@pytest.mark.parametrize("decimals", [1, 2, 4])
def test_unusual_decimals_that_are_large_need_a_unit(tmp_path: Path, decimals: int) -> None:
    """Nginx writes three decimals and gunicorn six; others may be milliseconds."""
    line = '{{"time": "2026-11-03T14:00:{n:02}Z", "method": "GET", "path": "/a", "status": 200, "latency": %s}}'
    lines = [line.format(n=n) % round(100 * took_s, decimals) for n, took_s in enumerate(TOOK_S)]

    with pytest.raises(WrongUse, match="latency=… has no unit, and in seconds, half of the requests would take"):
        read(tmp_path, lines)
    assert read(tmp_path, lines, unit="ms").requests == len(TOOK_S)
