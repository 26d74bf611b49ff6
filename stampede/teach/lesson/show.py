"""What the lesson says on a terminal, in at most 80 columns."""

from collections.abc import Sequence
from textwrap import fill

from stampede.report.wording import number, verdict_phrase
from stampede.servers.base import setting_text
from stampede.teach.lesson.model import LessonStep, choices, step_experiment
from stampede.teach.lesson.notes import Attempt, StepNotes, Verdict
from stampede.teach.lesson.teaching import Student
from stampede.terminal import time_in_words
from stampede.typed import option, typed

WIDTH = 80


def overview(student: Student) -> str:
    """Return the steps with what comes next in each of them."""
    notes = student.notes
    lines = [
        f"  {place}. {notes.step(step).stage:<9} {step_experiment(student.lesson, step).title}"
        for place, step in enumerate(student.lesson.steps, start=1)
    ]
    return "\n".join(["The steps of the lesson, with what comes next in each:", *lines])


def introduction(student: Student, step: LessonStep) -> str:
    """Return the question of a step. Its page draws where requests can wait in each variant."""
    experiment = step_experiment(student.lesson, step)
    heading = f"Step {student.number(step)} of {len(student.lesson.steps)}: {experiment.title}"
    return "\n".join([heading, "", paragraph(experiment.question), "", "With diagrams: stampede lesson --page"])


def questions(step: LessonStep) -> str:
    """Return what the student predicts."""
    asked = [f"{place}. {question.says} … {question.unit}" for place, question in enumerate(step.predict, start=1)]
    return "\n".join(["Before anything is measured, predict:", *(paragraph(line, "  ", "     ") for line in asked)])


def outcome(student: Student, done: StepNotes) -> str:
    """Return the predictions beside the results, and the verdicts."""
    assert done.result
    lines = [
        paragraph(f"{bar.says} … {bar.unit}: you predicted {number(bar.yours)}, measured {number(bar.measured)}")
        for bar in done.result.bars
    ]
    lines += ["", *(verdict_text(claim) for claim in done.result.claims)]
    report = student.results / done.result.run / "report.html"
    if doubt := suspicion_note(done.result.claims):
        lines += ["", paragraph(doubt)]
    return "\n".join(
        [*lines, "", "The report shows each request; red requests wait beside a free thread.", f"Report: {report}"]
    )


def suspicion_note(claims: Sequence[Verdict]) -> str:
    """Return what it means that verdicts are suspect; empty: none is."""
    if not any(claim.suspect for claim in claims):
        return ""
    return "Suspect: something disturbed trials on which a verdict rests. The report says what it was."


def verdict_text(verdict: Verdict) -> str:
    """Return a claim with its verdict and what was measured."""
    measured = "nothing measured" if verdict.measured is None else f"{number(verdict.measured)} {verdict.unit}"
    known = verdict.low is not None and verdict.high is not None
    interval = f", {number(verdict.low)} to {number(verdict.high)}" if known else ""
    found = verdict_phrase(verdict.verdict, verdict.suspect)
    return paragraph(f"{found}: {verdict.says} ({measured}{interval}; bound {verdict.bound})", "", "  ")


def explanation(student: Student, step: LessonStep, done: StepNotes) -> str:
    """Return what the student explained, and below it what the lab would say."""
    yours = paragraph(f"You wrote: {done.explanation}") if done.explanation else ""
    because = paragraph(f"The lab says: {step_experiment(student.lesson, step).because}")
    return "\n".join(line for line in (yours, because) if line)


def exercise(student: Student, step: LessonStep) -> str:
    """Return the task of an exercise, and which setting may be changed from which value."""
    of = step.exercise
    variant = step_experiment(student.lesson, step).variants[of.variant]
    before = ", ".join(f"{name}={setting_text(getattr(variant, name))}" for name in of.settings)
    told = [f"Exercise: {of.task}", f"Today, {of.variant} has {before}."]
    for name in of.settings:
        if values := [setting_text(value) for value in choices(variant, name)]:
            told.append(f"{name} can also be {' or '.join(values)}.")
    return "\n".join(map(paragraph, told))


def attempt_text(attempt: Attempt) -> str:
    """Return whether a change did what it should."""
    return paragraph(f"{attempt.change}: {attempt.found}.", "", "  ") + "\n" + verdict_text(attempt.check)


def solution(step: LessonStep) -> str:
    """Return the solution of an exercise as a paragraph."""
    return paragraph(f"Solution: {solution_of(step)}")


def solution_of(step: LessonStep) -> str:
    """Return the change that passes the check, and why."""
    [(setting, value)] = step.exercise.answer.items()
    return f"{setting}={setting_text(value)}. {step.exercise.solution}"


def what_next(student: Student, step: LessonStep) -> str:
    """Return what comes next in a step, and the command for it."""
    command = student.command(step)
    stage = student.notes.step(step).stage
    if stage == "predict":
        example = ",".join("…" for _ in step.predict)
        takes = f"Measuring takes about {time_in_words(student.expected_s(step))}."
        return f"{questions(step)}\n{takes} {command} {option('predict', example)}"
    if stage == "measure":
        return f"Next: measure. {command}"
    if stage == "explain":
        explained = option("explain", '"…"')
        return paragraph(f"Next: explain. {step.explain}") + f"\n{command} {explained}"
    if stage == "exercise":
        change = option("set", f"{step.exercise.settings[0]}=…")
        return f"{exercise(student, step)}\n{command} {change} (or {option('solution')})"
    if left := student.left:
        return f"This step is done. Next: step {student.number(left[0])}. {typed('lesson')}"
    return f"This step is done. {complete(student)}"


def complete(student: Student) -> str:
    """Return what a student can do after the last step."""
    again = f"To see a step again: {typed('lesson', '…')}"
    return f"The lesson is complete. To hand it in:\n{how_to_hand_in(student)}\n{again}"


def how_to_hand_in(student: Student) -> str:
    """Return the command that packs the lesson into one file."""
    return f"stampede export {student.results / 'lesson'} --to your-name.tar.gz"


def paragraph(text: str, first: str = "", rest: str = "") -> str:
    """Return a text in lines that fit the terminal."""
    return fill(text, WIDTH, initial_indent=first, subsequent_indent=rest or first, break_on_hyphens=False)
