"""When the requests of a burst were answered, and in which waves they were served."""

import altair as alt
import duckdb

from stampede.evaluate.metrics import bursts
from stampede.evaluate.metrics.workers import labels
from stampede.records.plural import plural
from stampede.records.run import TABLED_BURST, Run, VariantRecord
from stampede.records.summary import Summary, WaveRow
from stampede.report.figures.drawing import (
    CROSS,
    FAILED,
    LIGHT,
    MEASURED,
    PUBLISHED,
    WIDTH,
    Marks,
    divisor_subtitle,
    inline_data,
    panel_title,
    read_first_trials,
    style_chart,
    time_axis,
)
from stampede.report.wording import load_suffix

_WAITS = "it waits"
_AT_WORK = "a worker is at work on it"
_WORKERS = ("#1f5fa8", "#e69f00", "#2e8b57", "#a0529c", "#56b4e9", "#8c564b", "#7f7f7f", "#17becf")
"""The colours of workers. If there are more workers than colours, all workers have the same colour."""
_AS_PUBLISHED = "answered, as published"
_POINTS = {_AS_PUBLISHED: ("diamond", PUBLISHED), FAILED: (CROSS, "black")}


def staircase(database: duckdb.DuckDBPyConnection, run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw for each request of a small burst when it waited, when a worker was at work on it, and when it was answered.

    The picture shows the first burst of each variant's first trusted trial. None: there is no such burst.
    """
    size = run.load(load).burst
    if not size or not run.load(load).has_small_bursts:
        return None
    told = read_first_trials(run, summary, load, lambda key: bursts.read_first_burst(database, key, size))
    if not told:
        return None
    most = max(len({stair.worker for stair in stairs if stair.worker}) for stairs in told.values())
    published = {row.variant: row.published for row in summary.completion_times if row.load == load and row.published}
    marks = {
        name: _marks(stairs, published.get(name, []), by_worker=1 < most <= len(_WORKERS))
        for name, stairs in told.items()
    }
    seen = {mark["kind"] for burst in marks.values() for mark in burst}
    lasted_s = max(mark["to"] for burst in marks.values() for mark in burst) or 1.0
    panels = [_panel(name, told[name], marks[name], seen, lasted_s, last=name == [*told][-1]) for name in told]
    came = f"One of {size} requests kills its worker" if run.load(load).crashes else f"{size} requests at once"
    title = f"{came}: how long each waits, and when a worker is at work on it{load_suffix(run, load)}"
    which = "first burst of each variant, invalid trials left out; each row is a request, in order of completion"
    return style_chart(
        alt.vconcat(*panels, spacing=8), title, which + divisor_subtitle(run, "response_time", load), None
    )


def _marks(stairs: list[bursts.BurstRequest], published_ms: list[float], *, by_worker: bool) -> Marks:
    """Return the marks of one burst: the place of a request, what happened to the request, from and to which second."""
    over_s = max(stair.sent_s if stair.answered_s is None else stair.answered_s for stair in stairs)
    named = labels(stair.worker for stair in stairs if stair.worker)
    marks: Marks = []
    for place, stair in enumerate(stairs, start=1):
        until_s = over_s if stair.answered_s is None else stair.answered_s
        marks.append({"place": place, "kind": _WAITS, "from": stair.sent_s, "to": until_s})
        if stair.failed:
            marks.append({"place": place, "kind": FAILED, "from": until_s, "to": until_s})
        elif stair.worker:
            kind = f"{named[stair.worker]} is at work" if by_worker else _AT_WORK
            marks.append({"place": place, "kind": kind, "from": stair.began_s, "to": stair.ended_s})
    return marks + [
        {"place": place, "kind": _AS_PUBLISHED, "from": time_ms / 1000, "to": time_ms / 1000}
        for place, time_ms in enumerate(published_ms, start=1)
    ]


def _panel(
    name: str, stairs: list[bursts.BurstRequest], marks: Marks, seen: set[str], lasted_s: float, *, last: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw the bars of one variant; all panels share the time axis, and the last panel has its labels."""
    places = max(mark["place"] for mark in marks)
    x = time_axis("from:Q", lasted_s, "seconds since the burst was sent", last=last)
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
        return alt.Chart(inline_data([mark for mark in marks if mark["kind"] in kinds]))

    layers = [
        of(kinds).mark_bar(height={"band": 0.75}).encode(x=x, x2="to:Q", y=y, color=colour)
        for kinds in ({_WAITS}, {*workers})
    ]
    if points:
        looks = {"shape": shape.legend(orient="top"), "stroke": stroke.legend(orient="top")}
        layers.append(
            of({*points}).mark_point(size=26, strokeWidth=1.4, fill="white", opacity=1).encode(x=x, y=y, **looks)
        )
    title = panel_title(f"{name}: {_answered(stairs)}")
    height = (8 if places <= TABLED_BURST else 5) * places
    return alt.layer(*layers).properties(title=title, width=WIDTH, height=max(18, height))


def _answered(stairs: list[bursts.BurstRequest]) -> str:
    answered_s = [stair.answered_s for stair in stairs if stair.answered_s is not None and not stair.failed]
    failed = f"{len(stairs) - len(answered_s)} of {len(stairs)} {FAILED}" if len(answered_s) < len(stairs) else ""
    if not answered_s:
        return failed
    first, last = f"the first answer after {min(answered_s):.2f} s", f"the last after {max(answered_s):.2f} s"
    return ", ".join([first, last, *([failed] if failed else [])])


def wave_cells(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw how many requests of a large burst each worker began in each wave, including idle workers.

    None: there is no large burst, or its requests were not served in waves.
    """
    if run.load(load).has_small_bursts:
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
    title = f"Waves: how many requests each worker began in each wave{load_suffix(run, load)}"
    which = "first burst of each variant, invalid trials left out; a wave lasts as long as one request asks for"
    return style_chart(alt.vconcat(*panels, spacing=10), title, which, None)


def _wave_cells(
    variant: VariantRecord, rows: list[WaveRow], most: int, largest: int, *, last: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw one variant's cells up to its last wave; all panels share the axis of waves, and the last has its labels."""
    named = labels(row.worker for row in rows)
    idle = 0 if variant.elastic else max(0, variant.workers - len(named))
    lanes = [*named.values(), *(f"idle worker {place}" for place in range(1, idle + 1))]
    counts = {(named[row.worker], row.wave): row.requests for row in rows}
    its_waves = range(1, max(row.wave for row in rows) + 1)
    cells = [
        {"lane": lane, "wave": wave, "requests": counts.get((lane, wave), 0)} for lane in lanes for wave in its_waves
    ]
    width = min(WIDTH, 60 * most)
    x = alt.X("wave:O", title="wave, counted from the first request that a worker began" if last else None)
    labelled = [wave for wave in range(1, most + 1) if most <= 20 or wave % 5 == 0 or wave == 1]
    x = x.axis(values=labelled, labels=last, ticks=False, labelAngle=0, domain=False).scale(
        domain=[*range(1, most + 1)]
    )
    y = alt.Y("lane:N", title=None, sort=lanes, axis=alt.Axis(minExtent=70, ticks=False, domain=False))
    colour = alt.Color("requests:Q", title="requests that the worker began in the wave")
    colour = colour.scale(range=["#f1f4f8", LIGHT, MEASURED], domain=[0, largest / 2, largest])
    colour = colour.legend(orient="top", gradientLength=160, titleLimit=300)
    chart = alt.Chart(inline_data(cells)).encode(x=x, y=y)
    boxes = chart.mark_rect(stroke="white", strokeWidth=1).encode(color=colour)
    written = alt.condition(f"datum.requests > {largest * 0.7}", alt.value("white"), alt.value("#333"))
    texts = chart.mark_text(fontSize=10 if width / most >= 16 else 7).encode(text="requests:Q", color=written)
    served = sum(row.requests for row in rows)
    in_all = f"{served} requests in {plural(len(its_waves), 'wave')}"
    title = panel_title(f"{variant.name}: {in_all}")
    return alt.layer(boxes, texts).properties(title=title, width=width, height=18 * len(lanes))
