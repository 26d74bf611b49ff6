"""The command line: ``lab``, behind every make target."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sized
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, NoReturn, cast

import typer
from rich.console import Console
from rich.markup import escape
from typer.exceptions import TyperException

from lab import plan as planning
from lab.errors import LabError, WrongUse
from lab.interruption import heed_signals, uninterrupted, was_left
from lab.paths import RESULTS

if TYPE_CHECKING:
    from analysis.result import Summary
    from lab.experiment.model import Experiment
    from lab.limits import Room
    from lab.watch import Progress

    LayOut = Callable[[Room | None], planning.Plan]
    """Lays a plan out in a room; None: in any."""


class Unheard:
    """The stream of errors, which a closed terminal must not turn into an error of its own.

    While rich shows a status it puts a proxy in the place of ``sys.stderr``, and looks behind the proxy for the file.
    """

    def write(self, text: str) -> int:
        """Write a text if somebody can read it."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Let it be read, if somebody can."""
        with suppress(OSError):
            self._stream.flush()

    @property
    def rich_proxied_file(self) -> "Unheard":
        """What rich writes to."""
        return self

    @property
    def _stream(self) -> IO[str]:
        return cast("IO[str]", getattr(sys.stderr, "rich_proxied_file", sys.stderr))

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A laboratory that shows which worker served each request, and who waited beside an idle one.",
)
out = Console(highlight=False)
talk = Console(file=cast("IO[str]", Unheard()), highlight=False)

Results = Annotated[Path, typer.Option(envvar="RESULTS", resolve_path=True, help="Where results lie.")]
Variants = Annotated[str, typer.Option(envvar="VARIANTS", help="Only these, separated by commas.")]
Full = Annotated[bool, typer.Option(envvar="FULL", help="As long as it was published.")]
Duration = Annotated[str, typer.Option(envvar="DURATION", help="How long each load lasts, e.g. 90s or 5m.")]
Trials = Annotated[int, typer.Option(envvar="TRIALS", min=1, max=1000, help="How often each variant is measured.")]
Jobs = Annotated[
    int, typer.Option(envvar="JOBS", min=0, max=1000, help="Variants side by side at most; 0: four a core.")
]
Seed = Annotated[int, typer.Option(envvar="SEED", help="Of the order in which variants are measured.")]
Cpu = Annotated[str, typer.Option(help="How requests compute: burn, or hold, which needs no core.")]
Name = Annotated[str, typer.Argument(show_default=False, help="The experiment, a file in experiments/.")]

RunFolder = Annotated[Path | None, typer.Argument(help="A run's folder; default: the latest of all.")]


@app.command()
def run(
    name: Name = "",
    variants: Variants = "",
    full: Full = False,
    duration: Duration = "",
    trials: Trials = 1,
    jobs: Jobs = 0,
    seed: Seed = 0,
    cpu: Cpu = "",
    strict: Annotated[bool, typer.Option(envvar="STRICT", help="A claim that is not reproduced fails.")] = False,
    results: Results = RESULTS,
) -> None:
    """Measure an experiment and print its verdicts, e.g. lab run heavy-mix."""
    from lab.experiment.file import load_experiment  # noqa: PLC0415
    from lab.experiment.model import computing  # noqa: PLC0415

    command = _command(
        f"make experiment NAME={name}",
        VARIANTS=variants,
        FULL=full,
        DURATION=duration,
        TRIALS=trials if trials > 1 else 0,
        JOBS=jobs,
        SEED=seed,
        CPU=cpu,
    )
    experiment = computing(load_experiment(name), cpu, _names(variants))
    lay_out = _plan(experiment, variants, full=full, duration=duration, trials=trials, jobs=jobs, seed=seed)
    summary = _measure(name, experiment, lay_out, full=full, command=command, results=results)
    if strict and any(claim.verdict != "reproduced" for claim in summary.claims):
        raise typer.Exit(1)


@app.command()
def aa(
    name: Name = "",
    variants: Annotated[str, typer.Option(envvar="VARIANTS", help="Which one; default: the first.")] = "",
    full: Full = False,
    duration: Duration = "",
    trials: Trials = 5,
    jobs: Jobs = 0,
    seed: Seed = 0,
    cpu: Cpu = "",
    results: Results = RESULTS,
) -> None:
    """Measure a variant against itself, for the smallest difference this machine can tell, e.g. lab aa heavy-mix."""
    from lab.experiment.file import load_experiment  # noqa: PLC0415
    from lab.experiment.model import against_itself, computing  # noqa: PLC0415

    command = _command(
        f"make aa NAME={name}",
        VARIANTS=variants,
        FULL=full,
        DURATION=duration,
        TRIALS=trials,
        JOBS=jobs,
        SEED=seed,
        CPU=cpu,
    )
    if trials < 2:
        raise WrongUse("One trial of each has no spread to compare with.", hint="TRIALS=5")
    experiment = load_experiment(name)
    experiment = computing(against_itself(experiment, variants or next(iter(experiment.variants))), cpu)
    lay_out = _plan(experiment, "", full=full, duration=duration, trials=trials, jobs=jobs, seed=seed)
    _measure(f"{name}-aa", experiment, lay_out, full=full, command=command, results=results)


@app.command()
def plan(
    name: Name = "",
    variants: Variants = "",
    full: Full = False,
    duration: Duration = "",
    trials: Trials = 1,
    jobs: Jobs = 0,
    seed: Seed = 0,
    cpu: Cpu = "",
) -> None:
    """Print what would be measured, in which order and for how long, e.g. lab plan heavy-mix --full."""
    from lab.experiment.file import load_experiment  # noqa: PLC0415
    from lab.experiment.model import computing  # noqa: PLC0415
    from lab.machine import room  # noqa: PLC0415

    experiment = computing(load_experiment(name), cpu, _names(variants))
    lay_out = _plan(experiment, variants, full=full, duration=duration, trials=trials, jobs=jobs, seed=seed)
    _print_plan(out, name, lay_out(room()))


@app.command(name="list")
def list_experiments(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per experiment.")] = False,
) -> None:
    """List the experiments with their questions, e.g. lab list --json."""
    from lab.experiment.file import load_experiment, names  # noqa: PLC0415

    broken = []
    for name in names():
        try:
            one = load_experiment(name)
        except WrongUse as error:
            broken.append(error.message)
            continue
        if as_json:
            values = {
                "name": name,
                "title": one.title,
                "question": one.question,
                "source": one.source.model_dump(mode="json") if one.source else None,
                "variants": {key: value.model_dump(mode="json") for key, value in one.variants.items()},
                "loads": {key: value.model_dump(mode="json") for key, value in one.all_loads.items()},
            }
            out.print(json.dumps(values, ensure_ascii=False), soft_wrap=True, markup=False)
        else:
            out.print(f"{name}\n  {one.title}\n  {one.question}", markup=False)
    if broken:
        raise WrongUse("\n".join(broken), hint="Mend it; the others are listed.")


@app.command()
def report(
    run: RunFolder = None,
    as_markdown: Annotated[
        bool, typer.Option("--markdown", envvar="MARKDOWN", help="Print the tables as Markdown.")
    ] = False,
    results: Results = RESULTS,
) -> None:
    """Derive everything again from a run's raw points, e.g. lab report results/heavy-mix/latest."""
    from analysis.folder import NoTemporaryRoom, read_run  # noqa: PLC0415
    from analysis.pipeline import derive  # noqa: PLC0415
    from analysis.show.markdown import markdown  # noqa: PLC0415
    from analysis.show.terminal import print_tables  # noqa: PLC0415
    from lab.run import no_room  # noqa: PLC0415

    folder = run or _latest(results)
    with _run_for("report"), uninterrupted():  # DuckDB would make an error of its own of an interrupt
        try:
            summary = derive(folder)
        except NoTemporaryRoom as error:
            raise no_room(error, results) from None
        except OSError as error:
            problem = f"{folder} cannot be written: {error.strerror or error}."
            raise LabError(problem, hint="Copy the run to where you can write.") from None
        record = read_run(folder)
    if as_markdown:
        sys.stdout.write(markdown(record, summary))
    else:
        print_tables(out, record, summary)
    _say(f"\nReport: {folder / 'report.html'}")


@app.command()
def verify(run: RunFolder = None, results: Results = RESULTS) -> None:
    """Say whether a run is still what was measured, e.g. lab verify results/heavy-mix/latest."""
    folder = run or _latest(results)
    with _run_for("verify"):
        for line in _verified(folder, out):
            out.print(line, markup=False, soft_wrap=True)


@app.command()
def export(
    run: RunFolder = None,
    to: Annotated[
        Path | None, typer.Option(envvar="TO", show_default=False, help="Default: <experiment>-<run time>.tar.gz")
    ] = None,
    results: Results = RESULTS,
) -> None:
    """Verify a run and pack it into one file, e.g. lab export results/heavy-mix/latest --to mine.tar.gz."""
    from analysis.manifest import MANIFEST  # noqa: PLC0415
    from lab import export as exporting  # noqa: PLC0415

    folder = run or _latest(results)
    with _run_for("export"):
        target = exporting.archive_path(folder, to)
        for line in _verified(folder, talk):
            _say(line)
        archive = exporting.export(folder, target)
    if archive.cleaned:
        records = _count(archive.cleaned, "record was", "records were")
        _say(f"In the archive {records} cleaned of paths, host name and user number. The run itself was not changed.")
        _say(f"{MANIFEST} of the archive: {archive.manifest} (the hash above is that of the run)")
    out.print(str(target), markup=False, soft_wrap=True)


@app.command()
def schema() -> None:
    """Print the JSON schema of experiment files, e.g. lab schema > experiments/schema.json."""
    from lab.experiment.file import schema as text  # noqa: PLC0415

    sys.stdout.write(text())


@app.command()
def doctor() -> None:
    """Say what this machine has and lacks for the lab, without changing anything, e.g. lab doctor."""
    from lab.machine import findings  # noqa: PLC0415

    missing = False
    for finding in findings():
        missing |= not finding.there
        mark = "[green]ok[/]     " if finding.there else "[red]missing[/]"
        out.print(f"{mark} {escape(finding.what)}: {escape(finding.detail)}", soft_wrap=True)
        if not finding.there and finding.remedy:
            out.print("        " + finding.remedy.replace("\n", "\n        "), markup=False, soft_wrap=True)
    if missing:
        raise typer.Exit(1)


@app.command()
def setup() -> None:
    """Make this machine ready: engine, base images, the lab's own images, e.g. lab setup."""
    from lab import machine  # noqa: PLC0415
    from lab import run as running  # noqa: PLC0415
    from lab.experiment.file import load_experiment, names  # noqa: PLC0415

    machine.ready(_say)
    with running.alone(_say):  # a build would disturb what somebody measures
        for name in names():
            machine.build_images(running.lab_images(planning.plan(load_experiment(name))), _say)


@app.command()
def down(results: Results = RESULTS) -> None:
    """Remove what killed runs left behind: containers, networks and open records, e.g. lab down."""
    from lab import run as running  # noqa: PLC0415
    from lab.machine import engine_version  # noqa: PLC0415

    if not engine_version():
        _say("No container engine answers, so nothing was cleaned up.")
        return
    with running.alone(_say), running.writing(results):
        running.clean_up(results, _say)


def main() -> NoReturn:
    """Run the command line and exit: 0 measured, 1 failed or invalid, 2 wrong use, 130 interrupted."""
    from python_on_whales.exceptions import DockerException  # noqa: PLC0415

    from lab.machine import last_line  # noqa: PLC0415

    for name in [name for name in os.environ if name.startswith("LAB_")]:
        del os.environ[name]  # a factor comes from the experiment, never from somebody's shell
    heed_signals()
    try:
        code = app(prog_name="lab", standalone_mode=False)
    except TyperException as error:
        _tell(WrongUse(f"{error.format_message()}", hint="lab --help"))
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    except DockerException as error:
        _tell(LabError(f"The container engine refused or stopped answering: {last_line(error)}", hint="make doctor"))
        sys.exit(1)
    except LabError as error:
        _tell(error)
        sys.exit(2 if isinstance(error, WrongUse) else 1)
    sys.exit(code or 0)


def _tell(error: LabError) -> None:
    talk.print(f"[red]error:[/] {escape(error.message)}", soft_wrap=True)
    if error.hint:
        talk.print(f"\n[cyan]hint:[/] {escape(error.hint)}", soft_wrap=True)


def _say(text: str) -> None:
    talk.print(text, markup=False, soft_wrap=True)


def _measure(
    name: str, experiment: "Experiment", lay_out: "LayOut", *, full: bool, command: str, results: Path
) -> "Summary":
    """Make the machine ready, measure a plan and print the results. Exit with 1 when they are invalid.

    The plan is laid out again when no other run is measuring: until then that run's containers take up the room.
    """
    from analysis.folder import read_run  # noqa: PLC0415  # other commands start faster without
    from analysis.show.terminal import print_tables  # noqa: PLC0415
    from lab import machine  # noqa: PLC0415
    from lab import run as running  # noqa: PLC0415

    lay_out(None)  # wrong use is said at once
    running.check_room(results)
    with _interruptible():
        running.wait_for_turn(_say)
        planned = lay_out(machine.room())
        _print_plan(talk, name, planned)
        machine.ready(_say)
    with _interruptible(), _progress() as progress:
        folder, summary = running.run(
            name, experiment, planned, results=results, full=full, command=command, say=_say, progress=progress
        )
    print_tables(out, read_run(folder), summary)
    _say(f"\nReport: {folder / 'report.html'}")
    if summary.validity.verdict == "invalid":
        raise typer.Exit(1)
    return summary


def _plan(
    experiment: "Experiment", variants: str, *, full: bool, duration: str, trials: int, jobs: int, seed: int
) -> "LayOut":
    """Return what lays the plan out in a given room."""
    from lab.machine import default_jobs  # noqa: PLC0415

    def lay_out(room: "Room | None") -> planning.Plan:
        return planning.plan(
            experiment,
            variants=_names(variants),
            full=full,
            duration=duration or None,
            trials=trials,
            jobs=jobs or default_jobs(),
            seed=seed,
            room=room,
        )

    return lay_out


def _names(variants: str) -> list[str] | None:
    return [one.strip() for one in variants.split(",")] if variants else None


def _print_plan(console: Console, name: str, planned: planning.Plan) -> None:
    minutes, rest = divmod(planned.expected_s, 60)
    time = f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
    size = f"{_count(planned.trials, 'trial')} in {_count(planned.batches, 'batch', 'batches')}"
    console.print(f"{escape(name)}: {size}, about {time}.", soft_wrap=True)
    for number, batch in enumerate(planned.batches, start=1):
        names = ", ".join(trial.variant_name for trial in batch)
        console.print(f"  {number}. {batch[0].load_name}, {batch[0].duration}: {names}", soft_wrap=True)


def _count(things: Sized, one: str, many: str = "") -> str:
    return f"{len(things)} {one if len(things) == 1 else many or one + 's'}"


@contextmanager
def _interruptible() -> Iterator[None]:
    """Say that an interrupt was heeded, once everything is cleaned up."""
    try:
        yield
    except KeyboardInterrupt:
        if was_left():
            _say("The terminal was closed, or the parent process ended. Start the lab under nohup to keep it running.")
        _say("Interrupted. Nothing is left running; what was measured is kept.")
        raise typer.Exit(130) from None


@contextmanager
def _progress() -> "Iterator[Progress]":
    """Yield a Progress: a live line on a terminal, one plain line per step elsewhere."""
    if talk.is_terminal:
        with talk.status("") as status:
            yield lambda what, spent, of: status.update(f"{what}: {spent:.0f} s of about {of:.0f} s")
        return
    said: list[str] = []

    def once(what: str, _spent: float, of: float) -> None:
        if said[-1:] != [what]:
            said.append(what)
            _say(f"{what} (about {of:.0f} s) …")

    yield once


def _latest(results: Path) -> Path:
    links = sorted(results.glob("*/latest"), key=lambda link: link.resolve().name)
    if not links:
        raise WrongUse(f"There is no run in {results}.", hint="make experiment NAME=heavy-mix")
    return links[-1].resolve()


@contextmanager
def _run_for(command: str) -> Iterator[None]:
    """Turn a folder that is no run into wrong use of a command, with a way out."""
    from analysis.folder import BadRun  # noqa: PLC0415

    try:
        yield
    except BadRun as error:
        raise WrongUse(f"{error}.", hint=f"make {command} RUN=results/<experiment>/<time>, or …/latest") from None


def _verified(folder: Path, console: Console) -> list[str]:
    """Return what can be said of a run that is what was measured; print how another differs and raise LabError."""
    from analysis.manifest import MANIFEST  # noqa: PLC0415
    from analysis.verification import verify as verify_run  # noqa: PLC0415

    try:
        with uninterrupted():
            found = verify_run(folder)
    except OSError as error:
        problem = f"{folder} cannot be verified: {error.strerror or error}."
        raise LabError(problem, hint="It must be readable, and TMPDIR needs room for what is derived again.") from None
    for one in found.differences:
        console.print(str(one), markup=False, soft_wrap=True)
    if found.differences and found.is_as_measured:
        hint = f"So it is after an update of the lab, too. Derive it again: make report RUN={folder}"
        raise LabError(f"What was measured in {folder} is as it was; what is derived does not follow from it.", hint)
    if found.derived is None:
        problem = f"{folder} is not what was measured. Its records were changed, so what is derived was not checked."
        raise LabError(problem)
    if found.differences:
        raise LabError(f"{folder} is not what was measured.")
    recorded = f"{found.recorded} files are" if found.recorded != 1 else "1 file is"
    return [
        f"{recorded} what was measured; {_derived(found.derived)} follow from them.",
        f"{MANIFEST}: {found.manifest}",
    ]


def _derived(paths: list[str]) -> str:
    """Return the names of derived files as part of a sentence, those of the whole run first."""
    names = sorted({Path(path).name for path in paths}, key=["summary.json", "report.html", "requests.parquet"].index)
    return ", ".join(names[:-1]) + " and " + names[-1]


def _command(make: str, **factors: object) -> str:
    """Return the make command that asks for the same again."""
    given = [f"{factor}={int(value) if value is True else value}" for factor, value in factors.items() if value]
    return " ".join([make, *given])
