"""The commands of ``stampede`` that ask theory."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.errors import WrongUse
from stampede.finished import results_of, run_and_variant
from stampede.paths import RESULTS
from stampede.records.model import name_from
from stampede.run.options import (
    Duration,
    JsonKeys,
    LogFormat,
    LogFormatFrom,
    MeasureOptions,
    Name,
    Results,
    RunRequest,
    Trials,
    measure_options,
)
from stampede.terminal import out, print_json, say, say_how_theory_runs, write

if TYPE_CHECKING:
    from stampede.advise.options import ServingOption
    from stampede.experiment.model import Experiment


RunOrVariant = Annotated[
    str, typer.Argument(show_default=False, help="A run, or RUN:VARIANT; default: the latest run.")
]
LoadName = Annotated[str, typer.Option(help="Which load of the run.")]


@measure_options("until", "budget", "seed", "machines")
def predict(options: MeasureOptions, name: Name = "") -> None:
    """Print what theory predicts of a run on this machine, without measuring, e.g. stampede predict heavy-mix."""
    from stampede.docker.engine import engine_cores  # noqa: PLC0415
    from stampede.predict.prediction import predict_summary  # noqa: PLC0415
    from stampede.records.run import UNKNOWN  # noqa: PLC0415
    from stampede.report.terminal import print_predicted  # noqa: PLC0415
    from stampede.run.record import record_of  # noqa: PLC0415

    experiment = options.experiment(name)
    plan = options.plan(experiment)
    say_how_theory_runs()
    here = UNKNOWN.model_copy(update={"cores": engine_cores()})
    run = record_of(name, experiment, plan, full=options.full, command="stampede predict", host=here)
    print_predicted(out, run, predict_summary(run))


def advise(
    run: RunOrVariant = "",
    classes: Annotated[Path | None, typer.Option(help="A file that describes a service, e.g. mine.yaml.")] = None,
    load: LoadName = "",
    attempts: Annotated[
        int, typer.Option("--try", min=0, max=7, help="Measure the best so many ways, and today's.")
    ] = 0,
    duration: Duration = "",
    trials: Trials = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ranked ways as JSON.")] = False,
    results: Results = RESULTS,
) -> None:
    """Rank the ways to serve a load, e.g. stampede advise results/heavy-mix/latest:shared-socket --try 3."""
    from stampede.advise.load import find_cell, offered_in  # noqa: PLC0415
    from stampede.advise.options import option_of_today  # noqa: PLC0415
    from stampede.advise.ranking import best_of, predict_today, rank  # noqa: PLC0415
    from stampede.advise.show import MOST_WAYS, as_values, print_advice  # noqa: PLC0415
    from stampede.experiment.file import load_experiment  # noqa: PLC0415
    from stampede.experiment.variations import computing, served_by  # noqa: PLC0415

    if not classes and Path(run).suffix in (".yaml", ".yml"):  # no folder of a run is named so
        run, classes = "", Path(run)
    if classes and (run or load):
        raise WrongUse("--classes describes a service that no run knows, so it has no run and no --load.",
                       hint="stampede advise mine.yaml, or stampede advise results/heavy-mix/latest --try 3",
        )  # fmt: skip
    say_how_theory_runs()
    measure_tried = partial(_measure_tried, attempts=attempts, duration=duration, trials=trials, results=results)
    if as_json and attempts:
        raise WrongUse(
            "--json prints the ranking, and --try measures it.", hint="stampede advise --json, without --try"
        )
    if classes:
        _advise_by_file(classes, attempts, measure_tried, as_json=as_json)
        return
    _, record, variant = run_and_variant("advise", run, results)
    under, serving = find_cell(record, variant, load or None)
    offered = offered_in(record, under, serving)
    experiment = load_experiment(record.experiment) if attempts else None
    ranked = rank(offered)
    if as_json:
        print_json({"today": as_values(predict_today(offered)), "ways": [as_values(each) for each in ranked]})
        return
    memory_of = "workers with the lab's own application"
    print_advice(out, best_of(ranked, MOST_WAYS), predict_today(offered), offered, memory_of)
    if experiment:
        tried = [each.option for each in best_of(ranked, attempts)]
        tried += [option_of_today(offered, offered.today)] if offered.today else []
        served = served_by(experiment, under.name, {option.name: option.variant for option in tried})
        asked = f"results/{record.experiment}/latest:{serving.name} --load {under.name}"
        measure_tried(record.experiment, computing(served, under.settings.get("CPU", "")), tried, asked)


def _advise_by_file(classes: Path, attempts: int, measure_tried: Callable[..., None], *, as_json: bool) -> None:
    from stampede.advise import show  # noqa: PLC0415
    from stampede.advise.assumptions import assumptions, ranked_for_all  # noqa: PLC0415
    from stampede.advise.ranking import best_of, rank  # noqa: PLC0415
    from stampede.advise.service import read_service, tries  # noqa: PLC0415

    service = read_service(classes)
    if service.waits:
        if attempts:
            raise WrongUse(f"{classes.name}: the durations include waits, so there is nothing to try.",
                           hint="docs/how-to/advise.md says which durations to take.")  # fmt: skip
        if as_json:
            raise WrongUse(f"{classes.name}: the durations include waits, so no way can be ranked.",
                           hint="docs/how-to/advise.md says which durations to take.")  # fmt: skip
        show.print_bounds(out, service)
        return
    if as_json:
        cases = assumptions(service) if service.unknown else []
        ways = [{"computes": case.computes, "ways": [*map(show.as_values, case.ways.values())]} for case in cases]
        print_json({"assumptions": ways} if cases else {"ways": [*map(show.as_values, rank(service.load()))]})
        return
    show.print_work(out, service)
    if service.unknown:
        found = assumptions(service)
        show.print_advice_for_all(out, found, service)
        possible = [each for each in found if each.ways]
        ranked = [possible[0].ways[name] for name in ranked_for_all(found)[0]]
    else:
        ranked = rank(service.load())
        memory_of = "workers that take worker_mib each, as the file says" if service.worker_mib else None
        show.print_advice(out, best_of(ranked, show.MOST_WAYS), None, service.load(), memory_of)
    if attempts:
        if service.unknown:
            say("The lab's requests sleep, so this tries the case in which nothing computes.")
        tried = [each.option for each in best_of(ranked, attempts)]
        measure_tried(name_from(classes.stem, "service"), tries(service, tried), tried, f"--classes {classes.name}")


def _measure_tried(
    name: str,
    experiment: "Experiment",
    tried: "Sequence[ServingOption]",
    asked: str,
    *,
    attempts: int,
    duration: str,
    trials: int,
    results: Path,
) -> None:
    from stampede.advise.show import print_whether_it_held  # noqa: PLC0415

    options = MeasureOptions(duration=duration, trials=trials)
    command = options.command(f"stampede advise {asked}", **{"try": attempts})
    from stampede.run.measuring import measure  # noqa: PLC0415  # it needs Docker's client

    summary = measure(RunRequest(f"{name}-advice", experiment, options, results, command))
    print_whether_it_held(out, summary, tried)


def requests(
    logs: Annotated[
        list[Path] | None, typer.Argument(show_default=False, help="Access logs, also packed; - is standard input.")
    ] = None,
    methods: Annotated[str, typer.Option(help="The methods of the requests that count.")] = "GET,HEAD",
    unit: Annotated[str, typer.Option(help="The unit of durations that are whole numbers: s, ms, us; none.")] = "",
    format_: LogFormat = "",
    format_from: LogFormatFrom = None,
    json_keys: JsonKeys = "",
) -> None:
    """Print the classes of requests in an access log, to advise on, e.g. stampede requests access.log > mine.yaml."""
    from stampede.advise.log_classes import describe_log  # noqa: PLC0415
    from stampede.logs.access_log import read_logs  # noqa: PLC0415
    from stampede.logs.durations import NO_UNIT  # noqa: PLC0415
    from stampede.logs.format_files import choose_formats  # noqa: PLC0415

    if not logs:
        raise WrongUse("No access log is named.", hint="stampede requests /var/log/nginx/access.log > mine.yaml")
    counted = [method.strip().upper() for method in methods.split(",") if method.strip()]
    formats = choose_formats(format_, format_from, json_keys)
    log = read_logs(logs, counted, unit, formats, need_durations=unit != NO_UNIT)
    for line in log.recognised:
        say(line)
    of = ", ".join("standard input" if str(path) == "-" else path.name for path in logs)
    write(describe_log(log, of, os.cpu_count() or 1))
    if log.warning:
        say(f"Note: {log.warning}")


def what_if(
    run: RunOrVariant = "",
    load: LoadName = "",
    trial: Annotated[int, typer.Option(min=1, help="Which trial.")] = 1,
    workers: Annotated[int, typer.Option(min=0, max=1024, help="0: as many as measured.")] = 0,
    threads: Annotated[int, typer.Option(min=0, max=1024, help="0: as many as measured.")] = 0,
    to: Annotated[Path | None, typer.Option(show_default=False, help="Draw the lanes of each way here.")] = None,
    results: Results = RESULTS,
) -> None:
    """Say who would have waited if a run was served in another way, e.g. stampede what-if … --workers 2."""
    from stampede.advise.load import find_cell  # noqa: PLC0415
    from stampede.advise.show import print_what_if  # noqa: PLC0415
    from stampede.advise.what_if import lanes, recorded  # noqa: PLC0415
    from stampede.predict.what_if import as_measured, serve_otherwise  # noqa: PLC0415
    from stampede.records.folder import write_whole  # noqa: PLC0415
    from stampede.run.results import writing  # noqa: PLC0415

    folder, record, variant = run_and_variant("what-if", run, results)
    under, serving = find_cell(record, variant, load or None)
    if not (threads or serving.threads):
        raise WrongUse(f"The workers of {serving.name} have no threads.", hint="--threads 8")
    say_how_theory_runs()
    with results_of("what-if", folder, results) as (derived, _):
        answered = recorded(derived, record, serving, under, trial)
        before = as_measured(answered, serving)
        of = workers or before.workers, threads or before.threads
        title = f"{record.experiment}, {serving.name}, trial {trial}"
        print_what_if(out, title, before, list(serve_otherwise(answered, *of)))
        if to:
            with writing(to.parent):
                write_whole(to, lanes(derived, record, serving, under, trial, *of))
            say(f"\nLanes: {to}")
