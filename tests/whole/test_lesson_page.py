"""make lesson PAGE=1 in a real browser: a student goes from the prediction to the exercise, and nobody else can."""

import io
import json
import signal
import threading
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from playwright.sync_api import Page, expect

from stampede.errors import LabError
from stampede.loopback import MOST_POSTED, serving
from stampede.teach.lesson import notes
from stampede.teach.lesson.page import LessonServer
from stampede.teach.lesson.teaching import Student
from tests.browsing import opened, tab, violations
from tests.conftest import PATIENCE_S, Lab, finish, wait_for_line, wait_until
from tests.lessons import DONE, HEAVY_MIX, Measuring, measuring, student
from tests.live import ask
from tools.browser import free_port

__all__ = ["measuring", "student", "tab"]
PREDICTED = notes.StudentPrediction(values=[1, 1], at="")


@pytest.fixture
def server(student: Student) -> LessonServer:
    """What the page and the measuring thread tell each other."""
    return LessonServer(student)


@pytest.fixture
def port(server: LessonServer) -> Iterator[int]:
    """The port on which the page is answered."""
    with serving(number := free_port(), server.get, server.post):
        yield number


@pytest.fixture
def page(tab: Page, port: int) -> Iterator[Page]:
    """Open step 2, and fail if the page complains or asks anybody else for anything."""
    with opened(tab, f"http://127.0.0.1:{port}/?step={HEAVY_MIX}") as heard:
        yield tab
    assert heard.errors == []
    assert [url for url in heard.asked if not url.startswith((f"http://127.0.0.1:{port}/", "data:"))] == []


def predict(page: Page, *values: str) -> None:
    """Type predictions, and record them."""
    for place, value in enumerate(values):
        page.locator("form[data-sends=predict] input").nth(place).fill(value)
    page.get_by_role("button", name="Record the prediction").click()


def measure(page: Page, server: LessonServer) -> None:
    """Press the button, and do what the main thread does."""
    page.get_by_role("button", name="Measure, for about").click()
    expect(page.get_by_role("button", name="Measure, for about")).to_be_disabled()
    server.work()


def test_a_student_goes_from_the_prediction_to_the_solution(
    page: Page, server: LessonServer, measuring: Measuring
) -> None:
    """The result is hidden until it is measured, and the solution until a change works."""
    expect(page.get_by_role("heading", level=1)).to_have_text("2. Two slow requests among many quick ones")
    assert page.locator("p span[role=img]").count() == 2
    assert page.get_by_text("The result").count() == 0

    predict(page, "15", "20")
    expect(page.get_by_text("The prediction is recorded.")).to_be_visible()
    measure(page, server)

    results = page.get_by_label("What you predicted, and what was measured")
    expect(results).to_contain_text("Measured: the median of the trials; in brackets, its interval.")
    expect(page.get_by_text("The prediction cannot be changed any more")).to_be_visible()
    assert page.locator("form[data-sends=predict]").count() == 0
    page.locator("textarea").fill("Busy workers <b>accept</b>.")
    page.get_by_role("button", name="Keep the sentence").click()
    expect(page.get_by_text("You wrote: Busy workers <b>accept</b>.")).to_be_visible()
    expect(page.get_by_text("The lab says: A gunicorn worker accepts")).to_be_visible()

    for value, found in (("3", "threads=3: it did not do what it should"), ("7", "threads=7: it did what it should")):
        assert page.get_by_text("Solution", exact=True).count() == 0
        page.get_by_role("textbox", name="threads").fill(value)
        page.get_by_role("button", name="Measure the change").click()
        expect(page.locator(".stage-now")).not_to_be_empty()
        server.work()
        expect(page.locator(".attempts")).to_contain_text(found)
    expect(page.locator(".attempts a").nth(1)).to_have_attribute("href", "/report/heavy-mix/2")
    (measuring.folders[-1] / "report.html").write_text("the report of threads=7")
    assert page.request.get(f"{page.url.split('?')[0]}report/heavy-mix/2").text() == "the report of threads=7"
    assert page.request.get(f"{page.url.split('?')[0]}report/heavy-mix/3").status == 404
    page.get_by_text("Solution", exact=True).click()
    expect(page.get_by_text("threads=7. If one process gets all seven users")).to_be_visible()
    expect(page.get_by_role("link", name="Next: step 1. Ten requests at once")).to_have_attribute("href", "/?step=1")
    expect(page.locator("nav [aria-current]")).to_have_text("Two slow requests among many quick ones")
    expect(page.locator("nav li").nth(HEAVY_MIX - 1)).to_contain_text(": done")
    assert [name for name, _ in measuring.started] == [
        "lesson-heavy-mix", "lesson-heavy-mix-exercise", "lesson-heavy-mix-exercise",
    ]  # fmt: skip


def test_the_page_goes_on_where_the_terminal_stopped(
    page: Page, server: LessonServer, student: Student, measuring: Measuring
) -> None:
    step = student.step(HEAVY_MIX)
    student.predict(step, [15, 20])
    student.measure(step)

    page.reload()
    page.get_by_role("button", name="Show the solution").click()

    expect(page.get_by_text("Solution", exact=True)).to_be_visible()
    page.get_by_role("link", name="The report of this run").click()
    expect(page).to_have_url(f"{page.url.split('/report')[0]}/report/heavy-mix")
    assert len(measuring.started) == 1
    assert not server.state()["busy"]


def test_a_setting_with_few_values_is_chosen_from_a_list(
    page: Page, server: LessonServer, student: Student, measuring: Measuring
) -> None:
    """While something is measured, no button can be pressed, and a verdict of a disturbed step says so."""
    step = student.step(HEAVY_MIX)
    student.predict(step, [15, 20])
    measuring.busy = True
    result = student.measure(step)
    student.notes.with_step(student.step(3), prediction=PREDICTED, result=result).write(student.folder)
    page.reload()
    expect(page.locator(".verdict").first).to_have_text(f"{result.claims[0].verdict}, suspect")
    expect(page.get_by_text("Suspect: something disturbed trials")).to_be_visible()
    page.goto(page.url.replace("step=2", "step=3"))

    page.get_by_role("button", name="Measure the change").click()
    expect(page.locator(".stage-now")).to_be_empty()
    page.get_by_label("balance").select_option("least_conn")
    page.get_by_role("button", name="Measure the change").click()

    expect(page.locator(".stage-now")).not_to_be_empty()
    expect(page.get_by_role("button")).to_have_count(3)
    for button in page.get_by_role("button").all():
        expect(button).to_be_disabled()
    server.work()
    expect(page.locator(".attempts")).to_contain_text("it did not do what it should, suspect (")


def test_the_page_of_a_complete_lesson_says_how_to_hand_it_in(page: Page, student: Student) -> None:
    notes.Notes(steps={one.name: DONE for one in student.lesson.steps[1:]}).write(student.folder)
    page.reload()
    expect(page.get_by_text("stampede export")).to_have_count(0)
    notes.Notes(steps={one.name: DONE for one in student.lesson.steps}).write(student.folder)
    page.reload()

    expect(page.get_by_text(f"stampede export {student.results}/lesson --to your-name.tar.gz")).to_be_visible()


def test_the_page_says_what_is_wrong(page: Page, server: LessonServer, measuring: Measuring) -> None:
    predict(page, "soon", "1")
    expect(page.get_by_role("alert")).to_have_text(
        "The prediction 'soon' is no number. Write a number such as 300 or 2.5 (as an option: --predict 300,2.5)."
    )
    predict(page, "15", "20")

    def fail() -> None:
        raise LabError("The disk is full.", "Free some space.")

    measuring.before = fail
    measure(page, server)

    expect(page.get_by_role("alert")).to_have_text("The disk is full.\nFree some space.")
    expect(page.get_by_role("button", name="Measure, for about")).to_be_enabled()


def test_the_page_says_what_the_lab_is_doing_and_measures_one_thing_at_a_time(
    page: Page, server: LessonServer, student: Student, measuring: Measuring
) -> None:
    student.predict(student.step(HEAVY_MIX), [15, 20])
    page.reload()
    going_on = threading.Event()

    def wait() -> None:
        server.stage.follow(lambda *_: None)("load", 3, 20)
        going_on.wait(PATIENCE_S)

    measuring.before = wait
    page.get_by_role("button", name="Measure, for about").click()
    working = threading.Thread(target=server.work)
    working.start()
    expect(page.locator(".stage-now")).to_have_text("load: 3 s of about 20 s")
    with pytest.raises(LabError) as caught:
        server.post("/measure", {"step": HEAVY_MIX})
    going_on.set()
    working.join()

    assert caught.value.message == "Something is being measured. Wait until it has ended."
    expect(page.get_by_label("What you predicted, and what was measured")).to_be_visible()


@pytest.mark.usefixtures("measuring")
def test_everybody_can_use_the_page(page: Page, student: Student) -> None:
    step = student.step(HEAVY_MIX)
    student.predict(step, [15, 20])
    student.measure(step)
    page.reload()

    assert violations(page) == []
    page.set_viewport_size({"width": 360, "height": 700})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_mistake_of_the_lab_is_not_taken_for_its_end(
    page: Page, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The page says that something went wrong, and the terminal says what. Too long a request is refused in words."""

    def fail(*_: object) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(Student, "predict", fail)
    predict(page, "15", "20")

    expect(page.get_by_role("alert")).to_have_text(
        "The lab answered with 500 Internal Server Error. Its terminal may say more."
    )
    told = io.StringIO()  # the traceback may follow the answer
    wait_until(lambda: told.write(capfd.readouterr().err) and "RuntimeError: a mistake" in told.getvalue())
    predict(page, "1" * MOST_POSTED, "20")
    expect(page.get_by_role("alert")).to_contain_text("The lab answered with 413 ")


def post(port: int, path: str, content: str, **headers: str) -> int:
    """Send something to the page's server, and return the status of the answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    own = {"Host": f"127.0.0.1:{port}", "Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/json"}
    connection.request("POST", path, content, own | headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_only_its_own_page_can_ask_for_anything(port: int, server: LessonServer) -> None:
    """Another site could otherwise start measurements with a form of its own."""
    said = json.dumps({"step": 2, "values": [1, 2]})
    foreign: list[dict[str, str]] = [
        {"Content-Type": "text/plain"}, {"Origin": "http://evil.example"},
        {"Host": "evil.example", "Origin": "http://evil.example"},
    ]  # fmt: skip
    wrong = {"{": 400, "[]": 400, " " * (MOST_POSTED + 1): 413, '{"step": 2}': 400,
             '{"step": 9, "values": [1, 2]}': 400}  # fmt: skip
    gone = {"/else": 404, "/report/heavy-mix": 404, "/report/../lesson/lesson.json": 404, "/?step=9": 400}

    assert [post(port, "/predict", said, **headers) for headers in foreign] == [403] * 3
    assert {content: post(port, "/predict", content) for content in wrong} == wrong
    assert {path: ask(port, path)[0].status for path in gone} == gone
    assert ask(port, "/", "evil.example:80")[0].status == 403
    assert server.student.notes.steps == {}
    assert post(port, "/predict", said) == 200
    assert ask(port, "/state")[1] == b'{"busy":false,"stage":"","error":"","changes":1}'


def test_the_page_says_when_the_lab_has_ended(tab: Page, server: LessonServer) -> None:
    with serving(number := free_port(), server.get, server.post):
        tab.goto(f"http://127.0.0.1:{number}/?step={HEAVY_MIX}")
    predict(tab, "15", "20")

    expect(tab.get_by_role("alert")).to_have_text("The lab has ended. To go on, start it again: make lesson PAGE=1")


def test_the_command_serves_the_page_until_it_is_interrupted(lab: Lab) -> None:
    process = lab.start("lesson", "--page", "--port", str(number := free_port()))
    told = wait_for_line(process, "Take the lesson")
    assert told == [
        f"Take the lesson at http://127.0.0.1:{number}/ (Ctrl-C ends it; the page goes on where you left)\n"
    ]
    assert ask(number, "/")[0].status == 200

    code, out, err = finish(process, signal.SIGINT)

    assert (code, out, err) == (130, "", "Interrupted. Nothing is left running; what was measured is kept.\n")
