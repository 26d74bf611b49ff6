"""What the lesson says on a terminal, in at most 80 columns: the step, the numbers and the verdict."""

from textwrap import fill

from stampede.report.wording import number, verdict_phrase
from stampede.servers.base import setting_text
from stampede.teach.lesson.model import LessonStep, choices, step_experiment
from stampede.teach.lesson.notes import Attempt, StepNotes, Verdict
from stampede.teach.lesson.teaching import Student
from stampede.terminal import time_in_words
from stampede.typed import option, typed


def outcome(student: Student, done: StepNotes) -> str:
    """Return the predictions beside the results, and the verdicts."""
    assert done.result
    lines = [
        paragraph(f"{bar.says} … {bar.unit}: you predicted {number(bar.yours)}, measured {number(bar.measured)}")
        for bar in done.result.bars
    ]
    report = student.results / done.result.run / "report.html"
    return "\n".join([*lines, "", *map(verdict_text, done.result.claims), "", f"Report: {report}"])


def verdict_text(verdict: Verdict) -> str:
    """Return a claim with its verdict and what was measured."""
    measured = "nothing measured" if verdict.measured is None else f"{number(verdict.measured)} {verdict.unit}"
    if verdict.low is not None and verdict.high is not None:
        measured += f", {number(verdict.low)} to {number(verdict.high)}"
    found = verdict_phrase(verdict.verdict, verdict.suspect)
    return paragraph(f"{found}: {verdict.says} ({measured}; bound {verdict.bound})", "  ")


def attempt_text(attempt: Attempt) -> str:
    """Return whether a change did what it should."""
    return f"{attempt.change}: {attempt.found}.\n{verdict_text(attempt.check)}"


def solution_of(step: LessonStep) -> str:
    """Return the change that passes the check, and why."""
    [(setting, value)] = step.exercise.answer.items()
    return f"{setting}={setting_text(value)}. {step.exercise.solution}"


def what_next(student: Student, step: LessonStep) -> str:
    """Return what comes next in a step, and the command for it."""
    command = student.command(step)
    match student.notes.step(step).stage:
        case "predict":
            asked = [f"  {place}. {of.says} … {of.unit}" for place, of in enumerate(step.predict, start=1)]
            predicted = option("predict", ",".join("…" for _ in asked))
            return "\n".join([
                "Before anything is measured, predict:", *(paragraph(line, "     ") for line in asked),
                f"Measuring takes about {time_in_words(student.expected_s(step))}. {command} {predicted}",
            ])  # fmt: skip
        case "measure":
            return f"Next: measure. {command}"
        case "explain":
            explained = option("explain", '"…"')
            return paragraph(f"Next: explain. {step.explain}") + f"\n{command} {explained}"
        case "exercise":
            of = step.exercise
            variant = step_experiment(student.lesson, step).variants[of.variant]
            before = ", ".join(f"{name}={setting_text(getattr(variant, name))}" for name in of.settings)
            told = [f"Exercise: {of.task}", f"Today, {of.variant} has {before}."]
            for name in of.settings:
                if values := [setting_text(value) for value in choices(variant, name)]:
                    told.append(f"{name} can also be {' or '.join(values)}.")
            change = f"{command} {option('set', f'{of.settings[0]}=…')} (or {option('solution')})"
            return "\n".join([*map(paragraph, told), change])
        case "done":
            left = student.left
            following = f"Next: step {student.number(left[0])}. {typed('lesson')}" if left else complete(student)
            return f"This step is done. {following}"


def complete(student: Student) -> str:
    """Return what a student can do after the last step."""
    again = f"To see a step again: {typed('lesson', '…')}"
    return f"The lesson is complete. To hand it in:\n{student.hand_in}\n{again}"


def paragraph(text: str, rest: str = "") -> str:
    """Return a text in lines that fit the terminal; ``rest`` begins the lines after the first."""
    return fill(text, 80, subsequent_indent=rest, break_on_hyphens=False)
