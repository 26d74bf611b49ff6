"""stampede.report.workers: a worker has the same name everywhere."""

import pytest

from stampede.evaluate.metrics.workers import labels


@pytest.mark.parametrize(
    ("workers", "called"),
    [
        (["box:10", "box:9"], {"box:9": "worker 1", "box:10": "worker 2"}),
        (["b:7", "a:7", "a:7"], {"a:7": "container 1", "b:7": "container 2"}),
        (["b:7", "a:10", "a:9"], {"a:9": "container 1, worker 1", "a:10": "container 1, worker 2",
                                  "b:7": "container 2, worker 1"}),
        ([], {}),
    ],
    ids=["one container", "a worker in each container", "several workers in a container", "nobody"],
)  # fmt: skip
def test_workers_are_counted_in_the_order_of_forking(workers: list[str], called: dict[str, str]) -> None:
    """Process numbers are compared as numbers, and containers as texts."""
    assert list(labels(workers).items()) == list(called.items())
