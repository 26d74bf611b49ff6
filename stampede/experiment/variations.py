"""Derive an experiment from another: with requests that compute in a chosen way, or on several machines."""

from collections.abc import Callable
from typing import get_args

from stampede.errors import WrongUse
from stampede.experiment.model import Cpu, Experiment, Load
from stampede.records.run import OTHERS_CORES


def computing(experiment: Experiment, cpu: str, variants: list[str] | None = None, cores: int = 0) -> Experiment:
    """Return an experiment whose requests compute as ``cpu`` says: hold or burn. Without such requests change nothing.

    If ``cpu`` is empty, choose burn if the experiment says so, or if the engine has enough ``cores``: one for each
    worker of the largest of ``variants`` (default: all), and OTHERS_CORES for the rest of the lab; otherwise choose
    hold. Trials whose requests burn are never measured side by side. Raise WrongUse for any other word, and for hold or
    burn if no request of the experiment computes.
    """
    if cpu not in ("", *get_args(Cpu)):
        raise WrongUse(f"There is no CPU={cpu!r}.", hint=f"CPU=…, one of {', '.join(get_args(Cpu))}")
    if not any(load.computes for load in experiment.all_loads.values()):
        if cpu:
            problem = f"CPU={cpu} has no effect, because no request of this experiment computes."
            raise WrongUse(problem, hint="Leave CPU out.")
        return experiment
    chosen = [experiment.variants[name] for name in variants or experiment.variants if name in experiment.variants]
    enough = cores >= max((variant.workers * variant.replicas for variant in chosen), default=0) + OTHERS_CORES
    kind = cpu or ("burn" if experiment.burns or enough else "hold")

    def set_to(load: Load) -> Load:
        return load.model_copy(update={"settings": load.settings | {"cpu": kind}}) if load.computes else load

    parallel = experiment.parallel and kind == "hold"
    return _with_loads(experiment, set_to).model_copy(update={"parallel": parallel})


def generated_on(experiment: Experiment, machines: int) -> Experiment:
    """Return an experiment with a load generator on each of several machines, as far as there are users to share."""

    def shared(load: Load) -> Load:
        users = int(load.declared.users_at_once(load.settings))
        return load.model_copy(update={"generators": max(load.generators, min(machines, users))})

    return _with_loads(experiment, shared)


def _with_loads(experiment: Experiment, change: Callable[[Load], Load]) -> Experiment:
    loads = {name: change(load) for name, load in experiment.loads.items()}
    return experiment.model_copy(update={"load": experiment.load and change(experiment.load), "loads": loads})
