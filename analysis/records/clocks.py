"""What was found of the clocks of several machines, as a summary keeps it."""

from analysis.records.model import Record, TrialPart


class MachineClock(Record):
    """The clock of one machine in one trial, and the containers there by their hosts and files of points.

    When the clock showed ``since`` (epoch seconds), it was ``ahead_ms`` ahead of the lab's clock, and it gained
    ``drift_ppm`` microseconds in every second. During the load, it was never more than ``uncertain_ms`` from this.
    """

    machine: str
    hosts: list[str]
    generators: list[str]
    since: float
    ahead_ms: float
    drift_ppm: float
    uncertain_ms: float


class TrialClocks(TrialPart):
    """The clocks in a trial whose containers ran on several machines.

    ``apart_ms`` is how far the difference between the clocks of ``pair``, the machines of a load generator and of a
    server, may be from what was found. No other pair is less certain. None: no request went to another machine.
    """

    pair: tuple[str, str] | None
    apart_ms: float
    machines: list[MachineClock]
