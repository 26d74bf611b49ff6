"""The lesson as a page in the browser: the page is answered by threads, and the main thread measures."""

import json
import queue
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, parse_qs

from markupsafe import Markup
from python_on_whales.exceptions import DockerException

from analysis.report.page import policy, script, style, template
from analysis.report.words import number, verdict_of
from lab.apps.lesson import diagram, picture, show, teaching
from lab.apps.lesson.model import Step, as_text, choices, experiment_of
from lab.apps.lesson.notes import read_number
from lab.apps.lesson.teaching import Student
from lab.engine.commands import last_line
from lab.engine.machine_usage import Progress
from lab.errors import LabError, WrongUse
from lab.loopback import LocalHandler, serving
from lab.terminal import interruptible, say, tell, time_in_words


class Desk:
    """What the threads that answer the page and the main thread, which measures, tell each other."""

    def __init__(self, student: Student) -> None:
        self.student = student
        self._writing = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._busy = False
        self._stage = ""
        self._error = ""
        self._changes = 0

    def state(self) -> dict[str, Any]:
        """Return whether something is measured, what the lab is doing, and how often something has changed."""
        return {"busy": self._busy, "stage": self._stage, "error": self._error, "changes": self._changes}

    def do(self, path: str, content: dict[str, Any]) -> None:
        """Do what the page asks for. Raise LabError if it is not possible."""
        step = self.student.step(_whole(content.get("step")))
        with self._writing:
            if self._busy:
                raise WrongUse("Something is being measured. Wait until it has ended.")
            match path, content:
                case "/predict", {"values": [*values]}:
                    teaching.predict(self.student, step, [read_number(str(value), step) for value in values])
                case "/measure", _:
                    teaching.check_measure(self.student, step)
                    self._begin(lambda: teaching.measure(self.student, step, self._heeding))
                case "/explain", {"sentence": str(sentence)}:
                    teaching.explain(self.student, step, sentence)
                case "/try", {"change": str(change)}:
                    teaching.check_change(self.student, step, change)
                    self._begin(lambda: teaching.try_change(self.student, step, change, self._heeding))
                case "/solution", _:
                    teaching.show_solution(self.student, step)
                case _:
                    raise WrongUse(f"The page asked for {path} in a way that the lab does not know.")
            self._error = ""
            self._changes += 1

    def _begin(self, work: Callable[[], object]) -> None:
        self._busy, self._stage = True, "the lab is getting ready"
        self._waiting.put(work)

    def work(self) -> None:
        """Wait until the page asks for a measurement, and measure."""
        work = self._waiting.get()
        error: LabError | None = None
        try:
            work()
        except DockerException as refused:
            error = LabError(f"The container engine refused or stopped answering: {last_line(refused)}", "make doctor")
        except LabError as known:
            error = known
        if error:
            tell(error)
        self._error = "\n".join(filter(None, (error.message, error.hint))) if error else ""
        self._busy = False
        self._changes += 1

    def _heeding(self, progress: Progress) -> Progress:
        """Return a Progress that also tells the page what the lab is doing."""

        def both(what: str, spent_s: float, expected_s: float) -> None:
            self._stage = f"{what}: {spent_s:.0f} s of about {expected_s:.0f} s"
            progress(what, spent_s, expected_s)

        return both


def serve(student: Student, port: int) -> None:
    """Serve the page until the lab is interrupted. Raise LabError if the port cannot be used."""
    desk = Desk(student)
    with interruptible(), serving(handler(desk), port):
        say(f"Take the lesson at http://127.0.0.1:{port}/ (Ctrl-C ends it; the page goes on where you left)")
        while True:
            desk.work()


def handler(desk: Desk) -> type[LocalHandler]:
    """Return what answers the page."""

    class Handler(LocalHandler):
        def get(self, asked: SplitResult) -> None:
            name = asked.path.removeprefix("/report/")
            try:
                if asked.path == "/":
                    self.answer("text/html", page(desk, _whole(parse_qs(asked.query).get("step", ["0"])[-1])))
                elif asked.path == "/state":
                    self.answer("application/json", json.dumps(desk.state()))
                elif asked.path != name and (report := _report(desk.student, name)):
                    self.answer("text/html", report)
                else:
                    self.send_error(HTTPStatus.NOT_FOUND)
            except LabError as error:
                self.answer("text/plain", f"{error.message}\n{error.hint}\n", HTTPStatus.BAD_REQUEST)

        def post(self, path: str, content: dict[str, Any]) -> None:
            try:
                desk.do(path, content)
                self.answer("application/json", "{}")
            except LabError as error:
                told = json.dumps({"message": error.message, "hint": error.hint})
                self.answer("application/json", told, HTTPStatus.BAD_REQUEST)

    return Handler


def page(desk: Desk, asked: int) -> str:
    """Return the page of a step; 0: the next step."""
    student, state = desk.student, desk.state()  # first the state: the page is loaded again if it changes afterwards
    step = student.step(asked)
    notes = student.notes
    done, left = notes.of(step), notes.left(student.lesson)
    experiment = experiment_of(student.lesson, step)
    drawing = script("lesson.js")
    variant = experiment.variants[step.exercise.variant]
    return template("lesson.html").render(
        policy=f"{policy(drawing)}; connect-src 'self'",
        style=style(),
        script=drawing,
        about=_json({"step": student.number(step), "predictions": len(step.predict), **state}),
        steps=[(notes.of(one).stage, experiment_of(student.lesson, one).title) for one in student.lesson.steps],
        number=student.number(step),
        step=step,
        done=done,
        experiment=experiment,
        state=state,
        diagrams=[(name, Markup(diagram.as_svg(one, load, name))) for name, one, load in show.drawn(experiment)],  # noqa: S704  # we draw these pictures
        legend=diagram.LEGEND,
        picture=Markup(picture.as_svg(done.result.bars)) if done.result else "",  # noqa: S704  # we draw it
        takes=time_in_words(teaching.expected_s(student.lesson, step)),
        measured=number,
        verdict_of=verdict_of,
        suspicion=show.suspicion(done.result.claims) if done.result else "",
        before=[
            (name, as_text(getattr(variant, name)), [as_text(one) for one in choices(variant, name)])
            for name in step.exercise.settings
        ],
        solution=show.solution_of(step),
        following=student.number(left[0]) if left else 0,
        hand_in=show.how_to_hand_in(student),
    )


def _report(student: Student, name: str) -> str | None:
    """Return the report of a step (``heavy-mix``) or of a change in its exercise (``heavy-mix/1``); None: none."""
    name, _, change = name.partition("/")
    step: Step | None = next((one for one in student.lesson.steps if one.name == name), None)
    if not step:
        return None
    done = student.notes.of(step)
    runs = {str(place): one.run for place, one in enumerate(done.attempts, start=1)}
    runs |= {"": done.result.run} if done.result else {}
    path = student.results / runs[change] / "report.html" if change in runs else None
    return path.read_text(encoding="utf-8") if path and path.exists() else None


def _json(values: object) -> Markup:
    return Markup(json.dumps(values).replace("<", "\\u003c"))  # noqa: S704  # holds no "<"


def _whole(given: object) -> int:
    """Return a number that a page gave; 0: it gave none."""
    text = str(given)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 9 else 0
