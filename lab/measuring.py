"""Measure an experiment for a command: lay out the plan, make the machine ready, measure, and print the results."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lab.plan import Plan, lay_out
from lab.terminal import interruptible, out, print_plan, say, showing_progress, talk

if TYPE_CHECKING:
    from analysis.records.summary import Summary
    from lab.engine.cluster.machines import Cluster
    from lab.engine.machine_usage import Progress
    from lab.experiment.model import Experiment
    from lab.limits import MemoryBudget
    from lab.plan.placement import MemoryBudgets

    PlanFor = Callable[[MemoryBudget | MemoryBudgets | None], Plan]
    """Lays out the plan of a command in a given amount of memory; None: memory does not limit the plan."""


def measure(
    name: str,
    experiment: "Experiment",
    plan_for: "PlanFor",
    *,
    full: bool,
    command: str,
    results: Path,
    budget_s: float | None = None,
    heeding: "Callable[[Progress], Progress] | None" = None,
    cluster: "Cluster | None" = None,
) -> "Summary":
    """Make the machine ready, measure a plan and print the results. Exit with 1 when the results are invalid.

    ``cluster``: the machines to measure on; None: the engine that Docker's own settings choose.
    ``heeding`` returns a Progress that also tells a page what the lab is doing; None: there is no page.
    """
    folder, summary = measure_quietly(
        name,
        experiment,
        plan_for,
        full=full,
        command=command,
        results=results,
        budget_s=budget_s,
        heeding=heeding,
        live=heeding is not None,
        cluster=cluster,
    )
    print_measured(folder, summary)
    return summary


def print_measured(folder: Path, summary: "Summary") -> None:
    """Print the results of a run. Exit with 1 when they are invalid."""
    from analysis.records.folder import read_run  # noqa: PLC0415  # imported here so that other commands start faster
    from analysis.report.extensions import read_sections  # noqa: PLC0415
    from analysis.report.terminal import print_tables  # noqa: PLC0415

    print_tables(out, read_run(folder), summary, read_sections(folder, summary))
    say(f"\nReport: {folder / 'report.html'}")
    if summary.validity.verdict == "invalid":
        raise typer.Exit(1)


def measure_quietly(
    name: str,
    experiment: "Experiment",
    plan_for: "PlanFor",
    *,
    full: bool,
    command: str,
    results: Path,
    budget_s: float | None = None,
    heeding: "Callable[[Progress], Progress] | None" = None,
    live: bool = False,
    cluster: "Cluster | None" = None,
    check: bool = True,
) -> "tuple[Path, Summary]":
    """Make the machine ready and measure a plan. Return the run's folder and its summary, without printing results.

    ``heeding`` returns a Progress that also tells a page what the lab is doing; None: there is no page.
    ``live``: the page reads the points while they are written. ``check``: first ask somebody's own application once.

    While another run measures, its containers take up memory. So the plan is laid out again after that run has ended.
    """
    from lab.engine.cluster.machines import default_machine  # noqa: PLC0415
    from lab.engine.cluster.ready import memory_budgets  # noqa: PLC0415
    from lab.engine.doctor import make_ready  # noqa: PLC0415
    from lab.engine.heartbeat import heartbeat  # noqa: PLC0415
    from lab.engine.images import images_of  # noqa: PLC0415
    from lab.run import check_room, run_plan, wait_for_turn  # noqa: PLC0415

    plan_for(None)  # report wrong use before waiting for another run
    check_room(results, live=live)
    with interruptible():
        wait_for_turn(say)
        with heartbeat([default_machine()], say):
            planned = plan_for(memory_budgets(cluster))
            print_plan(talk, name, planned, budget_s)
            make_ready(say, images_of(planned))
    with interruptible(), showing_progress() as progress:
        return run_plan(
            name,
            experiment,
            planned,
            results=results,
            full=full,
            command=command,
            say=say,
            progress=heeding(progress) if heeding else progress,
            budget_s=budget_s,
            cluster=cluster,
            check=check,
        )


def planner(
    experiment: "Experiment",
    variants: str,
    *,
    full: bool,
    duration: str,
    trials: int,
    jobs: int,
    seed: int,
    live: bool = False,
    cores: int | None = None,
) -> "PlanFor":
    """Return a function that lays out the plan of these options in a given amount of memory."""
    from lab.engine.engine import default_jobs  # noqa: PLC0415

    def plan_for(memory: "MemoryBudget | MemoryBudgets | None") -> Plan:
        return lay_out(
            experiment,
            variants=names_of(variants),
            full=full,
            duration=duration or None,
            trials=trials or experiment.trials,
            jobs=jobs or default_jobs(cores),
            seed=seed,
            memory=memory,
            live=live,
        )

    return plan_for


def names_of(variants: str) -> list[str] | None:
    """Return the names in the option VARIANTS; None: the option was not given."""
    return [one.strip() for one in variants.split(",")] if variants else None


def make_command(make: str, **factors: object) -> str:
    """Return the make command that measures the same again."""
    given = [f"{factor}={int(value) if value is True else value}" for factor, value in factors.items() if value]
    return " ".join([make, *given])
