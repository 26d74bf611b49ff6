"""The command ``lab diagnose``: who waited in production, from access logs."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from lab.errors import WrongUse
from lab.logs.formats import Clock
from lab.options import JsonKeys, LogFormat, LogFormatFrom
from lab.terminal import out, print_json, say


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
    format_from: LogFormatFrom = None,
    json_keys: JsonKeys = "",
    to: Annotated[
        Path | None, typer.Option(show_default=False, help="Also write a page with the lanes of the workers.")
    ] = None,
    setup: Annotated[bool, typer.Option("--setup", help="Print what makes servers log what is needed.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say who waited in production, from the logs of balancer and servers, e.g. lab diagnose nginx.log gunicorn.log.

    The logs stay on this machine, and nothing of a person is shown: routes, counts and times only.
    """
    from analysis.records.folder import write_whole  # noqa: PLC0415
    from lab.apps.diagnose.capacity import capacity_of  # noqa: PLC0415  # so that other commands start faster
    from lab.apps.diagnose.findings import findings_of  # noqa: PLC0415
    from lab.apps.diagnose.logs import read_logs  # noqa: PLC0415
    from lab.apps.diagnose.page import diagnosis_page  # noqa: PLC0415
    from lab.apps.diagnose.replayed import replay  # noqa: PLC0415
    from lab.apps.diagnose.requests import requests_of  # noqa: PLC0415
    from lab.apps.diagnose.screen import print_diagnosis  # noqa: PLC0415
    from lab.logs.format_files import choose_formats  # noqa: PLC0415

    if setup:
        sys.stdout.write((Path(__file__).parent / "logging-lines.txt").read_text(encoding="utf-8"))
        return
    told: list[tuple[list[Path] | None, Clock]] = [(balancer, "balancer"), (server, "server")]
    clocks = {path: clock for files, clock in told for path in files or []}
    paths = [*dict.fromkeys([*(logs or []), *clocks])]
    if not paths:
        raise WrongUse("No access log is named.", hint="lab diagnose nginx.log gunicorn.log, or lab diagnose --setup")
    found = read_logs(paths, choose_formats(format_, format_from, json_keys), clocks, unit)
    requests = requests_of(found)
    capacity = capacity_of(requests, workers, threads)
    findings = findings_of(requests, capacity, found.routes.names)
    replayed = replay(requests, capacity, findings) if requests.joins else None
    if to:
        write_whole(to, diagnosis_page(requests, capacity, findings))
    if as_json:
        print_json({
            "requests": len(requests), "in_both": requests.in_both, "workers": capacity.workers,
            "threads": capacity.threads, "found": [*capacity.found], "restarts": capacity.restarts,
            "waited": findings.waited, "waited_avoidably": findings.waited_avoidably, "queueing": findings.queueing,
            "avoidable": findings.avoidable, "idle": findings.idle, "in_front": findings.in_front,
            "busy_load": findings.busy_load, "classes": [asdict(each) for each in findings.classes],
            "replay": replayed and replayed.as_values(),
        })  # fmt: skip
        return
    print_diagnosis(out, found, requests, capacity, findings, replayed)
    if to:
        say(f"Page: {to}")
