"""What the advice says: a table of ways, why, and the configuration to paste."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from rich.console import Console
from rich.text import Text

from analysis.improvement import compare_ways, suspicion
from analysis.lookup import STATISTICS, Figures, Lost
from analysis.replay import Replayed
from analysis.result import Summary
from analysis.show.diagnosed import how_many
from analysis.show.grids import TextGrid
from analysis.show.spread import spread, value_and_spread
from analysis.show.terminal import text_table
from analysis.show.words import number, percent
from lab.advice.load import Load
from lab.advice.ranking import Ranked, headroom
from lab.advice.ways import Way

MOST_CLASSES = 2
"""So many classes of requests have a column each; of more classes, the one that loses most has the only column."""


def print_advice(console: Console, chosen: Sequence[Ranked], now: Ranked | None, load: Load) -> None:
    """Print the ways, today's last, with a sentence each, and the configuration of the first."""
    names = list(chosen[0].p99_ms)
    shown = names if len(names) <= MOST_CLASSES else [max(names, key=lambda name: chosen[-1].p99_ms.get(name, 0.0))]
    lines = [_line(str(place), one, shown, load) for place, one in enumerate(chosen, start=1)]
    if now:
        lines.append(_line("", now, shown, load))
    head = ("", "way to serve", "w x t", *(f"{name}: p50, p99" for name in shown), "beside", "MiB", "up to")
    title = "Predicted: what requests lose, in ms; the waits beside a free thread; the load"
    console.print()
    console.print(text_table(TextGrid(title, head, lines, words=2)))
    console.print()
    for place, one in enumerate(chosen, start=1):
        console.print(Text(f"{place}  {one.way.kind.why}"))
    best = chosen[0].way
    console.print()
    console.print(Text(f"To serve with {best.workers} x {best.threads} ({best.kind.says}):\n", style="bold"))
    console.print(best.configuration(), markup=False, highlight=False)


def print_whether_it_held(console: Console, summary: Summary, tried: Sequence[Way]) -> None:
    """Print what was measured of each way that was tried, and whether the first was as good as the best of them."""
    names = [way.name for way in tried]
    lost = {
        (row.variant, row.request or "", row.stat): row
        for row in summary.rows
        if row.metric == "overhead" and row.request and row.measured is not None
    }
    compared = {
        request: stat for request in sorted({request for _, request, _ in lost})
        if (stat := next((one for one in STATISTICS if all((name, request, one) in lost for name in names)), None))
    }  # fmt: skip
    rows = [lost[name, request, stat] for request, stat in compared.items() for name in names]
    lines = [
        (row.variant, f"{row.request} {row.stat}", number(row.predicted), number(row.measured),
         spread([*row.values.values()], row.low, row.high))
        for row in rows
    ]  # fmt: skip
    head = ("way", "class", "predicted", "measured", "interval or trials")
    console.print()
    console.print(text_table(TextGrid("Tried: what requests lose, in ms", head, lines, words=2)))
    console.print()
    console.print(Text(verdict(summary, names), style="bold"))


def verdict(summary: Summary, tried: Sequence[str]) -> str:
    """Say whether the first way was as good as the best of all that were tried, in every class, as far as trials tell.

    If intervals do not come apart, the trials are too few to tell; a single trial never tells.
    """
    first, figures = tried[0], Figures(summary)
    compared = [(way, one) for way in tried[1:] for one in compare_ways(figures, first, way) if one.stat]
    reason = suspicion(summary, tried)
    doubt = f" (suspect: {reason})" if reason else ""
    better = [(way, one) for way, one in compared if one.outcome == "better"]
    saved = [(way, one) for way, one in compared if one.outcome == "open" and one.saves]
    if better or saved:
        way, one = max(better or saved, key=lambda found: found[1].before.ms - found[1].after.ms)
        lead = "The advice did not hold" if better else "Too few trials to tell whether the advice held"
        told = f"{one.request} {one.stat} is {_lost(one.before)} ms with {first}, and {_lost(one.after)} ms with {way}."
        return f"{lead}{doubt}: {told}" + ("" if better else f" {how_many(one.trials_needed, summary.round_s)}")
    if not compared:
        return "Whether the advice held is unknown, because no percentile was measured of all ways."
    nothing = f"of all that were tried, nothing was faster than {first} by more than 10 % and 5 ms."
    if left := [one.trials_needed for _, one in compared if one.outcome == "open"]:
        needed = None if None in left else max(one for one in left if one is not None)
        return f"As far as these trials tell, the advice held{doubt}: {nothing} {how_many(needed, summary.round_s)}"
    return f"The advice held{doubt}: {nothing}"


def _lost(lost: Lost) -> str:
    return value_and_spread(lost.ms, lost.values, lost.low, lost.high)


def print_replayed(console: Console, title: str, before: Replayed, after: Sequence[Replayed]) -> None:
    """Print which requests waited, and which of them would have waited with each way to serve them."""
    lines = []
    for one in (before, *after):
        still, new = int((one.waited & before.waited).sum()), int((one.waited & ~before.waited).sum())
        waits = number(1000 * float(np.quantile(one.waits_s, 0.99))), number(1000 * float(one.waits_s.max()))
        says = one.kind.says if one.kind else "measured"
        lines.append((says, f"{one.workers} x {one.threads}", str(int(one.waited.sum())), str(still), str(new), *waits))
    head = ("way to serve", "w x t", "waited", "of those", "others", "p99 ms", "longest ms")
    console.print()
    console.print(text_table(TextGrid(f"{title}: {len(before.waits_s)} requests, replayed", head, lines)))
    console.print()
    console.print(Text(
        "Each request is sent when it was sent, and works for as long as it worked. It waited if its work began more "
        "than 50 ms after it was sent; of those: requests that also waited when they were measured; others: requests "
        "that did not. A user who had waited less would have sent the next request earlier.", style="dim",
    ))  # fmt: skip


def _line(place: str, one: Ranked, names: Sequence[str], load: Load) -> tuple[str, ...]:
    one = replace(one, headroom=headroom(one.way, load))
    return (
        place,
        one.way.kind.says,
        f"{one.way.workers} x {one.way.threads}",
        *(f"{number(one.p50_ms.get(name))}, {number(one.p99_ms.get(name))}" for name in names),
        percent(one.beside) if one.refused <= 0.001 else f"{percent(one.refused)} refused",
        f"{one.way.memory_mib:.0f}",
        "waits" if one.headroom is None else f"{one.headroom:g} x",
    )
