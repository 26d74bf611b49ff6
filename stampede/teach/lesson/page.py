"""The lesson as a page in the browser: the page is answered by threads, and the main thread measures."""

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

from stampede.docker.client import DockerError
from stampede.errors import LabError, WrongUse
from stampede.experiment.model import Experiment
from stampede.loopback import Response, Stage, read_whole, serving
from stampede.records.words import plural
from stampede.report.page import render, script_json
from stampede.report.wording import capitalised, number
from stampede.servers.base import setting_text
from stampede.teach.lesson import show
from stampede.teach.lesson.model import choices, step_experiment
from stampede.teach.lesson.notes import Bar, StepNotes
from stampede.teach.lesson.teaching import Student
from stampede.terminal import interruptible, say, tell, time_in_words


class LessonServer:
    """Answers the page in threads, and measures in the main thread what the page asks for."""

    def __init__(self, student: Student) -> None:
        self.student = student
        self._writing = threading.Lock()
        self._waiting: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        self._busy = False
        self.stage = Stage()
        self._error = ""
        self._changes = 0

    def state(self) -> dict[str, Any]:
        """Return whether something is measured, what the lab is doing, and how often something has changed."""
        stage = self.stage.text if self._busy else ""
        return {"busy": self._busy, "stage": stage, "error": self._error, "changes": self._changes}

    def get(self, path: str, query: dict[str, str]) -> Response | None:
        """Return the page of a step, its state, or the report of a run; None: there is no such path."""
        match path.split("/"):
            case ["", ""]:
                return Response(step_page(self, read_whole(query.get("step"))))
            case ["", "state"]:
                return Response.json(self.state())
            case ["", "report", name, *change]:  # of a step, or of the change with this number in its exercise
                done = self.student.notes.steps.get(name, StepNotes())
                runs = {"": done.result.run} if done.result else {}
                runs |= {str(place): attempt.run for place, attempt in enumerate(done.attempts, start=1)}
                report = self.student.results / runs.get("/".join(change), "lesson") / "report.html"
                return Response(report.read_text(encoding="utf-8")) if report.exists() else None
            case _:
                return None

    def post(self, path: str, content: dict[str, Any]) -> None:
        """Do what the page asks for. Raise LabError if it is not possible."""
        step = self.student.step(read_whole(content.get("step")))
        with self._writing:
            if self._busy:
                raise WrongUse("Something is being measured. Wait until it has ended.")
            match path, content:
                case "/predict", {"values": [*values]}:
                    self.student.predict(step, [str(value) for value in values])
                case "/measure", _:
                    self.student.check_measure(step)
                    self._begin(lambda: self.student.measure(step, self.stage.follow))
                case "/explain", {"sentence": str(sentence)}:
                    self.student.explain(step, sentence)
                case "/try", {"change": str(change)}:
                    self.student.check_change(step, change)
                    self._begin(lambda: self.student.try_change(step, change, self.stage.follow))
                case "/solution", _:
                    self.student.show_solution(step)
                case _:
                    raise WrongUse(f"The page asked for {path} in a way that the lab does not know.")
            self._error = ""
            self._changes += 1

    def _begin(self, work: Callable[[], object]) -> None:
        self.stage.begin()
        self._busy = True
        self._waiting.put(work)

    def work(self) -> None:
        """Wait until the page asks for a measurement, and measure."""
        work = self._waiting.get()
        error: LabError | None = None
        try:
            work()
        except DockerError as refused:
            error = LabError(f"The container engine refused or stopped answering: {refused}", "stampede doctor")
        except LabError as known:
            error = known
        if error:
            tell(error)
        self._error = "\n".join(filter(None, (error.message, error.hint))) if error else ""
        self._busy = False
        self._changes += 1

    def run(self, port: int) -> None:
        """Serve the page until the lab is interrupted. Raise LabError if the port cannot be used."""
        with interruptible(), serving(port, self.get, self.post):
            say(f"Take the lesson at http://127.0.0.1:{port}/ (Ctrl-C ends it; the page goes on where you left)")
            while True:
                self.work()


LEGEND = "≡ requests can wait here   □ a thread"


def ways(experiment: Experiment) -> Iterator[tuple[str, str, str]]:
    """Yield each variant with the way of its requests to a thread, as text, and as a sentence for a screen reader."""
    for name, variant in experiment.variants.items():
        load = next(load for load in experiment.all_loads.values() if load.is_for(name))
        users = f"{load.declared.users_at_once(load.settings):.0f} users"
        each_socket = 1 if variant.accept == "per-worker" else variant.workers
        sockets, inside = variant.workers * variant.replicas // each_socket, variant.queueing.has_inner_queue
        worker = f"{'≡ ' if inside else ''}worker {'□' * variant.threads if variant.threads else 'with an event loop'}"
        worker = f"{each_socket} x {worker}" if each_socket > 1 else worker
        before = [users, *([] if variant.balancer == "none" else [str(variant.balancer)])]
        served = f"≡ socket → {worker}"
        stops = [*before, plural(sockets, "socket"), plural(sockets * each_socket, "worker")]
        threads = f" of {plural(variant.threads, 'thread')}" if variant.threads else ", an event loop each"
        waits = f"Requests can wait at a socket{' and in a worker' if inside else ''}."
        yield (name, " → ".join([*before, f"{sockets} x ({served})" if sockets > 1 else served]),
               f"{name}: {', then '.join(stops)}{threads}. {waits}")  # fmt: skip


def result_bars(bars: list[Bar]) -> list[tuple[str, list[tuple[str, str, float]]]]:
    """Return for each number of a result what it is, and its bars: as predicted by student and theory, and measured."""
    found = []
    for bar in bars:
        interval = "" if bar.low is None or bar.high is None else f" ({number(bar.low)} to {number(bar.high)})"
        rows = [("you predicted", number(bar.yours), bar.yours)]
        if bar.theory is not None:
            rows.append(("theory predicts", number(bar.theory), bar.theory))
        rows.append(("measured", f"{number(bar.measured)}{interval}", bar.measured))
        found.append((f"{capitalised(bar.says)} … {bar.unit}", rows))
    return found


def step_page(server: LessonServer, number_of_step: int) -> str:
    """Return the page of a step; 0: the next step."""
    state = server.state()  # first: the page is loaded again if the state changes afterwards
    student = server.student
    step = student.step(number_of_step)
    notes = student.notes
    done, left = notes.step(step), notes.left(student.lesson)
    experiment = step_experiment(student.lesson, step)
    variant = experiment.variants[step.exercise.variant]
    return render(
        "lesson.html",
        "lesson.js",
        app="stampede.teach.lesson",
        fetches=True,
        about=script_json({"step": student.number(step), "predictions": len(step.predict), **state}),
        steps=[
            (notes.step(other).stage, step_experiment(student.lesson, other).title) for other in student.lesson.steps
        ],
        number=student.number(step),
        step=step,
        done=done,
        experiment=experiment,
        state=state,
        ways=list(ways(experiment)),
        legend=LEGEND,
        bars=result_bars(done.result.bars) if done.result else [],
        takes=time_in_words(student.expected_s(step)),
        measured=number,
        before=[
            (name, setting_text(getattr(variant, name)), [setting_text(value) for value in choices(variant, name)])
            for name in step.exercise.settings
        ],
        solution=show.solution_of(step),
        following=student.number(left[0]) if left else 0,
        hand_in=student.hand_in,
    )
