"""The commands of ``stampede`` that ask theory."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from stampede.errors import WrongUse
from stampede.finished import latest, run_for
from stampede.paths import RESULTS
from stampede.records.model import name_from
from stampede.run.options import Duration, Limits, MeasureOptions, Results, RunRequest, Trials
from stampede.terminal import out, print_json, say, say_how_theory_runs

if TYPE_CHECKING:
    from stampede.advise.options import ServingOption
    from stampede.advise.ranking import Case, RankedOption
    from stampede.advise.service import Service
    from stampede.experiment.model import Experiment


RunOrVariant = Annotated[
    str, typer.Argument(show_default=False, help="A run, or RUN:VARIANT; default: the latest run.")
]
LoadName = Annotated[str, typer.Option(help="Which load of the run.")]


def advise(
    run: RunOrVariant = "",
    classes: Annotated[Path | None, typer.Option(help="A file that describes a service, e.g. mine.yaml.")] = None,
    load: LoadName = "",
    p99: Annotated[str, typer.Option(help="How long 99 of 100 requests may take, e.g. 300ms or 2s.")] = "",
    limits: Limits = None,
    ways: Annotated[bool, typer.Option("--ways", help="Print all ways that were compared, and why.")] = False,
    attempts: Annotated[
        int, typer.Option("--try", min=0, max=7, help="Measure the best so many ways, and today's.")
    ] = 0,
    duration: Duration = "",
    trials: Trials = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ranked ways as JSON.")] = False,
    results: Results = RESULTS,
) -> None:
    """Say how to serve a load, and what one container stands, e.g. stampede advise mine.yaml --p99 300ms."""
    from stampede.advise import show  # noqa: PLC0415
    from stampede.advise.ranking import best_of, ranked_names  # noqa: PLC0415

    if not classes and Path(run).suffix in (".yaml", ".yml"):  # no folder of a run is named so
        run, classes = "", Path(run)
    if classes and (run or load):
        problem = "--classes describes a service that no run knows, so it has no run and no --load."
        raise WrongUse(problem, hint="stampede advise mine.yaml, or stampede advise results/heavy-mix/latest --try 3")
    if limits and not classes:
        raise WrongUse("--limits is for a file, because a run has limits of its own.", hint="stampede advise mine.yaml")
    if as_json and attempts:
        problem = "--json prints the ranking, and --try measures it."
        raise WrongUse(problem, hint="stampede advise --json, without --try")
    bound = re.fullmatch(r"(\d+\.?\d*)(ms|s)", p99)
    if p99 and not (bound and float(bound[1])):
        raise WrongUse(f"--p99 {p99}: it must be a time with its unit.", hint="--p99 300ms, or --p99 2s")
    p99_ms = float(bound[1]) * {"ms": 1, "s": 1000}[bound[2]] if bound else None
    say_how_theory_runs()
    asked = _asked_by_file(classes, limits) if classes else _asked_by_run(run, load, results)
    if asked.service and asked.service.waits:
        if attempts or as_json:
            doing = "there is nothing to try" if attempts else "no way can be ranked"
            raise WrongUse(f"{asked.command}: the durations include waits, so {doing}.",
                           hint="docs/how-to/advise.md says which durations to take.")  # fmt: skip
        show.print_bounds(out, asked.service)
        return
    if as_json:
        print_json(show.as_values(asked.cases, asked.today, of_run=not asked.service))
        return
    show.print_answer(out, asked.cases, asked.today, p99_ms, asked.memory_of)
    if ways:
        show.print_ways(out, asked.cases, asked.today, asked.memory_of, asked.service)
    if attempts:
        from stampede.run.measuring import measure  # noqa: PLC0415  # it needs Docker's client

        if asked.service and asked.service.unknown:
            say("The lab's requests sleep where the file does not say how much they compute.")
        first = next(case for case in asked.cases if case.ways)
        tried = [each.option for each in best_of([first.ways[name] for name in ranked_names(asked.cases)[0]], attempts)]
        tried += asked.today_as_option
        options = MeasureOptions(duration=duration, trials=trials)
        command = options.command(f"stampede advise {asked.command}", **{"try": attempts})
        measure(RunRequest(f"{asked.name}-advice", asked.experiment(tried), options, results, command))


class _Asked(NamedTuple):
    """What is to be served: the cases, today's way, and how ways are tried. ``service``: a file describes it."""

    cases: "list[Case]"
    today: "RankedOption | None"
    today_as_option: "list[ServingOption]"
    memory_of: str
    name: str
    command: str
    experiment: "Callable[[Sequence[ServingOption]], Experiment]"
    service: "Service | None" = None


def _asked_by_file(classes: Path, limits: Path | None) -> _Asked:
    from stampede.advise.service import read_service, tries  # noqa: PLC0415
    from stampede.resources import read_resources  # noqa: PLC0415

    service = read_service(classes, read_resources(limits) if limits else None)
    memory_of = f"workers of {service.worker_mib:g} MiB each" if service.worker_mib else ""
    return _Asked([] if service.waits else service.cases(), None, [], memory_of, name_from(classes.stem, "service"),
                  f"--classes {classes.name}", lambda tried: tries(service, tried), service)  # fmt: skip


def _asked_by_run(run: str, load: str, results: Path) -> _Asked:
    from stampede.advise.load import find_cell, offered_in  # noqa: PLC0415
    from stampede.advise.options import option_of_today  # noqa: PLC0415
    from stampede.advise.ranking import predict_case, predict_today  # noqa: PLC0415
    from stampede.evaluate.statistics.compare import parse_side  # noqa: PLC0415
    from stampede.experiment.file import load_experiment  # noqa: PLC0415
    from stampede.experiment.variations import computing, served_by  # noqa: PLC0415
    from stampede.records.folder import read_run  # noqa: PLC0415

    folder, variant = parse_side(run) if run else (latest(results), None)
    with run_for("advise"):
        record = read_run(folder)
    under, serving = find_cell(record, variant, load or None)
    offered = offered_in(record, under, serving)
    today = [option_of_today(offered, offered.today)] if offered.today else []

    def experiment(tried: "Sequence[ServingOption]") -> "Experiment":
        served = {option.name: option.variant for option in tried}
        return computing(served_by(load_experiment(record.experiment), under.name, served),
                         under.settings.get("CPU", ""))  # fmt: skip

    return _Asked([predict_case(offered)], predict_today(offered), today, "workers with the lab's own application",
                  record.experiment, f"results/{record.experiment}/latest:{serving.name} --load {under.name}",
                  experiment)  # fmt: skip
