"""Measure an experiment for a command: lay out the plan, make the machine ready, measure, and print the results."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from stampede.docker.machine_usage import QUIET_WITHIN_S, Progress, is_busy
from stampede.finished import tables_command
from stampede.plan import Plan, timing
from stampede.run.options import RunRequest
from stampede.run.progress import Expected, showing_progress
from stampede.terminal import interruptible, out, print_plan, report_path, say, talk

if TYPE_CHECKING:
    from stampede.records.summary import Summary


Follow = Callable[[Progress], Progress]
"""Returns a Progress that also tells a page what the lab is doing."""


def measure(request: RunRequest, follow: Follow | None = None) -> "Summary":
    """Make the machine ready, measure, and print the results. Exit with 1 when the results are invalid."""
    folder, summary = measure_quietly(request, follow)
    print_measured(folder, summary)
    return summary


def print_measured(folder: Path, summary: "Summary") -> None:
    """Print the results of a run. Exit with 1 when they are invalid."""
    from stampede.diagnosis.section import read_section  # noqa: PLC0415
    from stampede.records.folder import read_run  # noqa: PLC0415  # imported here so that other commands start faster
    from stampede.report.screen import print_screen  # noqa: PLC0415

    print_screen(
        out, read_run(folder), summary, report_path(folder), tables_command(folder), read_section(folder, summary)
    )
    if summary.validity.verdict == "invalid":
        raise typer.Exit(1)


def measure_quietly(request: RunRequest, follow: Follow | None = None) -> "tuple[Path, Summary]":
    """Make the machine ready and measure. Return the run's folder and its summary, without printing results.

    While another run measures, its containers take up memory. So the plan is laid out when that run has ended.
    """
    import jinja2  # noqa: F401, PLC0415  # report.html needs the extra: say so before anything is measured

    from stampede.docker.cluster.ready import check_reachable  # noqa: PLC0415
    from stampede.docker.doctor import make_ready  # noqa: PLC0415
    from stampede.docker.images import images_of  # noqa: PLC0415
    from stampede.run.machine_lock import machine_lock  # noqa: PLC0415
    from stampede.run.results import check_room  # noqa: PLC0415
    from stampede.run.run import run_plan  # noqa: PLC0415

    request.options.plan(request.experiment)  # report wrong use before waiting for another run
    check_room(request.results, live=request.live)
    with interruptible(), machine_lock(say, request.command) as note:

        def noted(text: str) -> None:
            note(text.strip().partition("\n")[0])
            say(text)

        check_reachable(request.machines)  # another run may have measured for hours before
        plan, expected = _plan(request)
        make_ready(noted, images_of(plan))
        with showing_progress(expected) as shown:
            progress = follow(shown.progress) if follow else shown.progress

            def progressing(what: str, passed_s: float, expected_s: float) -> None:
                note(what)
                progress(what, passed_s, expected_s)

            return run_plan(request, plan, noted, progressing, shown.end_batch)


def _plan(request: RunRequest) -> tuple[Plan, Expected]:
    """Lay out the plan in the memory that there is, and print it. Return also how long it takes."""
    from stampede.docker.engine import memory_budgets  # noqa: PLC0415

    options, busy = request.options, is_busy()
    plan = options.plan(request.experiment, memory_budgets(request.machines), live=request.live)
    batches_s, before_s = timing.batches_s(plan, busy=busy), timing.before_s(plan, busy=busy, check=request.check)
    if not request.only_check:
        takes_s = timing.expected_s(plan, busy=busy, check=request.check)
        round_s = round(sum(timing.batches_s(plan.rounds[0], busy=busy)))
        print_plan(talk, request.name, plan, takes_s if options.budget_s is None else round_s, options.budget_s)
        if busy:
            say(f"This machine is busy, so the lab waits up to {QUIET_WITHIN_S} s before each load.")
    return plan, Expected(plan, batches_s, before_s, options.budget_s)
