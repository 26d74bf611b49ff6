"""The commands of ``stampede`` about this machine: what it has, and what killed runs left on it."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from stampede.paths import RESULTS
from stampede.plan import lay_out
from stampede.run.options import Machines, Results
from stampede.terminal import out, print_json, say


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False) -> None:
    """Say what the lab needs and whether this machine has it, without changing anything, e.g. stampede doctor."""
    from stampede.docker.doctor import checks  # noqa: PLC0415

    found = list(checks())
    if as_json:
        print_json({"checks": [asdict(finding) for finding in found]})
    for finding in () if as_json else found:
        mark = "[green]ok[/]     " if finding.there else "[red]missing[/]"
        out.print(f"{mark} {escape(finding.what)}: {escape(finding.detail)}", soft_wrap=True)
        if not finding.there and finding.remedy:
            out.print("        " + finding.remedy.replace("\n", "\n        "), markup=False, soft_wrap=True)
    if not all(finding.there for finding in found):
        raise typer.Exit(1)


def setup() -> None:
    """Install the engine, and pull or build the images, without measuring anything, e.g. stampede setup."""
    from stampede.bundle import bundled, images_for  # noqa: PLC0415
    from stampede.docker.doctor import make_ready  # noqa: PLC0415
    from stampede.docker.images import build_images, images_of  # noqa: PLC0415
    from stampede.experiment.file import load_experiment, names  # noqa: PLC0415
    from stampede.run.machine_lock import machine_lock  # noqa: PLC0415

    if of_bundle := bundled():
        say(f"This lab came as a bundle, with the images for {', '.join(of_bundle)}.")
        images = {image.name: image for image in images_for(of_bundle)}
    else:
        needed = [image for name in names() for image in images_of(lay_out(load_experiment(name)))]
        images = {image.name: image for image in needed if not image.build_minutes}
    with machine_lock(say, "make setup"):  # a build would disturb a run
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
    from stampede.docker.cluster.machines import read_machines  # noqa: PLC0415
    from stampede.docker.cluster.ready import find_machine  # noqa: PLC0415
    from stampede.docker.engine import engine_version  # noqa: PLC0415
    from stampede.run.machine_lock import machine_lock  # noqa: PLC0415
    from stampede.run.results import clean_up, writing  # noqa: PLC0415

    found = read_machines(machines) if machines else ()
    if not found and not engine_version():
        say("No container engine answers, so nothing was cleaned up.")
        return
    found = found or (find_machine(),)
    with machine_lock(say, "make down"), writing(results):
        clean_up(results, say, found)
