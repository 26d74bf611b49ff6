"""The command of ``stampede`` that prints an experiment for Kubernetes."""

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.errors import LabError, WrongUse
from stampede.run.options import Duration, Full, Name
from stampede.terminal import say

if TYPE_CHECKING:
    from stampede.experiment.model import Experiment
    from stampede.plan import PlannedTrial

BEGINS_AFTER_S = 120
"""How long after printing a load begins if several generators have to begin at the same moment."""


def manifests(
    name: Name = "",
    variant: Annotated[str, typer.Option(help="The variant; default: the first.")] = "",
    load: Annotated[str, typer.Option(help="The load; default: the first of the variant.")] = "",
    generators: Annotated[int, typer.Option(min=0, max=16, help="How many pods of k6; 0: as the file says.")] = 0,
    unsafe_sysctls: Annotated[
        bool, typer.Option("--unsafe-sysctls", help="Also set what a node must be told to allow.")
    ] = False,
    full: Full = False,
    duration: Duration = "",
) -> None:
    """Print one variant under one load as manifests for Kubernetes, e.g. stampede manifests heavy-mix."""
    from stampede.docker.engine import is_v2, plugin_version  # noqa: PLC0415
    from stampede.experiment.file import load_experiment  # noqa: PLC0415
    from stampede.kubernetes.documents import Setup, begins_together, documents, services_of  # noqa: PLC0415
    from stampede.kubernetes.text import as_yaml  # noqa: PLC0415

    experiment = load_experiment(name)
    trial = trial_of(experiment, variant, load, generators, full=full, duration=duration)
    if not is_v2(plugin_version("compose")):
        raise LabError("Compose v2 is missing, which reads docker-compose.yml.", hint="stampede doctor")
    start_at_ms = 1000 * (round(time.time()) + BEGINS_AFTER_S) if begins_together(trial) else 0
    setup = Setup(name, trial, services_of(trial), start_at_ms, unsafe_sysctls)
    sys.stdout.write(as_yaml(documents(setup)))
    say(f"{trial.variant_name} under {trial.load_name}, {trial.duration}, in the namespace {setup.name}")
    if cpuset := trial.variant.cpuset:
        say(f"warning: the servers may run on all cores of their nodes; cpuset {cpuset} has no place in Kubernetes.")
    if start_at_ms:
        say(f"The load begins in {BEGINS_AFTER_S} s, so apply the manifests at once.")


def trial_of(
    experiment: "Experiment", variant: str, load: str, generators: int, *, full: bool, duration: str
) -> "PlannedTrial":
    """Return the trial that the options of the command name. Requests that compute really compute (``cpu: burn``).

    Raise WrongUse for an unknown variant or load, for a load whose rate another trial must measure first, and for a
    number of generators that cannot send the load.
    """
    from stampede.experiment.loads.script import WrongSetting  # noqa: PLC0415
    from stampede.experiment.model import check_duration, unknown_variant  # noqa: PLC0415
    from stampede.experiment.variations import computing  # noqa: PLC0415
    from stampede.plan import PlannedTrial  # noqa: PLC0415

    if variant and variant not in experiment.variants:
        raise unknown_variant(variant, experiment, "--variant …, one of")
    if any(measured.computes for measured in experiment.all_loads.values()):
        experiment = computing(experiment, "burn")
    load = load or _first_load(experiment, variant)
    asked = experiment.all_loads.get(load)
    if not asked:
        raise WrongUse(f"There is no load {load!r}.", hint=_other_loads(experiment, variant, load))
    variant = variant or next(name for name in experiment.variants if asked.is_for(name))
    if not asked.is_for(variant):
        problem = f"{variant} is not measured under {load}."
        raise WrongUse(problem, hint=_other_loads(experiment, variant, load))
    if asked.relative:
        relative = f"{asked.relative.of} under {asked.relative.under}"
        raise WrongUse(
            f"The rate of {load} follows from the capacity of {relative}, which no manifest can measure first.",
            hint=_other_loads(experiment, variant, load),
        )
    if duration:
        check_duration(duration)
    if generators:
        try:
            asked.declared.check(asked.script, asked.settings, generators)
        except WrongSetting as error:
            raise WrongUse(f"--generators {generators}: {error}.", hint=f"--generators {asked.generators}") from None
        asked = asked.model_copy(update={"generators": generators})
    lasts = duration or (asked.duration.full if full else asked.duration.short)
    return PlannedTrial(variant, experiment.variants[variant], load, asked, lasts, number=1)


def _other_loads(experiment: "Experiment", variant: str, load: str) -> str:
    """Return the option with the loads under which a variant, or the first variant of each, can be printed."""
    from stampede.records.nearest import nearest_first  # noqa: PLC0415

    loads = experiment.all_loads.items()
    known = [name for name, one in loads if not one.relative and (one.is_for(variant) or not variant)]
    return f"--load …, one of {nearest_first(load, known)}" if known else "make experiment NAME=…"


def _first_load(experiment: "Experiment", variant: str) -> str:
    """Return the first load of a variant, or of the experiment if there is no variant."""
    return next(name for name, load in experiment.all_loads.items() if not variant or load.is_for(variant))
