"""The commands of ``stampede`` about somebody's own service."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from stampede.errors import WrongUse
from stampede.paths import RESULTS
from stampede.records.words import plural
from stampede.run.measuring import print_measured
from stampede.run.options import JsonKeys, Limits, LogFormat, MeasureOptions, Results, measure_options
from stampede.terminal import out, say


@measure_options("variants", "until", "budget", "jobs", "cpu", "machines")
def try_(
    options: MeasureOptions,
    service: Annotated[
        Path | None, typer.Argument(show_default=False, help="The file that describes the service.")
    ] = None,
    ways: Annotated[str, typer.Option(help="Which ways to try, e.g. limit,least-conn.")] = "",
    check: Annotated[
        bool, typer.Option("--check", help="Only start the service once, and ask for each class, if it has requests.")
    ] = False,
    results: Results = RESULTS,
) -> None:
    """Measure your own service as it is served today and in other ways, e.g. stampede try my-service.yaml."""
    from stampede.diagnosis.model import read_diagnosis  # noqa: PLC0415
    from stampede.service.description import NEEDS_A_FILE  # noqa: PLC0415
    from stampede.service.trying import print_best_way, start_once, try_service  # noqa: PLC0415

    if service is None:
        raise WrongUse("No file that describes a service is named.", hint=NEEDS_A_FILE)
    if check:
        start_once(service, options, results=results)
        return
    folder, summary, tried = try_service(service, options, ways=ways, results=results)
    print_measured(folder, summary)
    print_best_way(out, summary, read_diagnosis(folder), tried)


def init(
    folder: Annotated[Path | None, typer.Argument(show_default=False, help="The folder of the application.")] = None,
    log: Annotated[Path | None, typer.Option(help="The access log of the service; - is standard input.")] = None,
    to: Annotated[Path, typer.Option(help="The file to write.")] = Path("my-service.yaml"),
    format_: LogFormat = "",
    json_keys: JsonKeys = "",
    command: Annotated[str, typer.Option(help="The command that starts the service, if no file says it.")] = "",
    limits: Limits = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Follow the start command, ask the application for its routes, start it once, and ask for each.",
        ),
    ] = False,
    results: Results = RESULTS,
) -> None:
    """Write the file that describes your own service from what its folder says, e.g. stampede init ~/shop."""
    from stampede.logs.access_log import read_logs  # noqa: PLC0415
    from stampede.logs.durations import NO_UNIT  # noqa: PLC0415
    from stampede.logs.format_strings import choose_formats  # noqa: PLC0415
    from stampede.records.folder import write_whole  # noqa: PLC0415
    from stampede.resources import read_resources  # noqa: PLC0415
    from stampede.service.description import HEAD, SCHEMA, editor_schema  # noqa: PLC0415
    from stampede.service.discovery import describe_folder  # noqa: PLC0415
    from stampede.service.trying import ask_and_start  # noqa: PLC0415

    if folder is None or not folder.is_dir():
        problem = f"There is no folder {folder}." if folder else "No folder of an application is named."
        raise WrongUse(problem, hint="stampede init path/of/the/application")
    if to.exists():
        raise WrongUse(f"{to} exists already.", hint=f"stampede init {folder} --to another.yaml")
    formats = choose_formats(format_, json_keys)
    found = read_logs([log], ["GET", "HEAD"], NO_UNIT, formats) if log else None
    for line in found.recognised if found else []:
        say(line)
    here = folder.resolve()
    resources = read_resources(limits) if limits else {}
    written = describe_folder(here, found, command=command, resources=resources)
    write_whole(to, written.text)
    schema = to.with_name(SCHEMA)
    if not schema.exists():  # editors complete and check keys with it
        write_whole(schema, editor_schema())
    unread = sum(line.startswith("# ") for line in written.text.splitlines()) - len(HEAD)
    top = f" Check what could not be read ({plural(unread, 'line')} at the top)." if unread else ""
    say(f"Wrote {to}.{top}")
    if check or (sys.stdin.isatty() and typer.confirm("Follow its start command now, and ask it for its routes?")):
        ask_and_start(to, written, lambda answers: describe_folder(here, found, answers, command, resources),
                      results)  # fmt: skip
    else:
        say(f"Its numbers and routes come with --check: stampede init {folder} --to another.yaml --check")
