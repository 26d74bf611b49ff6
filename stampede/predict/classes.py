"""Classes of requests as a person describes them, for the simulator."""

from stampede.predict.system import distribution
from stampede.records.classes import RequestClass
from stampede.theory.model import Class, Closed, Constant, Open, WorkStep


def simulated_class(name: str, described: RequestClass, unknown: float = 0.0) -> Class:
    """Return the class for the simulator: a request first computes its part, and then waits.

    ``unknown`` is the part that a request computes if the description does not say it.
    """
    computes = unknown if described.computes is None else described.computes
    work = [
        WorkStep(distribution(described.takes_s, computes), "compute"),
        WorkStep(distribution(described.takes_s, 1 - computes)),
    ]
    arrivals = (
        Closed(described.users, Constant(described.pause_s)) if described.users else Open(described.per_second or 0.0)
    )
    return Class(name, arrivals, [step for step in work if step.takes.mean > 0])
