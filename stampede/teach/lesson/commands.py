"""The command ``stampede lesson``: options answer what a step asks; --page takes the lesson in a browser."""

from typing import Annotated

import typer

from stampede.paths import RESULTS
from stampede.run.options import Results
from stampede.run.results import writing
from stampede.teach.lesson import show
from stampede.teach.lesson.model import read_lesson, step_experiment
from stampede.teach.lesson.notes import NOTES
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
    student = Student(read_lesson(), results)
    if restart and (notes := student.folder / NOTES).exists():
        with writing(results):
            notes.unlink()
        say("The predictions and answers are deleted; the runs are kept.")
    current = student.step(step)
    experiment = step_experiment(student.lesson, current)
    answers = bool(predict or explain or change or solution)

    def tell(text: str) -> None:
        out.print(text, markup=False, soft_wrap=True)

    if page:
        from stampede.teach.lesson.page import LessonServer  # noqa: PLC0415  # needs the extra lab

        LessonServer(student).run(port)
        return
    if not (step or answers or student.left):
        tell(show.complete(student))
        return
    if predict:
        student.predict(current, predict.split(","))
    elif not answers:
        tell(f"Step {student.number(current)} of {len(student.lesson.steps)}: {experiment.title}\n")
        tell(f"{show.paragraph(experiment.question)}\n\nWith pictures: stampede lesson --page\n")
    if not (explain or change or solution):
        if student.notes.step(current).stage == "measure":
            student.measure(current)
        if student.notes.step(current).result:
            tell(show.outcome(student, student.notes.step(current)))
    if explain:
        student.explain(current, explain)
        tell(show.paragraph(f"The lab says: {experiment.because}"))
    if change:
        tell(show.attempt_text(student.try_change(current, change)))
    if solution:
        student.show_solution(current)
        tell(show.paragraph(f"Solution: {show.solution_of(current)}"))
    tell(f"\n{show.what_next(student, current)}")
