"""Measure a plan into a run's folder, and clean up whatever happens."""

import shutil
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from stampede.docker import leftovers, provenance
from stampede.docker.cluster.engines import Engines
from stampede.docker.cluster.ready import describe_host, engines_on, find_machine, machine_records
from stampede.docker.commands import Say
from stampede.docker.images import BASE_IMAGES, BESIDE_SERVERS, K6, build_images, images_of
from stampede.docker.machine_usage import Progress
from stampede.docker.redaction import local_words, redact
from stampede.evaluate.statistics.stopping import RESAMPLED_FROM
from stampede.interruption import stop_reason, uninterrupted
from stampede.plan import Plan
from stampede.plan.timing import PREDICT_S, report_s
from stampede.records.checksums import seal
from stampede.records.folder import write_record
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.run.options import RunRequest
from stampede.run.progress import BatchEnd, TrialLines
from stampede.run.record import record_of
from stampede.run.results import clean_up, close_run, new_folder, writing
from stampede.run.trial import batch


@dataclass
class OpenRun:
    """A run that is being measured: its folder, its record, and how many rounds have begun."""

    folder: Path
    record: Run
    rounds: int = 1

    def close(self, **outcome: str) -> Summary:
        """Close the record with this outcome, and compute all results. A run without a fixed end names its rounds."""
        if self.record.until_decided:
            order = [trial for trial in self.record.order if int(trial[2]) <= self.rounds]
            self.record = self.record.model_copy(update={"trials": self.rounds, "order": order})
        return close_run(self.folder, self.record.model_copy(update=outcome))


def run_plan(
    request: RunRequest, plan: Plan, say: Say, progress: Progress, end_batch: BatchEnd | None = None
) -> tuple[Path, Summary]:
    """Measure a plan on a machine that is ready and locked, and return the run's folder and its summary.

    ``end_batch`` is told what each batch has measured; None: ``say`` says a line for each trial.
    Raise LabError when measuring failed, and KeyboardInterrupt after an interrupt. In both cases clean up first, and
    keep the finished trials in the folder, with summary.json and report.html.
    """
    from stampede.predict.prediction import write_predictions  # noqa: PLC0415  # loads Numba in half a second

    images, machines = images_of(plan), request.machines or (find_machine(),)
    names = [K6, *(image.name for image in images)]
    with writing(request.results):
        build_images(images if machines[0].shares_files else [*images, BESIDE_SERVERS["client"]], say)
        with engines_on(machines, names, say) as engines:
            clean_up(request.results, say, engines.machines)
            packages = {image.name: image.packages for image in sorted(images, key=lambda image: image.name)}
            record = record_of(
                request.name, request.experiment, plan, full=request.options.full, command=request.command,
                host=describe_host(machines[0], engines.probes.get(machines[0].name)), git=provenance.git_state(),
                images=provenance.image_records(BASE_IMAGES | packages),
            ).model_copy(update={
                "until_decided": request.options.budget_s is not None, "machines": machine_records(engines),
            })  # fmt: skip
            run = OpenRun(new_folder(request.results / request.name), record)
            write_record(run.folder / "run.json", record)
            with _closing(run, engines, say):
                cells = sum(len(record.variants_under(load.name)) for load in record.loads)
                progress("predicting", 0, PREDICT_S * cells)
                write_predictions(run.folder, record)
                if request.check:
                    batch.check(plan, run.folder, progress, engines, say)
                if request.only_check:
                    shutil.rmtree(run.folder)
                    return run.folder, Summary.of_nothing(request.name)
                began, budget_s = time.monotonic(), request.options.budget_s
                with closing(batch.measure_plan(plan, run.folder, progress, engines)) as measured:
                    for done, trials in enumerate(measured, start=1):
                        seal(run.folder)
                        (end_batch or TrialLines(say).end_batch)(trials)
                        next_round = plan.batches[done][0].number if done < len(plan.batches) else None
                        is_over = next_round != run.rounds and budget_s is not None
                        if is_over and _is_enough(run, time.monotonic() - began, budget_s or 0, say):
                            break
                        run.rounds = next_round or run.rounds
            progress("writing the report", 0, report_s(plan))
            with uninterrupted():
                return run.folder, run.close(outcome="completed")


@contextmanager
def _closing(run: OpenRun, engines: Engines, say: Say) -> Iterator[None]:
    """Close the record of a run that fails or is interrupted, and remove what its trials left."""
    try:
        yield
    except BaseException as error:
        with uninterrupted():
            interrupted = isinstance(error, KeyboardInterrupt)
            reason = stop_reason() if interrupted else redact(str(error), local_words(run.folder.parents[1]))
            with suppress(OSError):  # if the disk itself failed, clean_up of a later run closes the record
                run.close(outcome="interrupted" if interrupted else "failed", reason=reason or type(error).__name__)
            say(f"What was measured is in {run.folder}.")
        raise
    finally:
        with uninterrupted():
            leftovers.remove_leftovers(engines.machines)  # containers that a trial could not remove at its own end


def _is_enough(run: OpenRun, spent_s: float, budget_s: float, say: Say) -> bool:
    """Whether every claim is decided after so many rounds, or another round would exceed the budget."""
    from stampede.evaluate.verdict.claims import missing_cores  # noqa: PLC0415
    from stampede.pipeline import derive_summary  # noqa: PLC0415
    from stampede.predict.prediction import predictions_of  # noqa: PLC0415

    if run.rounds >= RESAMPLED_FROM:
        with uninterrupted():
            claims = derive_summary(run.folder, predictions_of(run.folder)).claims
        hopeless = sum(missing_cores(claim, run.record) is not None for claim in run.record.claims)
        decided = sum(claim.decided for claim in claims)
        lack = f"; {hopeless} cannot be decided for want of cores" if hopeless else ""
        say(f"{decided} of {len(claims)} claims are decided after {run.rounds} rounds{lack}.")
        if decided + hopeless == len(claims):
            return True
    if spent_s + spent_s / run.rounds > budget_s:
        larger = f"--budget {max(1, round(2 * budget_s / 60))}m"
        say(f"Another round would exceed the budget of {budget_s / 60:g} min. A larger budget: {larger}")
        return True
    return False
