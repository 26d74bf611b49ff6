"""Formats of access logs that somebody declared: strings of configurations, files of configurations, keys of JSON."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from stampede.errors import WrongUse
from stampede.logs import reading
from stampede.logs.access_log import AccessLog, read_logs, read_requests
from stampede.logs.format_strings import DIALECTS, choose_formats
from stampede.logs.formats import FORMATS, JSON_FORMATS, LOGFMT, Entry, Formats, parse_entry
from stampede.logs.formats import KNOWN as KNOWN_FORMATS
from stampede.logs.reading import Reader, opened_log
from tests.conftest import Lab
from tests.quick.test_access_log import AGAIN, KNOWN, NAMED, TOOK_S, log_of, table, written
from tests.wrong import listed, problem_of

AGENT = r"Mozilla/5.0 (X11; \"3.5\" rt=9.999)"


def read(tmp_path: Path, lines: Sequence[str], formats: Formats) -> AccessLog:
    return read_logs([log_of(tmp_path, lines)], ["GET"], formats=formats, need_durations=True)


def seconds_of(log: AccessLog) -> list[float]:
    assert (log.unreadable, set(log.routes)) == (0, {("GET", "/a")})
    return list(log.routes["GET", "/a"].seconds)


STRINGS = {
    name: (
        text.replace("\\n", "\n"),
        line.replace("{agent}", AGENT),
        duration,
        clock,
        None if worker == "-" else worker,
    )
    for name, (duration, clock, worker, text, line) in table(r"""
nginx's combined, and times | $request_time | balancer | 10.0.0.7:80
  $remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent"
    $upstream_response_time $request_time $upstream_addr
  203.0.113.9 - - [03/Nov/2026:14:00:{n:02} +0000] "GET /a?b=1 HTTP/1.1" 200 512 "-" "Mozilla/5.0 (X11; 3.5)" 0.000,
    0.001 {s} 10.0.0.1:80, 10.0.0.{n}:80
nginx's, in several parts | $upstream_response_time | balancer | -
  '$host $remote_addr [$time_iso8601] ' "$request_method $host$request_uri" ' s=$status ' \n
    'urt=$upstream_response_time ua="$http_user_agent"'
  shop.example 203.0.113.9 [2026-11-03T14:00:{n:02}+00:00] GET shop.example/a?b=1 s=200 urt=0.000, {s} ua="a b"
nginx's JSON | $request_time | balancer | -
  log_format timed escape=json '{"t":$msec,"m":"$request_method","u":"$request_uri",' \n
    '"s":$status,"ua":"$http_user_agent","rt":$request_time,"pid":"$pid"}';
  {{"t":17937144{n:02}.123,"m":"GET","u":"/a","s":200,"ua":"{agent}","rt":{s},"pid":"7"}}
nginx's braces | ${request_time} | balancer | -
  ${remote_addr}|${time_local}|${request}|${status}|${request_time}s
  203.0.113.9|03/Nov/2026:14:00:{n:02} +0000|GET /a HTTP/1.1|200|{s}s
nginx's, all in quotes | $request_time | balancer | -
  "$time_iso8601" "$request" "$status" "$request_time"
  "2026-11-03T14:00:{n:02}+00:00" "GET /a HTTP/1.1" "200" "{s}"
Apache's, with the quotes of httpd.conf | %D | balancer | -
  "%t \"%r\" %>s %D"
  [03/Nov/2026:14:00:{n:02} +0000] "GET /a HTTP/1.1" 200 {us}
Apache's | %D | balancer | 4711
  %h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\" %T %D %P
  203.0.113.9 - - [03/Nov/2026:14:00:{n:02} +0000] "GET /a HTTP/1.1" 200 - "-" "{agent}" 0 {us} 4711
Apache's, in milliseconds | %{ms}T | balancer | -
  LogFormat "%v %t \"%m %U%q %H\" %s %{ms}T" timed
  shop.example [03/Nov/2026:14:00:{n:02} +0000] "GET /a?b=1 HTTP/1.1" 200 {ms}
gunicorn's L | %(L)s | server | 11
  access_log_format = '%(h)s %(l)s %(u)s %(t)s "%(r)s" %(s)s %(b)s "%(f)s" "%(a)s" %(L)s %(p)s'
  203.0.113.9 - - [03/Nov/2026:14:00:{n:02} +0000] "GET /a HTTP/1.1" 200 9 "-" "{agent}" {s}000 <11>
gunicorn's D, M and T | %(D)s | server | 11
  %(t)s %({x-request-id}i)s %(p)s %(T)s %(M)s %(D)s %(s)s "%(m)s %(U)s?%(q)s"
  [03/Nov/2026:14:00:{n:02} +0000] ab-{n} <11> 0 {ms} {us} 200 "GET /a?b=1"
gunicorn's M | %(M)s | server | -
  %(t)s %(M)s %(s)s "%(r)s"
  [03/Nov/2026:14:00:{n:02} +0000] {ms} 200 "GET /a HTTP/1.1"
uWSGI's | %(msecs) | server | 11
  %(addr) - %(user) [%(ltime)] "%(method) %(uri) %(proto)" %(status) %(size) "%(uagent)" %(msecs)ms pid=%(pid)
  203.0.113.9 - - [03/Nov/2026:14:00:{n:02} +0000] "GET /a?b=1 HTTP/1.1" 200 9 "curl" {ms}ms pid=11
uWSGI's micros | %(micros) | server | 2
  logformat = %(ctime) %(method) %(uri) %(status) %(micros) %(wid)
  Tue Nov  3 14:00:{n:02} 2026 GET /a 200 {us} 2
granian's | %(dt_ms).3f | server | -
  [%(time)s] %(addr)s - "%(method)s %(path)s %(protocol)s" %(status)d %(dt_ms).3f
  [2026-11-03 14:00:{n:02} +0000] 203.0.113.9 - "GET /a HTTP/1.1" 200 {ms}.000
HAProxy's | %Ta | balancer | w1
  %ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r
  haproxy[14389]: 203.0.113.9:33317 [03/Nov/2026:14:00:{n:02}.655] http-in~ shop/w1 10/0/30/7/{ms} 200 2750 - - ----
    1/1/1/1/0 0/0 "GET /a HTTP/1.1"
HAProxy's own | %Tt | balancer | -
  log-format "%ci [%T] %HM %HP %ST %Tt %[capture.req.hdr(0)]"
  203.0.113.9 [03/Nov/2026:14:00:{n:02} +0000] GET /a 200 +{ms} curl/8 (x)
""").items()
}
"""A format, a line of it, its duration, whose clock measured that, and the worker of the line for n = 7."""


def rendered(template: str) -> list[str]:
    """Return a line for each of TOOK_S."""
    return [
        template.format(n=n, s=f"{took_s:.3f}", ms=f"{1000 * took_s:.0f}", us=f"{1e6 * took_s:.0f}")
        for n, took_s in enumerate(TOOK_S)
    ]


@pytest.mark.parametrize("name", STRINGS)
def test_a_format_of_a_configuration_is_read(tmp_path: Path, name: str) -> None:
    text, template, duration, clock, worker = STRINGS[name]
    formats = choose_formats(text)
    log = read(tmp_path, rendered(template), formats)

    assert seconds_of(log) == pytest.approx(TOOK_S)
    assert log.clock == clock
    assert f"durations: {duration} of {formats.lines[0].name}" in log.recognised[0]
    assert [*read_requests(tmp_path / "access.log", formats)][7].worker == worker


def test_every_dialect_has_a_test_of_its_own() -> None:
    tested = {choose_formats(text).lines[0].name.split(" timed")[0] for text, *_ in STRINGS.values()}

    assert tested == {dialect.name for dialect in DIALECTS}


def test_every_format_has_a_test_of_its_own() -> None:
    """Each line of the tests is recognised as the format that declares it, and no declaration lacks a line."""
    found = [parse_entry(written(line)[0]) for line, *_ in KNOWN.values()]
    without = {"uvicorn's format, with times"}  # it has no durations

    assert {entry.format.name for entry in found if entry} | without == {
        known.name for known in (*FORMATS, *JSON_FORMATS, LOGFMT)
    }


NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-._~%", min_size=1, max_size=12)
VALUES: dict[str, st.SearchStrategy[str]] = {
    "remote_addr": st.sampled_from(["203.0.113.9", "2001:db8::1"]),
    "remote_user": st.sampled_from(["-", "alice"]),
    "host": NAMES,
    "http_user_agent": st.text(st.characters(min_codepoint=32, max_codepoint=126, exclude_characters='"\\')),
    "http_referer": st.sampled_from(["-", "https://shop.example/?q=[1] 0.500"]),
    "body_bytes_sent": st.integers(0, 10**9).map(str),
    "request_length": st.integers(0, 10**9).map(str),
    "connection": st.integers(1, 10**6).map(str),
    "upstream_addr": st.sampled_from(["-", "10.0.0.1:80", "10.0.0.1:80, unix:/run/app.sock"]),
    "upstream_response_time": st.sampled_from(["-", "0.004", "0.001, 0.003", "0.001 : -"]),
}
QUOTED = {"http_user_agent", "http_referer"}


@given(data=st.data())
def test_a_log_format_reads_the_line_that_nginx_writes_with_it(data: st.DataObject) -> None:
    """Whatever stands between, in whatever order, and in JSON as well as in a line of fields."""
    second, took_ms = data.draw(st.integers(0, 59)), data.draw(st.integers(0, 10**6))
    target, status = (
        "/" + data.draw(NAMES) + "?a=" + data.draw(NAMES),
        data.draw(st.sampled_from(["200", "404", "502"])),
    )
    values = {name: data.draw(of) for name, of in VALUES.items()} | {
        "request_time": f"{took_ms / 1000:.3f}",
        "status": status,
        "request": f"PATCH {target} HTTP/2.0",
        "time_iso8601": f"2026-11-03T14:00:{second:02}+00:00",
    }
    names = ["time_iso8601", "request", "status", "request_time", *data.draw(st.sets(st.sampled_from([*VALUES])))]
    ordered = data.draw(st.permutations(names))
    if data.draw(st.booleans()):
        text = "{" + ",".join(f'"{name}":"${name}"' for name in ordered) + "}"
    else:
        between = data.draw(st.sampled_from([" ", " | ", "; ", "\t"]))
        text = between.join(f'"${name}"' if name in QUOTED else f"[${name}]" for name in ordered)
    line = re.sub(r"\$(\w+)", lambda found: values[found[1]], text)

    entry = parse_entry(line, choose_formats(text))

    at = datetime(2026, 11, 3, 14, 0, second, tzinfo=UTC).timestamp()
    assert entry
    assert (entry.at, entry.method, entry.target, entry.status) == (at, "PATCH", target, int(status))
    assert entry.own_s == pytest.approx(took_ms / 1000)


FILES = {
    name: (text.replace("\\n", "\n"), line, says)
    for name, (says, text, line) in table(r"""
nginx.conf | nginx's log_format main
  http { \n  # log_format old '$remote_addr'; \n  log_format short '$remote_addr $status'; \n  log_format main
    '[$time_local] "$request" $status ' \n      'rt=$request_time ua="$http_user_agent"'; \n  access_log
    /var/log/nginx/access.log main; \n }
  [03/Nov/2026:14:00:{n:02} +0000] "GET /a HTTP/1.1" 200 rt={s} ua="x"
httpd.conf | Apache's LogFormat timed
  LogFormat "%h %l %u %t \"%r\" %>s %b" common\nLogFormat "%t \\n  \"%r\" %>s %D" timed\nCustomLog logs/access_log
    timed
  [03/Nov/2026:14:00:{n:02} +0000]   "GET /a HTTP/1.1" 200 {us}
gunicorn.conf.py | gunicorn's access_log_format
  import os \nworkers = os.cpu_count() \naccess_log_format = ('%(t)s %(p)s "%(r)s" ' \n  '%(s)s') + ' %(L)s'
  [03/Nov/2026:14:00:{n:02} +0000] <11> "GET /a HTTP/1.1" 200 {s}000
Procfile | gunicorn's access_log_format
  web: gunicorn app:app --access-logfile - --access-logformat '%(t)s "%(r)s" %(s)s %(M)s'
  [03/Nov/2026:14:00:{n:02} +0000] "GET /a HTTP/1.1" 200 {ms}
uwsgi.ini | uWSGI's logformat
  [uwsgi] \n log-format = %(ltime) %(method) %(uri) %(status) %(msecs)
  03/Nov/2026:14:00:{n:02} +0000 GET /a 200 {ms}
haproxy.cfg | HAProxy's log-format
  frontend in \n  log-format %ci\ [%tr]\ %ST\ %Ta\ %{+Q}r
  203.0.113.9 [03/Nov/2026:14:00:{n:02}.655] 200 {ms} "GET /a HTTP/1.1"
configmap.yaml | nginx's log_format
  data: \n log-format-upstream: '$time_iso8601 "$request" $status $request_time'
  2026-11-03T14:00:{n:02}+00:00 "GET /a HTTP/1.1" 200 {s}
nginx.conf, with comments | nginx's log_format timed
  log_format timed '[$time_local] "$request" ' # who asks; don't cut here \n  # nor here \n  '$status $request_time';
  [03/Nov/2026:14:00:{n:02} +0000] "GET /a HTTP/1.1" 200 {s}
gunicorn.conf.py, with comments, types and raw strings | gunicorn's access_log_format
  access_log_format: str = ( \n  '%(t)s "%(r)s" ' # don't cut here \n  r'%(s)s %(L)s' \n )
  [03/Nov/2026:14:00:{n:02} +0000] "GET /a HTTP/1.1" 200 {s}000
configmap.yaml, without quotes | nginx's log_format
  data: \n log-format-upstream: $time_iso8601 "$request" $status $request_time \n use-gzip: "true"
  2026-11-03T14:00:{n:02}+00:00 "GET /a HTTP/1.1" 200 {s}
""").items()
}
"""The text of a configuration, a line of a log that it declares, and the format that is recognised."""


@pytest.mark.parametrize("name", FILES)
def test_a_configuration_says_the_format(lab: Lab, tmp_path: Path, name: str) -> None:
    text, template, says = FILES[name]

    log = read(tmp_path, rendered(template), choose_formats(text))
    said = lab.call("requests", str(tmp_path / "access.log"), "--format", text)

    assert seconds_of(log) == pytest.approx(TOOK_S)
    assert said.returncode == 0
    assert says in said.stderr


@pytest.mark.parametrize(
    "written",
    [
        'access_log_format = """{}"""\nbind = 1',
        "access_log_format = u'{}'\n'a string of its own'",
        "access_log_format: Final[str] = R'{}'",
        "if DEBUG:\n    access_log_format = '{}'",
        "'access_log_format = \"%(h)s\"'\n# access_log_format = '%(h)s'\naccess_log_format = '{}'",
        "access_log_format = os.environ.get('FORMAT')\naccess_log_format = '{}'",
    ],
)
def test_a_string_of_gunicorn_conf_is_read_as_python_reads_it(written: str) -> None:
    text = '%(t)s "%(r)s" %(s)s %(L)s'
    assert ["".join(part for part, _ in each.parts) for each in choose_formats(written.replace("{}", text)).lines] == [
        text
    ]


@pytest.mark.parametrize("value", ["' '.join(['%(t)s', '%(r)s'])", "'%(t)s %(r)s' if DEBUG else ''", "'%(t)s' + LATER"])
def test_what_is_no_string_in_gunicorn_conf_is_refused_and_shown(value: str) -> None:
    with pytest.raises(WrongUse, match="this is more than a string: access_log_format = ") as refused:
        choose_formats(f"import os\naccess_log_format = {value}\nworkers = 4")
    assert refused.value.message.endswith(value)


def test_of_several_formats_the_log_has_the_one_that_most_lines_have(tmp_path: Path) -> None:
    """Of equal formats, it is the one that access_log uses."""
    same = "'$msec \"$request\" $status $request_time'"
    formats = choose_formats(f"log_format a {same};\nlog_format b {same};\naccess_log logs/x b;\n"
                             "log_format shop '$msec $request $status $request_time';")  # fmt: skip

    included = read(
        tmp_path, ["1793714400.1 GET /a HTTP/1.1 200 0.014", "1793714401.1 GET /a HTTP/1.1 200 0.2"], formats
    )
    used = read(tmp_path, ['1793714400.1 "GET /a" 200 0.014', '1793714401.1 "GET /a" 200 0.2'], formats)

    assert "log_format shop" in included.recognised[0]
    assert "log_format b" in used.recognised[0]


@pytest.mark.parametrize(
    ("keys", "line", "worker"),
    [
        ("time=ts,method=verb,path=route,status=code,duration=elapsed:ms,worker=w",
         '{{"ts": "2026-11-03T14:00:{n:02}Z", "verb": "GET", "route": "/a", "code": 200, "elapsed": "{ms}", "w": 3}}',
         "3"),
        ("request=line,duration=took.total_us",
         '{{"time": "2026-11-03T14:00:{n:02}Z", "line": "GET /a", "status": 200, "took": {{"total_us": {us}}}}}',
         None),
        ("method=verb,path=route,status=code,duration=elapsed:ms",
         "ts=2026-11-03T14:00:{n:02}Z verb=GET route=/a code=200 elapsed={ms}", None),
    ],
)  # fmt: skip
def test_keys_of_json_or_logfmt_with_other_names(tmp_path: Path, keys: str, line: str, worker: str | None) -> None:
    formats = choose_formats(json_keys=keys)
    log = read(tmp_path, rendered(line), formats)

    assert seconds_of(log) == pytest.approx(TOOK_S)
    assert f"with the keys {keys}" in log.recognised[0]
    assert [*read_requests(tmp_path / "access.log", formats)][7].worker == worker


REFUSED = {
    "no variables": (["--format", "combined"], "--format has no variables: combined"),
    "no duration": (["--format", '[$time_local] "$request"'], '[$time_local] "$request" rt=$request_time'),
    "no duration in JSON": (["--format", '{"t": "[$time_local]", "r": "$request"}'],
                            '"r": "$request", "rt": "$request_time"}'),
    "another log": (["--format", "%t %D %r"], "access.log:1: this line, and every other, differs from Apache"),
    "a missing part": (["--format", '$remote_addr [$time_local] "$request"'],
                       "the line differs at < [>, after <$remote_addr>"),
    "a further part": (["--format", '[$time_local] "$request" $status'],
                       """the line differs at <" >, after <[$time_local] "$request>"""),
    "no format in a configuration": (["--format", "http {\n  access_log logs/access.log combined;\n  gzip on;\n}"],
                                     "error: --format declares no format of an access log.\n\nhint: --format takes"),
    "both": (["--format", "$msec", "--json-keys", "time=t"], "exclude each other"),
    "whole seconds": (["--format", '%(t)s "%(r)s" %(s)s %(T)s'], "%(T)s of gunicorn's access_log_format, in seconds, "
                      "is no duration: whole numbers are too coarse"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_a_format_that_does_not_fit_is_refused(lab: Lab, tmp_path: Path, why: str) -> None:
    options, says = REFUSED[why]
    lines = rendered('[03/Nov/2026:14:00:{n:02} +0000] "GET /a HTTP/1.1"')
    if why == "whole seconds":
        lines = [f"{line} 200 {number % 2}" for number, line in enumerate(lines)]
    if "in JSON" in why:
        lines = rendered('{{"t": "[03/Nov/2026:14:00:{n:02} +0000]", "r": "GET /a HTTP/1.1"}}')
    said = lab.call("requests", str(log_of(tmp_path, lines)), *options)

    assert (said.returncode, said.stdout) == (2, "")
    assert says in said.stderr


@pytest.mark.parametrize("name", STRINGS)
def test_a_format_without_a_time_or_a_request_says_what_to_add(name: str) -> None:
    """Each variable is left out in turn. What another variable says, too, is not missed."""
    text = STRINGS[name][0]
    [whole] = choose_formats(text).lines
    [dialect] = [one for one in DIALECTS if whole.name.startswith(one.name)]
    ways = {"time": dialect.time, "method": dialect.request, "target": dialect.request}
    hints = {}
    for variable in {found[0] for found in re.finditer(dialect.variable, text)}:
        try:
            [left] = choose_formats(text.replace(variable, "")).lines
        except WrongUse as refused:
            [part] = re.findall(r" has no (\w+) of the requests: ", refused.message)
            hints[part] = refused.hint
        else:
            assert ways.keys() <= left.line.groupindex.keys()
    assert hints.keys() >= {"time"}
    assert hints.keys() & {"method", "target"}
    assert hints == {part: f"Add {ways[part]} to it." for part in hints}


def test_each_kind_of_wrong_key_of_json_has_its_message() -> None:
    wrong = "when=ts", "path=url,status", "time=", "duration=took", "duration=took:days"

    assert listed(problem_of(choose_formats, "", keys) for keys in wrong) == snapshot("""\
--json-keys when=ts is no part of a request with its key. The parts are time, method, path, request, status,
    duration, worker, such as time=ts,path=route,duration=elapsed:ms.
--json-keys status is no part of a request with its key. The parts are time, method, path, request, status,
    duration, worker, such as time=ts,path=route,duration=elapsed:ms.
--json-keys time= is no part of a request with its key. The parts are time, method, path, request, status,
    duration, worker, such as time=ts,path=route,duration=elapsed:ms.
--json-keys duration=took has no unit. --json-keys duration=took:ms, or :s, :us or :ns
--json-keys duration=took:days has no unit. --json-keys duration=took:ms, or :s, :us or :ns
""")


@pytest.mark.parametrize("name", KNOWN)
def test_a_log_that_is_cut_short_is_read_or_refused_at_its_line(tmp_path: Path, name: str) -> None:
    """Each line ends at the same share of its length. No duration is found that the whole line does not have."""
    lines, said = written(KNOWN[name][0]), []
    for share in range(1, 8):
        try:
            log = read(tmp_path, [line[: len(line) * share // 8] for line in lines], KNOWN_FORMATS)
        except WrongUse as refused:
            said.append(f"{refused.message}\n{refused.hint}")
        else:
            assert {round(took_s, 6) for route in log.routes.values() for took_s in route.seconds} <= {*TOOK_S}
    assert [one for one in said if not re.match(r"access\.log(:\d+)?: .+\n.+", one)] == []


LINES = {
    **{name: (KNOWN_FORMATS, written(line)) for name, (line, *_) in KNOWN.items()},
    **{further: (KNOWN_FORMATS, written(f"{AGAIN} {further}")) for further in NAMED},
    **{name: (choose_formats(text), rendered(line)) for name, (text, line, *_) in STRINGS.items()},
}


@pytest.mark.parametrize("name", LINES)
def test_many_lines_at_once_say_what_each_line_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """After a sample, with pieces that end within lines, and among lines of other formats or of none."""
    formats, lines = LINES[name]
    no_request = [re.sub(r"GET /a(?:\?b=1)?(?: HTTP/1.1)?", "-", line) for line in lines[14:16]]
    cut, long = lines[3][:-9], 'some words - of [an] "application" 200 GET / ' * 99
    noise = "", " \t ", "Booting worker", *no_request, cut, long
    lines = [*lines[:13], *noise, *lines[13:20], '{"half', "\x1b[32mINFO", *lines[20:]]
    lines[20:20] = [written(AGAIN + " 0.001 {s}")[20]]
    monkeypatch.setattr(reading, "SAMPLE", 12)
    monkeypatch.setattr(reading, "CHUNK", 300)
    pieces = read_logs([log_of(tmp_path, lines)], ["GET"], formats=formats)

    monkeypatch.setattr(Reader, "_pattern", None)
    alone = read_logs([tmp_path / "access.log"], ["GET"], formats=formats)

    assert pieces.requests >= len(TOOK_S)
    assert pieces.routes.keys() == alone.routes.keys()
    for key, route in pieces.routes.items():
        np.testing.assert_array_equal(
            [route.ends_s, route.took_s], [alone.routes[key].ends_s, alone.routes[key].took_s]
        )
        assert route.failed == alone.routes[key].failed
    assert (pieces.first, pieces.last, pieces.unreadable) == (alone.first, alone.last, alone.unreadable)


def test_a_long_line_of_something_else_is_told_apart_at_once() -> None:
    """Even from a format of which six texts may go on; otherwise this test would last for hours."""
    text = "$http_a $http_b $http_c $http_d $time_iso8601 $request_method $request_uri $http_e $http_f $status $msec"
    line = "2026-11-03T14:00:00+00:00 GET / ERROR " + 'some words - of [an] "application" 200 ' * 99

    assert parse_entry(line, choose_formats(text)) is None


TEXTS = {
    name: of for name, of in LINES.items() if name not in NAMED and "{" not in of[1][0] and "=" not in of[1][0]
} | {further: LINES[further] for further in ("{ms}ms 475", "rt=0.000 urt={s}", '"{s}" "{s}"')}


@pytest.mark.parametrize("name", TEXTS)
def test_after_the_sample_no_line_of_text_is_read_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """That a log of millions of lines is read in seconds rests on this."""
    alone: list[str] = []

    def parse(text: str, formats: Formats) -> Entry | None:
        alone.append(text)
        return parse_entry(text, formats)

    monkeypatch.setattr(reading, "SAMPLE", 20)
    monkeypatch.setattr(reading, "parse_entry", parse)

    formats, lines = LINES[name]
    log = read_logs([log_of(tmp_path, lines)], ["GET"], formats=formats)

    assert seconds_of(log) == pytest.approx(TOOK_S)
    assert len(alone) == 20


@pytest.mark.parametrize(
    "line",
    [
        '{{"time": "2026-11-03T14:00:{n:02}Z", "request": "GET /a HTTP/1.1", "status": 200, "request_time": {s}, '
        '"upstream_addr": "10.0.0.{n}:80", "request_id": "a4c2{n:02}"}}',
        "time=2026-11-03T14:00:{n:02}Z id=a4c2{n:02} method=GET path=/a status=200 pid=10.0.0.{n}:80 duration={ms}ms",
        AGAIN + ' {n} "shop@docker" "10.0.0.{n}:80" {ms}ms id=a4c2{n:02}',
    ],
)
def test_the_id_and_the_worker_of_every_line_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """Of the lines after the sample, as of those in it."""
    monkeypatch.setattr(reading, "SAMPLE", 20)
    with opened_log(log_of(tmp_path, written(line)), identify=True) as opened:
        batches = [*opened.batches()]

    assert [id_ for batch in batches for id_ in batch.id] == [f"a4c2{n:02}" for n in range(30)]
    assert [worker for batch in batches for worker in batch.worker] == [f"10.0.0.{n}:80" for n in range(30)]
