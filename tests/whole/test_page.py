"""report.html in a real browser: what its script shows is what was measured, and people can use it."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest
from playwright.sync_api import Locator, Page

from stampede.pipeline import derive
from stampede.predict.options import OPTION_KINDS
from stampede.records.run import VariantRecord
from stampede.records.summary import Summary
from stampede.verification import verify_run
from tests import browsing
from tests.browsing import SCHEMES, tab
from tests.conftest import wait_until
from tests.synthetic import Request, make_run
from tools.real_runs import unpack

__all__ = ["tab"]


class Measured(NamedTuple):
    """A real run of keep-alive, in which many connections tie; its results and its report."""

    run: Path
    summary: Summary
    report: Path


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Compute the results of the run once."""
    run = unpack("keep-alive", tmp_path_factory.mktemp("run"))
    return Measured(run, derive(run), run / "report.html")


@contextmanager
def opened(tab: Page, report: Path, height: int = 900) -> Iterator[Page]:
    """Open a report, and fail if the page complains or asks the network for anything."""
    with browsing.opened(tab, report.as_uri(), height) as heard:
        yield tab
    assert heard.console + heard.errors == []
    assert [url for url in heard.asked if not url.startswith(("data:", "blob:"))] == [report.as_uri()]


@pytest.fixture
def page(tab: Page, measured: Measured) -> Iterator[Page]:
    """Open the report of the real run."""
    with opened(tab, measured.report) as page:
        yield page


def lanes(page: Page) -> Locator:
    """Return the lanes of the first load."""
    return page.locator("section.lanes").first


def of_script(page: Page, expression: str, argument: Any = None) -> Any:
    """Evaluate an expression of ``lanes``, what the script offers to tests, and ``argument``."""
    return lanes(page).evaluate(f"(section, argument) => (({{lanes, argument}}) => {expression})"
                                "({lanes: section.lanes, argument})", argument)  # fmt: skip


TIMES = ("sent", "began", "ended", "answered")


def trials(page: Page) -> list[tuple[int, str, int]]:
    """Return the place, the variant and the number of each trial in the lanes that was measured."""
    found = of_script(page, "lanes.data.trials.map((trial, place) => [place, trial.variant, trial.trial, "
                            "trial.computed])")  # fmt: skip
    return [(place, name, number) for place, name, number, computed in found if not computed]


def view(page: Page) -> tuple[float, float]:
    """Return from when to when the lanes show requests, in ms."""
    shown = of_script(page, "lanes.state.view")
    return shown["from"], shown["to"]


def test_a_run_whose_connections_tie_is_as_measured(measured: Measured) -> None:
    """Its results and its report are computed again, and every picture is drawn again."""
    assert verify_run(measured.run).differences == []


def test_the_lanes_hold_exactly_the_requests_that_were_measured(page: Page, measured: Measured) -> None:
    """Times are those of the parquet file, to a tenth of a millisecond. The parts of a request add up.

    k6 measures the response time with a clock of its own; 99 % of the sums are within a millisecond of it.
    """
    load = of_script(page, "lanes.data.load")
    every = "(trial) => [...trial.sent].map((_, i) => lanes.partsOf(trial, i).map((part) => part.ms))"
    away: list[float] = []
    for place, name, number in trials(page):
        trial = of_script(
            page, f"Object.fromEntries({list(TIMES)}.map((key) => [key, [...lanes.trials[argument][key]]]))", place
        )
        parquet = measured.run / name / load / str(number) / "requests.parquet"
        rows = duckdb.execute(
            f"""SELECT 1000 * (epoch(sent) - first), 1000 * (began - first), 1000 * (ended - first),
                    1000 * (epoch(answered) - first), duration_ms + greatest(blocked_ms, connecting_ms)
                FROM '{parquet}', (SELECT epoch(min(sent)) AS first FROM '{parquet}') ORDER BY sent, id, generator"""
        ).fetchall()
        assert len(trial["sent"]) == len(rows)
        for column, key in enumerate(TIMES):
            assert trial[key] == pytest.approx([row[column] for row in rows], abs=0.11)
        parts = of_script(page, f"({every})(lanes.trials[argument])", place)
        away += [abs(sum(ones) - row[-1]) for ones, row in zip(parts, rows, strict=True) if row[-1] is not None]
        assert min(ms for ones in parts for ms in ones) > -0.2
    assert sorted(away)[int(0.99 * len(away))] <= 1


def test_the_script_finds_the_waits_that_the_summary_counts(page: Page, measured: Measured) -> None:
    """The summary's count comes from other code, in another language."""
    load = of_script(page, "lanes.data.load")
    counted = {
        row.variant: row.values for row in measured.summary.rows
        if (row.load, row.request_class, row.metric, row.stat) == (load, None, "avoidable_wait", "count")
    }  # fmt: skip
    found = of_script(page, "lanes.trials.filter((_, place) => !lanes.data.trials[place].computed)"
                            ".map((trial) => [trial.variant, trial.trial, "
                            "trial.beside.filter((ms) => ms > 50).length])")  # fmt: skip

    assert counted
    assert {variant: count for variant, _, count in found} == {
        variant: counted[variant][trial] for variant, trial, _ in found
    }


def test_a_click_and_a_button_put_a_request_under_the_microscope(page: Page) -> None:
    microscope = lanes(page).locator(".microscope")
    assert "Click a request" in microscope.inner_text()

    lanes(page).locator("button[data-slowest]").first.click()

    slowest = microscope.locator(".finding").inner_text()
    assert slowest.startswith(f"The {of_script(page, 'lanes.state.shown[0].classes[0]')} request ")
    x, y = of_script(page, "(({trial, i}) => lanes.placeOf((trial.began[i] + trial.ended[i]) / 2))(lanes.state.chosen)")
    lanes(page).locator("canvas").press("Escape")
    assert "Click a request" in microscope.inner_text()
    lanes(page).locator("canvas").click(position={"x": x, "y": y})
    assert microscope.locator(".finding").inner_text() == slowest


def test_the_microscope_says_where_the_time_of_a_request_went(tab: Page, tmp_path: Path) -> None:
    """A request of 0.1 s is sent to a busy worker at 1 s and begun at 5 s; the other worker is free, but for 0.5 s."""
    requests = [
        Request(service_time_ms=5000, overhead_ms=0, request_class="heavy", worker="box:7"),
        Request(service_time_ms=100, overhead_ms=4000, waits_ms=4000, sent_s=1, worker="box:7"),
        Request(service_time_ms=500, overhead_ms=0, sent_s=2, worker="box:8"),
    ]
    two = [VariantRecord(name="one", workers=2, settings={"threads": 1})]
    derive(make_run(tmp_path, {"one": requests}, variants=two))
    with opened(tab, tmp_path / "report.html") as page:
        lanes(page).get_by_role("button", name="show the slowest light request").click()

        microscope = lanes(page).locator(".microscope")
        assert microscope.locator(".finding").inner_text() == (
            "The light request 2 of one waited 4.0 s for worker 1, while another worker had a free thread. "
            "For 3.5 s of that time, thread 1 of worker 2 was free."
        )
        assert [row.inner_text().strip().split("\t") for row in microscope.locator("tr").all()] == [
            ["opening the connection", "0.10 ms"],
            ["avoidable wait for its worker, while another worker has a free thread", "3.5 s"],
            ["waiting while all workers are busy", "500 ms"],
            [
                "on the way to a thread: in the network, the balancer or the queue of a worker that is not busy",
                "0.00 ms",
            ],
            ["a thread of worker 1 is at work on it", "100 ms"],
            ["the answer is on its way back", "0.00 ms"],
        ]
        assert [item.inner_text() for item in microscope.locator("li").all()] == [
            "thread 1: heavy request 1 began 1.0 s before this request was sent, and ended 4.0 s after",
            "thread 1 of worker 2: free for 3.5 s of the 4.0 s",
        ]


def test_a_request_that_is_served_before_an_earlier_one_is_drawn(tab: Page, tmp_path: Path) -> None:
    """The first of two requests waits for the second, which is sent later and served earlier by the same thread."""
    requests = [
        Request(service_time_ms=1000, overhead_ms=3000, waits_ms=3000, worker="box:7"),
        Request(service_time_ms=1000, overhead_ms=0, sent_s=0.001, worker="box:7"),
    ]
    derive(
        make_run(tmp_path, {"one": requests}, variants=[VariantRecord(name="one", workers=1, settings={"threads": 1})])
    )
    with opened(tab, tmp_path / "report.html") as page:
        svg = of_script(page, "lanes.svg()")

    widths = re.findall(r'<rect x="[\d.]+" y="[\d.]+" width="([\d.]+)" height="10"', svg)
    assert len([width for width in widths if 150 < float(width) < 300]) == 2


def test_a_request_is_found_by_its_number_and_a_wrong_number_is_told(page: Page) -> None:
    number = lanes(page).locator("input")
    microscope = lanes(page).locator(".microscope")
    last = of_script(page, "lanes.state.shown[0].size")
    variant = of_script(page, "lanes.state.shown[0].variant")

    number.fill("2")
    number.press("Enter")
    assert f"request 2 of {variant}" in microscope.inner_text()

    number.fill(str(last + 1))
    number.press("Enter")
    assert microscope.inner_text() == (
        f"{variant} has no request “{last + 1}” here: give a number from 1 to {last}, in the order of sending."
    )


def test_keys_wheel_and_dragging_move_the_view_of_all_variants(page: Page) -> None:
    canvas = lanes(page).locator("canvas")
    whole = view(page)

    canvas.press("+")
    closer = view(page)
    assert whole[0] < closer[0] < closer[1] < whole[1]
    canvas.press("ArrowRight")
    later = view(page)
    assert later[0] > closer[0]
    assert later[1] - later[0] == pytest.approx(closer[1] - closer[0])
    canvas.hover(position={"x": 500, "y": 120})
    page.mouse.wheel(0, -400)
    assert view(page)[1] - view(page)[0] < later[1] - later[0]
    before = view(page)
    box = canvas.bounding_box()
    assert box
    page.mouse.move(box["x"] + 600, box["y"] + 100)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 100)
    page.mouse.up()
    assert view(page)[0] > before[0]
    canvas.press("0")
    assert view(page) == whole


def test_two_fingers_zoom(page: Page) -> None:
    """Playwright has no second finger, so the page gets the events that a browser makes of two."""
    whole = view(page)
    lanes(page).locator("canvas").evaluate(
        """(canvas) => {
            canvas.setPointerCapture = () => {};
            const box = canvas.getBoundingClientRect();
            const finger = (type, id, x) => canvas.dispatchEvent(new PointerEvent(type,
                {pointerId: id, pointerType: 'touch', clientX: box.left + x, clientY: box.top + 100, bubbles: true}));
            finger('pointerdown', 1, 400); finger('pointerdown', 2, 500);
            finger('pointermove', 1, 300); finger('pointermove', 2, 600);
            finger('pointerup', 1, 300); finger('pointerup', 2, 600);
        }"""
    )
    closer = view(page)
    assert closer[1] - closer[0] < (whole[1] - whole[0]) / 2


def test_a_request_under_the_mouse_says_how_long_it_waited(page: Page) -> None:
    tip = lanes(page).locator(".tip")
    assert tip.is_hidden()
    x, y = of_script(page, "lanes.placeOf((lanes.state.shown[0].began[3] + lanes.state.shown[0].ended[3]) / 2, 3)")

    lanes(page).locator("canvas").hover(position={"x": x, "y": y})

    assert tip.is_visible()
    assert "waited" in tip.inner_text()


def test_lanes_figures_and_the_trace_can_be_saved(page: Page, tmp_path: Path) -> None:
    """An SVG has a caption that says what to cite, and the trace has an event for each request's work."""

    def saved(button: Locator) -> Path:
        with page.expect_download() as download:
            button.click()
        path = tmp_path / download.value.suggested_filename
        download.value.save_as(path)
        return path

    figure = page.locator("figure").first
    for place, kind in ((lanes(page), "do"), (figure, "save")):
        svg = saved(place.locator(f"button[data-{kind}=svg]")).read_text(encoding="utf-8")
        assert svg.startswith("<svg ")
        assert "Stampede, keep-alive, measured 20" in svg
        assert saved(place.locator(f"button[data-{kind}=png]")).read_bytes().startswith(b"\x89PNG")
    assert {"keep-alive-1.svg", "keep-alive-1.png"} <= {path.name for path in tmp_path.iterdir()}
    assert f"<title>{figure.locator('svg').get_attribute('aria-label')}</title>" in svg
    events = json.loads(saved(lanes(page).locator("button[data-do=trace]")).read_text(encoding="utf-8"))["traceEvents"]
    answered = of_script(page, "lanes.state.shown.map((trial) => trial.of.worker.filter((place) => place >= 0).length)")
    assert sum(event["ph"] == "X" for event in events) == sum(answered)
    assert sum(event["ph"] == "b" for event in events) == sum(event["ph"] == "e" for event in events) == sum(answered)


@pytest.mark.parametrize("name", ["django-fastcgi", "worker-types"])
def test_no_names_in_figures_overlap(tab: Page, tmp_path: Path, name: str) -> None:
    """Both runs have many variants, loads and workers."""
    run = unpack(name, tmp_path)
    derive(run)
    with opened(tab, run / "report.html") as page:
        overlaps = page.evaluate("""() => {
            document.querySelectorAll('details').forEach((folded) => { folded.open = true; });
            const shown = (text) => text.textContent.trim() && getComputedStyle(text).opacity !== '0';
            return [...document.querySelectorAll('figure svg')].flatMap((figure) => {
                const texts = [...figure.querySelectorAll('text')].filter(shown);
                const boxes = texts.map((text) => text.getBoundingClientRect());
                return boxes.flatMap((one, place) => boxes.slice(place + 1).flatMap((other, further) =>
                    Math.min(one.right, other.right) - Math.max(one.left, other.left) > 2 &&
                    Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 4
                        ? [`${texts[place].textContent} | ${texts[place + 1 + further].textContent}`] : []));
            });
        }""")
    assert overlaps == []


def test_on_paper_the_lanes_are_a_picture(page: Page) -> None:
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")

    printed = lanes(page).locator(".printed svg")
    assert printed.is_visible()
    assert printed.locator("title").first.text_content() == lanes(page).locator("canvas").get_attribute("aria-label")
    assert lanes(page).locator("canvas").is_hidden()
    page.set_viewport_size({"width": 90, "height": 800})
    page.wait_for_timeout(100)  # a frame without any width is drawn, too


def test_the_dark_page_is_dark_and_so_are_its_lanes(page: Page) -> None:
    def paper() -> int:
        """Return how bright the corner of the lanes is, from 0 to 765."""
        page.wait_for_timeout(50)  # a frame is drawn when the browser next has time
        drawn: list[int] = (
            lanes(page)
            .locator("canvas")
            .evaluate(
                """(canvas) => {
                const probe = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
                probe.drawImage(canvas, canvas.width - 3, 3, 1, 1, 0, 0, 1, 1);
                return [...probe.getImageData(0, 0, 1, 1).data].slice(0, 3);
            }"""
            )
        )
        return sum(drawn)

    wait_until(lambda: paper() > 720)
    page.emulate_media(color_scheme="dark")
    wait_until(lambda: paper() < 180)


def test_on_a_phone_the_page_scrolls_only_down_and_claims_have_the_whole_width(page: Page) -> None:
    """A claim stands below its verdict, and a picture scrolls sideways in its own box."""
    page.set_viewport_size({"width": 390, "height": 800})

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert lanes(page).locator("canvas").bounding_box()["width"] <= 390  # type: ignore[index]
    widths = page.locator(".verdicts:visible td.text").evaluate_all("(all) => all.map((cell) => cell.clientWidth)")
    assert min(widths) > 340
    assert page.locator(".verdicts:visible td[data-name]").first.evaluate(
        "(cell) => getComputedStyle(cell, '::before').content"
    ) == '"measured: "'  # fmt: skip
    assert page.locator("figure:visible > svg").first.bounding_box()["width"] > 500  # type: ignore[index]


def test_a_long_report_has_a_table_of_contents(page: Page) -> None:
    """Its links lead to the headings of all sections that are shown."""
    contents = page.get_by_role("navigation", name="Contents")

    for link in contents.get_by_role("link").all():
        target = page.locator(link.get_attribute("href") or "")
        link.click()
        at_the_end = page.evaluate("scrollY + innerHeight >= document.documentElement.scrollHeight - 5")
        assert abs((target.bounding_box() or {"y": -1})["y"]) < 5 or at_the_end
    assert contents.get_by_role("link").all_inner_texts() == [
        "Requests (quick)", "Requests (heavy-mix)", "Verdicts", "Pictures", "Can this be believed?",
        "Published and measured", "Variants and loads", "Environment", "Method", "Run it again",
    ]  # fmt: skip


def test_a_report_of_three_screens_has_no_table_of_contents(tab: Page, measured: Measured) -> None:
    with opened(tab, measured.report, height=5000) as page:
        assert page.locator("main").bounding_box()["height"] < 3 * 5000  # type: ignore[index]
        assert page.get_by_role("navigation").count() == 0


def test_lines_of_text_have_at_most_75_characters_beside_wide_pictures(page: Page) -> None:
    characters = page.locator("main p:visible, main > ul > li").evaluate_all(
        """(all) => all.map((box) => {
            const lines = Math.round(box.clientHeight / parseFloat(getComputedStyle(box).lineHeight));
            return box.textContent.replace(/\\s+/g, ' ').trim().length / lines;
        })"""
    )
    assert max(characters) <= 75
    widths = page.locator("figure:visible > svg, .lanes canvas").evaluate_all(
        "(all) => all.map((one) => one.clientWidth)"
    )
    assert min(widths) >= 0.9 * page.locator("main").bounding_box()["width"]  # type: ignore[index]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing_that_shuts_people_out(page: Page, scheme: str) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")
    lanes(page).locator("button[data-slowest]").first.click()
    page.evaluate("document.querySelectorAll('figure svg').forEach((one) => one.replaceChildren())")  # one image each

    assert browsing.violations(page, scheme) == []


def test_the_menus_choose_another_variant_or_the_same_requests_served_otherwise(page: Page) -> None:
    """The requests of the first variant are computed with each way; one process has nobody else's free thread."""
    first = of_script(page, "lanes.state.shown[0].variant")
    offered = lanes(page).locator("select").nth(1).locator("optgroup[label='computed, not measured'] option")
    names = offered.all_inner_texts()
    other = next(name for _, name, _ in trials(page)[2:])
    lanes(page).locator("select").last.select_option(label=other)
    assert of_script(page, "lanes.state.shown.map((trial) => trial.variant)") == [first, other]

    assert names == [f"what-if-{kind.name}" for kind in OPTION_KINDS]
    lanes(page).locator("select").nth(1).select_option(label="what-if-one-process")
    told = lanes(page).locator("canvas").get_attribute("aria-label")
    assert told
    assert told.startswith(f"{first}: ")
    assert told.endswith("what-if-one-process: no request waited while another worker had a free thread.")
    assert f"What if the requests of {first} had been served in another way?" in page.inner_text("body")
    assert "what-if" not in lanes(page).locator("table").inner_text()
