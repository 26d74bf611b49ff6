"""The pictures of a report, one function each: a title that is the sentence it supports, units on every axis."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import altair as alt
import duckdb
import numpy as np
import vl_convert

from analysis import bursts, visits, waiting
from analysis.observation import read_containers, stalls_within
from analysis.quantities import Measure, Metric, Statistic, unit
from analysis.result import Row, Summary, WaveRow
from analysis.run_folder import SHOWN_STEPS, LoadRecord, Run, VariantRecord, trial_folder
from analysis.table import divided, number, of_load, percent, seconds, words

DOTS = 100
"""Each row of the overhead figure has at most this many dots."""

_MEASURED = "#1f5fa8"
_PUBLISHED = "#c4512d"
_WIDTH = 640
_FLOOR_MS = 0.1  # the left end of the logarithmic axis

_Worker = tuple[int, tuple[waiting.Segments, waiting.Segments]]


def svg(chart: alt.TopLevelMixin) -> str:
    """Draw a chart as SVG text."""
    text: str = vl_convert.vegalite_to_svg(chart.to_dict())
    return text


def classes(database: duckdb.DuckDBPyConnection, load: str) -> list[str]:
    """Return the classes of request of a load, the most frequent first."""
    rows = database.execute(
        "SELECT request FROM requests WHERE load = ? GROUP BY request ORDER BY count(*) DESC, request", [load]
    )
    return [name for (name,) in rows.fetchall()]


def overhead(
    database: duckdb.DuckDBPyConnection, run: Run, summary: Summary, load: str, request: str
) -> alt.TopLevelMixin:
    """Draw how the overhead of one class of request is distributed in every variant.

    A dot is the middle of one hundredth of the requests, so ten dots to the right of a second are a tenth of all
    requests that waited longer than that; of fewer than a hundred requests each is a dot. Diamonds are the published
    percentiles.
    """
    rows = database.execute(
        """SELECT variant, list_sort(list(overhead_ms)) FROM requests
           WHERE load = $load AND request = $request AND error IS NULL GROUP BY variant""",
        {"load": load, "request": request},
    ).fetchall()
    measured = {variant: _representatives(values) for variant, values in rows}
    order = [variant.name for variant in run.variants_under(load)]
    dots = [
        {"variant": variant, "overhead": max(value, _FLOOR_MS), "offset": _scatter(index), "kind": "measured"}
        for variant in order
        for index, value in enumerate(measured.get(variant, []))
    ]
    marks = [
        {
            "variant": row.variant,
            "overhead": max(row.published, _FLOOR_MS),
            "kind": "published",
            "label": row.stat if row.stat in ("p50", "p99") else "",  # the others would overlap
        }
        for row in summary.rows
        if row.load == load and row.request == request and row.metric == "overhead" and row.published is not None
    ]
    x = alt.X(
        "overhead:Q", title=f"overhead of {request} requests, ms", scale=alt.Scale(type="log", nice=False, padding=10)
    )
    y = alt.Y("variant:N", title=None, sort=order, axis=alt.Axis(grid=True, labelLimit=200))
    colour = alt.Color(
        "kind:N",
        title=None,
        scale=alt.Scale(domain=["measured", "published"], range=[_MEASURED, _PUBLISHED]),
        legend=alt.Legend(orient="top"),
    )
    measured_dots = (
        alt.Chart(_data(dots))
        .mark_circle(size=26, opacity=0.55)
        .encode(x=x, y=y, yOffset=alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.4, 1.4])), color=colour)
    )
    published = alt.Chart(_data(marks)).encode(x=x, y=y)
    published_marks = published.mark_point(shape="diamond", size=60, strokeWidth=1.6).encode(color=colour)
    published_names = published.mark_text(dy=-10, fontSize=9, color=_PUBLISHED).encode(text="label:N")
    counts = [len(values) for _, values in rows]
    fewest, most = (min(counts), max(counts)) if counts else (0, 0)
    size = (
        f"{fewest} to {most} requests a variant, {_of_trials(run)}"
        if fewest < most
        else f"{most} requests a variant, {_of_trials(run)}"
    )
    what = "request" if counts and max(counts) <= DOTS else "hundredth of the requests"
    layers = [measured_dots] + ([published_marks, published_names] if marks else [])
    title = _worst_and_best(summary, load, request)
    return _styled(
        alt.layer(*layers), title, f"{size}; each dot is one {what}{_divided(run, 'overhead', load)}", 46 * len(order)
    )


def workers(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin:
    """Draw which share of the requests each worker answered, measured beside published, the busiest first."""
    values = []
    for variant in run.variants_under(load):
        rows = [one for one in summary.workers if one.variant == variant.name and one.load == load and one.request]
        for request in sorted({one.request or "" for one in rows}):
            first = min(one.trial for one in rows)
            counts = [one.requests for one in rows if one.request == request and one.trial == first]
            values += _segments(variant.name, request, "measured", counts)
    for one in run.published:
        if one.counts and one.load in (None, load):
            values += _segments(one.variant, one.request or "", "published", one.counts)
    order = [variant.name for variant in run.variants_under(load)]
    bars = (
        alt.Chart(_data(values))
        .mark_bar(stroke="white", strokeWidth=1)
        .encode(
            x=alt.X("share:Q", title="share of the requests", axis=alt.Axis(format="%")).scale(domain=[0, 1]),
            y=alt.Y("variant:N", title=None, sort=order, axis=alt.Axis(labelLimit=200)),
            yOffset=alt.YOffset("kind:N", sort=["published", "measured"]),
            color=alt.Color("rank:O", title="worker, busiest first").scale(scheme="blues", reverse=True),
            opacity=alt.Opacity("kind:N", title=None).scale(domain=["measured", "published"], range=[1, 0.45]),
            order=alt.Order("rank:Q"),
            column=alt.Column("request:N", title=None),
        )
        .properties(width=250, height=34 * len(order))
    )
    return _styled(bars, "Who answered: the share of each worker", "first trial of each variant", None)


def share_and_tail(run: Run, summary: Summary, load: str, request: str) -> alt.TopLevelMixin | None:
    """Draw the busiest worker's share beside the tail of the overhead, a dot for each variant; None: too few have both.

    An even share is not the goal: who waits is. Bars are the intervals of the medians over trials.
    """
    stat: Statistic = "p99"
    tails = _rows(summary, load, Measure(request=request, metric="overhead", stat=stat))
    shares = _rows(summary, load, Measure(request=request, metric="requests_by_worker", stat="largest_share"))
    several = [one.name for one in run.variants if one.workers > 1 and one.name in tails and one.name in shares]
    if len(several) < 2:
        return None
    values = [
        {"variant": name, **_ends(shares[name], "share", 0.0), **_ends(tails[name], "tail", _FLOOR_MS)}
        for name in several
    ]
    x = alt.X("share:Q", title="share of the busiest worker", axis=alt.Axis(format="%"), scale=alt.Scale(zero=True))
    y = alt.Y("tail:Q", title=f"{stat} of the overhead, ms", scale=alt.Scale(type="log"))
    chart = alt.Chart(_data(values))
    dots = chart.mark_point(filled=True, size=70, color=_MEASURED).encode(x=x, y=y)
    across = chart.mark_rule(color=_MEASURED, opacity=0.4).encode(x="share_low:Q", x2="share_high:Q", y=y)
    along = chart.mark_rule(color=_MEASURED, opacity=0.4).encode(x=x, y="tail_low:Q", y2="tail_high:Q")
    names = chart.mark_text(align="left", dx=8, fontSize=10).encode(x=x, y=y, text="variant:N")
    title = f"Even shares and short waits are two things: {request} requests"
    return _styled(alt.layer(across, along, dots, names), title, f"each dot is a variant, {_of_trials(run)}", 320)


def by_age(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw the share of the requests that each worker of one container served, in the order in which they were forked.

    A dot is a worker of one trial, lines are medians. None: no variant has several workers in one container.
    """
    trusted = {(one.variant, one.load, one.trial) for one in summary.trials if one.verdict != "invalid"}
    values = []
    for variant, under, trial in sorted(trusted):
        served = {
            row.worker.rpartition(":")[::2]: row.counts["served"]
            for row in summary.counters
            if (row.variant, row.load, row.trial) == (variant, load, trial) and "served" in row.counts
        }
        if under != load or len(served) < 2 or len({host for host, _ in served}) > 1 or not sum(served.values()):
            continue
        for age, worker in enumerate(sorted(served, key=lambda one: int(one[1])), start=1):
            values.append({"variant": variant, "age": age, "share": served[worker] / sum(served.values())})
    if not values:
        return None
    order = [one.name for one in run.variants if any(value["variant"] == one.name for value in values)]
    chart = alt.Chart(_data(values)).encode(
        x=alt.X("age:O", title="worker, in the order of forking", axis=alt.Axis(labelAngle=0)),
        color=alt.Color("variant:N", title=None, sort=order),
    )
    share = alt.Y("share:Q", title="share of the requests", axis=alt.Axis(format="%"))
    dots = chart.mark_point(filled=True, size=30, opacity=0.5).encode(y=share)
    medians = chart.mark_line(opacity=0.7).encode(y=alt.Y("median(share):Q"))
    title = f"Who wins the race: the share of each worker by its age{of_load(run, load)}"
    return _styled(alt.layer(medians, dots), title, f"{_of_trials(run)}; variants of one container", 280)


def races(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw how often workers tried to accept for each connection, and how often in vain; None: nobody counted it."""
    attempts = _rows(summary, load, Measure(metric="accept_attempts", stat="per_connection"))
    failures = _rows(summary, load, Measure(metric="accept_failures", stat="per_connection"))
    counted = [one.name for one in run.variants if one.name in attempts and attempts[one.name].measured is not None]
    if not counted:
        return None
    bars = [
        {"variant": name, "kind": kind, "attempts": value}
        for name in counted
        for kind, value in (("accepted", 1.0), ("in vain", failures[name].measured))
    ]
    marks = [
        {"variant": name, "attempts": attempts[name].published, "kind": "published"}
        for name in counted
        if attempts[name].published is not None
    ]
    y = alt.Y("variant:N", title=None, sort=counted, axis=alt.Axis(labelLimit=200))
    colour = alt.Color("kind:N", title=None, legend=alt.Legend(orient="top")).scale(
        domain=["accepted", "in vain", "published"], range=[_MEASURED, "#a9c6e8", _PUBLISHED]
    )
    measured = (
        alt.Chart(_data(bars))
        .mark_bar()
        .encode(
            x=alt.X("attempts:Q", title="attempts to accept for each connection", stack=True),
            y=y,
            color=colour,
            order=alt.Order("kind:N"),
        )
    )
    published = alt.Chart(_data(marks)).mark_point(shape="diamond", size=70, strokeWidth=1.8)
    layers = [measured] + ([published.encode(x="attempts:Q", y=y, color=colour)] if marks else [])
    title = f"How many workers try for one connection{of_load(run, load)}"
    return _styled(alt.layer(*layers), title, f"median of {_of_trials(run)}", 30 * len(counted))


def connections(database: duckdb.DuckDBPyConnection, run: Run, load: str) -> alt.TopLevelMixin | None:
    """Draw how many requests each connection brought to which worker; None: no connection brought more than one."""
    rows = database.execute(
        """SELECT variant, worker, connection, count(*) AS requests
           FROM requests SEMI JOIN (SELECT variant, min(trial) AS trial FROM requests WHERE load = $load GROUP BY ALL)
               AS first USING (variant, trial)
           WHERE load = $load AND error IS NULL AND connection IS NOT NULL GROUP BY ALL
           ORDER BY requests DESC, worker, connection""",
        {"load": load},
    ).fetchall()
    if not any(requests > 1 for *_, requests in rows):
        return None
    values = []
    for variant in (one.name for one in run.variants):
        mine = [row[1:] for row in rows if row[0] == variant]
        names = {worker: f"worker {place}" for place, worker in enumerate(sorted({row[0] for row in mine}), start=1)}
        singles = {worker: sum(1 for one, _, requests in mine if one == worker and requests == 1) for worker in names}
        kept = [(worker, requests, "one connection") for worker, _, requests in mine if requests > 1]
        kept += [(worker, count, "connections of one request") for worker, count in singles.items() if count]
        values += [
            {"variant": variant, "worker": names[worker], "requests": requests, "kind": kind, "rank": rank}
            for rank, (worker, requests, kind) in enumerate(kept)
        ]
    order = [one.name for one in run.variants]
    bars = (
        alt.Chart(_data(values))
        .mark_bar(stroke="white", strokeWidth=0.7)
        .encode(
            x=alt.X("requests:Q", title="requests", stack=True),
            y=alt.Y("worker:N", title=None),
            order=alt.Order("rank:Q"),
            color=alt.Color("kind:N", title=None, legend=alt.Legend(orient="top")).scale(
                domain=["one connection", "connections of one request"], range=[_MEASURED, "#a9c6e8"]
            ),
            row=alt.Row("variant:N", sort=order, title=None, header=alt.Header(labelAngle=0, labelAlign="left")),
        )
        .properties(width=440, height=60)
    )
    title = f"Which connection brought the requests to which worker{of_load(run, load)}"
    return _styled(bars, title, "first trial of each variant; a segment is a connection", None)


def moments(
    database: duckdb.DuckDBPyConnection, run_folder: Path, run: Run, summary: Summary, load: str
) -> alt.TopLevelMixin | None:
    """Draw when all threads of a worker were busy, and when a request waited for it beside a free thread.

    A lane is a worker, and one has the requests that failed; the background shows when the api stalled. Of each
    variant the first trial that can be trusted. None: nobody waited so, nothing failed and nothing stalled.
    """
    drawn = {variant.name: _moments(database, run_folder, variant, summary, load) for variant in run.variants}
    told = {name: one for name, one in drawn.items() if one}
    seen = {mark["kind"] for one in told.values() for mark in one.marks}
    if seen <= {_BUSY}:
        return None
    lasted_s = max(one.lasted_s for one in told.values())
    panels = [_lanes(name, one, seen, lasted_s, last=name == [*told][-1]) for name, one in told.items()]
    title = f"Who waited beside a free thread{of_load(run, load)}"
    return _styled(
        alt.vconcat(*panels, spacing=10), title, "first valid trial of each variant; a lane is a worker", None
    )


_BUSY = "all its threads were busy"
_BESIDE = "somebody waits here while another worker has a free thread"
_STALLED = "the api stalls"
_FAILED = "refused or failed"
_CROSS = "M-1,-1L1,1M-1,1L1,-1"
_LANES = 8
"""A variant of more workers shows so many: those for which the most time was waited, and the idlest."""


class _Moments(NamedTuple):
    """What a panel shows of one trial: its marks, its lanes from top to bottom, and what is said of it."""

    marks: list[dict[str, Any]]
    lanes: list[str]
    says: str
    lasted_s: float


def _moments(
    database: duckdb.DuckDBPyConnection, run_folder: Path, variant: VariantRecord, summary: Summary, load: str
) -> _Moments | None:
    """Return what there is to show of a variant; None: no trial of it can be trusted, or nobody knows its threads."""
    trusted = {one.trial for one in summary.trials if (one.variant, one.load) == (variant.name, load)
               and one.verdict != "invalid"}  # fmt: skip
    if not trusted:
        return None
    answered = waiting.read_answered(database, variant.name, load, min(trusted))
    waits = waiting.of_variant(variant, answered)
    if not waits:
        return None
    visible_s = (answered.last - answered.first) / _WIDTH
    idle = [np.empty((0, 2))] * (variant.workers - len(answered.workers))
    workers = list(enumerate(zip([*waits.busy, *idle], [*waits.beside, *idle], strict=True), start=1))
    shown = _most_told(workers)
    marks = [
        {"lane": f"worker {place}", "kind": kind, "from": begin, "to": end}
        for place, times in shown
        for kind, segments in zip((_BUSY, _BESIDE), times, strict=True)
        for begin, end in _visible(segments, visible_s)
    ]
    failed_s = _failed_s(database, variant.name, load, min(trusted))
    marks += [{"lane": _FAILED, "kind": _FAILED, "from": at_s} for at_s in _apart(failed_s, 3 * visible_s)]
    containers = read_containers(trial_folder(run_folder, variant.name, load, min(trusted)))
    marks += [
        {"kind": _STALLED, "from": round(began - answered.first, 3), "to": round(ended - answered.first, 3)}
        for began, ended in stalls_within(containers, answered.first, answered.last)
    ]
    lanes = [f"worker {place}" for place, _ in shown] + ([_FAILED] if failed_s else [])
    says = _waited_so(waits) + (f", {len(failed_s)} {_FAILED}" if failed_s else "")
    says += f"; {len(shown)} of {len(workers)} workers are shown" if len(shown) < len(workers) else ""
    return _Moments(marks, lanes, says, answered.last - answered.first)


def _waited_so(waits: waiting.Waits) -> str:
    stats = waiting.statistics(waits.beside_s)
    if not stats.get("count"):
        return "nobody waited so"
    return f"{stats['count']} of {len(waits.beside_s)} requests waited so, the longest for {number(stats['max'])} ms"


def _failed_s(database: duckdb.DuckDBPyConnection, variant: str, load: str, trial: int) -> list[float]:
    """Return when the requests of a trial were sent that failed, in seconds since the first one."""
    rows = database.execute(
        """SELECT epoch(sent) - epoch(first) FROM (
               SELECT sent, error, min(sent) OVER () AS first FROM requests WHERE (variant, load, trial) = (?, ?, ?))
           WHERE error IS NOT NULL ORDER BY sent""",
        [variant, load, trial],
    )
    return [at_s for (at_s,) in rows.fetchall()]


def _apart(times_s: list[float], visible_s: float) -> Iterator[float]:
    """Yield the times, in order, that can be told from the one before."""
    shown = -math.inf
    for at_s in times_s:
        if at_s - shown >= visible_s:
            shown = at_s
            yield round(at_s, 3)


def _most_told(workers: list[_Worker]) -> list[_Worker]:
    """Return the workers that get a lane, in their order."""
    if len(workers) <= _LANES:
        return workers

    def total(worker: _Worker) -> tuple[float, float]:
        busy, beside = (float((times[:, 1] - times[:, 0]).sum()) for times in worker[1])
        return beside, busy

    ordered = sorted(workers, key=total, reverse=True)
    return sorted([*ordered[: _LANES - 1], ordered[-1]], key=lambda worker: worker[0])


def _visible(segments: waiting.Segments, visible_s: float) -> Iterator[tuple[float, float]]:
    """Yield segments with the gaps closed that nobody would see, each at least as wide as can be seen."""
    if not len(segments):
        return
    apart = np.flatnonzero(segments[1:, 0] - segments[:-1, 1] >= max(0.05, 1.5 * visible_s))
    starts, ends = segments[[0, *(apart + 1)], 0], segments[[*apart, -1], 1]
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield round(begin, 3), round(max(end, begin + visible_s), 3)


def _lanes(
    name: str, told: _Moments, seen: set[str], lasted_s: float, *, last: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw the lanes of one variant; the axis of time is that of all, and written below the last."""
    colours = {_BUSY: "#a9c6e8", _BESIDE: "#d62728", _STALLED: "#f6e3a8"}
    kinds = [kind for kind in colours if kind in seen | {_BUSY}]
    colour = alt.Color("kind:N", title=None).scale(domain=kinds, range=[colours[kind] for kind in kinds])
    colour = colour.legend(orient="top", columns=1, labelLimit=420, symbolType="square", symbolOpacity=1)
    x = alt.X("from:Q", title="seconds since the load began" if last else None)
    x = x.scale(domain=[0, lasted_s], nice=False).axis(labels=last, ticks=last)
    y = alt.Y("lane:N", title=None, sort=told.lanes, axis=alt.Axis(minExtent=90, ticks=False, domain=False))
    y = y.scale(domain=told.lanes)

    def of(kind: str) -> alt.Chart:
        return alt.Chart(_data([mark for mark in told.marks if mark["kind"] == kind]))

    layers = [
        of(_STALLED).mark_rect().encode(x=x, x2="to:Q", color=colour),
        of(_BUSY).mark_bar(height={"band": 0.8}).encode(x=x, x2="to:Q", y=y, color=colour),
        of(_BESIDE).mark_bar(height={"band": 0.8}).encode(x=x, x2="to:Q", y=y, color=colour),
        of(_FAILED).mark_point(shape=_CROSS, size=18, strokeWidth=1.4, color="black").encode(x=x, y=y),
    ]
    title = alt.Title(f"{name}: {told.says}", anchor="start", fontSize=11, fontWeight="normal", offset=3)
    return alt.layer(*layers).properties(title=title, width=_WIDTH, height=15 * len(told.lanes))


_WAITS = "it waits"
_AT_WORK = "a worker is at work on it"
_WORKERS = ("#1f5fa8", "#e69f00", "#2e8b57", "#a0529c", "#56b4e9", "#8c564b", "#7f7f7f", "#17becf")
"""The colours by which workers are told apart; more of them have one together."""
_AS_PUBLISHED = "answered, as published"
_POINTS = {_AS_PUBLISHED: ("diamond", _PUBLISHED), _FAILED: (_CROSS, "black")}

_Marks = list[dict[str, Any]]


def staircase(database: duckdb.DuckDBPyConnection, run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw what became of each request of a small burst: when it waited, when a worker was at work on it, the answer.

    Of each variant the first burst of the first trial that can be trusted. None: there is no such burst.
    """
    size = run.load(load).burst
    if not size or not run.load(load).has_stairs:
        return None
    firsts = _first_trials(summary, load)
    sent = {name: bursts.first(database, (name, load, firsts[name]), size) for name in _names(run) if name in firsts}
    told = {name: steps for name, steps in sent.items() if steps}
    if not told:
        return None
    most = max(len({step.worker for step in steps if step.worker}) for steps in told.values())
    published = {row.variant: row.published for row in summary.steps if row.load == load and row.published}
    marks = {
        name: _stairs(steps, published.get(name, []), by_worker=1 < most <= len(_WORKERS))
        for name, steps in told.items()
    }
    seen = {mark["kind"] for ones in marks.values() for mark in ones}
    lasted_s = max(mark["to"] for ones in marks.values() for mark in ones) or 1.0
    panels = [_steps(name, told[name], marks[name], seen, lasted_s, last=name == [*told][-1]) for name in told]
    came = f"One of {size} requests kills its worker" if run.load(load).crashes else f"{size} requests at once"
    title = f"{came}: how long each waits, and when a worker is at work on it{of_load(run, load)}"
    which = "first burst of the first valid trial of each variant; a line is a request, the first one answered above"
    return _styled(alt.vconcat(*panels, spacing=8), title, which + _divided(run, "response_time", load), None)


def _names(run: Run) -> list[str]:
    return [variant.name for variant in run.variants]


def _first_trials(summary: Summary, load: str) -> dict[str, int]:
    """Return the first trial of each variant that can be trusted."""
    trusted = [(one.variant, one.trial) for one in summary.trials if one.load == load and one.verdict != "invalid"]
    return dict(sorted(trusted, reverse=True))


def _divided(run: Run, metric: Metric, load: str) -> str:
    """Return what a subtitle adds where published figures were divided."""
    by = {one.divided_by for one in run.published if one.metric == metric and one.load in (None, load)} - {1}
    return "".join(f"; published{divided(one)}" for one in sorted(by))


def _stairs(steps: list[bursts.Step], published_ms: list[float], *, by_worker: bool) -> _Marks:
    """Return the marks of one burst: a request's place, what happened to it, from and to which second."""
    over_s = max(step.sent_s if step.answered_s is None else step.answered_s for step in steps)
    order = bursts.in_order({step.worker for step in steps if step.worker})
    marks: _Marks = []
    for place, step in enumerate(steps, start=1):
        until_s = over_s if step.answered_s is None else step.answered_s
        marks.append({"place": place, "kind": _WAITS, "from": step.sent_s, "to": until_s})
        if step.failed:
            marks.append({"place": place, "kind": _FAILED, "from": until_s, "to": until_s})
        elif step.worker:
            kind = f"worker {order.index(step.worker) + 1} is at work" if by_worker else _AT_WORK
            marks.append({"place": place, "kind": kind, "from": step.began_s, "to": step.ended_s})
    return marks + [
        {"place": place, "kind": _AS_PUBLISHED, "from": step_ms / 1000, "to": step_ms / 1000}
        for place, step_ms in enumerate(published_ms, start=1)
    ]


def _steps(
    name: str, steps: list[bursts.Step], marks: _Marks, seen: set[str], lasted_s: float, *, last: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw the bars of one variant; the axis of time is that of all, and written below the last."""
    places = max(mark["place"] for mark in marks)
    x = alt.X("from:Q", title="seconds since the burst was sent" if last else None)
    x = x.scale(domain=[0, lasted_s], nice=False).axis(labels=last, ticks=last)
    y = alt.Y("place:O", title=None).scale(domain=[*range(1, places + 1)])
    labelled = sorted({1, places, *range(10, places - 2, 10)})
    y = y.axis(values=labelled, labelFontSize=8, minExtent=30, ticks=False, domain=False, labelOverlap=False)
    workers = sorted(seen - {_WAITS, *_POINTS})
    colours = {_WAITS: "#c9d3de"} | dict(zip(workers, _WORKERS, strict=False))
    colour = alt.Color("kind:N", title=None).scale(domain=[*colours], range=[*colours.values()])
    colour = colour.legend(orient="top", columns=5, symbolType="square", symbolStrokeWidth=0, labelLimit=300)
    points = {kind: look for kind, look in _POINTS.items() if kind in seen}
    shape = alt.Shape("kind:N", title=None).scale(domain=[*points], range=[look for look, _ in points.values()])
    stroke = alt.Stroke("kind:N", title=None).scale(domain=[*points], range=[look for _, look in points.values()])

    def of(kinds: set[str]) -> alt.Chart:
        return alt.Chart(_data([mark for mark in marks if mark["kind"] in kinds]))

    layers = [
        of(kinds).mark_bar(height={"band": 0.75}).encode(x=x, x2="to:Q", y=y, color=colour)
        for kinds in ({_WAITS}, {*workers})
    ]
    if points:
        looks = {"shape": shape.legend(orient="top"), "stroke": stroke.legend(orient="top")}
        layers.append(
            of({*points}).mark_point(size=26, strokeWidth=1.4, fill="white", opacity=1).encode(x=x, y=y, **looks)
        )
    title = alt.Title(f"{name}: {_answered(steps)}", anchor="start", fontSize=11, fontWeight="normal", offset=3)
    height = (8 if places <= SHOWN_STEPS else 5) * places
    return alt.layer(*layers).properties(title=title, width=_WIDTH, height=max(18, height))


def _answered(steps: list[bursts.Step]) -> str:
    """Return in words when the requests of a burst were answered."""
    answered_s = [step.answered_s for step in steps if step.answered_s is not None and not step.failed]
    failed = f"{len(steps) - len(answered_s)} of {len(steps)} {_FAILED}" if len(answered_s) < len(steps) else ""
    if not answered_s:
        return failed
    first, last = f"the first answer after {seconds(min(answered_s))} s", f"the last after {seconds(max(answered_s))} s"
    return ", ".join([first, last, *([failed] if failed else [])])


def waves(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw how many requests of a large burst each worker began in each wave, idle workers included.

    None: there is no large burst, or it came in no waves.
    """
    if run.load(load).has_stairs:
        return None
    rows = {
        variant.name: mine
        for variant in run.variants
        if (mine := [row for row in summary.waves if (row.variant, row.load) == (variant.name, load)])
    }
    if not rows:
        return None
    most = max(row.wave for mine in rows.values() for row in mine)
    largest = max(row.requests for mine in rows.values() for row in mine)
    panels = [
        _wave_cells(run.variant(name), mine, most, largest, last=name == [*rows][-1]) for name, mine in rows.items()
    ]
    title = f"Waves: how many requests each worker was at work on, wave by wave{of_load(run, load)}"
    which = "first burst of the first valid trial of each variant; a wave lasts as long as one request asks for"
    return _styled(alt.vconcat(*panels, spacing=10), title, which, None)


def _wave_cells(
    variant: VariantRecord, rows: list[WaveRow], most: int, largest: int, *, last: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw one variant's cells up to its last wave; the axis of waves is that of all, and written below the last."""
    order = bursts.in_order({row.worker for row in rows})
    known = len(order) if variant.elastic else max(variant.workers, len(order))
    lanes = [f"worker {place}" for place in range(1, known + 1)]
    counts = {(lanes[order.index(row.worker)], row.wave): row.requests for row in rows}
    its_waves = range(1, max(row.wave for row in rows) + 1)
    cells = [
        {"lane": lane, "wave": wave, "requests": counts.get((lane, wave), 0)} for lane in lanes for wave in its_waves
    ]
    width = min(_WIDTH, 60 * most)
    x = alt.X("wave:O", title="wave, counted from the first request that a worker began" if last else None)
    labelled = [wave for wave in range(1, most + 1) if most <= 20 or wave % 5 == 0 or wave == 1]
    x = x.axis(values=labelled, labels=last, ticks=False, labelAngle=0, domain=False).scale(
        domain=[*range(1, most + 1)]
    )
    y = alt.Y("lane:N", title=None, sort=lanes, axis=alt.Axis(minExtent=70, ticks=False, domain=False))
    colour = alt.Color("requests:Q", title="requests that the worker began in the wave")
    colour = colour.scale(range=["#f1f4f8", "#a9c6e8", _MEASURED], domain=[0, largest / 2, largest])
    colour = colour.legend(orient="top", gradientLength=160, titleLimit=300)
    chart = alt.Chart(_data(cells)).encode(x=x, y=y)
    boxes = chart.mark_rect(stroke="white", strokeWidth=1).encode(color=colour)
    written = alt.condition(f"datum.requests > {largest * 0.7}", alt.value("white"), alt.value("#333"))
    texts = chart.mark_text(fontSize=10 if width / most >= 16 else 7).encode(text="requests:Q", color=written)
    served = sum(row.requests for row in rows)
    in_all = f"{served} requests in {len(its_waves)} wave{'s' if len(its_waves) > 1 else ''}"
    title = alt.Title(f"{variant.name}: {in_all}", anchor="start", fontSize=11, fontWeight="normal", offset=3)
    return alt.layer(boxes, texts).properties(title=title, width=width, height=18 * len(lanes))


_SUCCEEDED = "succeeded"
_OTHERWISE = "failed otherwise"
_FAILURES = ("#d62728", "#e69f00", "#a0529c", "#2e8b57", "#56b4e9", "#8c564b")
"""The colours of the most frequent reasons; visits that failed for another have one together."""
VISITS = 2000
"""A panel has at most about this many dots."""


def visit_times(database: duckdb.DuckDBPyConnection, run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw how long each visit took and what became of it, over when it came, a panel for each variant.

    Of each variant the first trial that can be trusted. None: no visit was made.
    """
    firsts = _first_trials(summary, load)
    read = {name: visits.read(database, (name, load, firsts[name])) for name in _names(run) if name in firsts}
    told = {name: ones for name, ones in read.items() if ones}
    if not told:
        return None
    reasons = Counter(one.outcome for ones in told.values() for one in ones if one.outcome is not None)
    colours = {_SUCCEEDED: _MEASURED} | {
        reason: colour for (reason, _), colour in zip(reasons.most_common(len(_FAILURES)), _FAILURES, strict=False)
    }
    colours |= {_OTHERWISE: "#7f7f7f"} if len(reasons) > len(_FAILURES) else {}
    lasted_s = max(one.arrived_s for ones in told.values() for one in ones) or 1.0
    longest_ms = max(1000 * one.took_s for ones in told.values() for one in ones)
    quickest_ms = min(1000 * one.took_s for ones in told.values() for one in ones)
    ends_ms = (max(_FLOOR_MS, quickest_ms / 1.3), max(1.0, longest_ms * 1.3))
    panels = [
        _visit_dots(name, ones, colours, lasted_s, ends_ms, last=name == [*told][-1]) for name, ones in told.items()
    ]
    which = "first valid trial of each variant; a dot is a visit"
    most = max(map(len, told.values()))
    which += f"; of more than {VISITS} in a panel evenly spaced ones are drawn" if most > VISITS else ""
    return _styled(alt.vconcat(*panels, spacing=10), _failing(run, summary, load), which, None)


def _visit_dots(
    name: str,
    ones: list[visits.Visit],
    colours: dict[str, str],
    lasted_s: float,
    ends_ms: tuple[float, float],
    *,
    last: bool,
) -> alt.LayerChart | alt.FacetChart:
    """Draw the visits of one variant; the axes are those of all, and time is written below the last."""
    drawn = ones if len(ones) <= VISITS else [ones[int((n + 0.5) / VISITS * len(ones))] for n in range(VISITS)]
    dots = [
        {
            "came": round(one.arrived_s, 3),
            "took": max(round(1000 * one.took_s, 2), _FLOOR_MS),
            "outcome": _OTHERWISE if (outcome := one.outcome or _SUCCEEDED) not in colours else outcome,
        }
        for one in drawn
    ]
    x = alt.X("came:Q", title="seconds since the first visit came" if last else None)
    x = x.scale(domain=[0, lasted_s], nice=False).axis(labels=last, ticks=last)
    y = alt.Y("took:Q", title="ms until it was over", axis=alt.Axis(minExtent=50, tickCount=4))
    y = y.scale(type="log", domain=[*ends_ms], nice=False)
    colour = alt.Color("outcome:N", title=None).scale(domain=[*colours], range=[*colours.values()])
    colour = colour.legend(orient="top", columns=2, labelLimit=310, symbolOpacity=1)
    circles = alt.Chart(_data(dots)).mark_circle(size=9, opacity=0.6).encode(x=x, y=y, color=colour)
    failed = sum(one.outcome is not None for one in ones)
    says = f"{name}: {failed} of {len(ones)} visits failed" if failed else f"{name}: none of {len(ones)} visits failed"
    title = alt.Title(says, anchor="start", fontSize=11, fontWeight="normal", offset=3)
    return alt.layer(circles).properties(title=title, width=_WIDTH, height=110)


def _failing(run: Run, summary: Summary, load: str) -> str:
    """Return in a sentence which share of the visits failed with which variant."""
    shares = _measured(summary, load, Measure(metric="visits_failed", stat="share"))
    if not any(shares.values()):
        return f"No visit failed{of_load(run, load)}"
    worst, best = max(shares, key=lambda name: shares[name]), min(shares, key=lambda name: shares[name])
    if shares[worst] == shares[best]:
        return f"{percent(shares[worst])} of the visits failed{of_load(run, load)}"
    others = "none" if shares[best] == 0 else percent(shares[best])
    return f"{percent(shares[worst])} of the visits failed with {worst}, {others} with {best}{of_load(run, load)}"


def failing_visits(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw which share of the visits failed over how many came in a second, a line for each variant.

    The rule is what a capacity allows. None: the rate of visits does not climb.
    """
    by_trial: dict[tuple[str, int], dict[int, tuple[int, int]]] = {}
    for row in summary.visit_steps:
        if row.load == load:
            step = by_trial.setdefault((row.variant, row.per_s), {})
            made, failed = step.get(row.trial, (0, 0))  # slow climbs have the same whole rate twice
            step[row.trial] = (made + row.visits, failed + row.failed)
    values: _Marks = [
        {"variant": variant, "per_s": per_s, "failed": median(failed / made for made, failed in told)}
        for (variant, per_s), step in by_trial.items()
        if (told := [counts for counts in step.values() if counts[0]])
    ]
    if not values or len({per_s for _, per_s in by_trial}) < 2:
        return None
    order = [name for name in _names(run) if any(value["variant"] == name for value in values)]
    rates = sorted({value["per_s"] for value in values})
    x = alt.X("per_s:Q", title="visits/s", axis=alt.Axis(values=rates, format="d", labelOverlap=True))
    x = x.scale(type="log", nice=False, padding=12)
    y = alt.Y("failed:Q", title="share of the visits that failed")
    y = y.axis(format="~%", values=_SHARES).scale(type="symlog", constant=visits.FAILED_ALLOWED, domain=[0, 1])
    chart = alt.Chart(_data(values)).encode(x=x, y=y, color=alt.Color("variant:N", title=None, sort=order))
    rule = alt.Chart(_data([{"failed": visits.FAILED_ALLOWED}])).mark_rule(color="black", strokeDash=[4, 3])
    layers = [
        rule.encode(y="failed:Q"),
        chart.mark_line(opacity=0.5),
        chart.mark_point(filled=True, size=45),
    ]
    which = f"median of {_of_trials(run)}; the rule is the {visits.FAILED_ALLOWED:.0%} that a capacity stays below"
    return _styled(alt.layer(*layers), _keeping_up(run, summary, load), which, 280)


_SHARES = [0, 0.01, 0.03, 0.1, 0.3, 1]


def _keeping_up(run: Run, summary: Summary, load: str) -> str:
    """Return in a sentence with how many visits a second which variant keeps up."""
    rates = _measured(summary, load, Measure(metric="capacity", stat="per_second"))
    tried = {row.variant for row in summary.visit_steps if row.load == load}
    tireless = [name for name in _names(run) if name in tried - rates.keys()]
    if not tireless and not any(rates.values()):
        return f"Nobody keeps up with the visits{of_load(run, load)}"
    best, worst = (choose(rates, key=lambda name: rates[name], default="") for choose in (max, min))
    says = f"{best} keeps up with {number(rates[best])} visits/s" if not tireless else (
        f"{tireless[0]} keeps up with every rate that was tried"
    )  # fmt: skip
    if rates and (tireless or rates[worst] < rates[best]):
        says += f", {worst} with {number(rates[worst])}" if rates[worst] else f", {worst} not even with the first step"
    return says + of_load(run, load)


def curve(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw what the experiment's setting does to its statistics, a panel for each; None: it asks for no curve."""
    if not run.curve:
        return None
    panels = [_panel(run, summary, load, run.curve.over, measure) for measure in run.curve.values]
    title = f"What changes with {words(run.curve.over)}{of_load(run, load)}"
    return _styled(alt.hconcat(*panels), title, f"median of {_of_trials(run)}, bars are its interval", None)


def _panel(run: Run, summary: Summary, load: str, over: str, measure: Measure) -> alt.LayerChart | alt.FacetChart:
    rows = _rows(summary, load, measure)
    of_unit = unit(measure.metric, measure.stat)
    log = of_unit == "ms"
    values = [
        {"setting": variant.settings[over], "series": series, **_ends(rows[variant.name], "value", _FLOOR_MS * log)}
        for variant, series in zip(run.variants, _series(run.variants, over), strict=True)
        if variant.name in rows
    ]
    settings = sorted({one["setting"] for one in values})
    by_number = all(type(one) in (int, float) and one > 0 for one in settings)
    x = alt.X(
        "setting:Q" if by_number else "setting:O",
        title=words(over),
        scale=alt.Scale(type="log", base=2, nice=False, padding=12) if by_number else alt.Undefined,
        axis=alt.Axis(values=settings, format="d") if by_number else alt.Axis(labelAngle=0),
    )
    what = f"{words(measure.stat)} {words(measure.metric)}" + (
        f" of {measure.request} requests" if measure.request else ""
    )
    y = alt.Y("value:Q", title=f"{what}, {of_unit}", scale=alt.Scale(type="log") if log else alt.Scale(zero=True))
    colour = alt.Color("series:N", title=None, legend=alt.Legend(orient="top", columns=2))
    chart = alt.Chart(_data(values)).encode(x=x, color=colour)
    bars = chart.mark_rule(strokeWidth=2, opacity=0.5).encode(y=alt.Y("value_low:Q"), y2="value_high:Q")
    line, points = chart.mark_line(opacity=0.4).encode(y=y), chart.mark_point(filled=True, size=60).encode(y=y)
    return alt.layer(line, bars, points).properties(width=290, height=260)


_ACROSS = Measure(metric="throughput", stat="per_second"), Measure(metric="response_time", stat="p99")


def across_loads(run: Run, summary: Summary) -> alt.TopLevelMixin | None:
    """Draw throughput and slowest responses over the one number in which the loads differ, a row for each server.

    A line is a variant, diamonds are published. None: the loads do not differ in one number alone.
    """
    setting = _only_difference(run.loads)
    if setting is None:
        return None
    servers = dict.fromkeys(str(variant.settings.get("server")) for variant in run.variants)
    rows = [
        alt.hconcat(*(_over_loads(run, summary, setting, server, measure) for measure in _ACROSS)) for server in servers
    ]
    title = f"What changes with {words(setting.lower())}"
    chart = alt.vconcat(*rows).resolve_scale(color="independent")
    return _styled(chart, title, f"median of {_of_trials(run)}, bars are its interval, diamonds are published", None)


def _only_difference(loads: list[LoadRecord]) -> str | None:
    """Return the setting that is another positive number in each of several loads, if they differ in nothing else.

    Bursts have pictures that say more.
    """
    names = {name for load in loads for name in load.settings}
    differing = [name for name in names if len({load.settings.get(name) for load in loads}) > 1]
    if len(loads) < 2 or len({load.script for load in loads}) > 1 or len(differing) != 1 or loads[0].burst:
        return None
    [name] = differing
    values = {load.settings.get(name, "") for load in loads}
    return name if len(values) == len(loads) and all(value.isdecimal() and int(value) for value in values) else None


def _over_loads(
    run: Run, summary: Summary, setting: str, server: str, measure: Measure
) -> alt.LayerChart | alt.FacetChart:
    of_server = [variant.name for variant in run.variants if str(variant.settings.get("server")) == server]
    values, marks = [], []
    for load in run.loads:
        at = {"setting": int(load.settings[setting])}
        for row in summary.rows:
            if row.load != load.name or row.variant not in of_server or (row.metric, row.stat) != (
                measure.metric, measure.stat,
            ):  # fmt: skip
                continue
            if row.request is None and row.measured is not None:
                values.append({"variant": row.variant, **at, **_ends(row, "value", 0.0)})
            if row.published is not None:
                marks.append({"variant": row.variant, **at, "value": row.published})
    settings = sorted(int(load.settings[setting]) for load in run.loads)
    x = alt.X(
        "setting:Q",
        title=words(setting.lower()),
        scale=alt.Scale(type="log", base=2, nice=False, padding=12),
        axis=alt.Axis(values=settings, format="d"),
    )
    of_unit = unit(measure.metric, measure.stat)
    what = words(measure.metric) if of_unit.endswith("/s") else f"{words(measure.stat)} {words(measure.metric)}"
    y = alt.Y("value:Q", title=f"{what}, {of_unit}", scale=alt.Scale(zero=True))
    colour = alt.Color("variant:N", title=server, sort=of_server, scale=alt.Scale(domain=of_server))
    chart = alt.Chart(_data(values)).encode(x=x, color=colour)
    layers = [
        chart.mark_rule(strokeWidth=2, opacity=0.5).encode(y=alt.Y("value_low:Q"), y2="value_high:Q"),
        chart.mark_line(opacity=0.5).encode(y=y),
        chart.mark_point(filled=True, size=40).encode(y=y),
    ]
    if marks:
        published = alt.Chart(_data(marks)).encode(x=x, y=y, color=colour)
        layers.append(published.mark_point(shape="diamond", size=110, strokeWidth=1.6))
    return alt.layer(*layers).properties(width=260, height=240)


def _series(variants: list[VariantRecord], over: str) -> list[str]:
    """Return in words what each variant differs in from the others, besides the setting along the axis."""
    differing = [
        key
        for key in dict.fromkeys(key for one in variants for key in one.settings)
        if key != over and len({repr(one.settings.get(key)) for one in variants}) > 1
    ]
    return [", ".join(f"{one.settings.get(key)} {words(key)}" for key in differing) or "all" for one in variants]


def _measured(summary: Summary, load: str, measure: Measure) -> dict[str, float]:
    """Return the measured values of one statistic by variant."""
    rows = _rows(summary, load, measure)
    return {name: row.measured for name, row in rows.items() if row.measured is not None}


def _rows(summary: Summary, load: str, measure: Measure) -> dict[str, Row]:
    """Return the measured rows of one statistic by variant."""
    wanted: tuple[str, str | None, Metric, Statistic] = (load, measure.request, measure.metric, measure.stat)
    return {
        row.variant: row
        for row in summary.rows
        if (row.load, row.request, row.metric, row.stat) == wanted and row.measured is not None
    }


def _ends(row: Row, name: str, floor: float) -> dict[str, float]:
    """Return a measured value with the ends of its interval, none of them below what an axis can show."""
    assert row.measured is not None
    low, high = (row.measured if end is None else end for end in (row.low, row.high))
    return {name: max(row.measured, floor), f"{name}_low": max(low, floor), f"{name}_high": max(high, floor)}


def _of_trials(run: Run) -> str:
    return f"{run.trials} trial{'s' if run.trials > 1 else ''}"


def _data(values: list[dict[str, Any]]) -> alt.InlineData:
    return alt.InlineData(values=values)


def across_runs(rows: list[dict[str, Any]], title: str) -> alt.TopLevelMixin:
    """Draw one statistic of every variant in several runs; ``rows`` are those of ``collection.measured``."""
    points = (
        alt.Chart(_data(rows))
        .mark_point(filled=True, size=60, opacity=0.7, color=_MEASURED)
        .encode(
            x=alt.X("value:Q", title=f"measured, {rows[0]['unit']}" if rows else None, scale=alt.Scale(type="log")),
            y=alt.Y("variant:N", title=None, axis=alt.Axis(grid=True, labelLimit=200)),
            tooltip=["run:N", "variant:N", "value:Q", "n:Q"],
        )
    )
    variants = {row["variant"] for row in rows}
    runs = {row["run"] for row in rows}
    return _styled(points, title, f"{len(runs)} runs, a dot each", 30 * max(1, len(variants)))


def _segments(variant: str, request: str, kind: str, counts: list[int]) -> list[dict[str, Any]]:
    return [
        {"variant": variant, "request": request, "kind": kind, "rank": rank, "share": count / sum(counts)}
        for rank, count in enumerate(sorted(counts, reverse=True), start=1)
    ]


def _representatives(values: list[float]) -> list[float]:
    """Return all of the sorted values, or the middles of their hundredths when there are more than that."""
    if len(values) <= DOTS:
        return values
    return [values[int((index + 0.5) / DOTS * len(values))] for index in range(DOTS)]


def _scatter(index: int) -> float:
    """Spread neighbouring dots over the height of their row, the same way every time."""
    return (index * 0.618034) % 1 * 2 - 1


def _worst_and_best(summary: Summary, load: str, request: str) -> str:
    stat: Statistic = "p99"
    values = {
        row.variant: row.measured
        for row in summary.rows
        if row.load == load and row.request == request and row.metric == "overhead" and row.stat == stat
        and row.measured is not None
    }  # fmt: skip
    if len(values) < 2:
        return f"How long {request} requests waited"
    worst, best = max(values, key=lambda name: values[name]), min(values, key=lambda name: values[name])
    return (
        f"One {request} request in a hundred waits {number(values[worst])} ms or more with {worst}, "
        f"{number(values[best])} ms with {best}"
    )


def _styled(chart: Any, title: str, subtitle: str, height: int | None) -> alt.TopLevelMixin:  # noqa: ANN401
    if height is not None:
        chart = chart.properties(width=_WIDTH, height=height)
    styled: alt.TopLevelMixin = (
        chart.properties(title=alt.Title(title, subtitle=subtitle, anchor="start", subtitleColor="#555"))
        .configure(font="Arial, Helvetica, sans-serif", padding={"left": 24, "right": 90, "top": 5, "bottom": 5})
        .configure_view(stroke=None)
        .configure_axis(gridColor="#e4e4e4", domainColor="#999")
    )
    return styled
