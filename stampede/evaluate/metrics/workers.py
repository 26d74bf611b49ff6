"""What workers are called: the same label in every picture, table and sentence."""

from collections.abc import Iterable


def labels(workers: Iterable[str]) -> dict[str, str]:
    """Return the label of each worker (host:pid): by container, and in each container in the order of forking.

    A worker's number is its place in the order of forking. If there are several containers, the label names the
    container, and if each container has a single worker, the container alone.
    """
    ordered = sorted(set(workers), key=lambda worker: (worker.rpartition(":")[0], len(worker), worker))
    of_host: dict[str, list[str]] = {}
    for worker in ordered:
        of_host.setdefault(worker.rpartition(":")[0], []).append(worker)
    if len(of_host) <= 1:
        return {worker: f"worker {place}" for place, worker in enumerate(ordered, start=1)}
    alone = all(len(mine) == 1 for mine in of_host.values())
    return {
        worker: f"container {number}" + ("" if alone else f", worker {place}")
        for number, mine in enumerate(of_host.values(), start=1)
        for place, worker in enumerate(mine, start=1)
    }
