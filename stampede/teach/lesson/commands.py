"""The command ``stampede lesson``: on a terminal it asks, elsewhere its options answer."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.errors import WrongUse
from stampede.paths import RESULTS
from stampede.run.options import Results
from stampede.terminal import interruptible, out, say, tell

if TYPE_CHECKING:
    from stampede.teach.lesson.model import LessonStep
    from stampede.teach.lesson.teaching import Student


def lesson(
    step: Annotated[int, typer.Argument(show_default=False, help="The step; default: the next.")] = 0,
    predict: Annotated[str, typer.Option(help="Your predictions, e.g. 10000,1000.")] = "",
    explain: Annotated[str, typer.Option(help="Your explanation, in a sentence.")] = "",
    change: Annotated[str, typer.Option("--set", help="A change to try, e.g. threads=5.")] = "",
    solution: Annotated[bool, typer.Option("--solution", help="Show the solution of the exercise.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Take the lesson in a browser.")] = False,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the page.")] = 8377,
    restart: Annotated[bool, typer.Option("--restart", help="Forget all predictions and answers first.")] = False,
    results: Results = RESULTS,
) -> None:
    """Take the lesson, or go on with it: predict, measure, explain, try a change, e.g. stampede lesson."""
    from stampede.teach.lesson import show  # noqa: PLC0415  # imported here so that other commands start faster
    from stampede.teach.lesson.model import read_lesson  # noqa: PLC0415
    from stampede.teach.lesson.notes import forget  # noqa: PLC0415
    from stampede.teach.lesson.teaching import Student  # noqa: PLC0415

    if restart and forget(results):
        say("The predictions and answers are deleted; the runs are kept.")
    student = Student(read_lesson(), results)
    current = student.step(step)
    answers = bool(predict or explain or change or solution)
    if page:
        from stampede.teach.lesson.page import LessonServer  # noqa: PLC0415

        LessonServer(student).run(port)
    elif not (step or answers or student.left):
        _print(show.overview(student), "", show.complete(student))
    elif sys.stdin.isatty() and not answers:
        with interruptible():
            _talk(student, current)
    else:
        _answer(student, current, predict, explain, change, solution=solution)


def _answer(student: "Student", step: "LessonStep", predict: str, explain: str, change: str, *, solution: bool) -> None:
    """Do what the options say, in the order of the step, and say what comes next."""
    from stampede.teach.lesson import notes, show  # noqa: PLC0415

    if predict:
        student.predict(step, notes.read_numbers(predict, step))
    elif not (explain or change or solution):
        _print(show.overview(student), "", show.introduction(student, step), "")
    if not (explain or change or solution):
        if student.notes.step(step).stage == "measure":
            student.measure(step)
        if student.notes.step(step).result:
            _print(show.outcome(student, student.notes.step(step)))
    if explain:
        student.explain(step, explain)
        _print(show.explanation(student, step, student.notes.step(step)))
    if change:
        _print(show.attempt_text(student.try_change(step, change)))
    if solution:
        student.show_solution(step)
        _print(show.solution(step))
    _print("", show.what_next(student, step))


def _talk(student: "Student", step: "LessonStep") -> None:
    """Ask for what comes next in a step, until the step is done or the student leaves."""
    from stampede.teach.lesson import show  # noqa: PLC0415

    _print(show.overview(student), "", show.introduction(student, step), "")
    if student.notes.step(step).stage == "predict":
        _print(show.questions(step))
        _predict(student, step)
        _print("Your prediction is recorded.")
    if student.notes.step(step).stage == "measure":
        student.measure(step)
    _print(show.outcome(student, student.notes.step(step)), "")
    if student.notes.step(step).stage == "explain":
        _print(show.paragraph(step.explain))
        student.explain(step, _ask("In a sentence"))
    _print(show.explanation(student, step, student.notes.step(step)), "", show.exercise(student, step))
    while student.notes.step(step).stage != "done":
        said = _ask("A setting and its value (? shows the solution, nothing leaves)")
        if not said:
            break
        if said == "?":
            student.show_solution(step)
            continue
        try:
            _print(show.attempt_text(student.try_change(step, said)))
        except WrongUse as error:
            tell(error)
    if student.notes.step(step).shows_solution:
        _print(show.solution(step))
    _print("", show.what_next(student, step))


def _predict(student: "Student", step: "LessonStep") -> None:
    from stampede.teach.lesson import notes  # noqa: PLC0415

    values: list[float] = []
    while len(values) < len(step.predict):
        asked = step.predict[len(values)]
        try:
            value = notes.read_number(_ask(f"{len(values) + 1} ({asked.unit})"), step)
            notes.check_prediction(value, asked, step)
            values.append(value)
        except WrongUse as error:
            tell(error)
    student.predict(step, values)


def _ask(question: str) -> str:
    try:
        return input(f"{question}: ").strip()
    except EOFError:
        raise typer.Abort from None


def _print(*texts: str) -> None:
    for text in texts:
        out.print(text, markup=False, soft_wrap=True)
