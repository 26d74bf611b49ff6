"""Who used the machine's processors during the load: the workers, or what their output and everything else cost."""

from collections.abc import Iterator
from dataclasses import dataclass

from analysis.metrics.sizes import megabytes
from analysis.records.run import TODAY, Run
from analysis.report.words import number
from analysis.statistics.losses import Figures

BUSY = 0.7
"""From this part of all processors on, the machine is busy."""
WORKERS_OWN = 0.5
"""If the workers use less than this part of what is used, others keep the machine busy."""
MUCH_BYTES, MUCH_BYTES_PER_S = 10_000, 1_000_000
"""The workers write much if they write more than this for each request, or in each second."""


@dataclass(frozen=True)
class ProcessorUse:
    """How busy the machine was with today's way to serve, and what the workers used and wrote; None: not known.

    ``busy`` is a share of all ``cores``; ``workers`` is in processors. ``output`` is in bytes a request, and
    ``output_rate`` in bytes a second.
    """

    cores: float
    busy: float | None
    workers: float | None
    output: float | None
    output_rate: float | None

    @property
    def is_busy_elsewhere(self) -> bool:
        """Whether the machine was busy, mostly with something other than the workers."""
        if self.busy is None or self.workers is None or not self.cores:
            return False
        return self.busy >= BUSY and self.workers < WORKERS_OWN * self.busy * self.cores

    @property
    def writes_much(self) -> bool:
        """Whether the workers write so much to their output that handling it costs time."""
        return (self.output or 0) > MUCH_BYTES or (self.output_rate or 0) > MUCH_BYTES_PER_S

    @property
    def may_delay_work(self) -> bool:
        """Whether requests may be at work for longer because of the machine or of their output."""
        return self.is_busy_elsewhere or self.writes_much


def processor_use(figures: Figures, run: Run, busy: float | None) -> ProcessorUse:
    """Return who used the processors with today's way to serve. ``busy`` is the share of all processors."""
    rate = figures.value(TODAY, None, "throughput", "per_second")
    each_ms = figures.value(TODAY, None, "processor", "per_request")
    output = figures.value(TODAY, None, "output", "per_request")
    workers = None if each_ms is None or rate is None else each_ms * rate / 1000
    output_rate = None if output is None or rate is None else output * rate
    return ProcessorUse(run.host.cores, busy, workers, output, output_rate)


def processor_sentences(use: ProcessorUse) -> Iterator[str]:
    """Say who kept the processors busy if it was not the workers, and what the workers' output costs."""
    if use.is_busy_elsewhere:
        assert use.busy is not None
        assert use.workers is not None
        rest = number(use.busy * use.cores - use.workers)
        lead = (
            f"The machine was {use.busy:.0%} busy during the load, but the workers used only {number(use.workers)} of "
            f"its {use.cores:g} processors."
        )
        if use.writes_much:
            yield f"{lead} The other {rest} went to the engine, which handles the output, and to other programs."
        else:
            yield (
                f"{lead} The other {rest} went to the load generator, the engine or other programs, so this run cannot "
                "tell whether requests wait inside the application. Measure again on a machine that is not busy."
            )
    if use.writes_much:
        assert use.output is not None
        each_s = f", {megabytes(use.output_rate)} a second" if use.output_rate else ""
        yield (
            f"The workers write {megabytes(use.output)} a request to their output{each_s}. The engine reads and stores "
            "all of it, which takes processor time, and a worker that writes faster than the engine reads waits "
            "meanwhile. Log less, and measure again."
        )
