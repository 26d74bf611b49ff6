"""Pack the runs and the predictions of the lesson into one file, which a teacher puts onto the page of the class."""

from pathlib import Path

from stampede.errors import WrongUse
from stampede.export import checked, pack
from stampede.finished import verified
from stampede.records.checksums import MANIFEST, sha256
from stampede.records.plural import plural
from stampede.teach.lesson.notes import Notes, notes_file, read_notes
from stampede.terminal import say, talk
from stampede.typed import typed


def is_lesson(folder: Path) -> bool:
    """Whether a folder has the notes of a lesson, not a run."""
    path = notes_file(folder.parent)
    return path.parent == folder and path.is_file()


def hand_in(folder: Path, to: Path | None) -> Path:
    """Verify and pack the run of each step that was measured, and the numbers that were predicted. Return the file.

    The sentences that the student wrote stay out of the file. Raise WrongUse if no step was measured yet, BadRun if a
    run cannot be read, and LabError if a run was changed.
    """
    notes = read_notes(folder.parent)
    results = [step.result for step in notes.steps.values() if step.result]
    if not results:
        raise WrongUse("No step of the lesson was measured yet.", hint=typed("lesson"))
    target = checked(to or Path("lesson.tar.gz"), folder)
    runs = [folder.parent / result.run for result in results]
    for run in runs:
        verified(run, talk)
    steps = {
        name: step.model_copy(update={"explanation": None, "attempts": [], "solution_at": None})
        for name, step in notes.steps.items()
    }
    numbers = Notes(steps=steps).model_dump_json(indent=1, by_alias=True).encode() + b"\n"
    pack(runs, target, {f"lesson/{notes_file(folder.parent).name}": numbers})
    say(f"On the page of the class, your manifests begin with {', '.join(sha256(run / MANIFEST)[:8] for run in runs)}.")
    told = plural(len(runs), "step")
    say(f"The file has the runs of {told} and your predictions, but nothing that you wrote in words.")
    return target
