"""Derive an experiment from another: with requests that compute in a chosen way, or a variant against itself."""

from collections.abc import Callable, Mapping
from typing import get_args

from stampede.errors import WrongUse
from stampede.experiment.model import Cpu, Experiment, Load, unknown_variant
from stampede.records.run import OTHERS_CORES
from stampede.servers.base import Variant
from stampede.typed import option


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


def measured_against_itself(experiment: Experiment, variant: str = "", trials: int = 0) -> Experiment:
    """Return an experiment whose two variants, a and b, are both ``variant`` (default: the first).

    A rate that is relative to a capacity follows from the capacity of a. Raise WrongUse if the variant is unknown, or
    if a single one of ``trials`` (0: not given) shows no spread.
    """
    variant = variant or next(iter(experiment.variants))
    if trials == 1:
        raise WrongUse("A single trial of each variant shows no spread.", hint=option("trials", 5))
    if variant not in experiment.variants:
        raise unknown_variant(variant, experiment)
    served = experiment.variants[variant]
    loads: dict[str, Load] = {}
    for name, load in experiment.all_loads.items():
        relative = load.relative and load.relative.model_copy(update={"of": "a"})
        if load.is_for(variant) and (relative is None or relative.under in loads):
            loads[name] = load.model_copy(update={"variants": [], "relative": relative})
    question = "Which differences on this machine are more than chance?"
    return _plain_experiment(experiment, f"{variant} against itself", question, loads, {"a": served, "b": served})


def served_by(experiment: Experiment, load: str, variants: dict[str, Variant]) -> Experiment:
    """Return an experiment that measures only these variants, under one load, and claims nothing."""
    if load not in experiment.all_loads:
        raise WrongUse(f"The experiment has no load {load!r} any more.", hint="Measure the experiment again first.")
    asked = experiment.all_loads[load].model_copy(update={"variants": []})
    question = "Is the way that theory recommends the fastest?"
    return _plain_experiment(experiment, f"Advice for {load}, tried", question, {load: asked}, variants)


def _plain_experiment(
    experiment: Experiment, title: str, question: str, loads: dict[str, Load], variants: Mapping[str, Variant]
) -> Experiment:
    asked = {"title": title, "question": question, "load": None, "loads": loads, "variants": variants}
    nothing: dict[str, object] = {"because": None, "source": None, "published": [], "claims": [], "curve": None}
    return experiment.model_copy(update=asked | nothing)
