"""Pack the runs and the predictions of the lesson into one file, which a teacher puts onto the page of the class."""

from pathlib import Path

from stampede.errors import WrongUse
from stampede.export import checked, pack
from stampede.finished import verified
from stampede.records.checksums import MANIFEST, sha256
from stampede.records.words import plural
from stampede.teach.lesson.notes import NOTES, Notes
from stampede.terminal import say, talk
from stampede.typed import typed


def hand_in(folder: Path, to: Path | None) -> Path:
    """Verify and pack the run of each step that was measured, and the numbers that were predicted. Return the file.

    ``folder`` has the notes. The sentences that the student wrote stay out of the file. Raise WrongUse if no step was
    measured yet, BadRun if a run cannot be read, and LabError if a run was changed.
    """
    steps = Notes.read(folder).steps
    runs = [folder.parent / step.result.run for step in steps.values() if step.result]
    if not runs:
        raise WrongUse("No step of the lesson was measured yet.", hint=typed("lesson"))
    target = checked(to or Path("lesson.tar.gz"), folder)
    for run in runs:
        verified(run, talk)
    wordless: dict[str, object] = {"explanation": None, "attempts": [], "solution_at": None}
    numbers = Notes(steps={name: step.model_copy(update=wordless) for name, step in steps.items()})
    pack(runs, target, {f"lesson/{NOTES}": numbers.model_dump_json(indent=1, by_alias=True).encode() + b"\n"})
    say(f"On the page of the class, your manifests begin with {', '.join(sha256(run / MANIFEST)[:8] for run in runs)}.")
    told = plural(len(runs), "step")
    say(f"The file has the runs of {told} and your predictions, but nothing that you wrote in words.")
    return target
