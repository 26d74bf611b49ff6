"""The commands of ``stampede`` that measure experiments."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment, names
from stampede.paths import RESULTS
from stampede.records.words import plural
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
    from stampede.docker.cluster.ready import check_reachable, cores_for_servers, use_machines  # noqa: PLC0415
    from stampede.docker.engine import default_jobs  # noqa: PLC0415
    from stampede.experiment.variations import generated_on  # noqa: PLC0415
    from stampede.plan import machines_for  # noqa: PLC0415

    options.check()
    command = options.command(f"stampede run {name}")
    with use_machines(options.machines) if options.machines else nullcontext(()) as machines:
        check_reachable(machines)  # before anything else, say which engine does not answer
        cores = cores_for_servers(machines)
        experiment = load_experiment(name)
        experiment = options.adapt(experiment, cores)
        if machines:  # a load generator on each machine for load
            experiment = generated_on(experiment, len(machines_for("load", machines)))
        options = replace(options, jobs=options.jobs or default_jobs(cores))
        summary = measure(RunRequest(name, experiment, options, results, command, machines))
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
    show: Annotated[bool, typer.Option("--show", help="Measure nothing; only write the files.")] = False,
    results: Results = RESULTS,
) -> None:
    """Measure every experiment by its default settings, and draw all published figures, e.g. stampede reproduce.

    After an interrupt, the same command goes on with the experiments that are left.
    """
    from stampede.docker.engine import default_jobs  # noqa: PLC0415
    from stampede.plan import lay_out  # noqa: PLC0415
    from stampede.plan.timing import expected_s  # noqa: PLC0415
    from stampede.records.folder import write_whole  # noqa: PLC0415
    from stampede.reproduce.reproduction import (  # noqa: PLC0415
        Reproduction,
        default_run,
        ratio_picture,
        read_reproduced,
        write_reproduction,
    )
    from stampede.run.results import writing  # noqa: PLC0415

    experiments = {name: load_experiment(name) for name in names()}
    plans = {name: lay_out(of, trials=of.trials, jobs=default_jobs()) for name, of in experiments.items()}
    takes_s = {name: expected_s(plan) for name, plan in plans.items()}

    def run_of(name: str) -> Path | None:
        return default_run(results, name, list(experiments[name].variants), experiments[name].trials)

    def write() -> str:
        """Write what the runs say, and return how many experiments that are, and where."""
        found = [read_reproduced(run) for name in experiments if (run := run_of(name))]
        file, picture = results / "reproduce.json", ratio_picture(found)
        with writing(results):
            results.mkdir(parents=True, exist_ok=True)
            write_reproduction(file, Reproduction(experiments=found))
            if picture:
                write_whole(file.with_suffix(".svg"), picture)
        end = ", and in the picture beside it" if picture else ""
        return f"{len(found)} of {len(experiments)} experiments are in {file}{end}."

    shortest_first = sorted(experiments, key=lambda name: takes_s[name])
    todo = [name for name in shortest_first if not show and (fresh or not run_of(name))]
    if todo:
        total = time_in_words(sum(takes_s[name] for name in todo))
        say(f"{plural(len(todo), 'experiment')} to measure, about {total}. Interrupt at any time: the same command "
            "goes on with what is left.")  # fmt: skip
    invalid = []
    for position, name in enumerate(todo, start=1):
        left_s = sum(takes_s[other] for other in todo[position - 1 :])
        say(f"\n{position} of {len(todo)}: {name}; about {time_in_words(left_s)} left in all")
        try:
            measure(RunRequest(name, experiments[name], MeasureOptions(), results, f"stampede run {name}"))
        except typer.Exit as stopped:
            if stopped.exit_code != 1:  # interrupted
                raise
            invalid.append(name)
        write()
    say(f"\n{write()}")
    if invalid:
        say(f"The results of {', '.join(invalid)} are invalid; the tables above say why.")
        raise typer.Exit(1)
