"""What the lesson says on a terminal, in at most 80 columns."""

from collections.abc import Iterator, Sequence
from textwrap import fill, indent

from analysis.report.words import number, verdict_of
from lab.apps.lesson import diagram, picture
from lab.apps.lesson.model import Step, as_text, choices, experiment_of
from lab.apps.lesson.notes import Attempt, OfStep, Verdict
from lab.apps.lesson.teaching import Student, expected_s
from lab.experiment.model import Experiment, Load
from lab.servers.base import Variant
from lab.terminal import time_in_words

WIDTH = 80


def overview(student: Student) -> str:
    """Return the steps with what comes next in each of them."""
    notes = student.notes
    lines = [
        f"  {place}. {notes.of(step).stage:<9} {experiment_of(student.lesson, step).title}"
        for place, step in enumerate(student.lesson.steps, start=1)
    ]
    return "\n".join(["The steps of the lesson, with what comes next in each:", *lines])


def introduction(student: Student, step: Step) -> str:
    """Return the question of a step, and the diagrams of its variants."""
    experiment = experiment_of(student.lesson, step)
    of = f"Step {student.number(step)} of {len(student.lesson.steps)}: {experiment.title}"
    return "\n".join([of, "", paragraph(experiment.question), *_diagrams(experiment), "", diagram.LEGEND])


def drawn(experiment: Experiment) -> Iterator[tuple[str, Variant, Load]]:
    """Yield the name of each variant, the variant, and the first load under which it is measured."""
    for name, variant in experiment.variants.items():
        yield name, variant, next(load for load in experiment.all_loads.values() if load.is_for(name))


def _diagrams(experiment: Experiment) -> Iterator[str]:
    for name, variant, load in drawn(experiment):
        yield f"\n{name}\n{indent(diagram.as_text(variant, load), '  ')}"


def questions(step: Step) -> str:
    """Return what the student predicts."""
    asked = [f"{place}. {one.says} … {one.unit}" for place, one in enumerate(step.predict, start=1)]
    return "\n".join(["Before anything is measured, predict:", *(paragraph(one, "  ", "     ") for one in asked)])


def outcome(student: Student, done: OfStep) -> str:
    """Return the predictions beside the results, and the verdicts."""
    assert done.result
    lines = [picture.as_text(done.result.bars), "", *(verdict(one) for one in done.result.claims)]
    report = student.results / done.result.run / "report.html"
    if doubt := suspicion(done.result.claims):
        lines += ["", paragraph(doubt)]
    return "\n".join(
        [*lines, "", "The report shows each request; red requests wait beside a free thread.", f"Report: {report}"]
    )


def suspicion(claims: Sequence[Verdict]) -> str:
    """Return what it means that verdicts are suspect; empty: none is."""
    if not any(one.suspect for one in claims):
        return ""
    return "Suspect: something disturbed trials on which a verdict rests. The report says what it was."


def verdict(one: Verdict) -> str:
    """Return a claim with its verdict and what was measured."""
    measured = f"{number(one.measured)} {one.unit}" if one.measured is not None else "nothing measured"
    interval = "" if one.low is None or one.high is None else f", {number(one.low)} to {number(one.high)}"
    return paragraph(f"{verdict_of(one)}: {one.says} ({measured}{interval}; bound {one.bound})", "", "  ")


def explanation(student: Student, step: Step, done: OfStep) -> str:
    """Return what the student explained, and below it what the lab would say."""
    yours = paragraph(f"You wrote: {done.explanation}") if done.explanation else ""
    because = paragraph(f"The lab says: {experiment_of(student.lesson, step).because}")
    return "\n".join(line for line in (yours, because) if line)


def exercise(student: Student, step: Step) -> str:
    """Return the task of an exercise, and which setting may be changed from which value."""
    of = step.exercise
    variant = experiment_of(student.lesson, step).variants[of.variant]
    before = ", ".join(f"{name}={as_text(getattr(variant, name))}" for name in of.settings)
    told = [f"Exercise: {of.task}", f"Today, {of.variant} has {before}."]
    for name in of.settings:
        if values := [as_text(value) for value in choices(variant, name)]:
            told.append(f"{name} can also be {' or '.join(values)}.")
    return "\n".join(map(paragraph, told))


def attempt(one: Attempt) -> str:
    """Return whether a change did what it should."""
    return paragraph(f"{one.change}: {one.found}.", "", "  ") + "\n" + verdict(one.check)


def solution(step: Step) -> str:
    """Return the solution of an exercise as a paragraph."""
    return paragraph(f"Solution: {solution_of(step)}")


def solution_of(step: Step) -> str:
    """Return the change that passes the check, and why."""
    [(setting, value)] = step.exercise.answer.items()
    return f"{setting}={as_text(value)}. {step.exercise.solution}"


def what_next(student: Student, step: Step) -> str:
    """Return what comes next in a step, and the command for it."""
    command = student.command(step)
    stage = student.notes.of(step).stage
    if stage == "predict":
        example = ",".join("…" for _ in step.predict)
        return f"{questions(step)}\n{duration(student, step)} {command} PREDICT={example}"
    if stage == "measure":
        return f"Next: measure. {command}"
    if stage == "explain":
        return paragraph(f"Next: explain. {step.explain}") + f'\n{command} EXPLAIN="…"'
    if stage == "exercise":
        return f"{exercise(student, step)}\n{command} SET={step.exercise.settings[0]}=… (or SOLUTION=1)"
    if left := student.left:
        return f"This step is done. Next: step {student.number(left[0])}. make lesson"
    return f"This step is done. {complete(student)}"


def complete(student: Student) -> str:
    """Return what a student can do after the last step."""
    return f"The lesson is complete. To hand it in:\n{how_to_hand_in(student)}\nTo see a step again: make lesson STEP=…"


def how_to_hand_in(student: Student) -> str:
    """Return the command that packs the lesson into one file."""
    return f"make export RUN={student.results / 'lesson'} TO=your-name.tar.gz"


def duration(student: Student, step: Step) -> str:
    """Return about how long a step is measured."""
    return f"Measuring takes about {time_in_words(expected_s(student.lesson, step))}."


def paragraph(text: str, first: str = "", rest: str = "") -> str:
    """Return a text in lines that fit the terminal."""
    return fill(text, WIDTH, initial_indent=first, subsequent_indent=rest or first, break_on_hyphens=False)
