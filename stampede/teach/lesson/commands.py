"""The command ``stampede lesson``: options answer what a step asks; --page takes the lesson in a browser."""

from typing import Annotated

import typer

from stampede.paths import RESULTS
from stampede.run.options import Results
from stampede.teach.lesson import show
from stampede.teach.lesson.model import read_lesson
from stampede.teach.lesson.notes import forget, read_numbers
from stampede.teach.lesson.teaching import Student
from stampede.terminal import out, say


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
    if restart and forget(results):
        say("The predictions and answers are deleted; the runs are kept.")
    student = Student(read_lesson(), results)
    current = student.step(step)
    answers = bool(predict or explain or change or solution)
    if page:
        from stampede.teach.lesson.page import LessonServer  # noqa: PLC0415  # loads Altair

        LessonServer(student).run(port)
    elif not (step or answers or student.left):
        _print(show.overview(student), "", show.complete(student))
    else:
        if predict:
            student.predict(current, read_numbers(predict, current))
        elif not answers:
            _print(show.overview(student), "", show.introduction(student, current), "")
        if not (explain or change or solution):
            if student.notes.step(current).stage == "measure":
                student.measure(current)
            if student.notes.step(current).result:
                _print(show.outcome(student, student.notes.step(current)))
        if explain:
            student.explain(current, explain)
            _print(show.explanation(student, current, student.notes.step(current)))
        if change:
            _print(show.attempt_text(student.try_change(current, change)))
        if solution:
            student.show_solution(current)
            _print(show.solution(current))
        _print("", show.what_next(student, current))


def _print(*texts: str) -> None:
    for text in texts:
        out.print(text, markup=False, soft_wrap=True)
