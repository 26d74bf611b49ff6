"""The commands of ``lab`` about somebody's own service."""

from pathlib import Path
from typing import Annotated

import typer

from lab.errors import WrongUse
from lab.measuring import make_command, measure, planner, print_measured
from lab.options import Duration, Full, Results, Seed, Trials
from lab.paths import RESULTS
from lab.terminal import out, say


def try_(
    service: Annotated[
        Path | None, typer.Argument(show_default=False, help="The file that describes the service.")
    ] = None,
    ways: Annotated[str, typer.Option(envvar="WAYS", help="Which ways to try, e.g. limit,least-conn.")] = "",
    full: Full = False,
    duration: Duration = "",
    trials: Trials = 0,
    seed: Seed = 0,
    results: Results = RESULTS,
) -> None:
    """Measure your own service as it is served today and in other ways, e.g. lab try my-service.yaml."""
    from analysis.record import TODAY  # noqa: PLC0415
    from lab.machine.engine import engine_cores  # noqa: PLC0415
    from lab.own.advised import advised  # noqa: PLC0415
    from lab.own.image import layer_of  # noqa: PLC0415
    from lab.own.replay import read_replay  # noqa: PLC0415
    from lab.own.service import NEEDS_A_FILE, read_own_service  # noqa: PLC0415
    from lab.own.show import print_advice  # noqa: PLC0415
    from lab.own.trying import chosen, experiment_of, limits_of, measure_first, name_of, started  # noqa: PLC0415
    from lab.own.variants import ADVISED, candidates, ignored, left_out, lifting, too_large  # noqa: PLC0415

    if service is None:
        raise WrongUse("No file that describes a service is named.", hint=NEEDS_A_FILE)
    described = read_own_service(service)
    name = name_of(service)
    replay = read_replay(described.replay.log, described.replay.methods) if described.replay else None

    def command(ways: str, trials: int) -> str:
        return make_command(
            f"make try SERVICE={service.name}", WAYS=ways, FULL=full, DURATION=duration, TRIALS=trials, SEED=seed
        )

    with layer_of(described) as layer:
        if replay:
            replay.write(layer.replay)
        cores = engine_cores()
        every = candidates(described, layer, cores)
        if ADVISED in [one.strip() for one in ways.split(",")]:
            every.append(advised(described, layer, results / name / "latest"))
        tried = chosen(every, ways)
        for sentence in left_out(described):
            say(f"Not tried: {sentence}")
        for one in ignored(described, layer):
            say(f"Left out: {one}")
        folder = None
        if not ways:
            folder, summary = measure_first(
                name, experiment_of(service, described, tried[:1], replay), full=full, duration=duration, seed=seed,
                command=command(TODAY, 1), results=results,
            )  # fmt: skip
            kinds = lifting(described, limits_of(summary), cores)
            for sentence in too_large(described, layer, kinds, cores):
                say(f"Not tried: {sentence}")
            tried = chosen(every, ways, kinds)
        if folder and ((len(tried) == 1 and trials == 1) or not started(folder, summary)):
            print_measured(folder, summary)
        else:
            experiment = experiment_of(service, described, tried, replay)
            plan_for = planner(experiment, "", full=full, duration=duration, trials=trials, jobs=1, seed=seed)
            summary = measure(name, experiment, plan_for, full=full, command=command(ways, trials), results=results)
    print_advice(out, summary, tried)


def init(
    folder: Annotated[Path | None, typer.Argument(show_default=False, help="The folder of the application.")] = None,
    log: Annotated[
        Path | None, typer.Option(envvar="LOG", help="The access log of the service; - is standard input.")
    ] = None,
    to: Annotated[Path, typer.Option(envvar="TO", help="The file to write.")] = Path("my-service.yaml"),
) -> None:
    """Write the file that describes your own service from what its folder says, e.g. lab init ~/shop."""
    from analysis.folder import write_whole  # noqa: PLC0415
    from lab.advice.access_log import read_logs  # noqa: PLC0415
    from lab.own.found import described  # noqa: PLC0415

    if folder is None:
        raise WrongUse("No folder of an application is named.", hint="make init FOLDER=path/of/the/application")
    if not folder.is_dir():
        raise WrongUse(f"There is no folder {folder}.", hint="make init FOLDER=path/of/the/application")
    if to.exists():
        raise WrongUse(f"{to} exists already.", hint=f"make init FOLDER={folder} TO=another.yaml")
    text = described(folder.resolve(), read_logs([log], ["GET", "HEAD"], "none") if log else None)
    write_whole(to, text)
    guesses = text.count("# guessed")
    say(f"Wrote {to}. Check what was guessed ({guesses} lines say so), and then: make try SERVICE={to}")
