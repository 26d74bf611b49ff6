"""Classes of requests as a person describes them, for the simulator."""

import numpy as np

from analysis.records.classes import Between, Mean, RequestClass
from theory.model import Class, Closed, Constant, Distribution, Exponential, Given, Open, Uniform, WorkStep


def simulated_class(name: str, described: RequestClass, unknown: float = 0.0) -> Class:
    """Return the class for the simulator: a request first computes its part, and then waits.

    ``unknown`` is the part that a request computes if the description does not say it.
    """
    computes = unknown if described.computes is None else described.computes
    work = [WorkStep(_times(described, computes), "compute"), WorkStep(_times(described, 1 - computes))]
    arrivals = (
        Closed(described.users, Constant(described.pause_s)) if described.users else Open(described.per_second or 0.0)
    )
    return Class(name, arrivals, [step for step in work if step.takes.mean > 0])


def _times(described: RequestClass, share: float) -> Distribution:
    """Return the durations, each multiplied by a share."""
    match described.takes_s:
        case Between(least=least, most=most):
            return Uniform(least * share, most * share)
        case Mean(mean=mean):
            return Exponential(mean * share)
        case list(measured):
            return Given(np.array(measured) * share)
        case seconds:
            return Constant(seconds * share)
