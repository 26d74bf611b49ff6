"""stampede watch: the page tells what the load generators write, as they write it, and draws what the report draws."""

import errno
import gzip
import json
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import duckdb
import pytest
from playwright.sync_api import Page

from stampede.errors import LabError
from stampede.pipeline import derive_summary
from stampede.records.folder import trial_folder
from stampede.run.trial.files import compress_points
from stampede.watch import live
from stampede.watch.live import LiveFeed, live_page
from tests.browsing import opened, tab
from tests.conftest import Lab, wait_until
from tests.live import ask
from tests.synthetic import make_run
from tools.browser import free_port
from tools.real_runs import unpack

__all__ = ["tab"]


def point(metric: str, at: str, request_id: str, **metadata: str) -> str:
    """Return a line of points as k6 writes it."""
    data = {"time": f"2026-01-02T03:04:{at}Z", "value": 1, "tags": {"request": "light"},
            "metadata": {"id": request_id, "asked_ms": "5", **metadata}}  # fmt: skip
    return json.dumps({"metric": metric, "type": "Point", "data": data}, separators=(",", ":")) + "\n"


SENT = point("request_sent", "05.000000001", "1-1")
LATER = point("request_sent", "05.25", "1-2")
BEGAN = 1767323045.1  # 2026-01-02T03:04:05.1Z
SERVED = {"status": "200", "worker": "box:9", "thread": "4", "began": str(BEGAN), "ended": str(BEGAN + 0.2)}
ANSWERED = point("request_answered", "05.4", "1-1", **SERVED)
OTHERS = '{"metric":"http_reqs","type":"Point","data":{}}\n{"type":"Metric","metric":"request_sent","data":{}}\n'


@pytest.fixture
def told(tmp_path: Path) -> Iterator[LiveFeed]:
    """What a page is told of a run that begins now. An older run has an unfinished trial, because it was killed."""
    killed = make_run(tmp_path / "made-up" / "30000102T030405Z", {"one": []}, outcome="running", ended=None)
    write((killed / "one" / "mix" / "1").rename(killed / "one" / "mix" / ".1.part"), SENT)
    told = LiveFeed(tmp_path / "made-up")
    yield told
    told.close()


@pytest.fixture
def part(tmp_path: Path, told: LiveFeed) -> Path:
    """The folder of the trial that is being measured."""
    assert told.since(0, 0)["trials"] == []
    run = make_run(tmp_path / "made-up" / "20260102T030405Z", {"one": [], "two": []}, outcome="running", ended=None)
    part = run / "one" / "mix" / ".1.part"
    (run / "one" / "mix" / "1").rename(part)
    (part / "points.json.gz").unlink()
    return part


def write(part: Path, text: str, name: str = "points.json") -> None:
    """Append to the points of a trial."""
    with (part / name).open("a") as points:
        points.write(text)


def test_a_request_is_told_when_it_is_sent_and_again_when_it_is_answered(told: LiveFeed, part: Path) -> None:
    assert told.since(0, 0)["rows"] == []
    write(part, OTHERS + SENT + LATER)
    first = told.since(0, 0)
    write(part, ANSWERED)
    second = told.since(first["batch"], first["after"])

    assert first["trials"] == [{"variant": "one", "workers": 2, "threads": None, "labels": {}}]
    assert first["rows"] == [
        (0, 1, "light", 0.0, None, None, None, None, None, None),
        (0, 2, "light", 250.0, None, None, None, None, None, None),
    ]
    assert second["rows"] == [(0, 1, "light", 0.0, 100.0, 300.0, 400.0, "box:9", 4, None)]
    assert second["trials"][0]["labels"] == {"box:9": "worker 1"}
    assert second["classes"] == ["light"]
    assert told.since(0, 0)["rows"] == first["rows"] + second["rows"], "a page that is opened later is told everything"


def test_slow_requests_have_the_first_colour_as_in_the_report(told: LiveFeed, part: Path) -> None:
    write(part, SENT + point("request_sent", "05.5", "1-3", asked_ms="900").replace('"light"', '"slow"'))

    assert told.since(0, 0)["classes"] == ["slow", "light"]


def test_a_line_is_told_once_it_is_whole(told: LiveFeed, part: Path) -> None:
    write(part, SENT[:70])
    assert told.since(0, 0)["rows"] == []
    write(part, SENT[70:])

    assert len(told.since(0, 0)["rows"]) == 1


def test_a_request_that_failed_has_no_worker(told: LiveFeed, part: Path) -> None:
    write(part, SENT + point("request_answered", "05.4", "1-1", status="502", error="status 502"))

    assert told.since(0, 0)["rows"][-1] == (0, 1, "light", 0.0, None, None, 400.0, None, None, "status 502")


def test_generators_may_use_the_same_ids(told: LiveFeed, part: Path) -> None:
    write(part, SENT)
    write(part, SENT, "points-2.json")

    assert [row.number for row in told.since(0, 0)["rows"]] == [1, 2]


def test_what_is_written_last_is_told_after_the_trial_has_ended(told: LiveFeed, part: Path) -> None:
    write(part, SENT)
    first = told.since(0, 0)
    write(part, ANSWERED)
    compress_points(part)
    part.rename(part.with_name("1"))

    assert [row.answered for row in told.since(first["batch"], first["after"])["rows"]] == [400.0]


def test_the_next_trials_begin_a_new_batch(told: LiveFeed, part: Path) -> None:
    write(part, SENT + ANSWERED)
    first = told.since(0, 0)
    part.rename(part.with_name("1"))
    following = part.parents[2] / "two" / "mix" / ".1.part"
    following.mkdir()
    write(following, LATER)
    second = told.since(first["batch"], first["after"])

    assert second["batch"] == first["batch"] + 1
    assert [trial["variant"] for trial in second["trials"]] == ["two"]
    assert [row.sent for row in second["rows"]] == [0.0]


def test_rows_that_nobody_asked_for_in_time_are_forgotten(
    told: LiveFeed, part: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "MOST_KEPT", 2)
    write(part, SENT + LATER + ANSWERED)
    first = told.since(0, 0)

    assert (first["after"], len(first["rows"])) == (3, 2)
    write(part, point("request_sent", "06", "1-3"))
    assert [row.number for row in told.since(first["batch"], first["after"])["rows"]] == [3]


def test_points_that_were_read_meanwhile_are_compressed_at_the_end(part: Path) -> None:
    write(part, SENT)
    compress_points(part)

    assert [path.name for path in part.glob("points*")] == ["points.json.gz"]
    assert gzip.decompress((part / "points.json.gz").read_bytes()).decode() == SENT


def test_the_page_tells_what_the_lab_is_doing(told: LiveFeed) -> None:
    assert told.since(0, 0)["stage"] == "the lab is getting ready"
    heard: list[str] = []
    told.stage.follow(lambda what, *_: heard.append(what))("load", 3.4, 20)

    assert told.since(0, 0)["stage"] == "load: 3 s of about 20 s"
    assert heard == ["load"]


def test_time_stands_still_after_the_load(told: LiveFeed, part: Path) -> None:
    write(part, SENT)
    progress = told.stage.follow(lambda *_: None)
    progress("load", 1, 2)
    loading = [told.since(0, 0)["now"] for _ in range(2)]
    progress("stopping the servers", 1, 2)

    assert loading[0] < loading[1] == told.since(0, 0)["now"] == told.since(0, 0)["now"]


def test_a_full_disk_leaves_the_points_as_they_are(part: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device")

    write(part, SENT)
    monkeypatch.setattr(shutil, "copyfileobj", full)

    with pytest.raises(OSError, match="No space left"):
        compress_points(part)
    assert [path.name for path in part.glob("points*")] == ["points.json"]


def test_only_this_machine_is_answered_and_only_by_its_name(part: Path) -> None:
    with live_page(part.parents[3], port := free_port()):
        page, text = ask(port, "/")
        assert (page.status, page.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
        assert b"made-up" in text
        asked = [("/", f"localhost:{port}"), ("/requests?batch=x&after=-1", None), ("/else", None),
                 ("/requests", "evil.example:80"), ("http://[", "evil.example:80")]  # fmt: skip
        assert [ask(port, *one)[0].status for one in asked] == [200, 200, 404, 403, 403]
        addresses = {line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
        assert {f"0100007F:{port:04X}"} == addresses & {f"0100007F:{port:04X}", f"00000000:{port:04X}"}
    with pytest.raises(ConnectionRefusedError):
        ask(port, "/")


def test_a_port_in_use_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(LabError) as caught, live_page(tmp_path, port):
            pass

    assert caught.value.message == f"The page cannot be shown on port {port} of 127.0.0.1: Address already in use."
    assert caught.value.hint == f"--port {port + 1}"


def test_wrong_use_is_reported_as_for_other_commands(lab: Lab) -> None:
    done = lab.call("watch", "heavy-mixx")

    assert done.returncode == 2
    assert "one of heavy-mix, " in done.stderr, "the nearest first"
    assert "http://" not in lab.call("watch", "heavy-mix", "--variants", "nothing").stderr


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of keep-alive with its results, whose first trials can be replayed."""
    run = unpack("keep-alive", tmp_path_factory.mktemp("run"))
    derive_summary(run)
    return run


@pytest.fixture
def page(tab: Page, measured: Path, tmp_path: Path) -> Iterator[Page]:
    """The page after all requests of a load were replayed at once; fail if the page complains."""
    runs = tmp_path / "keep-alive"
    began_s = _one(f"SELECT epoch(min(sent)) FROM '{measured}/*/heavy-mix/1/requests.parquet'")
    with live_page(runs, port := free_port(), lambda: began_s + 30):
        for points in measured.glob("*/heavy-mix/1/points*.json.gz"):
            part = runs / measured.name / points.parts[-4] / "heavy-mix" / ".1.part"
            part.mkdir(parents=True)
            (part / points.stem).write_bytes(gzip.decompress(points.read_bytes()))
        (runs / measured.name / "run.json").write_bytes((measured / "run.json").read_bytes())
        with opened(tab, f"http://127.0.0.1:{port}/") as heard:
            wait_until(lambda: tab.evaluate("document.querySelector('section.lanes').live.shown.length") == 1)
            yield tab
    assert heard.console + heard.errors == []


def test_the_page_draws_what_the_summary_counts(page: Page, measured: Path) -> None:
    """All requests are there, and as many have waited beside a free thread as the report says."""
    summary = json.loads((measured / "summary.json").read_text())
    shown = page.evaluate("document.querySelector('section.lanes').live.shown.map((trial) => [trial.variant, "
                          "trial.size, trial.blocked && trial.beside.filter((ms) => ms > 50).length])")  # fmt: skip

    [(variant, size, beside)] = shown
    asked = (variant, "heavy-mix", None, "avoidable_wait", "count")
    keys = ("variant", "load", "request_class", "metric", "stat")
    [counted] = [row["values"]["1"] for row in summary["rows"] if tuple(row[key] for key in keys) == asked]
    rows = trial_folder(measured, variant, "heavy-mix", 1) / "requests.parquet"
    assert size == _one(f"SELECT count(*) FROM '{rows}'")
    assert beside == counted > 50


def test_each_thread_keeps_its_row(page: Page) -> None:
    """No request is drawn over another of the same row."""
    overlaps = page.evaluate("""() => document.querySelector('section.lanes').live.shown.flatMap((trial) => {
        const ends = new Map();
        const order = [...trial.sent.keys()].sort((a, b) => trial.began[a] - trial.began[b]);
        return order.filter((i) => {
            const row = `${trial.of.worker[i]} ${trial.of.row[i]}`;
            const over = trial.began[i] < (ends.get(row) ?? -Infinity) - 1;
            ends.set(row, trial.ended[i]);
            return over && trial.workers[trial.of.worker[i]]?.name !== 'not answered yet';
        });
    })""")

    assert overlaps == []


def test_another_variant_can_be_chosen(page: Page, measured: Path, tmp_path: Path) -> None:
    """A second variant begins to send a little later."""
    part = tmp_path / "keep-alive" / measured.name / "neither" / "heavy-mix" / ".1.part"
    part.mkdir(parents=True)
    write(part, SENT)
    wait_until(lambda: page.locator("select").first.locator("option").count() == 2)
    page.locator("select").first.select_option("neither")
    page.locator("select").last.select_option("neither")

    shown = "document.querySelector('section.lanes').live.shown.map((trial) => trial.variant)"
    wait_until(lambda: page.evaluate(shown) == ["neither"])
    assert "neither: " in (page.locator("canvas").get_attribute("aria-label") or "")


def test_the_page_says_when_the_lab_has_ended(tab: Page, tmp_path: Path) -> None:
    with live_page(tmp_path / "keep-alive", port := free_port()):
        tab.goto(f"http://127.0.0.1:{port}/")
        tab.get_by_text("the lab is getting ready").wait_for()
    tab.get_by_text(f"its report is {tmp_path}/keep-alive/latest/report.html").wait_for()


def _one(query: str) -> float:
    [(value,)] = duckdb.execute(query).fetchall()
    return float(value)
