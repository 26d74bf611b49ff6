"""What the advice says: a table of ways, why, and the configuration to paste."""

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, sqrt

import numpy as np
from rich.console import Console
from rich.text import Text

from analysis.predict.what_if import WhatIf
from analysis.records.summary import Summary
from analysis.report.spread import spread, trials_that_tell, value_and_spread
from analysis.report.tables import Table
from analysis.report.terminal import terminal_table
from analysis.report.wording import number, percent
from analysis.statistics.losses import PERCENTILES, Figures, Loss, compare_losses, suspect_reason
from lab.apps.advise.assumptions import Assumption, ranked_for_all
from lab.apps.advise.service import Service
from lab.serving.offered import OfferedLoad
from lab.serving.options import ServingOption
from lab.serving.ranking import RankedOption, best_of, headroom

MOST_CLASSES = 2
"""So many classes of requests have a column each; of more classes, the one that loses most has the only column."""


def print_advice(
    console: Console, chosen: Sequence[RankedOption], now: RankedOption | None, load: OfferedLoad, memory_of: str | None
) -> None:
    """Print the ways, today's last, with a sentence each, and the configuration of the first.

    ``memory_of`` says whose memory the column of memory is; None: there is no such column.
    """
    names = list(chosen[0].p99_ms)
    shown = names if len(names) <= MOST_CLASSES else [max(names, key=lambda name: chosen[-1].p99_ms.get(name, 0.0))]
    lines = [_line(str(place), one, shown, load, memory_of) for place, one in enumerate(chosen, start=1)]
    if now:
        lines.append(_line("", now, shown, load, memory_of))
    memory = ["MiB"] if memory_of else []
    head = ("", "way to serve", "w x t", *(f"{name}: p50, p99" for name in shown), "beside", *memory, "up to")
    title = "Predicted: what requests lose, in ms; the waits beside a free thread; the load"
    console.print()
    console.print(terminal_table(Table(title, head, lines, words=2)))
    if memory_of:
        console.print(Text(f"MiB: of {memory_of}.", style="dim"))
    _print_why(console, [one.option for one in chosen])
    _print_configuration(console, chosen[0].option)


def _print_why(console: Console, chosen: Sequence[ServingOption]) -> None:
    console.print()
    for place, way in enumerate(chosen, start=1):
        console.print(Text(f"{place}  {way.kind.reason}"))


def _print_configuration(console: Console, best: ServingOption) -> None:
    console.print()
    console.print(Text(f"To serve with {best.workers} x {best.threads} ({best.kind.label}):\n", style="bold"))
    console.print(best.variant.deployment(), markup=False, highlight=False)


def print_work(console: Console, service: Service) -> None:
    """Print how much work a described service has, and what its file leaves open."""
    rate = sum(one.at_most_per_second for one in service.at_peak.values())
    when = " in the busiest minute" if service.peak > 1 else ""
    least, most = (ceil(service.at_work + times * sqrt(service.at_work)) for times in _SPARE)
    spare = f"{least}" if least == most else f"{least} to {most}"
    console.print()
    console.print(Text(
        f"{number(rate)} requests per second{when} keep {number(service.at_work)} workers at work on average, if a "
        f"worker serves one request at a time (sync). With {spare} such workers, or threads, few requests "
        "wait."
    ))  # fmt: skip
    if service.clock == "balancer":
        console.print(
            Text("The durations are a balancer's, so they contain every wait for a worker; there may be less work.")
        )
    if service.unknown:
        console.print(Text(
            f"The file does not say how much requests of {_listed(service.unknown)} compute. If it is all of the time, "
            f"the load needs {number(service.cores_at_most)} cores (cores: {service.cores}); if nothing, hardly any."
        ))  # fmt: skip
    if service.cores_at_most > service.cores:
        console.print(
            Text(
                f"If requests compute all that they may, no way can carry the load with cores: {service.cores}.",
                style="bold",
            )
        )
    if service.load().least_workers > 1:
        console.print(Text(
            "One process is left out: its threads share one interpreter lock, so it computes on one core at most."
        ))  # fmt: skip
    if service.worker_mib is None:
        console.print(Text("Memory is left out: worker_mib is missing. make try measures it (MiB / workers)."))


_SPARE = (1.0, 1.5)
"""Square-root staffing (Halfin and Whitt, 1981): a requests at work need a + b √a workers. With b = 1 about one request
in four waits, with b = 1.5 about one in ten."""


def print_bounds(console: Console, service: Service) -> None:
    """Print what durations with waits say of the work: between which bounds it lies, and how to measure it."""
    least = sum(one.at_work * min(1.0, one.shortest_s / one.mean_s) for one in service.at_peak.values())
    console.print()
    console.print(
        Text("The durations include waits (waits: true), so they do not say how long requests work.", style="bold")
    )
    console.print(Text(
        f"The load needs between {number(least)} and {number(service.at_work)} workers at work on average"
        f"{' in the busiest minute' if service.peak > 1 else ''}. No way to serve can be ranked by that: a way with "
        "more threads would look good because requests waited for threads.\n\n"
        "Take the log of the server itself: gunicorn's %(L)s or %(D)s begin when a worker takes a request. nginx's "
        "$upstream_response_time does not help, because requests wait in the server's queue. Or take a log of an hour "
        "when nobody waited, and multiply its rates."
    ))  # fmt: skip


def print_advice_for_all(console: Console, found: Sequence[Assumption], service: Service) -> None:
    """Print the ways under each assumption of how much requests compute, and the way that is good under all of them."""
    names, good = ranked_for_all(found)
    possible = [one for one in found if one.ways]
    worst = possible[-1]
    chosen = [one.option for one in best_of([worst.ways[name] for name in names], MOST_WAYS)]
    up_to = [headroom(way, worst.load) for way in chosen] if len(possible) == len(found) else []
    lines = []
    for place, way in enumerate(chosen):
        lost = [number(max(one.ways[way.name].p99_ms.values())) if one.ways else "–" for one in found]
        memory = [f"{way.memory_mib:.0f}"] if service.worker_mib else []
        room = ["waits" if up_to[place] is None else f"{up_to[place]:g} x"] if up_to else []
        lines.append((str(place + 1), way.kind.label, f"{way.workers} x {way.threads}", *lost, *memory, *room))
    head = ("", "way to serve", "w x t", *(f"{one.computes:.0%}" for one in found),
            *(["MiB"] if service.worker_mib else []), *(["up to"] if up_to else []))  # fmt: skip
    title = "Predicted: p99 of what requests lose, in ms, of the class that loses most, if requests compute so much"
    console.print()
    console.print(terminal_table(Table(title, head, lines, words=2)))
    _print_why(console, chosen)
    console.print()
    if len(possible) == 1:
        console.print(
            Text(f"Only if requests compute {possible[0].computes:.0%} of their time can this machine serve them.")
        )
    if good and len(possible) == len(found):
        console.print(Text("The first way is as good as the best, however much requests compute."))
        _print_configuration(console, chosen[0])
    else:
        console.print(Text("It depends on how much requests compute:", style="bold"))
        for one in found:
            best = (
                f"{one.best.option.workers} x {one.best.option.threads}, {one.best.option.kind.label}"
                if one.ways
                else "more cores"
            )
            console.print(Text(f"  {one.computes:4.0%}  {best}"))
    console.print()
    console.print(Text(
        "To find out, make try measures processor time beside the durations. Or compare the processor time of the "
        "workers (ps -o cputime) with the sum of gunicorn's %(L)s over the same minutes. Then write computes: into the "
        "file."
    ))  # fmt: skip


MOST_WAYS = 7


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def print_whether_it_held(console: Console, summary: Summary, tried: Sequence[ServingOption]) -> None:
    """Print what was measured of each way that was tried, and whether the first was as good as the best of them."""
    names = [way.name for way in tried]
    lost = {
        (row.variant, row.request_class or "", row.stat): row
        for row in summary.rows
        if row.metric == "overhead" and row.request_class and row.measured is not None
    }
    compared = {
        name: stat for name in sorted({name for _, name, _ in lost})
        if (stat := next((stat for stat in PERCENTILES if all((way, name, stat) in lost for way in names)), None))
    }  # fmt: skip
    rows = [lost[name, request_class, stat] for request_class, stat in compared.items() for name in names]
    lines = [
        (row.variant, f"{row.request_class} {row.stat}", number(row.predicted), number(row.measured),
         spread([*row.values.values()], row.low, row.high))
        for row in rows
    ]  # fmt: skip
    head = ("way", "class", "predicted", "measured", "interval or trials")
    console.print()
    console.print(terminal_table(Table("Tried: what requests lose, in ms", head, lines, words=2)))
    console.print()
    console.print(Text(verdict(summary, names), style="bold"))


def verdict(summary: Summary, tried: Sequence[str]) -> str:
    """Say whether the first way was as good as the best of all that were tried, in every class, as far as trials tell.

    If intervals do not come apart, the trials are too few to tell; a single trial never tells.
    """
    first, figures = tried[0], Figures(summary)
    compared = [(way, one) for way in tried[1:] for one in compare_losses(figures, first, way) if one.stat]
    reason = suspect_reason(summary, tried)
    doubt = f" (suspect: {reason})" if reason else ""
    better = [(way, one) for way, one in compared if one.outcome == "better"]
    saved = [(way, one) for way, one in compared if one.outcome == "open" and one.saves]
    if better or saved:
        way, one = max(better or saved, key=lambda found: found[1].before.ms - found[1].after.ms)
        lead = "The advice did not hold" if better else "Too few trials to tell whether the advice held"
        told = f"{one.request_class} {one.stat} is {_lost(one.before)} ms with {first}, "
        told += f"and {_lost(one.after)} ms with {way}."
        return f"{lead}{doubt}: {told}" + ("" if better else f" {trials_that_tell(one.trials_needed, summary.round_s)}")
    if not compared:
        return "Whether the advice held is unknown, because no percentile was measured of all ways."
    nothing = f"of all that were tried, nothing was faster than {first} by more than 10 % and 5 ms."
    if left := [one.trials_needed for _, one in compared if one.outcome == "open"]:
        needed = None if None in left else max(one for one in left if one is not None)
        many = trials_that_tell(needed, summary.round_s)
        return f"As far as these trials tell, the advice held{doubt}: {nothing} {many}"
    return f"The advice held{doubt}: {nothing}"


def _lost(lost: Loss) -> str:
    return value_and_spread(lost.ms, lost.values, lost.low, lost.high)


def print_what_if(console: Console, title: str, before: WhatIf, after: Sequence[WhatIf]) -> None:
    """Print which requests waited, and which of them would have waited with each way to serve them."""
    lines = []
    for one in (before, *after):
        still, new = int((one.waited & before.waited).sum()), int((one.waited & ~before.waited).sum())
        waits = number(1000 * float(np.quantile(one.waits_s, 0.99))), number(1000 * float(one.waits_s.max()))
        says = one.kind.label if one.kind else "measured"
        lines.append((says, f"{one.workers} x {one.threads}", str(int(one.waited.sum())), str(still), str(new), *waits))
    head = ("way to serve", "w x t", "waited", "of those", "others", "p99 ms", "longest ms")
    console.print()
    console.print(terminal_table(Table(f"{title}: {len(before.waits_s)} requests, replayed", head, lines)))
    console.print()
    console.print(Text(
        "Each request is sent when it was sent, and works for as long as it worked. It waited if its work began more "
        "than 50 ms after it was sent; of those: requests that also waited when they were measured; others: requests "
        "that did not. A user who had waited less would have sent the next request earlier.", style="dim",
    ))  # fmt: skip


def _line(
    place: str, one: RankedOption, names: Sequence[str], load: OfferedLoad, memory_of: str | None
) -> tuple[str, ...]:
    one = replace(one, headroom=headroom(one.option, load))
    return (
        place,
        one.option.kind.label,
        f"{one.option.workers} x {one.option.threads}",
        *(f"{number(one.p50_ms.get(name))}, {number(one.p99_ms.get(name))}" for name in names),
        percent(one.beside) if one.refused <= 0.001 else f"{percent(one.refused)} refused",
        *([f"{one.option.memory_mib:.0f}"] if memory_of else []),
        "waits" if one.headroom is None else f"{one.headroom:g} x",
    )
