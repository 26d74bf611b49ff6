"""stampede lesson without containers: the file, what comes next, what is locked, and what a terminal says."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from inline_snapshot import snapshot

from stampede.paths import LESSONS
from stampede.plan import lay_out
from stampede.plan.timing import expected_s
from stampede.teach.lesson import model, notes, page, show
from stampede.teach.lesson.model import experiment_with_change, step_experiment
from stampede.teach.lesson.notes import Bar
from stampede.teach.lesson.teaching import Student
from tests.conftest import Lab
from tests.lessons import DONE, HEAVY_MIX, Measuring, lesson, measuring, student
from tests.wrong import listed, problem_of, refusal

__all__ = ["measuring", "student"]
LESSON = lesson()
STEPS = [step.name for step in LESSON.steps]
LONGEST_S = 180
"""The longest that a step may take, by plan."""


MISTAKES = [
    ("name: heavy-mix", "name: heavy-mixx"),
    ("name: heavy-mix", "name: ten-at-once"),
    ("variant: one-thread, metric", "variant: one-tread, metric"),
    ("      variant: one-thread\n", "      variant: none\n"),
    ("settings: [threads]", "settings: [thread]"),
    ("load: waiting, ", "load: wait, "),
]  # fmt: skip


def test_a_name_in_the_lesson_that_does_not_fit_has_its_message(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = (LESSONS / "lesson.yaml").read_text()
    shutil.copytree(LESSONS, tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(model, "LESSONS", tmp_path)

    assert {old in text for old, _ in MISTAKES} == {True}
    changed = [text.replace(old, new, 1) for old, new in MISTAKES]
    told = listed(refusal(lambda _: model.read_lesson(), tmp_path / "lesson.yaml", one) for one in changed)
    assert told == snapshot("""\
…/experiments/heavy-mixx.yaml cannot be read: No such file or directory.
lesson.yaml:28: steps.1.name: there are two steps ten-at-once
lesson.yaml:11: steps.0.predict.0.value.variant: there is no variant one-tread; there are one-thread,
    ten-threads
lesson.yaml:19: steps.0.exercise.variant: there is no variant none; there are one-thread, ten-threads
lesson.yaml:20: steps.0.exercise.settings.0: one-thread has no setting thread; it has threads, app, balance, …
lesson.yaml:91: steps.4.predict.0.value.load: there is no load wait; there are waiting, computing
""")


def test_the_lesson_has_six_steps_in_the_order_in_which_understanding_grows() -> None:
    assert STEPS == ["ten-at-once", "heavy-mix", "even-shares", "interpreter-lock", "blocked-loop", "cures"]
    assert {path.stem for path in (LESSONS / "experiments").glob("*.yaml")} == set(STEPS)


@pytest.mark.parametrize("step", LESSON.steps, ids=STEPS)
def test_a_step_measures_the_same_on_every_machine(step: Any) -> None:
    """Its duration, trials, variants side by side and kind of computing are fixed, and its servers have one core.

    It takes three minutes at most.
    """
    experiment = step_experiment(LESSON, step)
    file = yaml.safe_load((LESSONS / "experiments" / f"{step.name}.yaml").read_text())
    plan = lay_out(experiment, trials=experiment.trials, jobs=LESSON.jobs)

    assert file["trials"] >= 2
    assert {load.duration.short == load.duration.full for load in experiment.all_loads.values()} == {True}
    assert {load.settings["cpu"] for load in experiment.all_loads.values() if load.computes} <= {"hold"}
    assert {variant.cpuset for variant in experiment.variants.values()} == {"0"}
    assert experiment.parallel
    assert expected_s(plan) <= LONGEST_S
    assert experiment.because


@pytest.mark.parametrize("step", LESSON.steps, ids=STEPS)
def test_an_exercise_changes_one_setting_and_nothing_else_and_is_quick(step: Any) -> None:
    experiment, [(setting, value)] = step_experiment(LESSON, step), step.exercise.answer.items()
    changed = experiment_with_change(experiment, step.exercise, setting, value)

    before, after = (of.variants[step.exercise.variant].model_dump() for of in (experiment, changed))
    assert {name for name in before if before[name] != after[name]} == {setting}
    assert list(changed.variants) == [step.exercise.variant]
    assert changed.claims == [step.exercise.check]
    assert expected_s(lay_out(changed, trials=changed.trials, jobs=LESSON.jobs)) <= LONGEST_S


@pytest.mark.parametrize("step", LESSON.steps, ids=STEPS)
def test_what_a_student_reads_fits_a_terminal(step: Any, tmp_path: Path) -> None:
    student = Student(LESSON, tmp_path)
    texts = []
    for done in (notes.StepNotes(), DONE.model_copy(update={"explanation": None}),
                 DONE.model_copy(update={"solution_at": None}), DONE):  # fmt: skip
        notes.Notes(steps={step.name: done}).write(student.folder)
        texts.append(show.what_next(student, step))

    lines = [line for text in texts for line in text.splitlines() if str(tmp_path) not in line]
    assert max(map(len, lines)) <= 80
    assert len(set(texts)) == 4


def test_the_way_of_a_request_shows_each_queue_and_each_thread() -> None:
    """Containers have a socket each, and sync workers no queue."""
    ways = {name: (way, spoken) for step in LESSON.steps[1:3] for name, way, spoken in
            page.ways(step_experiment(LESSON, step))}  # fmt: skip

    assert ways["four-processes"] == (
        "7 users → nginx → ≡ socket → 4 x ≡ worker □□",
        "four-processes: 7 users, then nginx, then 1 socket, then 4 workers of 2 threads. Requests can wait at a "
        "socket and in a worker.",
    )
    assert ways["turns"][0].startswith("7 users → nginx → 4 x (≡ socket → ≡ worker □□)")
    assert ways["race"][0].startswith("7 users → nginx → ≡ socket → 8 x worker □")


def test_predictions_stand_beside_results() -> None:
    known = Bar(says="the last one is answered after", unit="ms", yours=3000, theory=0, measured=10020, low=10010,
                high=10030)  # fmt: skip
    unknown = Bar(says="with ten threads after", unit="ms", yours=0, theory=None, measured=1020, low=None, high=None)

    assert page.result_bars([known, unknown]) == [
        ("The last one is answered after … ms",
         [("you predicted", "3000", 3000), ("theory predicts", "0.00", 0),
          ("measured", "10020 (10010 to 10030)", 10020)]),
        ("With ten threads after … ms", [("you predicted", "0.00", 0), ("measured", "1020", 1020)]),
    ]  # fmt: skip


def test_the_prediction_is_on_the_disk_before_anything_is_measured(student: Student, measuring: Measuring) -> None:
    """A result that is known is not measured again, though a page that was opened before may still have the button."""
    step = student.step(HEAVY_MIX)
    assert problem_of(student.measure, step) == (
        "Predict first: nothing of heavy-mix is measured before.\nstampede lesson 2 --predict …"
    )
    seen: list[Any] = []
    measuring.before = lambda: seen.append(json.loads((student.folder / notes.NOTES).read_text()))

    student.predict(step, [7, 1])
    student.predict(step, [15, 20])
    student.measure(step)

    [written] = seen
    assert written["schema"] == 1
    assert written["steps"]["heavy-mix"]["prediction"]["values"] == [15, 20]
    assert written["steps"]["heavy-mix"]["result"] is None
    assert problem_of(student.measure, step) == (
        "The result of heavy-mix is known already.\nTo begin the whole lesson again: stampede lesson --restart"
    )
    assert len(measuring.started) == 1


@pytest.mark.usefixtures("measuring")
def test_the_check_tells_a_change_that_works_from_one_that_does_not(student: Student) -> None:
    step = student.step(HEAVY_MIX)
    student.predict(step, [15, 20])
    student.measure(step)

    wrong = student.try_change(step, "threads=3")
    assert not student.notes.step(step).shows_solution
    right = student.try_change(step, "threads=7")

    assert student.notes.step(step).shows_solution
    assert show.attempt_text(right) == (
        "threads=7: it did what it should.\n"
        "reproduced: hardly any light request waits while another worker has a free\n"
        "  thread (0.00 share, 0.00 to 0.00; bound <= 0.05)"
    )
    undecided = right.check.model_copy(update={"verdict": "undecided"})
    assert [wrong.found, right.model_copy(update={"check": undecided}).found] == [
        "it did not do what it should", "this decides nothing; measure it again"
    ]  # fmt: skip


WRONG_CHANGES = (
    "threads",
    "threads=",
    "=5",
    "workers=1",
    "threads=2",
    "threads=1:30",
    "threads=true",
    "threads=100000",
)


def test_a_change_that_is_not_possible_measures_nothing(student: Student, measuring: Measuring) -> None:
    """It is said what is wrong with the change, and what to do."""
    step = student.step(HEAVY_MIX)
    student.predict(step, [15, 20])
    student.measure(step)

    assert listed(problem_of(student.try_change, step, change) for change in WRONG_CHANGES) == snapshot("""\
The change 'threads' must be a setting and its value. threads=… (as an option: --set threads=…)
The change 'threads=' must be a setting and its value. threads=… (as an option: --set threads=…)
The change '=5' must be a setting and its value. threads=… (as an option: --set threads=…)
This exercise does not change 'workers'. Change one of threads
four-processes already has threads=2. Choose another value.
threads=1:30 is not possible: '1:30' must be a whole number, at least 1, e.g. threads: 1. Choose another
    value.
threads=true is not possible: 'true' must be a whole number, at least 1, e.g. threads: 1. Choose another
    value.
threads=100000 is not possible: 4 workers need about 14 + 4 x 2008 = 8,046 MiB, but memory_mib is 256; at most
    0 fit. Choose another value.
""")
    assert len(measuring.started) == 1


def test_an_invalid_run_does_not_count(student: Student, measuring: Measuring) -> None:
    """The prediction stays, and may still be changed."""
    step = student.step(HEAVY_MIX)
    student.predict(step, [15, 20])
    measuring.invalid = True

    problem = problem_of(student.measure, step)

    assert problem.startswith("The run is invalid, so it does not count: ")
    assert problem.endswith("\nMeasure again: stampede lesson 2")
    assert student.notes.step(step).stage == "measure"
    student.predict(step, [200, 1])


def test_a_file_of_notes_that_is_damaged_is_named(student: Student) -> None:
    path = student.folder / notes.NOTES
    path.parent.mkdir(parents=True)

    said = [refusal(lambda _: student.notes, path, text, "To begin again: stampede lesson --restart")
            for text in ("{", "[]", '{"schema": 2, "steps": {}}')]  # fmt: skip

    assert listed(said) == snapshot("""\
…/lesson.json cannot be understood: not valid JSON: EOF while parsing an object at line 1 column 1.
…/lesson.json cannot be understood: [] must be a mapping.
…/lesson.json cannot be understood: schema: 2 must be 1.
""")


def test_the_next_step_is_the_first_that_is_not_done_and_after_the_last_the_lesson_is_handed_in(lab: Lab) -> None:
    student, (first, second, *_) = Student(LESSON, lab.results), LESSON.steps
    assert student.step(0) == first
    notes.Notes(steps={first.name: DONE}).write(student.folder)
    assert student.step(0) == second
    notes.Notes(steps=dict.fromkeys(STEPS, DONE)).write(student.folder)

    complete = (
        "The lesson is complete. To hand it in:\n"
        f"stampede export {lab.results}/lesson --to your-name.tar.gz\n"
        "To see a step again: stampede lesson …"
    )
    assert student.step(0) == LESSON.steps[-1]
    assert lab.call("lesson").stdout == f"{complete}\n"
    assert show.what_next(student, second) == f"This step is done. {complete}"


def test_verdicts_that_rest_on_suspect_trials_say_so(student: Student, measuring: Measuring) -> None:
    step = student.step(HEAVY_MIX)
    student.predict(step, [15, 20])
    quiet = student.measure(step)
    (student.folder / notes.NOTES).unlink()
    student.predict(step, [15, 20])
    measuring.busy = True
    busy = student.measure(step)
    attempt = student.try_change(step, "threads=7")

    assert "suspect" not in show.outcome(student, notes.StepNotes(result=quiet)).lower()
    assert all(show.verdict_text(one).startswith(f"{one.verdict}, suspect: ") for one in busy.claims)
    assert "\nreproduced, suspect: hardly any light request" in show.attempt_text(attempt)


def test_a_check_may_name_the_only_load() -> None:
    [step, *_] = LESSON.steps
    value = step.exercise.check.value.model_copy(update={"load": "burst"})
    check = step.exercise.check.model_copy(update={"value": value})
    exercise = step.exercise.model_copy(update={"check": check})

    found = experiment_with_change(step_experiment(LESSON, step), exercise, "threads", "5")

    assert list(found.all_loads) == ["burst"]


def test_a_setting_with_few_values_names_them(student: Student) -> None:
    shares, cures = student.step(3), student.step(6)
    to_do = DONE.model_copy(update={"solution_at": None})
    notes.Notes(steps={shares.name: to_do, cures.name: to_do}).write(student.folder)

    assert "\nbalance can also be least_conn or random_two_least_conn or ewma.\n" in show.what_next(student, shares)
    assert "\nreuse_port can also be true.\n" in show.what_next(student, cures)


def test_a_lesson_of_which_nothing_was_measured_cannot_be_handed_in(lab: Lab) -> None:
    notes.Notes().write(lab.results / "lesson")

    done = lab.call("export", str(lab.results / "lesson"))

    assert done.returncode == 2
    assert done.stderr == "error: No step of the lesson was measured yet.\n\nhint: stampede lesson\n"


def test_without_a_terminal_options_answer(lab: Lab, measuring: Measuring) -> None:
    """Every line fits a terminal, and each answer says what comes next. A sentence is kept as far as it is text."""
    begun = lab.call("lesson", "2")
    with_prediction = lab.call("lesson", "2", "--predict", "15,20")
    explained = lab.call("lesson", "2", "--explain", " Busy workers accept, fil\udce9. ")
    tried = lab.call("lesson", "2", "--set", "threads=3")
    solved = lab.call("lesson", "2", "--solution")
    looked = lab.call("lesson", "2")
    again = lab.call("lesson", "2", "--predict", "600,2")

    every = [begun, with_prediction, explained, tried, solved, looked]
    assert [one.returncode for one in every] == [0] * len(every)
    assert re.search(r"\nMeasuring takes about \d min \d\d s. stampede lesson 2 --predict …,…\n$", begun.stdout)
    assert "you predicted 15.0, measured " in with_prediction.stdout.replace("\n", " ")
    assert "measured 4.9" in with_prediction.stdout
    assert with_prediction.stdout.endswith('stampede lesson 2 --explain "…"\n')
    assert explained.stdout.startswith("The lab says: A gunicorn worker accepts")
    assert explained.stdout.endswith("stampede lesson 2 --set threads=… (or --solution)\n")
    assert tried.stdout.startswith("threads=3: it did not do what it should.\nnot reproduced: hardly any")
    assert solved.stdout.startswith("Solution: threads=7. If one process gets all seven users")
    assert solved.stdout.endswith("This step is done. Next: step 1. stampede lesson\n")
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == (
        "error: The prediction cannot be changed any more, because the result is known.\n"
        "\nhint: To begin the whole lesson again: stampede lesson --restart\n"
    )
    lines = [line for one in every for line in one.stdout.splitlines() if not line.startswith("Report: ")]
    assert max(map(len, lines)) <= 80
    assert notes.Notes.read(lab.results / "lesson").steps["heavy-mix"].explanation == "Busy workers accept, fil?."
    assert measuring.started == [
        ("lesson-heavy-mix", "stampede lesson 2"),
        ("lesson-heavy-mix-exercise", "stampede lesson 2 --set threads=3"),
    ]


def test_an_interrupted_step_is_measured_by_the_next_command(lab: Lab, measuring: Measuring) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    measuring.before = interrupt
    assert lab.call("lesson", "2", "--predict", "15,20").returncode == 130
    measuring.before = lambda: None

    resumed = lab.call("lesson", "2")

    assert "you predicted 15.0" in resumed.stdout
    assert measuring.started == [("lesson-heavy-mix", "stampede lesson 2")]


def test_restart_forgets_the_answers_and_keeps_the_runs(lab: Lab, measuring: Measuring) -> None:
    lab.call("lesson", "2", "--predict", "15,20")

    done = lab.call("lesson", "2", "--restart")

    assert done.stderr == "The predictions and answers are deleted; the runs are kept.\n"
    assert "Before anything is measured, predict:" in done.stdout
    assert len([*lab.results.glob("lesson-heavy-mix/*/run.json")]) == 1
    assert lab.call("lesson", "--restart").stderr == ""
    assert len(measuring.started) == 1
