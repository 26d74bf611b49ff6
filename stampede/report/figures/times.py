"""How long requests took, beside published figures."""

import altair as alt
import duckdb

from stampede.records.plural import plural
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.figures.drawing import (
    FLOOR_MS,
    MEASURED,
    PUBLISHED,
    divisor_subtitle,
    inline_data,
    jitter,
    kind_colours,
    style_chart,
    variant_axis,
)
from stampede.report.wording import number

DOTS = 100
"""Each row of the overhead figure has at most this many dots."""


def request_classes(database: duckdb.DuckDBPyConnection, load: str) -> list[str]:
    """Return the classes of request of a load, the most frequent first."""
    rows = database.execute(
        "SELECT request_class FROM requests WHERE load = ? GROUP BY ALL ORDER BY count(*) DESC, request_class",
        [load],
    )
    return [name for (name,) in rows.fetchall()]


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
    measured = {variant: _representatives(values) for variant, values in rows}
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
    x = alt.X(
        "overhead:Q",
        title=f"overhead of {request_class} requests, ms",
        scale=alt.Scale(type="log", nice=False, padding=10),
    )
    y = variant_axis(order, grid=True)
    colour = kind_colours({"measured": MEASURED, "published": PUBLISHED})
    measured_dots = (
        alt.Chart(inline_data(dots))
        .mark_circle(size=26, opacity=0.55)
        .encode(x=x, y=y, yOffset=alt.YOffset("offset:Q", scale=alt.Scale(domain=[-1.4, 1.4])), color=colour)
    )
    published = alt.Chart(inline_data(marks)).encode(x=x, y=y)
    published_marks = published.mark_point(shape="diamond", size=60, strokeWidth=1.6).encode(color=colour)
    published_names = published.mark_text(dy=-10, fontSize=9, color=PUBLISHED).encode(text="label:N")
    counts = [len(values) for _, values in rows] or [0]
    fewest, most = min(counts), max(counts)
    size = f"{fewest} to {most}" if fewest < most else f"{most}"
    size += f" requests a variant, {plural(run.trials, 'trial')}"
    what = "request" if 0 < most <= DOTS else "hundredth of the requests"
    layers = [measured_dots] + ([published_marks, published_names] if marks else [])
    title = worst_and_best(summary, load, request_class)
    subtitle = f"{size}; each dot is one {what}{divisor_subtitle(run, 'overhead', load)}"
    return style_chart(alt.layer(*layers), title, subtitle, 46 * len(order))


def _representatives(values: list[float]) -> list[float]:
    """Return all of the sorted values, or the middle of each hundredth if there are more than a hundred values."""
    if len(values) <= DOTS:
        return values
    return [values[int((index + 0.5) / DOTS * len(values))] for index in range(DOTS)]


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
