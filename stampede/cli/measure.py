"""The commands of ``stampede`` that measure experiments."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment
from stampede.paths import RESULTS
from stampede.records.plural import plural
from stampede.run.measuring import measure
from stampede.run.options import MeasureOptions, Name, Results, RunRequest, measure_options
from stampede.terminal import say, time_in_words
from stampede.typed import typed


@measure_options()
def run(
    options: MeasureOptions,
    name: Name = "",
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 unless every claim is reproduced.")] = False,
    results: Results = RESULTS,
) -> None:
    """Measure an experiment and print its verdicts, e.g. stampede run heavy-mix."""
    from stampede.docker.cluster.ready import cores_for_servers, find_machines, use_cluster  # noqa: PLC0415
    from stampede.docker.engine import default_jobs  # noqa: PLC0415
    from stampede.experiment.variations import generated_on  # noqa: PLC0415
    from stampede.plan.placement import load_machines  # noqa: PLC0415

    options.check()
    command = options.command(f"stampede run {name}")
    with use_cluster(options.machines) if options.machines else nullcontext() as cluster:
        machines = find_machines(cluster) if cluster else ()  # before anything else, say which engine does not answer
        cores = cores_for_servers(cluster)
        experiment = load_experiment(name)
        experiment = options.adapt(experiment, cores)
        if cluster:  # a load generator on each machine for load
            experiment = generated_on(experiment, len(load_machines(machines)))
        options = replace(options, jobs=options.jobs or default_jobs(cores))
        summary = measure(RunRequest(name, experiment, options, results, command, cluster))
    if strict and any(claim.verdict != "reproduced" for claim in summary.claims):
        raise typer.Exit(1)


@measure_options("until", "budget", "machines")
def watch(
    options: MeasureOptions,
    name: Name = "",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port of the page.")] = 8377,
    results: Results = RESULTS,
) -> None:
    """Measure an experiment, and show its requests in a browser meanwhile, e.g. stampede watch heavy-mix."""
    from stampede.docker.cluster.ready import find_machine  # noqa: PLC0415
    from stampede.watch.live import live_page  # noqa: PLC0415

    experiment = options.experiment(name)
    options.plan(experiment)  # report wrong use before anything else
    if not (engine := find_machine()).shares_files:
        raise WrongUse(f"The engine of {engine.name} shares no folders with this machine, so its requests cannot be "
                       "watched.", hint=typed("run", name))  # fmt: skip
    command = options.command(f"stampede watch {name}")
    with live_page(results / name, port) as feed:
        say(f"Watch the requests at http://127.0.0.1:{port}/")
        measure(RunRequest(name, experiment, options, results, command, live=True), feed.stage.follow)


def reproduce(
    fresh: Annotated[bool, typer.Option("--fresh", help="Measure every experiment again.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Measure nothing; only write the page.")] = False,
    to: Annotated[Path | None, typer.Option(help="Also write what the page says to this file, e.g. mine.json.")] = None,
    results: Results = RESULTS,
) -> None:
    """Measure every experiment by its default settings, and show all published figures, e.g. stampede reproduce.

    After an interrupt, the same command goes on with the experiments that are left.
    """
    from stampede.reproduce.all import check_target, read_latest_runs, timed_experiments, write_page, write_reference  # noqa: PLC0415
    from stampede.run.results import writing  # noqa: PLC0415

    if to:
        check_target(to)

    experiments = timed_experiments()
    todo = [timed for timed in experiments if not show and (fresh or not timed.run(results))]
    total_s = sum(timed.expected_s for timed in todo)
    if todo:
        say(f"{plural(len(todo), 'experiment')} to measure, about {time_in_words(total_s)}. Interrupt at any time: the "
            "same command goes on with what is left.")  # fmt: skip
    invalid = []
    for position, timed in enumerate(todo, start=1):
        rest_s = sum(other.expected_s for other in todo[position - 1 :])
        say(f"\n{position} of {len(todo)}: {timed.name}; about {time_in_words(rest_s)} left in all")
        command = f"stampede run {timed.name}"
        try:
            measure(RunRequest(timed.name, timed.experiment, MeasureOptions(), results, command))
        except typer.Exit as stopped:
            if stopped.exit_code != 1:  # interrupted
                raise
            invalid.append(timed.name)
        write_page(results, read_latest_runs(results, experiments))
    own = read_latest_runs(results, experiments)
    page = write_page(results, own)
    say(f"\n{len(own.experiments)} of {len(experiments)} experiments are on the page: {page}")
    if to:
        with writing(to.parent):
            write_reference(to, own)
    if invalid:
        say(f"The results of {', '.join(invalid)} are invalid; the tables above say why.")
        raise typer.Exit(1)
