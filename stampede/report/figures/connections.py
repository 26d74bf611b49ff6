"""How many requests each connection brought to which worker."""

from collections import Counter

import altair as alt
import duckdb

from stampede.evaluate.metrics.workers import labels
from stampede.records.run import Run
from stampede.report.figures.drawing import (
    LIGHT,
    MEASURED,
    inline_data,
    kind_colours,
    style_chart,
    variant_names,
)
from stampede.report.wording import load_suffix


def connections(database: duckdb.DuckDBPyConnection, run: Run, load: str) -> alt.TopLevelMixin | None:
    """Draw how many requests each connection brought to which worker; None: each connection brought one request."""
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
    for variant in variant_names(run):
        mine = [row[1:] for row in rows if row[0] == variant]
        names = labels(row[0] for row in mine)
        singles = Counter(worker for worker, _, requests in mine if requests == 1)
        kept = [(worker, requests, "one connection") for worker, _, requests in mine if requests > 1]
        kept += [(worker, singles[worker], _SINGLES) for worker in names if singles[worker]]
        values += [
            {"variant": variant, "worker": names[worker], "requests": requests, "kind": kind, "rank": rank}
            for rank, (worker, requests, kind) in enumerate(kept)
        ]
    order = variant_names(run)
    bars = (
        alt.Chart(inline_data(values))
        .mark_bar(stroke="white", strokeWidth=0.7)
        .encode(
            x=alt.X("requests:Q", title="requests", stack=True),
            y=alt.Y("worker:N", title=None, sort=None),
            order=alt.Order("rank:Q"),
            color=kind_colours({"one connection": MEASURED, _SINGLES: LIGHT}),
            row=alt.Row("variant:N", sort=order, title=None, header=alt.Header(labelAngle=0, labelAlign="left")),
        )
        .properties(width=440, height=60)
    )
    title = f"Which connection brought the requests to which worker{load_suffix(run, load)}"
    return style_chart(bars, title, "first trial of each variant; a dark segment is one connection", None)


_SINGLES = "connections with one request each"
