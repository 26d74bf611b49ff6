"""Access logs become classes of requests: formats, routes, rates, durations, and what must not leave a log."""

import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import yaml

from stampede.advise.options import serving_options
from stampede.advise.ranking import predict_option
from stampede.advise.service import read_service
from stampede.logs import reading
from stampede.logs.access_log import AccessLog, describe_log, read_logs
from stampede.logs.columns import route_of
from tests.conftest import Lab

AGENT = '"https://shop.example/?token=s3cret" "Mozilla/5.0 (X11; 3.5)"'


def combined(second: int, request: str, further: str = "", status: int = 200) -> str:
    at = f"[24/Nov/2026:10:{second // 60:02}:{second % 60:02} +0000]"
    return f'203.0.113.9 - alice {at} "{request} HTTP/1.1" {status} 512 {AGENT}{further}'


def log_of(tmp_path: Path, lines: Sequence[str], name: str = "access.log") -> Path:
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def read(tmp_path: Path, lines: Sequence[str], methods: Sequence[str] = ("GET", "HEAD"), unit: str = "") -> AccessLog:
    return read_logs([log_of(tmp_path, lines)], methods, unit)


TOOK_S = [0.014, 0.031, 0.25, 0.002, 0.093, 1.7, 0.014, 0.052, 0.006, 0.41] * 3


AGAIN = f'203.0.113.9 - - [24/Nov/2026:10:00:{{n:02}} +0000] "GET /a HTTP/1.1" 200 512 {AGENT}'


def table(text: str) -> dict[str, list[str]]:
    """Return rows by their names: the columns behind a name, then the lines below it, which may go on."""
    rows: dict[str, list[str]] = {}
    for line in text.strip().splitlines():
        if not line.startswith(" "):
            name, *columns = line.split(" | ")
            rows[name] = columns
        elif line.startswith("    "):
            rows[name][-1] += f" {line.strip()}"
        else:
            rows[name].append(line.strip())
    return rows


KNOWN = {
    name: (line.replace("{again}", AGAIN), says, None if clock == "-" else clock)
    for name, (clock, says, line) in table(r"""
ingress-nginx | balancer | $request_time of ingress-nginx, in seconds
  {again} 334 {s} [shop-web-80] [] 10.42.0.11:8000, 10.42.0.12:8000 512, 512 0.001, {s} 502, 200 a4c2{n}
Traefik | balancer | Traefik's common format, in milliseconds
  {again} {n} "shop@docker" "http://172.18.0.4:8000" {ms}ms
uWSGI | server | uWSGI's own format, in milliseconds
  [pid: 11|app: 0|req: {n}/{n}] 203.0.113.9 () {{44 vars in 912 bytes}} [Tue Nov  3 14:00:{n:02} 2026] GET /a =>
    generated 17 bytes in {ms} msecs (HTTP/1.1 200) 5 headers in 180 bytes (1 switches on core 0)
ALB | balancer | target_processing_time of the format of AWS load balancers, in seconds
  https 2026-11-03T14:00:{n:02}.1114Z app/shop/50dc 203.0.113.9:49096 10.0.1.6:8000 0.000 {s} 0.000 200 200 475 17709
    "GET https://shop.example:443/a HTTP/2.0" "curl/8" - - arn:x "Root=1" "-" "-" 0
HAProxy | balancer | Ta of HAProxy's HTTP format, in milliseconds
  haproxy[14389]: 203.0.113.9:33317 [03/Nov/2026:14:00:{n:02}.655] http-in shop/w1 10/0/30/7/{ms} 200 2750 - - ----
    1/1/1/1/0 0/0 "GET /a HTTP/1.1"
Traefik's JSON | balancer | Duration of Traefik's JSON, in nanoseconds
  {{"StartUTC": "2026-11-03T14:00:{n:02}.097829000Z", "RequestMethod": "GET", "RequestPath": "/a", "Duration": {ns},
    "DownstreamStatus": 200, "RequestCount": {n}, "OriginDuration": 5}}
Caddy | balancer | duration of Caddy's JSON, in seconds
  {{"ts": 17937144{n:02}.5, "request": {{"method": "GET", "uri": "/a", "remote_port": "49096"}}, "bytes_read": 0,
    "duration": {s}, "size": 17709, "status": 200}}
a classic ELB | balancer | target_processing_time of the format of AWS load balancers, in seconds
  2026-11-03T14:00:{n:02}.9458Z shop 203.0.113.9:2817 10.0.1.6:80 0.000073 {s} 0.000057 200 200 0 29 "GET
    http://shop.example:80/a HTTP/1.1" "curl/8" - -
Envoy | balancer | %DURATION% of Envoy's format, in milliseconds
  [2026-11-03T14:00:{n:02}.487Z] "GET /a HTTP/1.1" 200 - 475 17709 {ms} 1 "-" "curl/8" "a4c2" "shop"
Istio | balancer | %DURATION% of Envoy's format, in milliseconds
  [2026-11-03T14:00:{n:02}.487Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 475 17709 {ms} - "-" "curl/8"
granian | server | %(dt_ms)s of granian's format, in milliseconds
  [2026-11-03 14:00:{n:02} +0000] 203.0.113.9 - "GET /a HTTP/1.1" 200 {ms}.000
Elastic | - | event.duration of JSON of the Elastic Common Schema, in nanoseconds
  {{"@timestamp": "2026-11-03T14:00:{n:02}Z", "http": {{"request": {{"method": "GET"}}, "response": {{"status_code":
    200}}}}, "url": {{"path": "/a"}}, "event": {{"duration": {ns}}}}}
Google Cloud | balancer | httpRequest.latency of JSON of a Google Cloud load balancer, in seconds
  {{"timestamp": "2026-11-03T14:00:{n:02}Z", "httpRequest": {{"requestMethod": "GET", "requestUrl":
    "https://shop.example/a", "status": 200, "responseSize": "475", "latency": "{s}s"}}}}
gunicorn's JSON | - | duration_ms=…, in milliseconds
  {{"time": "[24/Nov/2026:10:00:{n:02} +0000]", "method": "GET", "path": "/a", "status": "200", "duration_ms":
    "{ms}"}}
Docker's file | balancer | rt=…, in seconds
  {{"log": "203.0.113.9 - - [24/Nov/2026:10:00:{n:02} +0000] \"GET /a HTTP/1.1\" 200 512 rt={s}\n", "stream":
    "stdout", "time": "2026-11-24T10:00:{n:02}.1Z"}}
a classic Heroku router | balancer | service=… of Heroku's router, in milliseconds
  2026-11-03T14:00:{n:02}.111451+00:00 heroku[router]: at=info method=GET path=/a?page={n} host=shop.example
    fwd="203.0.113.9" dyno=web.1 queue=0 wait=0ms connect=1ms service={ms}ms status=200 bytes=17709
Heroku | balancer | service=… of Heroku's router, in milliseconds
  <158>1 2026-11-03T14:00:{n:02}.111451+00:00 host heroku router - at=error code=H12 desc="Request timeout" method=GET
    path="/a" host=shop.example request_id=8601b555 fwd="203.0.113.9" dyno=web.1 connect=12ms service={ms}ms status=503
    bytes=0 protocol=https
logfmt | - | duration=…
  time="2026-11-03T14:00:{n:02}Z" level=info msg="it took=9ms" method=GET path=/a status=200 bytes={n} duration={ms}ms
logfmt behind a time | - | duration_ms=…, in milliseconds
  2026-11-03T14:00:{n:02}.1Z app[web.1]: method=GET path=/a?b=1 format=html status=200 duration_ms={ms} view=1
an AWS load balancer's JSON | balancer | target_processing_time of JSON of an AWS load balancer, in seconds
  {{"time": "2026-11-03T14:00:{n:02}.1Z", "request_verb": "GET", "request_url": "https://shop.example:443/a",
    "elb_status_code": "200", "target_processing_time": "{s}", "received_bytes": 475}}
Envoy's JSON | - | duration_ms=…, in milliseconds
  web-1  | {{"start_time": "2026-11-03T14:00:{n:02}.487Z", "method": "GET", "path": "/a", "response_code": 200,
    "duration_ms": {ms}}}
Envoy's own JSON | balancer | duration of Envoy's JSON, in milliseconds
  {{"start_time": "2026-11-03T14:00:{n:02}.487Z", "method": "GET", "path": "/a", "response_code": 200, "bytes_sent":
    9, "duration": {ms}, "upstream_service_time": "1"}}
Kong | balancer | latencies.request of Kong's JSON, in milliseconds
  {{"started_at": 17937144{n:02}500, "request": {{"method": "GET", "uri": "/a", "size": "9"}}, "response": {{"status":
    200}}, "latencies": {{"kong": 1, "proxy": 2, "request": {ms}}}}}
APISIX | balancer | latency of APISIX's JSON, in milliseconds
  {{"start_time": 17937144{n:02}500, "request": {{"method": "GET", "uri": "/a"}}, "response": {{"status": 200}},
    "upstream_latency": 1, "latency": {ms}.0}}
Azure | balancer | properties.timeTaken of JSON of Azure's gateways, in seconds
  {{"timeStamp": "2026-11-03T14:00:{n:02}+00:00", "properties": {{"httpMethod": "GET", "requestUri": "/a",
    "httpStatus": 200, "timeTaken": {s}}}}}
Cloudflare | balancer | OriginResponseDurationMs of Cloudflare's JSON, in milliseconds
  {{"EdgeEndTimestamp": "2026-11-03T14:00:{n:02}Z", "ClientRequestMethod": "GET", "ClientRequestURI": "/a",
    "EdgeResponseStatus": 200, "OriginResponseDurationMs": {ms}}}
OpenTelemetry | - | http.server.request.duration=…
  {{"time": "2026-11-03T14:00:{n:02}Z", "http.request.method": "GET", "url.path": "/a", "http.response.status_code":
    200, "http.server.request.duration": {s}}}
a container of Kubernetes | balancer | duration of Caddy's JSON
  2026-11-03T14:00:01.1Z stdout F {{"ts": "2026/11/03 14:00:{n:02}.487", "request": {{"method": "GET", "uri": "/a"}},
    "duration": "{ms}ms", "status": 200}}
a unit | - | latency_human=…
  {{"time": "2026-11-03T14:00:{n:02}Z", "method": "GET", "path": "/a", "status": 200, "bytes": 9, "latency_human":
    "{ms}ms"}}
""").items()
}
"""A line of each format, what says its duration, and whose clock measured it."""


def written(template: str) -> list[str]:
    """Return a line for each of TOOK_S."""
    return [
        template.format(n=n, s=f"{took_s:.3f}", s_comma=f"{took_s:.3f}".replace(".", ","), ms=f"{1000 * took_s:.0f}",
                        ns=f"{1e9 * took_s:.0f}")
        for n, took_s in enumerate(TOOK_S)
    ]  # fmt: skip


def test_decimals_of_which_nothing_says_the_unit_are_named(tmp_path: Path) -> None:
    """Most are seconds. --unit says what they are, if they do not look as nginx and gunicorn write seconds."""
    lines = [combined(n, "GET /a", f' duration={0.3 + n % 7 / 10:.2f} "x"') for n in range(30)]
    [said] = read(tmp_path, lines).recognised
    assert said.endswith("durations: duration=…, in seconds, as nothing says another unit (--unit ms).")
    in_ms = read(tmp_path, lines, unit="ms")
    assert in_ms.recognised[0].endswith("duration=…, in milliseconds.")
    assert max(in_ms.routes["GET", "/a"].seconds) == pytest.approx(0.0009)


@pytest.mark.parametrize("unit", ["", "ms"])
@pytest.mark.parametrize("name", KNOWN)
def test_a_known_format_says_which_number_is_the_duration(tmp_path: Path, name: str, unit: str) -> None:
    """Lengths, counters and ports stand beside it, and UNIT, which is for other logs, does not change it."""
    line, says, clock = KNOWN[name]
    log = read(tmp_path, written(line), unit=unit)

    assert list(log.routes["GET", "/a"].seconds) == pytest.approx(TOOK_S)
    assert log.clock == clock
    assert says in describe_log(log, "access.log", cores=2)


@pytest.mark.parametrize("of", ["gcloud logging read --format=json", "CloudWatch"])
@pytest.mark.parametrize("name", ["access.json", "access.json.gz"])
def test_a_list_of_json_objects_is_read_like_their_lines(tmp_path: Path, name: str, of: str) -> None:
    objects: object = [json.loads(line) for line in written(KNOWN["Google Cloud"][0])]
    if of == "CloudWatch":
        events = [{"timestamp": 1793714400000, "message": line} for line in written(AGAIN + " {s}")]
        objects = {"events": events, "searchedLogStreams": []}
    text, path = json.dumps(objects, indent=2).encode(), tmp_path / name
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)

    log = read_logs([path], ["GET"])

    assert list(log.routes["GET", "/a"].seconds) == pytest.approx(TOOK_S)


WITHOUT = {
    "Flask": '203.0.113.9 - - [24/Nov/2026 10:00:{n:02}] "GET /a HTTP/1.1" 200 -',
    "Flask in colours": '203.0.113.9 - - [24/Nov/2026 10:00:{n:02}] "\x1b[37mGET /a HTTP/1.1\x1b[0m" 200 -',
    "Django": '[24/Nov/2026 10:00:{n:02}] "GET /a HTTP/1.1" 200 512',
    "daphne": '203.0.113.9:4711 - - [24/Nov/2026:10:00:{n:02}] "GET /a" 200 512',
    "uvicorn": '2026-11-24 10:00:{n:02},123 INFO uvicorn.access 203.0.113.9:4711 - "GET /a HTTP/1.1" 200',
    "docker logs": '2026-11-24T10:00:{n:02}.123456789Z INFO:     203.0.113.9:4711 - "GET /a HTTP/1.1" 200 OK',
    "Docker's file": '{{"log": "INFO:     203.0.113.9:4711 - \\"GET /a HTTP/1.1\\" 200 OK\\n", "stream": "stdout", '
    '"time": "2026-11-24T10:00:{n:02}.1Z"}}',
}


@pytest.mark.parametrize("server", WITHOUT)
def test_servers_whose_log_has_times_but_no_durations(tmp_path: Path, server: str) -> None:
    log = read(tmp_path, [WITHOUT[server].format(n=n) for n in (0, 3, 10)])

    assert (log.last - log.first, log.unreadable) == (10, 0)
    assert (log.without, set(log.routes)) == (3, {("GET", "/a")})


NAMED = [
    'rt="{s}" uct="0.000" uht="{s}" urt="{s}"',
    "rt={s} uct=0.000 urt=-",
    'urt="0.000, {s}"',
    "urt=0.000, {s} request_length=334",
    "rt={s_comma}",
    "rt={s_comma}000 475",
    "urt=0,000, {s_comma}",
    "rt=0.000 urt={s}",
    "request_time=0.000 duration_ms={ms}",
    "elapsed=0s {s}",
    "rt=0.000 {s}",
    "latency_human={ms}ms latency=14000000",
    "request_time={s} bytes=475",
    "request_length=475 rt:{s}",
    "duration_ms={ms} status=200",
    'duration_ms="{ms}"',
    "took={ms}ms",
    "{ms}ms 475",
    "{ms} ms",
    '"{s}" "{s}"',
    "475 {s} 334",
    "0.000 {s} {s}",
    '"2.31" {s} 1795514400.123',
]


@pytest.mark.parametrize("unit", ["", "ms", "us"])
@pytest.mark.parametrize("further", NAMED)
def test_a_name_a_unit_or_decimals_say_which_number_is_the_duration(tmp_path: Path, further: str, unit: str) -> None:
    assert list(read(tmp_path, written(f"{AGAIN} {further}"), unit=unit).routes["GET", "/a"].seconds) == pytest.approx(
        TOOK_S
    )


@pytest.mark.parametrize("further", ["rt=60.125000", "rt=60.125"])
def test_seconds_as_gunicorn_and_nginx_write_them_may_be_long(tmp_path: Path, further: str) -> None:
    assert set(read(tmp_path, written(f"{AGAIN} {further}")[:2]).routes["GET", "/a"].seconds) == {60.125}


OTHER_NUMBERS: dict[str, Callable[[int], str]] = {
    "never varies": lambda _: "334",
    "it lies between ": lambda n: str(300 + 97 * n % 512),
    "counter": lambda n: str(n + 1),
    "several fields": lambda n: f"{n // 3} {n % 3 + 1}",
    "the size of the answer": lambda n: "512" if n % 2 else "511",
    "fewer than three decimals": lambda n: f'"{1 + n * 7 % 30 / 10:.2f}"',
    "time of day": lambda n: f"1795514{400 + n}.123",
    "always 0.000": lambda _: "0.000",
    "rt=… is no duration: it never varies, and is always 0.000": lambda _: "rt=0.000",
    "duration=… is no duration: whole numbers are too coarse": lambda n: f"duration={n % 3}s",
}  # fmt: skip


@pytest.mark.parametrize("unit", ["", "ms"])
@pytest.mark.parametrize("reason", OTHER_NUMBERS)
def test_another_number_is_no_duration_and_the_reason_is_said(lab: Lab, tmp_path: Path, reason: str, unit: str) -> None:
    """The length of a request, a counter, the number of a connection, a size, a ratio, a time of day."""
    lines = [combined(n, "GET /a", " " + OTHER_NUMBERS[reason](n)) for n in range(40)]
    if reason == "the size of the answer":
        lines = [line.replace(" 512 ", " 511 ") if n % 2 == 0 else line for n, line in enumerate(lines)]
    said = lab.call("requests", str(log_of(tmp_path, lines)), *(["--unit", unit] if unit else []))

    assert (said.returncode, said.stdout) == (2, "")
    assert reason in said.stderr
    assert "rt=%(L)s" in said.stderr


def test_unit_none_reads_a_log_without_its_whole_numbers(lab: Lab, tmp_path: Path) -> None:
    lines = [combined(n, "GET /a", f" {n * 7919 % 65000}") for n in range(40)]
    said = lab.call("requests", str(log_of(tmp_path, lines)), "--unit", "none")

    assert said.stderr.splitlines() == [
        "access.log: the common or the combined format; durations: none.",
        "Note: 40 of 40 requests have no duration; the first lines of the file say why.",
    ]
    assert "# No durations: no field of the log is known to be one." in said.stdout
    assert yaml.safe_load(said.stdout)["classes"]["get-a"]["takes_s"] is None


def test_a_log_without_durations_is_refused_with_the_line_to_add(lab: Lab, tmp_path: Path) -> None:
    said = lab.call("requests", str(log_of(tmp_path, [combined(n, "GET /a") for n in range(40)])))

    assert (said.returncode, said.stdout) == (2, "")
    assert "but no field is known to be the duration of a request" in said.stderr
    for line in ("log_format timed '$remote_addr", "access_log_format = '%(h)s", 'LogFormat "%h', "--unit none"):
        assert line in said.stderr


def test_it_is_said_how_many_requests_have_no_duration(lab: Lab, tmp_path: Path) -> None:
    lines = [combined(n, "GET /a", "" if n % 4 == 0 else f' rt="{took_s:.3f}"') for n, took_s in enumerate(TOOK_S)]
    said = lab.call("requests", str(log_of(tmp_path, lines)))

    assert "# Durations: rt=…, in seconds.\n# 8 of 30 requests have no duration.\n" in said.stdout
    assert said.stderr.startswith("access.log: the common or the combined format; durations: rt=…, in seconds.\n")
    assert "Note: 8 of 30 requests have no duration" in said.stderr


def test_a_number_of_another_kind_in_the_column_of_durations_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If all others have decimals, a whole number is something else, or in another unit; and nothing takes a year."""
    monkeypatch.setattr(reading, "SAMPLE", 15)
    odd = {17: " 120", 18: f" {367 * 24 * 3600}.000"}
    lines = [combined(n, "GET /a", odd.get(n, f" {took_s:.3f}")) for n, took_s in enumerate(TOOK_S)]
    log = read(tmp_path, lines)

    assert log.without == 2
    assert max(log.routes["GET", "/a"].seconds) == max(TOOK_S)


def queue_of(workers: int, rate_rps: float) -> list[tuple[float, float, float]]:
    """Return when requests end, how long they work, and how long a balancer waits for their answers."""
    random = np.random.default_rng(7)
    at, free, found = 0.0, [0.0] * workers, []
    while at < 400:
        at += random.exponential(1 / (rate_rps if 100 < at < 200 else rate_rps / 3))
        works = float(random.uniform(0.1, 0.3))
        ends = max(at, free[0]) + works
        free = sorted([*free[1:], ends])
        found.append((ends, works, ends - at))
    return sorted(found)


def test_a_log_whose_durations_are_waits_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same requests, as a balancer and as the server see them; and in enough workers."""
    monkeypatch.setattr(reading, "SAMPLE", 100)

    def file(took: Sequence[tuple[float, float]], decimals: int) -> str:
        lines = [combined(int(ends), "GET /a", f" {took_s:.{decimals}f}") for ends, took_s in took]
        return describe_log(read(tmp_path, lines), "access.log", cores=2)

    few, many = queue_of(2, 12), queue_of(12, 12)
    balancer = yaml.safe_load(file([(ends, waited) for ends, _, waited in few], 3))
    server = yaml.safe_load(file([(ends, works) for ends, works, _ in few], 6))
    quiet = yaml.safe_load(file([(ends, waited) for ends, _, waited in many], 3))

    assert (balancer["clock"], balancer["waits"]) == ("balancer", True)
    assert (server["clock"], server.get("waits")) == ("server", None)
    assert (quiet["clock"], quiet.get("waits")) == ("balancer", None)
    assert quiet["peak"] > 1.5


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


def test_a_limit_of_cores_is_a_better_guess_than_the_machine(tmp_path: Path) -> None:
    log = read(tmp_path, [combined(n, "GET /a", " 0.034") for n in range(3)])
    text = describe_log(log, "access.log", cores=8, limits={"cpus": (0.5, "the cgroup of this command")})

    assert "\ncpus: 0.5  # a guess: the limit of the cgroup of this command\nmemory_mib: 1024  # a guess" in text
    assert "cores:" not in text


def test_the_file_says_what_the_log_says(tmp_path: Path) -> None:
    """Thirty routes: nineteen classes and the rest; rates and mean durations are those of the log."""
    requests = [(n, "/n" * (n % 30 + 1), 0.010 * (1 + n % 7)) for n in range(3000)]
    lines = [combined(n // 10, f"GET {path}?card=4111", f" {took:.3f}", 500 if n % 1000 == 0 else 200)
             for n, path, took in requests]  # fmt: skip
    lines += [combined(3, "POST /pay"), "not a line of a log"]

    text = describe_log(read(tmp_path, lines), "access.log", cores=2)
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
    monkeypatch.setattr(reading, "SAMPLE", 100)
    monkeypatch.setattr("stampede.advise.ranking.REQUESTS", 2_000)
    packed = tmp_path / "access.log.1.gz"
    packed.write_bytes(gzip.compress("\n".join(lines[:1000]).encode()))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines[1000:]).encode())))
    said = lab.call("requests", str(packed), "-", "-")
    assert said.returncode == 0
    assert [line.split(":")[0] for line in said.stderr.splitlines()] == ["access.log.1.gz", "standard input"]
    assert said.stdout.startswith("# From access.log.1.gz, standard input: 2,520 requests in 119 s.\n")

    mine = tmp_path / "mine.yaml"
    mine.write_text(said.stdout)
    asked = read_service(mine).load()
    assert {one.name: one.rate for one in asked.classes} == pytest.approx(
        {"get-quick": 2400 / 119, "get-slow": 120 / 119}, rel=0.01
    )
    way = next(one for one in serving_options(asked) if one.workers * one.threads >= 8)
    assert predict_option(way, asked).p99_ms["get-quick"] < 50


NO_TIME = 'INFO: 127.0.0.1:4711 - "GET / HTTP/1.1" 200 OK'


@pytest.mark.parametrize(
    ("lines", "unit", "says"),
    [
        ([], "", "The log has 0 requests with GET, HEAD, and no others."),
        ([combined(0, "POST /a", " 3ms"), combined(1, "PUT /a", " 5ms")], "", "0 requests with GET, HEAD, and 1 POST"),
        (["nothing", "known"], "", "access.log:1: this line has no format that the lab knows."),
        (["{}", '{"time": "noon"}'], "", "access.log:1: this line has no format that the lab knows."),
        (["[1]", '{"half'], "", "access.log:1: this line has no format that the lab knows."),
        ([combined(0, "GET /a", " 120")] * 2, "", "access.log:1: field 3 after the size of the answer (120, 120"),
        ([combined(0, "GET /a", f" request_time={n}.25") for n in (14, 31)] * 9, "", "requests would take 14.25 s"),
        ([combined(0, "GET /a", " latency=14000000")] * 2, "", "latency=… has whole numbers such as 14000000"),
        ([combined(0, "GET /a", " rt=120")] * 2, "", "access.log:1: rt=… has whole numbers such as 120, and no unit."),
        ([combined(0, "GET /a", f" {n}") for n in (99, 98)] * 9, "s", "half of the requests would take 98 s"),
        ([combined(0, "GET /a", f" {n}") for n in (0, 1)] * 9, "s", "whole numbers are too coarse, because 50%"),
        ([combined(0, "GET /a", f" {n}.125") for n in (14, 31)] * 9, "", "nine in ten requests would take 14.12 s"),
        ([NO_TIME], "", "the requests in this log have no time"),
        ([NO_TIME], "", "docker logs --timestamps"),
        ([combined(0, "GET /a")] * 2, "days", "--unit days is unknown."),
    ],
)  # fmt: skip
def test_what_is_refused(lab: Lab, tmp_path: Path, lines: list[str], unit: str, says: str) -> None:
    said = lab.call("requests", str(log_of(tmp_path, lines)), *(["--unit", unit] if unit else []))

    assert (said.returncode, said.stdout) == (2, "")
    assert says in said.stderr


def test_logs_that_cannot_be_read(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a packed file that is cut short, the hint says how to get what is left, whatever its name."""
    torn = tmp_path / "torn $1.log.gz"
    torn.write_bytes(gzip.compress(combined(0, "GET /a").encode() * 99)[:-20])
    unpack = f"zcat '{torn}' > left.log"
    for path, hint in ((tmp_path / "none.log", "Name a file"), (tmp_path, "Name a file"), (torn, unpack)):
        said = lab.call("requests", str(path))
        assert said.returncode == 2
        assert f"{path} cannot be read: " in said.stderr
        assert hint in said.stderr
    monkeypatch.setattr("sys.stdin", torn.open("r"))
    assert "zcat" not in lab.call("requests", "-").stderr
    assert "No access log is named." in lab.call("requests").stderr


def test_other_methods_count_if_they_are_named(tmp_path: Path) -> None:
    log = read(tmp_path, [combined(n, "POST /pay/17", " 0.100") for n in range(5)], methods=["POST"])

    assert set(log.routes) == {("POST", "/pay/{id}")}


def test_a_path_cannot_add_lines_to_the_file(tmp_path: Path) -> None:
    evil = json.dumps({"ts": 1795514400, "method": "GET", "path": "/a\n  b: {users: {}}", "status": 200})
    text = describe_log(read(tmp_path, [evil, evil]), "access.log", cores=2)

    assert set(yaml.safe_load(text)["classes"]) == {"get-a-b-users"}
