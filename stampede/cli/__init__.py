"""The command line ``stampede``, which nearly every make target calls."""

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.markup import escape

from stampede.advise.commands import advise, predict, requests, validate, what_if
from stampede.cli.commands import Commands, add_command
from stampede.cli.help import GroupedCommands
from stampede.cli.reading import class_, compare, export, power, report, verify
from stampede.errors import LabError, WrongUse
from stampede.interruption import heed_signals
from stampede.kubernetes.commands import manifests
from stampede.logs.diagnose.commands import diagnose
from stampede.machines import check_machines, join_machines, leave_machines
from stampede.paths import RESULTS
from stampede.plan import lay_out
from stampede.report.extensions import EXTENSIONS
from stampede.run.measuring import measure
from stampede.run.options import Machines, MeasureOptions, Name, Results, RunRequest, measure_options
from stampede.service.commands import init, try_
from stampede.teach.lesson.commands import lesson
from stampede.terminal import count, out, print_json, print_plan, say, tell, time_in_words

EXTENSIONS.append("stampede.service.diagnosis.extension")
app = typer.Typer(
    cls=GroupedCommands,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="A laboratory that shows which worker served each request, "
    "and which requests waited while another worker had a free thread.",
)


@measure_options()
def run(
    options: MeasureOptions,
    name: Name = "",
    against_itself: Annotated[
        bool,
        typer.Option("--against-itself", help="Measure one variant twice, to see which differences are chance."),
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 unless every claim is reproduced.")] = False,
    results: Results = RESULTS,
) -> None:
    """Measure an experiment and print its verdicts, e.g. stampede run heavy-mix."""
    from stampede.docker.cluster.ready import cores_for_servers, read_cluster, spread_generators  # noqa: PLC0415
    from stampede.docker.engine import default_jobs  # noqa: PLC0415
    from stampede.experiment.file import load_experiment  # noqa: PLC0415
    from stampede.experiment.variations import measured_against_itself  # noqa: PLC0415

    options.check()
    command = options.command(f"stampede run {name}", against_itself=against_itself)
    with read_cluster(options.machines) as cluster:
        cores = cores_for_servers(cluster)
        experiment = load_experiment(name)
        if against_itself:
            experiment = measured_against_itself(experiment, options.variants, options.trials)
            options = replace(options, variants="", trials=options.trials or 5)  # one trial shows no spread
        experiment = spread_generators(options.adapt(experiment, cores), cluster)
        options = replace(options, jobs=options.jobs or default_jobs(cores))
        of_results = f"{name}-aa" if against_itself else name
        summary = measure(RunRequest(of_results, experiment, options, results, command, cluster))
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
                       "watched.", hint=f"make experiment NAME={name}")  # fmt: skip
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
        say(f"{count(todo, 'experiment')} to measure, about {time_in_words(total_s)}. Interrupt at any time: the same "
            "command goes on with what is left.")  # fmt: skip
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


@measure_options("until", "budget", "machines")
def plan(
    options: MeasureOptions,
    name: Name = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Print what would be measured, in which order and for how long, e.g. stampede plan heavy-mix --full."""
    from stampede.docker.cluster.ready import memory_budgets  # noqa: PLC0415
    from stampede.plan.timing import expected_s  # noqa: PLC0415

    planned = options.plan(options.experiment(name), memory_budgets(None))
    if as_json:
        print_json({"experiment": name, "expected_s": expected_s(planned), **planned.as_json()})
    else:
        print_plan(out, name, planned, expected_s(planned))


def list_experiments(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per experiment.")] = False,
) -> None:
    """List the experiments with their questions, e.g. stampede list --json."""
    from stampede.experiment.file import load_experiment, names  # noqa: PLC0415

    broken = []
    for name in names():
        try:
            experiment = load_experiment(name)
        except WrongUse as error:
            broken.append(error.message)
            continue
        if as_json:
            values = {
                "name": name,
                "title": experiment.title,
                "question": experiment.question,
                "source": experiment.source.model_dump(mode="json") if experiment.source else None,
                "variants": {key: value.model_dump(mode="json") for key, value in experiment.variants.items()},
                "loads": {key: value.model_dump(mode="json") for key, value in experiment.all_loads.items()},
            }
            print_json(values)
        else:
            out.print(f"{name}\n  {experiment.title}\n  {experiment.question}", markup=False)
    if broken:
        raise WrongUse(
            "\n".join(broken), hint="Correct each file that is named here; all other experiments are listed."
        )


def doctor() -> None:
    """Say what the lab needs and whether this machine has it, without changing anything, e.g. stampede doctor."""
    from stampede.docker.doctor import checks  # noqa: PLC0415

    missing = False
    for finding in checks():
        missing |= not finding.there
        mark = "[green]ok[/]     " if finding.there else "[red]missing[/]"
        out.print(f"{mark} {escape(finding.what)}: {escape(finding.detail)}", soft_wrap=True)
        if not finding.there and finding.remedy:
            out.print("        " + finding.remedy.replace("\n", "\n        "), markup=False, soft_wrap=True)
    if missing:
        raise typer.Exit(1)


def setup() -> None:
    """Install the engine, and pull or build the images, without measuring anything, e.g. stampede setup."""
    from stampede.bundle import bundled, images_for  # noqa: PLC0415
    from stampede.docker.cluster.machines import default_machine  # noqa: PLC0415
    from stampede.docker.doctor import make_ready  # noqa: PLC0415
    from stampede.docker.heartbeat import heartbeat  # noqa: PLC0415
    from stampede.docker.images import build_images, images_of  # noqa: PLC0415
    from stampede.experiment.file import load_experiment, names  # noqa: PLC0415
    from stampede.run.machine_lock import machine_lock  # noqa: PLC0415

    if of_bundle := bundled():
        say(f"This lab came as a bundle, with the images for {', '.join(of_bundle)}.")
        images = {image.name: image for image in images_for(of_bundle)}
    else:
        needed = [image for name in names() for image in images_of(lay_out(load_experiment(name)))]
        images = {image.name: image for image in needed if not image.build_minutes}
    with machine_lock(say, "make setup"), heartbeat([default_machine()], say):  # a build would disturb a run
        make_ready(say, images.values())
        build_images(images.values(), say)


def bundle(
    experiments: Annotated[list[str] | None, typer.Argument(show_default=False, help="Whose images it has.")] = None,
    pythons: Annotated[str, typer.Option(help="Releases of Python, e.g. 3.11,3.13.")] = "",
    to: Annotated[Path | None, typer.Option(show_default=False, help="The file.")] = None,
) -> None:
    """Pack the lab, its packages and its images into one file for a room without a network, e.g. stampede bundle."""
    from stampede.bundle import make_bundle  # noqa: PLC0415

    out.print(str(make_bundle(experiments or [], pythons, to, say)), markup=False, soft_wrap=True)


def down(machines: Machines = None, results: Results = RESULTS) -> None:
    """Remove the containers and networks of killed runs, and close the records of these runs, e.g. stampede down."""
    from stampede.docker.cluster.machines import machines_of, read_machines  # noqa: PLC0415
    from stampede.docker.cluster.ready import find_machine  # noqa: PLC0415
    from stampede.docker.engine import engine_version  # noqa: PLC0415
    from stampede.docker.heartbeat import heartbeat  # noqa: PLC0415
    from stampede.run.machine_lock import machine_lock  # noqa: PLC0415
    from stampede.run.results import clean_up, writing  # noqa: PLC0415

    cluster = read_machines(machines) if machines else None
    if not cluster and not engine_version():
        say("No container engine answers, so nothing was cleaned up.")
        return
    found = machines_of(cluster) if cluster else (find_machine(),)
    with machine_lock(say, "make down"), writing(results), heartbeat(found, say):
        clean_up(results, say, found)


for function in (
    run, watch, reproduce, plan, init, lesson, predict, advise, diagnose, requests, what_if, validate, manifests,
    report, power, compare, verify, export, doctor, setup, bundle, down,
):  # fmt: skip
    add_command(app, function)
add_command(app, try_, "try")
add_command(app, class_, "class")
add_command(app, list_experiments, "list")
machines = typer.Typer(
    cls=Commands,
    rich_markup_mode=None,
    help="The machines that stampede run --machines machines.yaml measures on.",
)
for name, function in {"check": check_machines, "join": join_machines, "leave": leave_machines}.items():
    add_command(machines, function, name)
app.add_typer(machines, name="machines")


def main() -> NoReturn:
    """Run the command line and exit: 0 measured, 1 failed or invalid, 2 wrong use, 130 interrupted."""
    from python_on_whales.exceptions import DockerException  # noqa: PLC0415

    from stampede.docker import processor  # noqa: PLC0415
    from stampede.docker.commands import last_line  # noqa: PLC0415

    if sys.argv[1:2] != ["doctor"] and (lack := processor.problem()):
        tell(LabError(lack, hint=processor.WAY_OUT))
        sys.exit(1)
    for name in [name for name in os.environ if name.startswith("LAB_")]:
        del os.environ[name]  # a factor must come from the experiment, never from the user's shell
    heed_signals()
    try:
        code = app(prog_name="stampede", standalone_mode=False)
    except typer.Abort:
        sys.exit(130)
    except DockerException as error:
        tell(LabError(f"The container engine refused or stopped answering: {last_line(error)}", hint="stampede doctor"))
        sys.exit(1)
    except LabError as error:
        tell(error)
        sys.exit(2 if isinstance(error, WrongUse) else 1)
    sys.exit(code or 0)
