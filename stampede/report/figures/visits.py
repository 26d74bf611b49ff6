"""Which visits failed, at which rate."""

from collections import Counter
from statistics import median
from typing import NamedTuple

import altair as alt
import duckdb

from stampede.evaluate.metrics import visits
from stampede.evaluate.metrics.rates import climb_of
from stampede.records.claims import Measure
from stampede.records.plural import plural
from stampede.records.run import LoadRecord, Run
from stampede.records.summary import Summary
from stampede.report.figures.drawing import (
    FLOOR_MS,
    MEASURED,
    WIDTH,
    Marks,
    inline_data,
    measured_values,
    panel_title,
    read_first_trials,
    style_chart,
    time_axis,
    variant_names,
)
from stampede.report.wording import load_suffix, number, percent

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


class _Limit(NamedTuple):
    """What limits a rate that climbs: the share of the visits that fail, or of the requests that are late."""

    metric: str
    allowed: float
    what: str
    happens: str
    happened: str
    up_to: str


def _limit(load: LoadRecord) -> _Limit:
    climb = climb_of(load)
    if climb is None:
        return _Limit("capacity", visits.FAILED_ALLOWED, "visits", "fail", "failed", "the capacity")
    late = f"late by more than {climb.late_ms:g} ms"
    return _Limit("rate_within", climb.late_share, "requests", f"are {late}", f"were {late}", "the highest rate")


def failures_by_rate(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw the share of the visits that failed, or of the requests that were late, over the rate, a line per variant.

    The dashed line is the share that defines the capacity, or the highest rate. None: the rate does not climb.
    """
    limit = _limit(run.load(load))
    by_trial: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for row in summary.rate_steps:
        if row.load == load:
            level = by_trial.setdefault((row.variant, row.per_s), {})
            made, failed = level.get(row.trial, (0, 0))  # in a slow climb, two levels may have the same rounded rate
            level[row.trial] = (made + row.visits, failed + row.failed)
    values: Marks = [
        {"variant": variant, "per_s": per_s, "failed": median(failed / made for made, failed in told)}
        for (variant, per_s), level in by_trial.items()
        if (told := [counts for counts in level.values() if counts[0]])
    ]
    if not values or len({per_s for _, per_s in by_trial}) < 2:
        return None
    order = [name for name in variant_names(run) if any(value["variant"] == name for value in values)]
    rates = sorted({value["per_s"] for value in values})
    x = alt.X("per_s:Q", title=f"{limit.what}/s", axis=alt.Axis(values=rates, format="d", labelOverlap=True))
    x = x.scale(type="log", nice=False, padding=12)
    y = alt.Y("failed:Q", title=f"share of the {limit.what} that {limit.happened}")
    y = y.axis(format="~%", values=_SHARES).scale(type="symlog", constant=limit.allowed, domain=[0, 1])
    chart = alt.Chart(inline_data(values)).encode(x=x, y=y, color=alt.Color("variant:N", title=None, sort=order))
    rule = alt.Chart(inline_data([{"failed": limit.allowed}])).mark_rule(color="black", strokeDash=[4, 3])
    layers = [
        rule.encode(y="failed:Q"),
        chart.mark_line(opacity=0.5),
        chart.mark_point(filled=True, size=45),
    ]
    allowed = f"up to {limit.up_to}, fewer than {100 * limit.allowed:g}% {limit.happens} (dashed line)"
    which = f"median of {plural(run.trials, 'trial')}; {allowed}"
    return style_chart(alt.layer(*layers), _keeping_up(run, summary, load, limit), which, 280)


_SHARES = [0, 0.01, 0.03, 0.1, 0.3, 1]


def _keeping_up(run: Run, summary: Summary, load: str, limit: _Limit) -> str:
    """Return a sentence about the visits or requests per second with which the best and worst variant keep up."""
    rates = measured_values(summary, load, Measure(metric=limit.metric, stat="per_second"))
    tried = {row.variant for row in summary.rate_steps if row.load == load}
    tireless = [name for name in variant_names(run) if name in tried - rates.keys()]
    if not tireless and not any(rates.values()):
        return f"No variant keeps up with the {limit.what}{load_suffix(run, load)}"
    best, worst = (choose(rates, key=lambda name: rates[name], default="") for choose in (max, min))
    says = f"{best} keeps up with {number(rates[best])} {limit.what}/s" if not tireless else (
        f"{tireless[0]} keeps up with every rate that was tried"
    )  # fmt: skip
    if rates and (tireless or rates[worst] < rates[best]):
        says += f", {worst} with {number(rates[worst])}" if rates[worst] else f", {worst} not even with the first step"
    return says + load_suffix(run, load)
