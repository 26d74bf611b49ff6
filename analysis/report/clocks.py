"""What is shown of the clocks of several machines."""

from analysis.records.run import Run
from analysis.records.summary import Summary, TrialClocks
from analysis.report.grids import TextGrid
from analysis.report.words import number


def worst_clocks(summary: Summary) -> TrialClocks | None:
    """Return the clocks of the trial whose clocks are the least certain; None: every trial ran on one machine."""
    return max(summary.clocks, key=lambda one: one.apart_ms, default=None)


def clocks_grid(run: Run, clocks: TrialClocks) -> TextGrid:
    """Return the table of the clocks in one trial."""
    load = f", {clocks.load}" if len(run.loads) > 1 else ""
    trial = f", trial {clocks.trial}" if run.trials > 1 else ""
    return TextGrid(
        f"Clocks in the trial in which they are the least certain: {clocks.variant}{load}{trial}",
        ("machine", "ahead of the lab, ms", "gains, ppm", "uncertain, ± ms"),
        [
            (one.machine, number(one.ahead_ms), number(one.drift_ppm), number(one.uncertain_ms))
            for one in clocks.machines
        ],
    )


def certain(clocks: TrialClocks) -> str:
    """Return in words how well the clocks of load generators and servers are known against each other."""
    if clocks.pair is None:
        return "No request went from one machine to another machine"
    asking, serving = clocks.pair
    return (
        f"Times of {asking} and {serving} can be compared to within ± {number(clocks.apart_ms)} ms; the intervals of "
        "all figures that compare times of several machines allow for this"
    )
