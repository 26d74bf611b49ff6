"""Logs that somebody broke, by chance or on purpose: what can be read is read, in bounded work."""

import io
import json
import re
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rich.text import Text

from stampede.errors import WrongUse
from stampede.logs import reading
from stampede.logs.access_log import describe_log, read_logs
from stampede.logs.columns import route_of
from stampede.logs.diagnose.logs import _ROTATED, Log, logs_of
from stampede.logs.format_strings import choose_formats
from stampede.logs.formats import (
    FORMATS,
    FREE,
    HAS_TIME,
    KNOWN,
    TIMELESS,
    Entry,
    Formats,
    parse_entry,
    rest_at,
    rest_with,
)
from stampede.logs.identity import find_identity
from stampede.records.words import UNPRINTABLE
from stampede.terminal import Plain, print_json
from tests.quick.test_access_log import KNOWN as EXAMPLES
from tests.quick.test_access_log import written

LINE = '10.0.0.1 - - [01/Jan/2026:{at} +0000] "GET /a HTTP/1.1" 200 5 "-" "-" rt={took} <{worker}>'
OBEYED = re.compile(rf"(?!\n){UNPRINTABLE}")


def line(second: int, took: str = "0.010", worker: int = 7) -> str:
    return LINE.format(at=f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}", took=took, worker=worker)


def write(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    return path


def read_as_servers(paths: Sequence[Path]) -> Sequence[Log]:
    return logs_of(paths, KNOWN, dict.fromkeys(paths, "server")).servers


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("access.log", "access.log"),
        ("access.log.1", "access.log"),
        ("access.log.2.gz", "access.log"),
        ("access_log.3", "access_log"),
        ("access.log-20261128", "access.log"),
        ("access.log-2026-11-28.gz", "access.log"),
        ("access-2026-11-28.log", "access.log"),
        ("access-20261128.log.gz", "access.log"),
        ("web-1", "web-1"),
        ("web-2.log", "web-2.log"),
        ("10.0.0.1", "10.0.0.1"),
        ("10.0.0.1.log", "10.0.0.1.log"),
    ],
)
def test_files_are_of_one_log_only_if_their_names_say_so(name: str, log: str) -> None:
    """A number behind another word than log is that of a host."""
    assert _ROTATED.sub(lambda found: found["end"] or "", name) == log


def test_two_hosts_are_two_logs_and_two_parts_are_one(tmp_path: Path) -> None:
    """Whatever their names: the parts of one log are not of the same time."""
    early, late = [line(second) for second in range(60)], [line(second) for second in range(60, 120)]
    for names, times, expected in (
        (("web-1", "web-2"), (early, late), 2),
        (("web.log.1", "web.log.2"), (early, early), 2),
        (("web.log.1", "web.log"), (early, late), 1),
    ):
        logs = read_as_servers([write(tmp_path / name, lines) for name, lines in zip(names, times, strict=True)])
        assert len(logs) == expected, names


def test_logs_of_the_same_name_are_told_apart_with_their_workers(tmp_path: Path) -> None:
    """By as many folders as that takes; processes of several hosts have the same numbers."""
    paths = [tmp_path / host / "nginx" / "access.log" for host in ("web1", "web2")]
    for path in paths:
        path.parent.mkdir(parents=True)
        write(path, [*map(line, range(60))])
    logs = read_as_servers(paths)
    assert [log.file for log in logs] == ["web1/nginx/access.log", "web2/nginx/access.log"]
    assert logs[0].worker[0] != logs[1].worker[0]


def test_a_line_of_another_year_is_left_out_and_counted(tmp_path: Path) -> None:
    """Neither the diagnosis nor the rates go on until its year."""
    path = write(tmp_path / "a.log", [*map(line, range(60)), line(60).replace("2026", "2036")])
    [log] = read_as_servers([path])
    assert (len(log), "more than 45 days from most others, such as that of 01 January 2036" in log.notes[0]) == (
        60,
        True,
    )
    found = read_logs([path], ["GET"])
    assert (found.requests, found.astray) == (60, 1)
    assert "Left out, because they are more than a year from the others: 1 request." in describe_log(found, "a.log", 2)
    old = write(tmp_path / "old.log", [line(second).replace("2026", "2016") for second in range(30)])
    with pytest.raises(WrongUse, match=r"All lines of old\.log are more than 45 days from those of the other logs"):
        read_as_servers([path, old])


@pytest.mark.parametrize(
    "odd",
    [
        line(5, took="1" * 400 + ".0"),
        line(5, took="9" * 30 + ".5"),
        '{"time": 1767225600, "method": "GET", "path": "/a", "status": 200, "request_time": 1e400}',
        '{"time": 1767225600, "method": "GET", "path": "/a", "status": 200, "request_time": NaN}',
        '{"time": 1767225600, "method": "GET", "path": "/\\ud800", "status": 200, "request_time": 0.1}',
        '{"time": 1767225600, "method": "GET", "path": "/a", "status": ' + "9" * 30 + ', "request_time": 0.1}',
        '{"time": 1767225600, "method": "GET", "path": "/a", "x": ' + "[" * 50_000 + "]" * 50_000 + "}",
        '{"time": 1767225600, "method": "G\\nT", "path": "/a\\nb\\u001b[1m", "status": 200, "request_time": 0.1}',
        line(5).replace("/a ", "/\u202eb "),
    ],
    ids=range(9),
)
def test_one_odd_line_changes_nothing_of_the_others(tmp_path: Path, odd: str) -> None:
    """In logs of text and of JSON, wherever the line stands."""
    plain = [json.dumps({"time": 1767225600 + second, "method": "GET", "path": "/a", "status": 200,
                         "request_time": 0.01}) for second in range(60)]  # fmt: skip
    lines = plain if odd.startswith("{") else [*map(line, range(60))]
    path = write(tmp_path / "a.log", [*lines[:30], odd, *lines[30:]])
    found = read_logs([path], ["GET"])
    text = describe_log(found, "a.log", 2)
    assert found.routes["GET", "/a"].requests >= 60
    assert not re.search(r"\b(?:inf|nan)\b", text)
    assert not OBEYED.search(text)
    [log] = read_as_servers([path])
    assert 60 <= len(log) <= 61
    assert np.nanmax(log.took_s) < 1


@pytest.mark.parametrize("path", ["/\x1b]0;x\x07y", "/a\nb", "/rl\u202egnp", "/\x9b1m", "/\ud800"])
def test_a_route_has_no_character_that_a_terminal_obeys(path: str) -> None:
    """A part of the path that has one is the name of a thing; line ends are left out, as browsers do."""
    assert not re.search(UNPRINTABLE, route_of(path))


def test_the_terminal_shows_what_it_would_obey() -> None:
    """Whoever wrote the text, and however it is printed."""
    console = Plain(file=io.StringIO(), width=60)
    console.print(Text("a\x1b[2Jb\x9bc\u202ed"), "e\x1b]0;x\x07", markup=False)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "a\ufffd[2Jb\ufffdc\ufffdd e\ufffd]0;x\n"


@pytest.mark.parametrize("value", ["(" * 9_000, "'a' + " * 20_000 + "'b'", "\0", "'" * 9_999, "'\\" * 9_000])
def test_a_strange_gunicorn_conf_declares_no_format(value: str) -> None:
    with pytest.raises(WrongUse, match="--format has no variables"):
        choose_formats(f"access_log_format = {value}\n")


def test_json_has_no_number_that_json_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    """Nor a character that a terminal obeys."""
    print_json({"a": [float("nan"), (1.0, float("-inf"))], "b\x9b": "\x1b[2J\u202e"})
    printed = capsys.readouterr().out
    assert not OBEYED.search(printed)
    assert json.loads(printed) == {"schema": 1, "a": [None, [1.0, None]], "b\x9b": "\x1b[2J\u202e"}


HEADS = ("", "2026-01-01T00:00:00Z ", "2026-01-01T00:00:00Z at=info ", "[pid: 1|", '{"a":"', line(1) + ' "',
         "[01/Jan/2026:00:00:00.1] a ", "2026-01-01 00:00:00 - ")  # fmt: skip
REPEATED = ("[", '"', " ", "1", "(", "=", "a/", "[a] ", "[pid: 1|", "2026-01-01 00:00:00 ", "method=GET ", 'a=\\" ',
            "[01/Jan/2026:00:00:00.1] a b/c 1/1/1/1/1 200 5 ", line(1) + " ", "2026-01-01T00:00:00Z ",
            "at=info method=GET path=/a dyno=w service=", "2026-01-01T00:00:00.123Z", "a='", "] [a] ",
            "1, ")  # fmt: skip
SHORT, TIMES, LONGER = 1_000, 8, 24
"""A line that is TIMES as long may take LONGER: in proportion, with room for a busy machine. A square takes 64."""


DECLARED_FORMATS = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_user_agent" $request_time',
    '%h %l %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %D',
    "$time_iso8601|$http_x|$request|$http_user_agent|$status|$request_time",
    "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %hr %hs %{+Q}r",
)
COMMON = next(known.line.pattern for known in FORMATS if "(?P<rest>" in known.line.pattern)


def test_the_time_for_a_line_grows_with_its_length_for_every_format() -> None:
    """Also for formats that somebody declared, and for many lines at once. Single times are too short to compare."""
    declared = [format_ for text in DECLARED_FORMATS for format_ in choose_formats(text).lines]
    rests = "", rest_at(0, 3), rest_at(4, 6), rest_with("rt")
    lines = [*(each.line.pattern for each in declared), *(COMMON.replace("(?P<rest>.*)", rest) for rest in rests)]
    in_bulk = [rf"^(?:.*?(?:{line}).*|.*)$" for line in lines]
    patterns = [TIMELESS, HAS_TIME, *(known.line for known in (*FORMATS, *declared)), *map(re.compile, in_bulk)]

    def read(text: str) -> float:
        began = time.thread_time()
        for formats in (KNOWN, Formats((FREE,), (), None)):
            parse_entry(text, formats)
        find_identity([text], [0.0])
        for pattern in patterns:
            pattern.search(text)
        return time.thread_time() - began

    for head in HEADS:
        short, long = (
            sum(read((head + text * length)[:length]) for text in REPEATED) for length in (SHORT, TIMES * SHORT)
        )
        assert long < LONGER * short, head


@pytest.mark.parametrize("repeated", ["%[", "%{+Q", "%{x", "$", "%(", "'"])
def test_the_time_for_a_format_that_somebody_declares_grows_with_its_length(repeated: str) -> None:
    times_s = []
    for count in (8 * SHORT, TIMES * 8 * SHORT):
        began = time.thread_time()
        with pytest.raises(WrongUse):
            choose_formats(repeated * count)
        times_s.append(time.thread_time() - began)
    assert times_s[1] < LONGER * max(times_s[0], 0.002)


def test_the_time_for_a_list_of_ids_grows_with_its_length() -> None:
    identity = find_identity([f'request_id="client-{at}, nginx-{at}"' for at in range(20)], [0.0] * 20)
    assert identity.id
    assert identity.id.search('request_id="client-1, nginx-1"')[1] == "nginx-1"  # type: ignore[index]
    times_s = []
    for count in (SHORT, TIMES * SHORT):
        began = time.thread_time()
        assert identity.id.search(f'request_id="{", " * count}"') is None
        times_s.append(time.thread_time() - began)
    assert times_s[1] < LONGER * max(times_s[0], 0.002)


SHAPES = st.sampled_from(["[" * 500, '"' * 500, "\x1b[2J", "\u202e", "\ud800", "\x00", "\r", "1" * 400, "=(" * 99,
                          "e" * 99, "1e400", "2036", "{" * 300, "\\ud800", "\\u001b", "-", "NaN"])  # fmt: skip
DECLARED = choose_formats('$remote_addr [$time_local] "$request" $status $request_time')


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_is_in_a_log_it_is_read_or_refused_in_words(data: st.DataObject) -> None:
    """Each known format with pieces left out and put in, and bytes of any kind."""
    text = data.draw(st.sampled_from([line(1), *(written(example)[0] for example, *_ in EXAMPLES.values())]))
    lines = [text] * 5
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(text)))
        lines.insert(3, text[:place] + data.draw(SHAPES) + text[place + data.draw(st.integers(0, 9)) :])
    content = "\n".join(lines).encode("utf-8", "surrogatepass") + data.draw(st.binary(max_size=40))
    content = content[: data.draw(st.integers(len(content) // 2, len(content)))]
    formats = data.draw(st.sampled_from([KNOWN, DECLARED]))
    with TemporaryDirectory() as folder:
        path = Path(folder) / "a.log"
        path.write_bytes(content)
        said = ""
        try:
            said = describe_log(read_logs([path], ["GET", "POST"], "ms", formats), "a.log", 2)
        except WrongUse as error:
            said = error.message
            console = Plain(file=io.StringIO())
            console.print(said, markup=False)
            said = console.file.getvalue()  # type: ignore[attr-defined]
        assert not OBEYED.search(said.replace("\t", ""))
        assert not re.search(r"[\[ ](?:inf|nan)[, \]]", said)
        try:
            logs = logs_of([path], formats, {path: "server"}, "ms")
        except WrongUse:
            return
        assert all(np.isfinite(log.ends_s).all() and not np.isinf(log.took_s).any() for log in logs.servers)


@pytest.mark.parametrize("is_list", [False, True])
def test_a_large_file_without_requests_is_refused_by_its_first_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_list: bool
) -> None:
    """Lines, or one list of objects. A request that comes late is found nevertheless."""
    looked_at: list[str] = []

    def counted(text: str, formats: Formats) -> Entry | None:
        looked_at.append(text)
        return parse_entry(text, formats)

    monkeypatch.setattr(reading, "parse_entry", counted)
    objects = [json.dumps({"id": number, "at": "2026-01-01T00:00:00Z"}) for number in range(20_000)]
    log = tmp_path / "a.log"
    log.write_text(f"[{','.join(objects)}]" if is_list else "\n".join(objects))
    with pytest.raises(WrongUse, match="no format that the lab knows"):
        read_logs([log], ["GET"])
    assert len(looked_at) < 3 * reading.SAMPLE
    if not is_list:
        log.write_text("\n".join([*objects, line(1), line(2, "0.011")]))
        assert read_logs([log], ["GET"]).requests == 2
