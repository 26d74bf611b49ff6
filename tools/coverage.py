"""Shows how often the lab's intervals hold the true value, for docs/explain/: ``python -m tools.coverage [STUDY]``.

The simulated requests depend on each other as those of heavy-mix do: now and then a worker is full for some seconds,
and some of the requests that are sent meanwhile wait until the worker has a free thread. Each start of the servers
draws anew how often this happens. Of a study (``tools.study``) the truth is the median over all its trials.

Pooled intervals are those of runs whose single trials are too small for a p99: simulated requests of which there are
few, and the light requests of heavy-mix, as theory simulates them. The truth is the p99 of the requests of all trials.
"""

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import numpy as np

from stampede.evaluate.metrics import likely
from stampede.evaluate.metrics.likely import Times
from stampede.evaluate.statistics import intervals
from stampede.evaluate.statistics.intervals import Draw
from tools.study import drawn_pools, read, simulated_waits

SIMULATED = 300
"""How many starts are simulated for each line."""
DRAWN = 2000
LEVELS = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
SECONDS = (20, 60)
TRIALS = (2, 3, 5, 8, 12)
FULL_FOR_S = 5.0
"""How long a worker is full on average."""
RATE_PER_S, FEW_PER_S = 10.0, 3.0
LONG_S = 4000.0
"""A load of this length tells the true percentiles of one start."""

chance = np.random.default_rng(1)


def start() -> float:
    """Return for one start of the servers how many times a second a worker becomes full."""
    return float(np.exp(chance.normal(np.log(1 / 15), 0.7)))


def load(full_per_s: float, seconds: float, rate_per_s: float = RATE_PER_S) -> tuple[Times, Times]:
    """Return when the requests of one load were sent, in s, and how long each waited, in ms."""
    sent_s = np.sort(chance.uniform(0, seconds, chance.poisson(rate_per_s * seconds)))
    waited_ms = 4 * np.exp(0.3 * chance.standard_normal(sent_s.size))
    began_s = -FULL_FOR_S
    while (began_s := began_s + chance.exponential(1 / full_per_s)) < seconds:
        until_s = began_s + chance.exponential(FULL_FOR_S)
        first, last = np.searchsorted(sent_s, [began_s, until_s])
        stuck = np.arange(first, last)[chance.uniform(size=last - first) < 0.25]
        waited_ms[stuck] = np.maximum(waited_ms[stuck], 1000 * (until_s - sent_s[stuck]))
    return sent_s, waited_ms


def draws(full_per_s: float, seconds: float) -> list[Draw]:
    """Return what one load says of each percentile."""
    sent_s, waited_ms = load(full_per_s, seconds)
    likely_values = likely.likely_percentiles(waited_ms, likely.blocks(sent_s), [*LEVELS.values()])
    values = np.quantile(waited_ms, [*LEVELS.values()])
    return [Draw(float(value), some) for value, some in zip(values, likely_values, strict=True)]


def holds(interval: tuple[float, float] | None, truth: float) -> bool:
    """Whether an interval holds the true value."""
    return interval is not None and interval[0] <= truth <= interval[1]


def simulated(seconds: float) -> Iterator[tuple[str, list[float]]]:
    """Yield how often the intervals of loads of this length hold the truth: of one start, and over starts."""
    starts = [start() for _ in range(SIMULATED)]
    found = [draws(each, seconds) for each in starts]
    truths = [np.quantile(load(each, LONG_S)[1], [*LEVELS.values()]) for each in starts]
    yield (
        "this start, 1",
        [
            sum(
                holds(intervals.of_median([one[place]]), truth[place]) for one, truth in zip(found, truths, strict=True)
            )
            / SIMULATED
            for place in range(len(LEVELS))
        ],
    )
    for trials in (1, *TRIALS):
        yield (
            f"any start, {trials}",
            [_over_starts([one[place] for one in found], trials) for place in range(len(LEVELS))],
        )


def _over_starts(found: Sequence[Draw], trials: int) -> float:
    """Return how often the interval of so many trials holds the median over all starts."""
    truth, pick = median(one.value for one in found), random.Random(1)
    runs = min(DRAWN, 50 * len(found))
    return sum(holds(intervals.of_median(pick.choices(found, k=trials)), truth) for _ in range(runs)) / runs


def measured(study: Path) -> Iterator[tuple[str, list[float]]]:
    """Yield the same of measured trials of light requests, averaged over the variants of a study."""
    _, windows = read(study)
    for seconds, cells in windows.items():
        light = [ones for (_, _, request_class), ones in cells.items() if request_class == "light"]
        of_each = [
            [[one.draws["overhead", stat] for one in ones] for ones in light
             if all(("overhead", stat) in one.draws for one in ones)]
            for stat in LEVELS
        ]  # fmt: skip
        for trials in (1, *TRIALS):
            shares = [[_over_starts(found, trials) for found in some] for some in of_each]
            yield f"{seconds} s | any start, {trials}", [sum(some) / len(some) if some else 0.0 for some in shares]


def pooled(studies: Sequence[Path]) -> Iterator[tuple[str, float]]:
    """Yield how often pooled intervals of 20 s hold the p99 of all trials; of a study, averaged over its variants."""
    sources = {"simulated": [[load(start(), SECONDS[0], FEW_PER_S)[1] for _ in range(SIMULATED)]]}
    sources |= {f"{run.experiment}, theory": [*simulated_waits(run, SECONDS[0]).values()]
                for run, _ in map(read, studies)}  # fmt: skip
    for source, every in sources.items():
        for trials in TRIALS[1:]:
            shares = [_pooled_over_starts(found, trials) for found in every]
            pools = [share for share in shares if share is not None]
            yield f"{source} | {SECONDS[0]} s | any start, {trials}, pooled", sum(pools) / len(pools)


def _pooled_over_starts(found: Sequence[Times], trials: int) -> float | None:
    """Return how often the pooled interval of so many trials holds the p99 of all; None: single trials carry it."""
    truth = float(np.quantile(np.concatenate(found), LEVELS["p99"]))
    holding = [holds(interval, truth) for interval in drawn_pools(found, trials, DRAWN)]
    return sum(holding) / len(holding) if holding else None


def main() -> None:
    """Print the table in Markdown."""
    print(f"| requests | load | truth, trials | {' | '.join(LEVELS)} |\n| --- | --- | --- {'| --- ' * len(LEVELS)}|")
    lines = [
        (f"simulated | {seconds} s | {what}", shares) for seconds in SECONDS for what, shares in simulated(seconds)
    ]
    lines += [(f"heavy-mix | {what}", shares) for path in sys.argv[1:] for what, shares in measured(Path(path))]
    for what, shares in lines:
        print(f"| {what} | {' | '.join(f'{share:.0%}' for share in shares)} |")
    for what, share in pooled([*map(Path, sys.argv[1:])]):
        print(f"| {what} | – | – | {share:.0%} |", flush=True)


if __name__ == "__main__":
    main()
