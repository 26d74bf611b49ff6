"""When visits came, how long they took, and which failed."""

from collections import Counter

import altair as alt
import duckdb

from stampede.evaluate.metrics import visits
from stampede.records.claims import Measure
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.figures.drawing import (
    FLOOR_MS,
    MEASURED,
    WIDTH,
    inline_data,
    measured_values,
    panel_title,
    read_first_trials,
    style_chart,
    time_axis,
)
from stampede.report.wording import load_suffix, percent

_SUCCEEDED = "succeeded"
_OTHERWISE = "failed for another reason"
_FAILURES = ("#d62728", "#e69f00", "#a0529c", "#2e8b57", "#56b4e9", "#8c564b")
"""The colours of the most frequent reasons; all other reasons together have one more colour."""
VISITS = 2000
"""A panel has at most this many dots."""


def visit_times(database: duckdb.DuckDBPyConnection, run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw when each visit came, how long it took, and whether it succeeded or why it failed; a panel for each variant.

    The picture shows each variant's first trusted trial. None: no visit was made.
    """
    told = read_first_trials(run, summary, load, lambda key: visits.read_visits(database, key))
    if not told:
        return None
    shown = [visit for made in told.values() for visit in made]
    reasons = Counter(visit.outcome for visit in shown if visit.outcome is not None)
    colours = {_SUCCEEDED: MEASURED} | {
        reason: colour for (reason, _), colour in zip(reasons.most_common(len(_FAILURES)), _FAILURES, strict=False)
    }
    colours |= {_OTHERWISE: "#7f7f7f"} if len(reasons) > len(_FAILURES) else {}
    lasted_s = max(visit.arrived_s for visit in shown) or 1.0
    took_ms = [1000 * visit.took_s for visit in shown]
    ends_ms = (max(FLOOR_MS, min(took_ms) / 1.3), max(1.0, max(took_ms) * 1.3))
    panels = [
        _visit_dots(name, made, colours, lasted_s, ends_ms, last=name == [*told][-1]) for name, made in told.items()
    ]
    which = "first trial of each variant, invalid trials left out; a dot is a visit"
    most = max(map(len, told.values()))
    which += f"; a panel shows at most {VISITS} visits, evenly spaced" if most > VISITS else ""
    return style_chart(alt.vconcat(*panels, spacing=10), _failing(run, summary, load), which, None)


def _visit_dots(
    name: str,
    made: list[visits.Visit],
    colours: dict[str, str],
    lasted_s: float,
    ends_ms: tuple[float, float],
    *,
    last: bool,
) -> alt.LayerChart | alt.FacetChart:
    """Draw the visits of one variant; all panels share the axes, and the last panel has the labels of the time axis."""
    drawn = made if len(made) <= VISITS else [made[int((n + 0.5) / VISITS * len(made))] for n in range(VISITS)]
    dots = [
        {
            "came": round(visit.arrived_s, 3),
            "took": max(round(1000 * visit.took_s, 2), FLOOR_MS),
            "outcome": _OTHERWISE if (outcome := visit.outcome or _SUCCEEDED) not in colours else outcome,
        }
        for visit in drawn
    ]
    x = time_axis("came:Q", lasted_s, "seconds since the first visit came", last=last)
    y = alt.Y("took:Q", title="visit time, ms", axis=alt.Axis(minExtent=50, tickCount=4))
    y = y.scale(type="log", domain=[*ends_ms], nice=False)
    colour = alt.Color("outcome:N", title=None).scale(domain=[*colours], range=[*colours.values()])
    colour = colour.legend(orient="top", columns=2, labelLimit=310, symbolOpacity=1)
    circles = alt.Chart(inline_data(dots)).mark_circle(size=9, opacity=0.6).encode(x=x, y=y, color=colour)
    failed = sum(visit.outcome is not None for visit in made)
    says = f"{name}: {failed} of {len(made)} visits failed" if failed else f"{name}: none of {len(made)} visits failed"
    title = panel_title(says)
    return alt.layer(circles).properties(title=title, width=WIDTH, height=110)


def _failing(run: Run, summary: Summary, load: str) -> str:
    """Return a sentence about the share of visits that failed with the worst and with the best variant."""
    shares = measured_values(summary, load, Measure(metric="visits_failed", stat="share"))
    if not any(shares.values()):
        return f"No visit failed{load_suffix(run, load)}"
    worst, best = max(shares, key=lambda name: shares[name]), min(shares, key=lambda name: shares[name])
    if shares[worst] == shares[best]:
        return f"{percent(shares[worst])} of the visits failed{load_suffix(run, load)}"
    others = "none" if shares[best] == 0 else percent(shares[best])
    return f"{percent(shares[worst])} of the visits failed with {worst}, {others} with {best}{load_suffix(run, load)}"
