"""The commands of ``stampede`` that read access logs."""

import os
from pathlib import Path
from typing import Annotated

import typer

from stampede.errors import WrongUse
from stampede.logs.formats import Clock
from stampede.run.options import JsonKeys, LogFormat
from stampede.terminal import out, print_json, say, say_how_theory_runs, write


def diagnose(
    logs: Annotated[
        list[Path] | None, typer.Argument(show_default=False, help="Access logs of balancers and servers, also packed.")
    ] = None,
    balancer: Annotated[list[Path] | None, typer.Option(help="A log that is a balancer's; may be repeated.")] = None,
    server: Annotated[list[Path] | None, typer.Option(help="A log that is a server's; may be repeated.")] = None,
    workers: Annotated[int, typer.Option(min=0, max=1024, help="How many workers there are; 0: find it.")] = 0,
    threads: Annotated[int, typer.Option(min=0, max=1024, help="How many threads a worker has; 0: find it.")] = 0,
    unit: Annotated[str, typer.Option(help="The unit of durations that are whole numbers: s, ms, us.")] = "",
    format_: LogFormat = "",
    json_keys: JsonKeys = "",
    to: Annotated[
        Path | None, typer.Option(show_default=False, help="Also write a page with the lanes of the workers.")
    ] = None,
    setup: Annotated[bool, typer.Option("--setup", help="Print what makes servers log what is needed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say who waited in production, from access logs, e.g. stampede diagnose nginx.log gunicorn.log.

    The logs stay on this machine, and nothing of a person is shown: routes, counts and times only.
    """
    from stampede.logs.diagnose.diagnosis import Asked, diagnose_logs  # noqa: PLC0415
    from stampede.logs.diagnose.replayed import replay  # noqa: PLC0415
    from stampede.logs.diagnose.screen import as_values, print_diagnosis  # noqa: PLC0415
    from stampede.logs.format_strings import choose_formats  # noqa: PLC0415
    from stampede.records.folder import write_whole  # noqa: PLC0415  # so that other commands start faster

    if setup:
        write((Path(__file__).parent / "logging-lines.txt").read_text(encoding="utf-8"))
        return
    told: list[tuple[list[Path] | None, Clock]] = [(balancer, "balancer"), (server, "server")]
    clocks = {path: clock for files, clock in told for path in files or []}
    paths = [*dict.fromkeys([*(logs or []), *clocks])]
    if not paths:
        raise WrongUse(
            "No access log is named.", hint="stampede diagnose nginx.log gunicorn.log, or stampede diagnose --setup"
        )
    asked = Asked(paths, clocks, choose_formats(format_, json_keys), unit, workers, threads)
    say_how_theory_runs()
    found = diagnose_logs(asked)
    is_open = found.findings.cause == "coarse" and found.findings.is_doubtful
    # replays know no killed workers
    unknown = not found.requests.joins or is_open or found.findings.cause in ("missing", "away")
    replayed = None if unknown else replay(*found[1:])
    if to:
        from stampede.logs.diagnose.page import diagnosis_page  # noqa: PLC0415  # pages are an extra

        write_whole(to, diagnosis_page(found, replayed))
    if as_json:
        print_json(as_values(found, replayed))
        return
    print_diagnosis(out, found, replayed)
    if to:
        say(f"Page: {to}")


def requests(
    logs: Annotated[
        list[Path] | None, typer.Argument(show_default=False, help="Access logs, also packed; - is standard input.")
    ] = None,
    methods: Annotated[str, typer.Option(help="The methods of the requests that count.")] = "GET,HEAD",
    unit: Annotated[str, typer.Option(help="The unit of durations that are whole numbers: s, ms, us; none.")] = "",
    format_: LogFormat = "",
    json_keys: JsonKeys = "",
) -> None:
    """Print the classes of requests in an access log, to advise on, e.g. stampede requests access.log > mine.yaml."""
    from stampede.logs.access_log import describe_log, read_logs  # noqa: PLC0415
    from stampede.logs.durations import NO_UNIT  # noqa: PLC0415
    from stampede.logs.format_strings import choose_formats  # noqa: PLC0415
    from stampede.resources import of_cgroup  # noqa: PLC0415

    if not logs:
        raise WrongUse("No access log is named.", hint="stampede requests /var/log/nginx/access.log > mine.yaml")
    paths = [*dict.fromkeys(logs)]
    counted = [method.strip().upper() for method in methods.split(",") if method.strip()]
    formats = choose_formats(format_, json_keys)
    log = read_logs(paths, counted, unit, formats, need_durations=unit != NO_UNIT)
    for line in log.recognised:
        say(line)
    of = ", ".join("standard input" if str(path) == "-" else path.name for path in paths)
    write(describe_log(log, of, os.cpu_count() or 1, of_cgroup()))
    if log.warning:
        say(f"Note: {log.warning}")
