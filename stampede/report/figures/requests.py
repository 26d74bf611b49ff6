"""Pictures of single requests, drawn from the rows of trials: overhead and bursts."""

import altair as alt
import duckdb

from stampede.evaluate.metrics import MetricName, bursts
from stampede.evaluate.metrics.workers import labels
from stampede.records.run import TABLED_BURST, Run
from stampede.records.summary import Summary
from stampede.records.words import plural
from stampede.report.figures.drawing import (
    CROSS,
    FLOOR_MS,
    MEASURED,
    PUBLISHED,
    WIDTH,
    Marks,
    inline_data,
    jitter,
    style_chart,
    variant_axis,
)
from stampede.report.wording import divisor_suffix, load_suffix, number

DOTS = 100
"""Each row of the overhead figure has at most so many dots."""
FAILED = "refused or failed"


def _divisor_subtitle(run: Run, metric: MetricName, load: str) -> str:
    """Return the end of a subtitle that says by what published figures were divided; empty if they were not."""
    by = {row.divided_by for row in run.published if row.metric == metric and row.load in (None, load)} - {1}
    return "".join(f"; published{divisor_suffix(divisor)}" for divisor in sorted(by))


def overhead(
    database: duckdb.DuckDBPyConnection, run: Run, summary: Summary, load: str, request_class: str
) -> alt.TopLevelMixin:
    """Draw how the overhead of one class of request is distributed in every variant.

    Each dot is the middle of one hundredth of the requests. So ten dots to the right of 1 s mean that a tenth of the
    requests waited longer than 1 s. If there are at most a hundred requests, each dot is a request. Diamonds are the
    published percentiles.
    """
    rows = database.execute(
        """SELECT variant, list_sort(list(overhead_ms)) FROM requests
           WHERE load = $load AND request_class = $request_class AND error IS NULL GROUP BY variant""",
        {"load": load, "request_class": request_class},
    ).fetchall()
    parts = [(n + 0.5) / DOTS for n in range(DOTS)]
    measured = {
        variant: values if len(values) <= DOTS else [values[int(part * len(values))] for part in parts]
        for variant, values in rows
    }
    order = [variant.name for variant in run.variants_under(load)]
    dots = [
        {"variant": variant, "overhead": max(value, FLOOR_MS), "offset": jitter(index), "kind": "measured"}
        for variant in order
        for index, value in enumerate(measured.get(variant, []))
    ]
    marks = [
        {
            "variant": row.variant,
            "overhead": max(row.published, FLOOR_MS),
            "kind": "published",
            "label": row.stat if row.stat in ("p50", "p99") else "",  # other labels would overlap
        }
        for row in summary.rows
        if (row.load, row.request_class, row.metric) == (load, request_class, "overhead") and row.published is not None
    ]
    scale = alt.Scale(type="log", nice=False, padding=10)
    x = alt.X("overhead:Q", title=f"overhead of {request_class} requests, ms", scale=scale)
    y = variant_axis(order)
    kinds = alt.Scale(domain=["measured", "published"], range=[MEASURED, PUBLISHED])
    colour = alt.Color("kind:N", title=None, legend=alt.Legend(orient="top"), scale=kinds)
    offset = alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.4, 1.4]))
    circles = alt.Chart(inline_data(dots)).mark_circle(size=26, opacity=0.55)
    layers = [circles.encode(x=x, y=y, yOffset=offset, color=colour)]
    if marks:
        published = alt.Chart(inline_data(marks)).encode(x=x, y=y)
        layers += [
            published.mark_point(shape="diamond", size=60, strokeWidth=1.6).encode(color=colour),
            published.mark_text(dy=-10, fontSize=9, color=PUBLISHED).encode(text="label:N"),
        ]
    counts = [len(values) for _, values in rows] or [0]
    fewest, most = min(counts), max(counts)
    size = f"{fewest} to {most}" if fewest < most else f"{most}"
    what = "request" if 0 < most <= DOTS else "hundredth of the requests"
    subtitle = f"{size} requests a variant, {plural(run.trials, 'trial')}; each dot is one {what}"
    subtitle += _divisor_subtitle(run, "overhead", load)
    return style_chart(alt.layer(*layers), worst_and_best(summary, load, request_class), subtitle, 46 * len(order))


def worst_and_best(summary: Summary, load: str, request_class: str) -> str:
    """Return the p99 of the worst and the best variant in words, or their p90 if a variant has no p99."""
    rows = [
        row
        for row in summary.rows
        if (row.load, row.request_class, row.metric) == (load, request_class, "overhead") and row.measured is not None
    ]
    variants = {row.variant for row in rows}
    for stat, part in (("p99", "a hundred"), ("p90", "ten")):
        values = {row.variant: row.measured or 0.0 for row in rows if row.stat == stat}
        if len(values) == len(variants) > 1:
            worst, best = max(values, key=lambda name: values[name]), min(values, key=lambda name: values[name])
            return (
                f"One {request_class} request in {part} waits {number(values[worst])} ms or more with {worst}, "
                f"{number(values[best])} ms with {best}"
            )
    return f"How long {request_class} requests waited"


_WAITS, _AT_WORK, _AS_PUBLISHED = "it waits", "a worker is at work on it", "answered, as published"
_WORKERS = ("#1f5fa8", "#e69f00", "#2e8b57", "#a0529c", "#56b4e9", "#8c564b", "#7f7f7f", "#17becf")
"""The colours of workers. If there are more workers than colours, all workers have the same colour."""
_POINTS = {_AS_PUBLISHED: ("diamond", PUBLISHED), FAILED: (CROSS, "black")}


def staircase(database: duckdb.DuckDBPyConnection, run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw for each request of a small burst when it waited, when a worker was at work on it, and when it was answered.

    The picture shows the first burst of each variant's first trusted trial. None: there is no such burst.
    """
    size = run.load(load).burst
    if not size or not run.load(load).has_small_bursts:
        return None
    firsts = summary.first_trials(load)
    found = {
        variant.name: bursts.read_first_burst(database, (variant.name, load, firsts[variant.name]), size)
        for variant in run.variants
        if variant.name in firsts
    }
    told = {name: stairs for name, stairs in found.items() if stairs}
    if not told:
        return None
    most = max(len({stair.worker for stair in stairs if stair.worker}) for stairs in told.values())
    published = {row.variant: row.published for row in summary.completion_times if row.load == load and row.published}
    marks: dict[str, Marks] = {}
    for name, stairs in told.items():  # what happened to the request at each place, from and to which second
        over_s = max(stair.sent_s if stair.answered_s is None else stair.answered_s for stair in stairs)
        named, mine = labels(stair.worker for stair in stairs if stair.worker), marks.setdefault(name, [])
        for place, stair in enumerate(stairs, start=1):
            until_s = over_s if stair.answered_s is None else stair.answered_s
            mine.append({"place": place, "kind": _WAITS, "from": stair.sent_s, "to": until_s})
            if stair.failed:
                mine.append({"place": place, "kind": FAILED, "from": until_s, "to": until_s})
            elif stair.worker:
                kind = f"{named[stair.worker]} is at work" if 1 < most <= len(_WORKERS) else _AT_WORK
                mine.append({"place": place, "kind": kind, "from": stair.began_s, "to": stair.ended_s})
        for place, time_ms in enumerate(published.get(name) or [], start=1):
            mine.append({"place": place, "kind": _AS_PUBLISHED, "from": time_ms / 1000, "to": time_ms / 1000})
    seen = {mark["kind"] for burst in marks.values() for mark in burst}
    lasted_s = max(mark["to"] for burst in marks.values() for mark in burst) or 1.0
    panels = [_burst_panel(name, told[name], marks[name], seen, lasted_s, last=name == [*told][-1]) for name in told]
    came = f"One of {size} requests kills its worker" if run.load(load).crashes else f"{size} requests at once"
    title = f"{came}: how long each waits, and when a worker is at work on it{load_suffix(run, load)}"
    which = "first burst of each variant, invalid trials left out; each row is a request, in order of completion"
    which += _divisor_subtitle(run, "response_time", load)
    return style_chart(alt.vconcat(*panels, spacing=8), title, which, None)


def _burst_panel(
    name: str, stairs: list[bursts.BurstRequest], marks: Marks, seen: set[str], lasted_s: float, *, last: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw the bars of one variant; all panels share the time axis, and the last panel has its labels."""
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

    def of(kinds: set[str]) -> alt.Chart:
        return alt.Chart(inline_data([mark for mark in marks if mark["kind"] in kinds]))

    layers = [
        of(kinds).mark_bar(height={"band": 0.75}).encode(x=x, x2="to:Q", y=y, color=colour)
        for kinds in ({_WAITS}, {*workers})
    ]
    if points := {kind: look for kind, look in _POINTS.items() if kind in seen}:
        looks = [
            channel("kind:N", title=None).scale(domain=[*points], range=[look[place] for look in points.values()])
            .legend(orient="top")
            for place, channel in enumerate((alt.Shape, alt.Stroke))
        ]  # fmt: skip
        drawn = of({*points}).mark_point(size=26, strokeWidth=1.4, fill="white", opacity=1)
        layers.append(drawn.encode(x=x, y=y, shape=looks[0], stroke=looks[1]))
    answered_s = [stair.answered_s for stair in stairs if stair.answered_s is not None and not stair.failed]
    says = []
    if answered_s:
        says = [f"the first answer after {min(answered_s):.2f} s", f"the last after {max(answered_s):.2f} s"]
    if len(answered_s) < len(stairs):
        says.append(f"{len(stairs) - len(answered_s)} of {len(stairs)} {FAILED}")
    height = (8 if places <= TABLED_BURST else 5) * places
    title = alt.Title(f"{name}: {', '.join(says)}", anchor="start", fontSize=11, fontWeight="normal", offset=3)
    return alt.layer(*layers).properties(title=title, width=WIDTH, height=max(18, height))
