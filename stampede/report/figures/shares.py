"""How many requests each worker served, and whether even shares go with short waits."""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import altair as alt
import duckdb

from stampede.evaluate.metrics.bursts import ordinal
from stampede.evaluate.metrics.workers import labels
from stampede.records.claims import Measure
from stampede.records.plural import plural
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.figures.drawing import (
    FLOOR_MS,
    LIGHT,
    MEASURED,
    PUBLISHED,
    each_trial_subtitle,
    inline_data,
    kind_colours,
    measured_in_trials,
    measured_rows,
    shape_scale,
    style_chart,
    variant_axis,
    variant_names,
)
from stampede.report.wording import load_suffix


def worker_shares(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin:
    """Draw the share of the requests that each worker answered, measured and published, the busiest worker first.

    A measured share is the mean over the trials: of the busiest worker of each trial, of the second busiest, and so on.
    """
    order = [variant.name for variant in run.variants_under(load)]
    by_trial: dict[tuple[str, str], dict[int, list[float]]] = {}
    for row in summary.workers:
        if row.load == load and row.request_class:
            by_trial.setdefault((row.variant, row.request_class), {}).setdefault(row.trial, []).append(row.share)
    values = []
    for variant, request_class in sorted(by_trial, key=lambda key: (order.index(key[0]), key[1])):
        sorted_shares = (sorted(shares, reverse=True) for shares in by_trial[variant, request_class].values())
        ranked = zip_longest(*sorted_shares, fillvalue=0.0)
        values += _segments(variant, request_class, "measured", [sum(shares) for shares in ranked])
    for entry in run.published:
        if entry.counts and entry.load in (None, load):
            values += _segments(entry.variant, entry.request_class or "", "published", entry.counts)
    most = max((segment["rank"] for segment in values), default=1)
    ranks = ["the busiest", *(ordinal(rank) for rank in range(2, 1 + most))]
    values = [segment | {"called": ranks[segment["rank"] - 1]} for segment in values]
    bars = (
        alt.Chart(inline_data(values))
        .mark_bar(stroke="white", strokeWidth=1)
        .encode(
            x=alt.X("share:Q", title="share of the requests", axis=alt.Axis(format="%")).scale(domain=[0, 1]),
            y=variant_axis(order),
            yOffset=alt.YOffset("kind:N", sort=["published", "measured"]),
            color=alt.Color("called:O", title="worker of a trial", sort=ranks).scale(
                scheme="blues", reverse=True, domain=ranks
            ),
            opacity=alt.Opacity("kind:N", title=None).scale(domain=["measured", "published"], range=[1, 0.45]),
            order=alt.Order("rank:Q"),
            column=alt.Column("request:N", title=None),
        )
        .properties(width=250, height=34 * len(order))
    )
    trials = plural(run.trials, "trial")
    mean = f"mean of {trials}; in each trial, the busiest worker first" if run.trials > 1 else trials
    return style_chart(bars, "Which share of the requests each worker answered", mean, None)


def share_and_tail(run: Run, summary: Summary, load: str, request_class: str) -> alt.TopLevelMixin | None:
    """Draw the busiest worker's share beside the overhead's p99, a row for each variant; None: too few have both.

    The picture shows whether even shares go with short waits: the shares are sorted, and the waits are not.
    """
    tails = measured_rows(summary, load, Measure(request_class=request_class, metric="overhead", stat="p99"))
    largest = Measure(request_class=request_class, metric="requests_by_worker", stat="largest_share")
    shares = measured_rows(summary, load, largest)
    several = [
        variant.name for variant in run.variants if variant.workers > 1 and variant.name in tails.keys() & shares
    ]
    if len(several) < 2:
        return None
    order = sorted(several, key=lambda name: shares[name].measured or 0.0)
    y = variant_axis(order, grid=True)
    share = alt.X("value:Q", title="share of the busiest worker", axis=alt.Axis(format="%"), scale=alt.Scale(zero=True))
    tail = alt.X("value:Q", title="p99 of the overhead, ms", scale=alt.Scale(type="log", nice=False, padding=10))
    panels = (
        measured_in_trials(shares, order, 0.0, share, y),
        measured_in_trials(tails, order, FLOOR_MS, tail, y.axis(grid=True, labels=False, ticks=False)),
    )
    both = alt.hconcat(*(panel.properties(width=260, height=30 * len(order)) for panel in panels))
    title = f"Even shares do not mean short waits: {request_class} requests"
    return style_chart(both, title, f"the most even variant first; {each_trial_subtitle(run)}", None)


def shares_by_age(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw the share of the requests that each worker of one container served, in the order of forking.

    Each dot is a worker in one trial; lines are medians. None: no variant has several workers in a single container.
    """
    trusted = {row.key for row in summary.trials if row.is_trusted}
    values = []
    for variant, under, trial in sorted(trusted):
        served = {
            row.worker.rpartition(":")[::2]: row.counts["served"]
            for row in summary.counters
            if (row.variant, row.load, row.trial) == (variant, load, trial) and "served" in row.counts
        }
        if under != load or len(served) < 2 or len({host for host, _ in served}) > 1 or not sum(served.values()):
            continue
        for age, worker in enumerate(sorted(served, key=lambda worker: int(worker[1])), start=1):
            values.append({"variant": variant, "age": age, "share": served[worker] / sum(served.values())})
    if not values:
        return None
    order = [variant.name for variant in run.variants if any(value["variant"] == variant.name for value in values)]
    chart = alt.Chart(inline_data(values)).encode(
        x=alt.X("age:O", title="worker, in the order of forking", axis=alt.Axis(labelAngle=0)),
        color=alt.Color("variant:N", title=None, sort=order, scale=alt.Scale(domain=order)),
    )
    share = alt.Y("share:Q", title="share of the requests", axis=alt.Axis(format="%"))
    dots = chart.mark_point(filled=True, size=30, opacity=0.5).encode(y=share, shape=shape_scale("variant", order))
    medians = chart.mark_line(opacity=0.7).encode(y=alt.Y("median(share):Q"))
    title = f"Which worker wins the race: the share of each worker by its age{load_suffix(run, load)}"
    return style_chart(
        alt.layer(medians, dots), title, f"{plural(run.trials, 'trial')}; only variants with one container", 280
    )


def races(run: Run, summary: Summary, load: str) -> alt.TopLevelMixin | None:
    """Draw how often workers tried to accept each connection, and how often in vain; None: no variant counts this."""
    attempts = measured_rows(summary, load, Measure(metric="accept_attempts", stat="per_connection"))
    failures = measured_rows(summary, load, Measure(metric="accept_failures", stat="per_connection"))
    counted = [name for name in variant_names(run) if name in attempts]
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
    y = variant_axis(counted)
    colour = kind_colours({"accepted": MEASURED, "in vain": LIGHT, "published": PUBLISHED})
    x = alt.X("attempts:Q", title="attempts to accept, per connection", stack=True)
    measured = alt.Chart(inline_data(bars)).mark_bar().encode(x=x, y=y, color=colour, order=alt.Order("kind:N"))
    published = alt.Chart(inline_data(marks)).mark_point(shape="diamond", size=70, strokeWidth=1.8)
    layers = [measured] + ([published.encode(x="attempts:Q", y=y, color=colour)] if marks else [])
    title = f"How many workers try to accept one connection{load_suffix(run, load)}"
    return style_chart(alt.layer(*layers), title, f"median of {plural(run.trials, 'trial')}", 30 * len(counted))


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


def _segments(variant: str, request_class: str, kind: str, counts: Sequence[float]) -> list[dict[str, Any]]:
    return [
        {"variant": variant, "request": request_class, "kind": kind, "rank": rank, "share": count / sum(counts)}
        for rank, count in enumerate(sorted(counts, reverse=True), start=1)
    ]
