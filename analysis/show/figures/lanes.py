"""When requests waited beside a free thread."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import duckdb
import numpy as np

from analysis import waiting
from analysis.folder import trial_folder
from analysis.read.observation import read_containers, stalls_within
from analysis.record import Run, VariantRecord
from analysis.result import Summary
from analysis.show.figures.drawing import CROSS, FAILED, WIDTH, inline_data, styled
from analysis.show.words import number, of_load

_Worker = tuple[int, tuple[waiting.Segments, waiting.Segments]]


def moments(
    database: duckdb.DuckDBPyConnection, run_folder: Path, run: Run, summary: Summary, load: str
) -> alt.TopLevelMixin | None:
    """Draw when all threads of a worker were busy, and when a request waited for the worker beside a free thread.

    Each lane is a worker; one more lane shows the requests that failed. The background shows when ``api`` stalled. The
    picture shows each variant's first trusted trial. None: no request waited beside a free thread or failed, and
    ``api`` did not stall.
    """
    drawn = {variant.name: _moments(database, run_folder, variant, summary, load) for variant in run.variants}
    told = {name: one for name, one in drawn.items() if one}
    seen = {mark["kind"] for one in told.values() for mark in one.marks}
    if seen <= {_BUSY}:
        return None
    lasted_s = max(one.lasted_s for one in told.values())
    panels = [_lanes(name, one, seen, lasted_s, last=name == [*told][-1]) for name, one in told.items()]
    title = f"When requests waited beside a free thread{of_load(run, load)}"
    return styled(
        alt.vconcat(*panels, spacing=10),
        title,
        "first trial of each variant, invalid trials left out; a lane is a worker",
        None,
    )


_BUSY = "all threads of the worker are busy"
_BESIDE = "a request waits for the worker while another worker has a free thread"
_STALLED = "the api stalls"
_LANES = 8
"""A panel shows at most this many workers: the workers for which requests waited longest, and the idlest worker."""


class _Moments(NamedTuple):
    """What a panel shows of one trial: marks, lanes from top to bottom, and the text of the panel's title."""

    marks: list[dict[str, Any]]
    lanes: list[str]
    says: str
    lasted_s: float


def _moments(
    database: duckdb.DuckDBPyConnection, run_folder: Path, variant: VariantRecord, summary: Summary, load: str
) -> _Moments | None:
    """Return what a panel shows of a variant; None: it has no trusted trial, or its number of threads is unknown."""
    trusted = {one.trial for one in summary.trials if (one.variant, one.load) == (variant.name, load)
               and one.verdict != "invalid"}  # fmt: skip
    if not trusted:
        return None
    answered = waiting.read_answered(database, variant.name, load, min(trusted))
    waits = waiting.of_variant(variant, answered)
    if not waits:
        return None
    visible_s = (answered.last - answered.first) / WIDTH
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
    marks += [{"lane": FAILED, "kind": FAILED, "from": at_s} for at_s in _apart(failed_s, 3 * visible_s)]
    containers = read_containers(trial_folder(run_folder, variant.name, load, min(trusted)))
    marks += [
        {"kind": _STALLED, "from": round(began - answered.first, 3), "to": round(ended - answered.first, 3)}
        for began, ended in stalls_within(containers, answered.first, answered.last)
    ]
    lanes = [f"worker {place}" for place, _ in shown] + ([FAILED] if failed_s else [])
    says = _waited_so(waits) + (f", {len(failed_s)} {FAILED}" if failed_s else "")
    says += f"; {len(shown)} of {len(workers)} workers are shown" if len(shown) < len(workers) else ""
    return _Moments(marks, lanes, says, answered.last - answered.first)


def _waited_so(waits: waiting.Waits) -> str:
    stats = waiting.statistics(waits.beside_s)
    if not stats.get("count"):
        return "no request waited beside a free thread"
    some = f"{stats['count']} of {len(waits.beside_s)} requests"
    return f"{some} waited beside a free thread, the longest for {number(stats['max'])} ms"


def _failed_s(database: duckdb.DuckDBPyConnection, variant: str, load: str, trial: int) -> list[float]:
    """Return when the failed requests of a trial were sent, in seconds since the first request was sent."""
    rows = database.execute(
        """SELECT epoch(sent) - epoch(first) FROM (
               SELECT sent, error, min(sent) OVER () AS first FROM requests WHERE (variant, load, trial) = (?, ?, ?))
           WHERE error IS NOT NULL ORDER BY sent""",
        [variant, load, trial],
    )
    return [at_s for (at_s,) in rows.fetchall()]


def _apart(times_s: list[float], visible_s: float) -> Iterator[float]:
    """Yield the sorted times, without times that are too near to the time before to be told apart."""
    shown = -math.inf
    for at_s in times_s:
        if at_s - shown >= visible_s:
            shown = at_s
            yield round(at_s, 3)


def _most_told(workers: list[_Worker]) -> list[_Worker]:
    """Return the workers that get a lane, in the order of their numbers."""
    if len(workers) <= _LANES:
        return workers

    def total(worker: _Worker) -> tuple[float, float]:
        busy, beside = (float((times[:, 1] - times[:, 0]).sum()) for times in worker[1])
        return beside, busy

    ordered = sorted(workers, key=total, reverse=True)
    return sorted([*ordered[: _LANES - 1], ordered[-1]], key=lambda worker: worker[0])


def _visible(segments: waiting.Segments, visible_s: float) -> Iterator[tuple[float, float]]:
    """Yield segments that are wide enough to be seen, and close gaps that are too narrow to be seen."""
    if not len(segments):
        return
    apart = np.flatnonzero(segments[1:, 0] - segments[:-1, 1] >= max(0.05, 1.5 * visible_s))
    starts, ends = segments[[0, *(apart + 1)], 0], segments[[*apart, -1], 1]
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        yield round(begin, 3), round(max(end, begin + visible_s), 3)


def _lanes(
    name: str, told: _Moments, seen: set[str], lasted_s: float, *, last: bool
) -> alt.LayerChart | alt.FacetChart:
    """Draw the lanes of one variant; all panels share the time axis, and the last panel has its labels."""
    colours = {_BUSY: "#a9c6e8", _BESIDE: "#d62728", _STALLED: "#f6e3a8"}
    kinds = [kind for kind in colours if kind in seen | {_BUSY}]
    colour = alt.Color("kind:N", title=None).scale(domain=kinds, range=[colours[kind] for kind in kinds])
    colour = colour.legend(orient="top", columns=1, labelLimit=420, symbolType="square", symbolOpacity=1)
    x = alt.X("from:Q", title="seconds since the load began" if last else None)
    x = x.scale(domain=[0, lasted_s], nice=False).axis(labels=last, ticks=last)
    y = alt.Y("lane:N", title=None, sort=told.lanes, axis=alt.Axis(minExtent=90, ticks=False, domain=False))
    y = y.scale(domain=told.lanes)

    def of(kind: str) -> alt.Chart:
        return alt.Chart(inline_data([mark for mark in told.marks if mark["kind"] == kind]))

    layers = [
        of(_STALLED).mark_rect().encode(x=x, x2="to:Q", color=colour),
        of(_BUSY).mark_bar(height={"band": 0.8}).encode(x=x, x2="to:Q", y=y, color=colour),
        of(_BESIDE).mark_bar(height={"band": 0.8}).encode(x=x, x2="to:Q", y=y, color=colour),
        of(FAILED).mark_point(shape=CROSS, size=18, strokeWidth=1.4, color="black").encode(x=x, y=y),
    ]
    title = alt.Title(f"{name}: {told.says}", anchor="start", fontSize=11, fontWeight="normal", offset=3)
    return alt.layer(*layers).properties(title=title, width=WIDTH, height=15 * len(told.lanes))
