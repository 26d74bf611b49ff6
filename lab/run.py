"""Measure a plan into a run's folder, while no other run measures, and clean up whatever happens."""

import errno
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from analysis.records.checksums import seal
from analysis.records.folder import BadRun, NoTemporaryRoom, read_run, write_record
from analysis.records.run import (
    METHOD,
    ClientRecord,
    Git,
    Host,
    Image,
    LoadRecord,
    RelativeRate,
    Run,
    SourceRecord,
    TrialRecord,
)
from analysis.records.summary import Summary
from analysis.statistics.stopping import RESAMPLED_FROM
from lab.engine import leftovers, provenance
from lab.engine.cluster.machines import Cluster, Machine
from lab.engine.cluster.ready import engines_on, find_machines, host, machine_records
from lab.engine.heartbeat import heartbeat
from lab.engine.images import BASE_IMAGES, BESIDE_SERVERS, K6, build_images, images_of
from lab.engine.machine_usage import Progress
from lab.errors import LabError, WrongUse
from lab.experiment.model import Experiment
from lab.interruption import uninterrupted, why
from lab.plan import Plan
from lab.trial import batch
from lab.trial.points import compress_points
from lab.trial.stack import now
from lab.whereabouts import here, without

LOCK = Path("/tmp/stampede.lock")  # noqa: S108  # one lock for all users; a link in its place is refused
ROOM_NEEDED = 256 * 2**20
"""The free bytes that a run needs to start. A minute at k6's full rate writes all of them, a light load 1 %."""
UNCOMPRESSED = 16
"""How many times as much room points take before they are compressed."""

PREDICT_S = 1
"""About how long theory takes to predict one variant under one load."""
TELL_AGAIN_S, LOOK_AGAIN_S = 60, 0.2
"""How often a lab that waits for the lock says so, and how often it looks, in seconds."""

Say = Callable[[str], None]


def run_plan(
    name: str,
    experiment: Experiment,
    plan: Plan,
    *,
    results: Path,
    full: bool,
    command: str,
    say: Say,
    progress: Progress,
    budget_s: float | None = None,
    cluster: Cluster | None = None,
    check: bool = True,
) -> tuple[Path, Summary]:
    """Measure a plan on a machine that is ready, and return the run's folder and its summary.

    ``cluster``: the machines to measure on; None: the engine that Docker's own settings choose.
    ``check``: before all trials, start somebody's own application and send it a request of each class.
    ``budget_s``: stop after the round that decides every claim, or before a round that would end later than that.

    Raise LabError when measuring failed, and KeyboardInterrupt after an interrupt. In both cases clean up first, and
    keep the finished trials in the folder, with summary.json and report.html.
    """
    with ExitStack() as stack:
        note = stack.enter_context(alone(say, command))
        say, progress = _noting(note, say, progress)
        stack.enter_context(writing(results))
        images = images_of(plan)
        machines = find_machines(cluster)
        stack.enter_context(heartbeat(machines, say))
        build_images(images if machines[0].shares_files else [*images, BESIDE_SERVERS["client"]], say)
        names = [K6, *(image.name for image in images)]
        engines = stack.enter_context(engines_on(machines, names, say, encrypted=bool(cluster and cluster.encrypted)))
        clean_up(results, say, engines.machines)
        packages = {image.name: image.packages for image in sorted(images, key=lambda one: one.name)}
        record = record_of(
            name, experiment, plan, full=full, command=command, host=host(engines), git=provenance.git(),
            images=provenance.images(BASE_IMAGES | packages),
        )  # fmt: skip
        record = record.model_copy(
            update={
                "until_decided": budget_s is not None,
                "machines": machine_records(engines),
                "encrypted": engines.encrypted,
            }
        )
        folder = _new_folder(results / name)
        write_record(folder / "run.json", record)
        number = 1
        try:
            _predict(folder, record, progress)
            for remark in batch.check(plan, folder, progress, engines) if check else ():
                say(remark)
            began = time.monotonic()
            for number, part in enumerate(plan.rounds, start=1):
                for done in batch.measure_plan(part, folder, progress, engines):
                    seal(folder)
                    for trial in done:
                        say(describe(trial))
                if budget_s is not None and _is_enough(folder, record, number, time.monotonic() - began, budget_s, say):
                    break
        except BaseException as error:
            with uninterrupted():
                _close_after(error, folder, _cut(record, number))
                say(f"What was measured is in {folder}.")
            raise
        finally:
            with uninterrupted():
                leftovers.remove_leftovers(engines.machines)  # containers that a trial could not remove at its own end
        progress("writing the report", 0, 2)
        with uninterrupted():
            summary = _close(folder, _cut(record, number).model_copy(update={"outcome": "completed"}))
        return folder, summary


def _noting(note: Callable[[str], None], say: Say, progress: Progress) -> tuple[Say, Progress]:
    """Return the same functions, which also tell labs that wait for this run at which step it is."""

    def noted(text: str) -> None:
        note(text.strip().partition("\n")[0])
        say(text)

    def progressing(what: str, passed_s: float, expected_s: float) -> None:
        note(what)
        progress(what, passed_s, expected_s)

    return noted, progressing


def _predict(folder: Path, record: Run, progress: Progress) -> None:
    """Predict the run before anything starts, so that no later command has to."""
    from analysis.predict.stored import write_predictions  # noqa: PLC0415  # loading Numba takes half a second

    cells = sum(len(record.variants_under(load.name)) for load in record.loads)
    progress("predicting", 0, PREDICT_S * cells)
    write_predictions(folder, record)


def _is_enough(folder: Path, record: Run, rounds: int, spent_s: float, budget_s: float, say: Say) -> bool:
    """Whether every claim is decided after so many rounds, or another round would exceed the budget."""
    from analysis.pipeline import derive_summary  # noqa: PLC0415
    from analysis.verdict.claims import missing_cores  # noqa: PLC0415

    if rounds >= RESAMPLED_FROM:
        with uninterrupted():
            claims = derive_summary(folder).claims
        hopeless = sum(missing_cores(claim, record) is not None for claim in record.claims)
        decided = sum(claim.decided for claim in claims)
        lack = f"; {hopeless} cannot be decided for want of cores" if hopeless else ""
        say(f"{decided} of {len(claims)} claims are decided after {rounds} rounds{lack}.")
        if decided + hopeless == len(claims):
            return True
    if spent_s + spent_s / rounds > budget_s:
        larger = f"BUDGET={max(1, round(2 * budget_s / 60))}m"
        say(f"Another round would exceed the budget of {budget_s / 60:g} min. A larger budget: {larger}")
        return True
    return False


def _cut(record: Run, rounds: int) -> Run:
    """Return the record of a run that ended in this round, if it had no fixed number of rounds."""
    if not record.until_decided:
        return record
    order = [trial for trial in record.order if int(trial[2]) <= rounds]
    return record.model_copy(update={"trials": rounds, "order": order})


def _close_after(error: BaseException, folder: Path, record: Run) -> None:
    """Close the record of a run that failed or was interrupted, if the disk allows it."""
    interrupted = isinstance(error, KeyboardInterrupt)
    outcome = {"outcome": "interrupted", "reason": why()} if interrupted else {
        "outcome": "failed", "reason": without(str(error), here(folder.parents[1])) or type(error).__name__,
    }  # fmt: skip
    with suppress(OSError):  # if the disk itself failed, clean_up of a later run closes the record
        _close(folder, record.model_copy(update=outcome))


def check_room(results: Path, *, live: bool = False) -> None:
    """Raise LabError when results cannot be written or the disk has too little room, WrongUse for a bad path.

    ``live``: the points are only compressed after the load, so they need more room meanwhile.
    """
    if found := set(str(results)) & set("'\n\r"):
        raise WrongUse(f"The path of results {str(results)!r} contains {found.pop()!r}, which Compose cannot read.",
                       hint=_OTHER_PLACE)  # fmt: skip
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results):
            pass
    except OSError as error:
        raise no_room(error, results) from None
    free = shutil.disk_usage(results).free
    needed = ROOM_NEEDED * (UNCOMPRESSED if live else 1)
    if free < needed:
        raise LabError(
            f"There is no room for results: {free // 2**20} MiB are free in {results}, but "
            f"{'a run that is watched' if live else 'a run'} needs {needed // 2**20} MiB.",
            hint=_OTHER_PLACE,
        )


@contextmanager
def writing(results: Path) -> Iterator[None]:
    """Turn an OSError of a full, read-only, forbidden or failing disk into LabError with a hint."""
    try:
        yield
    except OSError as error:
        of_disks = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EIO)
        if isinstance(error, NoTemporaryRoom) or error.errno in of_disks or str(results) in str(error.filename):
            raise no_room(error, results) from error
        raise


def no_room(error: OSError, results: Path) -> LabError:
    """Return the LabError for a failure to write results."""
    if isinstance(error, NoTemporaryRoom):
        hint = "Free some space, or choose another TMPDIR; then compute the results: make report"
        return LabError(f"There is no room left in {error.filename}.", hint=hint)
    if error.errno == errno.ENOSPC:
        return LabError(f"There is no room left for results in {results}.", hint=_OTHER_PLACE)
    return LabError(f"Results cannot be written to {results}: {error.strerror or error}.", hint=_OTHER_PLACE)


_OTHER_PLACE = "Free some space, or choose another place: make experiment NAME=… RESULTS=/path"


@contextmanager
def alone(say: Say, doing: str = "") -> Iterator[Callable[[str], None]]:
    """Hold the lock of this machine, and wait for it first: two runs at the same time would disturb each other.

    ``doing`` is the command that holds the lock. Yield a function that tells labs that wait for the lock at which step
    the command is.
    """
    descriptor = _open_lock()
    try:
        _wait_for_lock(descriptor, say)
        began = f"{os.getpid()}\n{datetime.now().astimezone():%H:%M}\n{doing}\n"
        noted: list[str] = []

        def note(step: str) -> None:
            if noted[-1:] == [step]:
                return
            noted[:] = [step]
            with suppress(OSError):  # the lock file of another user can be locked but not written
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{began}{step}\n".encode(), 0)

        note("")
        yield note
    finally:
        os.close(descriptor)


def _wait_for_lock(descriptor: int, say: Say) -> None:
    """Wait for the lock, and repeat now and then who holds it and what that command is doing."""
    told_s: float | None = None
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            return
        if told_s is None or time.monotonic() - told_s > TELL_AGAIN_S:
            told_s = time.monotonic()
            say(f"Another run is measuring ({_holder(_read(descriptor))}). This run starts when that run has ended.")
        time.sleep(LOOK_AGAIN_S)


def _holder(noted: str) -> str:
    """Return who holds the lock: its process and how to stop it, since when, and what it does."""
    process, since, doing, step = [*noted.split("\n"), "", "", "", ""][:4]
    said = [f"process {process}", since and f"since {since}", doing, step and f"now: {step}"]
    return ", ".join(filter(None, said)) + (f"; to stop it: kill {process}" if process.isdecimal() else "")


def wait_for_turn(say: Say) -> None:
    """Wait until no other run is measuring on this machine."""
    with alone(say):
        pass


def _open_lock() -> int:
    """Open the lock file that all users of this machine share, for reading only if another user made the file."""
    flags = os.O_NOFOLLOW | os.O_CLOEXEC
    for mode in (os.O_RDWR, os.O_RDONLY, os.O_RDWR | os.O_CREAT | os.O_EXCL):
        with suppress(OSError):
            return os.open(LOCK, flags | mode, 0o644)
    raise LabError(f"The lock {LOCK} cannot be opened or created.", hint=f"Remove it: sudo rm {LOCK}")


def _read(descriptor: int) -> str:
    return os.pread(descriptor, 1000, 0).decode(errors="replace").strip()


def clean_up(results: Path, say: Say, machines: Sequence[Machine]) -> None:
    """Remove the containers and networks of killed runs, and close their records. Hold the lock meanwhile."""
    if projects := leftovers.remove_leftovers(machines):
        say(f"Removed what a killed run left behind: {', '.join(projects)}.")
    for path in sorted(results.glob("*/*/run.json")):
        folder = path.parent
        with suppress(BadRun, PermissionError):  # leave runs of another user or another version of the lab as they are
            if folder.is_symlink() or _is_closed(folder):
                continue
            record = read_run(folder)
            _name_parts(folder)
            if record.outcome == "running":
                record = record.model_copy(update={"outcome": "failed", "reason": "the lab was killed"})
            _close(folder, record)
            say(f"Closed the record of a killed run: {folder}.")


def _is_closed(folder: Path) -> bool:
    """Whether a run has ended and has its report. A report alone proves nothing: lab report writes it for any run."""
    return (folder / "report.html").exists() and b'"outcome": "running"' not in (folder / "run.json").read_bytes()


def _name_parts(folder: Path) -> None:
    """Rename the unfinished trial folders of a killed run, and remove files that are half written."""
    for part in folder.glob("*/*/.*.part"):
        with suppress(OSError):  # they stay as they are on a full disk
            compress_points(part)
        number = part.name.removeprefix(".").removesuffix(".part")
        if (part / "trial.json").exists():  # the trial is complete, only its folder has no name yet
            part.rename(part.with_name(number))
        elif any(part.glob("points*.json*")):  # the points are incomplete: keep them, but never count them
            part.rename(part.with_name(f"killed-{number}"))
        else:
            shutil.rmtree(part)
    for temporary in folder.rglob(".*.*"):
        if temporary.is_file():
            temporary.unlink()


def describe(trial: TrialRecord) -> str:
    """Return one line that says how a trial went, with the reason if the trial failed."""
    name = f"{trial.variant} ({trial.load}, trial {trial.trial})"
    took = f"{trial.seconds.load:.0f} s of load" if trial.seconds.load else "no load"
    return f"{name}: {trial.outcome}, {took}" + (f": {trial.reason}" if trial.reason else "")


def _new_folder(parent: Path) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for suffix in ("", *(f"-{n}" for n in range(2, 100))):
        folder = parent / f"{stamp}{suffix}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder
    raise LabError(f"{parent} already has 99 runs that began in this second.", hint="Run the same command again.")


def record_of(
    name: str,
    experiment: Experiment,
    plan: Plan,
    *,
    full: bool,
    command: str,
    host: Host,
    git: Git | None,
    images: list[Image],
) -> Run:
    """Return the record of a run that begins now."""
    asked = list(dict.fromkeys(trial.variant_name for trial in plan.trials))
    durations = {trial.load_name: trial.duration for trial in plan.trials}
    return Run(
        method=METHOD,
        experiment=name,
        title=experiment.title,
        question=experiment.question,
        because=experiment.because,
        source=SourceRecord.model_validate(experiment.source.model_dump()) if experiment.source else None,
        published=[one for one in experiment.published if one.variant in asked],
        claims=[claim for claim in experiment.claims if claim.variants <= set(asked)],
        curve=experiment.curve,
        variants=[one.record(variant) for variant, one in experiment.variants.items() if variant in asked],
        loads=[
            LoadRecord(
                name=load,
                script=one.script,
                kind=one.declared.kind,
                generators=one.generators,
                overloads=one.overloads,
                relative=one.relative and RelativeRate.model_validate(one.relative.model_dump()),
                loop=one.loop,
                duration=durations[load],
                settings=one.environment(),
                client=ClientRecord(script=one.client.script, settings=one.client.environment())
                if one.client
                else None,
                api=one.api and one.api.model_dump(exclude_unset=True),
                database=one.database and one.database.model_dump(),
            )
            for load, one in experiment.all_loads.items()
            if load in durations  # leave out a load that is only for other variants
        ],
        sleeping=experiment.parallel or experiment.holds,
        full=full,
        trials=max(trial.number for trial in plan.trials),
        jobs=plan.jobs,
        seed=plan.seed,
        order=[[trial.variant_name, trial.load_name, str(trial.number)] for trial in plan.trials],
        command=command,
        host=host,
        git=git,
        images=images,
        began=now(),
    )


def _close(folder: Path, record: Run) -> Summary:
    """Close and seal the record, point ``latest`` to the run, and compute all results from the raw points."""
    from analysis.pipeline import derive  # noqa: PLC0415  # loading the drawing libraries takes as long as a set-up

    write_record(folder / "run.json", record.model_copy(update={"ended": record.ended or now()}))
    seal(folder)
    link = folder.parent / f".latest.{os.getpid()}"
    link.unlink(missing_ok=True)
    link.symlink_to(folder.name)
    link.replace(folder.parent / "latest")
    return derive(folder)
