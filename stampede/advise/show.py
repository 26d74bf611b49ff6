"""What the advice says: a table of ways, why, and the configuration to paste."""

from collections.abc import Sequence
from math import ceil, sqrt

import numpy as np
from rich.console import Console
from rich.text import Text

from stampede.advise.assumptions import Assumption, ranked_for_all
from stampede.advise.offered import OfferedLoad
from stampede.advise.options import ServingOption
from stampede.advise.ranking import RankedOption, best_of, headroom
from stampede.advise.service import Service
from stampede.evaluate.statistics.losses import AS_GOOD, AS_GOOD_MS, Figures, Loss, compare_losses, suspect_reason
from stampede.predict.what_if import WhatIf
from stampede.records.summary import Summary
from stampede.report.spread import spread, trials_that_tell, value_and_spread
from stampede.report.tables import Table
from stampede.report.terminal import terminal_table
from stampede.report.wording import number, percent

MOST_WAYS = 7
MOST_CLASSES = 2
"""So many classes of requests have a column each; of more classes, the one that loses most has the only column."""
_SPARE = (1.0, 1.5)
"""Square-root staffing (Halfin and Whitt, 1981): a requests at work need a + b √a workers. With b = 1 about one request
in four waits, with b = 1.5 about one in ten."""


def as_values(ranked: RankedOption | None) -> dict[str, object] | None:
    """Return what theory predicts of an option, for JSON: times in ms, waits and refusals as shares."""
    if ranked is None:
        return None
    option = ranked.option
    settings = option.variant.model_dump(mode="json", exclude_defaults=True)
    return {
        "way": option.name, "settings": settings, "memory_mib": option.memory_mib,
        "p50_ms": ranked.p50_ms, "p99_ms": ranked.p99_ms, "avoidable_wait_share": ranked.beside,
        "refused_share": ranked.refused,
    }  # fmt: skip


def print_advice(
    console: Console, best: Sequence[RankedOption], today: RankedOption | None, load: OfferedLoad, memory_of: str | None
) -> None:
    """Print the options, today's last, with a sentence each, and the configuration of the first.

    ``memory_of`` says whose memory the column of memory is; None: there is no such column.
    """
    names = list(best[0].p99_ms)
    shown = names if len(names) <= MOST_CLASSES else [max(names, key=lambda name: best[-1].p99_ms.get(name, 0.0))]
    lines = [
        (
            place,
            ranked.option.kind.label,
            ranked.option.size,
            *(f"{number(ranked.p50_ms.get(name))}, {number(ranked.p99_ms.get(name))}" for name in shown),
            f"{percent(ranked.refused)} refused" if ranked.refuses else percent(ranked.beside),
            *([f"{ranked.option.memory_mib:.0f}"] if memory_of else []),
            _times(headroom(ranked.option, load)),
        )
        for place, ranked in [*((str(place), ranked) for place, ranked in enumerate(best, start=1)), ("", today)]
        if ranked
    ]
    memory = ["MiB"] if memory_of else []
    head = ("", "way to serve", "w x t", *(f"{name}: p50, p99" for name in shown), "beside", *memory, "up to")
    _print_table(console, "Predicted: what requests lose, in ms; the waits beside a free thread; the load", head, lines)
    if memory_of:
        _say(console, f"MiB: of {memory_of}.", "dim")
    by = "what one request in a hundred loses, as a multiple of how long requests take, over all classes"
    _say(
        console,
        _rule(sum(ranked.is_good for ranked in best), len(best), f"{by}; ways that refuse requests come last"),
        "dim",
    )
    _print_reasons(console, [ranked.option for ranked in best])
    _print_configuration(console, best[0].option)


def _times(factor: float | None) -> str:
    return "waits" if factor is None else f"{factor:g} x"


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style))


def _print_table(console: Console, title: str, head: Sequence[str], lines: Sequence[tuple[str, ...]]) -> None:
    console.print()
    console.print(terminal_table(Table(title, head, lines, words=2)))


def _print_reasons(console: Console, options: Sequence[ServingOption]) -> None:
    console.print()
    for place, option in enumerate(options, start=1):
        _say(console, f"{place}  {option.kind.reason}")


def _rule(good: int, shown: int, others_by: str) -> str:
    """Return the rule by which ways are ranked, of which so many are as good as the fastest."""
    which = "Way 1 is" if good == 1 else f"Ways 1 to {good} are"
    within = f"in no class is p99 more than {AS_GOOD - 1:.0%} and {AS_GOOD_MS} ms above the fastest way's"
    ties = "; of several, the least memory comes first, then the smaller change" if good > 1 else ""
    said = f"{which} as good as the fastest ({within}){ties}. " if good else ""
    rest = f"{'The others follow' if good else 'All ways are ranked'} by {others_by}." if good < shown else ""
    return f"{said}{rest}".rstrip()


def _print_configuration(console: Console, best: ServingOption) -> None:
    console.print()
    _say(console, f"To serve with {best.size} ({best.kind.label}):\n", "bold")
    console.print(best.variant.deployment(), markup=False, highlight=False)


def print_work(console: Console, service: Service) -> None:
    """Print how much work a described service has, and what its file leaves open."""
    rate = sum(asked.at_most_per_second for asked in service.at_peak.values())
    when = " in the busiest minute" if service.peak > 1 else ""
    least, most = (ceil(service.at_work + times * sqrt(service.at_work)) for times in _SPARE)
    spare = f"{least}" if least == most else f"{least} to {most}"
    console.print()
    _say(
        console,
        f"{number(rate)} requests per second{when} keep {number(service.at_work)} workers at work on average, if a "
        f"worker serves one request at a time (sync). With {spare} such workers, or threads, few requests wait.",
    )
    if service.clock == "balancer":
        _say(
            console, "The durations are a balancer's, so they contain every wait for a worker; there may be less work."
        )
    if names := service.unknown:
        listed = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        _say(
            console,
            f"The file does not say how much requests of {listed} compute. If it is all of the time, "
            f"the load needs {number(service.cores_at_most)} cores (cores: {service.cores}); if nothing, hardly any.",
        )
    if service.cores_at_most > service.cores:
        text = f"If requests compute all that they may, no way can carry the load with cores: {service.cores}."
        _say(console, text, "bold")
    if service.load().least_workers > 1:
        _say(
            console,
            "One process is left out: its threads share one interpreter lock, so it computes on one core at most.",
        )
    if service.worker_mib is None:
        _say(console, "Memory is left out: worker_mib is missing. make try measures it (MiB / workers).")


def print_bounds(console: Console, service: Service) -> None:
    """Print what durations with waits say of the work: between which bounds it lies, and how to measure it."""
    least = sum(asked.at_work * min(1.0, asked.shortest_s / asked.mean_s) for asked in service.at_peak.values())
    console.print()
    _say(console, "The durations include waits (waits: true), so they do not say how long requests work.", "bold")
    _say(
        console,
        f"The load needs between {number(least)} and {number(service.at_work)} workers at work on average"
        f"{' in the busiest minute' if service.peak > 1 else ''}. No way to serve can be ranked by that: a way with "
        "more threads would look good because requests waited for threads.\n\n"
        "Take the log of the server itself: gunicorn's %(L)s or %(D)s begin when a worker takes a request. nginx's "
        "$upstream_response_time does not help, because requests wait in the server's queue. Or take a log of an hour "
        "when nobody waited, and multiply its rates.",
    )


def print_advice_for_all(console: Console, found: Sequence[Assumption], service: Service) -> None:
    """Print the options under each assumption of how much requests compute, and which is good under all of them."""
    names, good = ranked_for_all(found)
    possible = [assumption for assumption in found if assumption.ways]
    worst, all_possible = possible[-1], len(possible) == len(found)
    best = [ranked.option for ranked in best_of([worst.ways[name] for name in names], MOST_WAYS)]
    lines = [
        (
            str(place),
            option.kind.label,
            option.size,
            *(number(max(each.ways[option.name].p99_ms.values())) if each.ways else "–" for each in found),
            *([f"{option.memory_mib:.0f}"] if service.worker_mib else []),
            *([_times(headroom(option, worst.load))] if all_possible else []),
        )
        for place, option in enumerate(best, start=1)
    ]
    head = ("", "way to serve", "w x t", *(f"{assumption.computes:.0%}" for assumption in found),
            *(["MiB"] if service.worker_mib else []), *(["up to"] if all_possible else []))  # fmt: skip
    title = "Predicted: p99 of what requests lose, in ms, of the class that loses most, if requests compute so much"
    _print_table(console, title, head, lines)
    by = "how many times as much they lose as the fastest way, under the assumption where this is worst"
    _say(console, _rule(sum(option.name in good for option in best), len(best), by), "dim")
    _print_reasons(console, best)
    console.print()
    if len(possible) == 1:
        _say(console, f"Only if requests compute {possible[0].computes:.0%} of their time can this machine serve them.")
    if good and all_possible:
        _say(console, "The first way is as good as the best, however much requests compute.")
        _print_configuration(console, best[0])
    else:
        _say(console, "It depends on how much requests compute:", "bold")
        for assumption in found:
            option = assumption.best.option if assumption.ways else None
            _say(
                console,
                f"  {assumption.computes:4.0%}  {f'{option.size}, {option.kind.label}' if option else 'more cores'}",
            )
    console.print()
    _say(
        console,
        "To find out, make try measures processor time beside the durations. Or compare the processor time of the "
        "workers (ps -o cputime) with the sum of gunicorn's %(L)s over the same minutes. Then write computes: into the "
        "file.",
    )


def print_whether_it_held(console: Console, summary: Summary, tried: Sequence[ServingOption]) -> None:
    """Print what was measured of each way that was tried, and whether the first was as good as the best of them."""
    names, figures = [way.name for way in tried], Figures(summary)
    compared = {name: figures.percentile(name, names) for name in figures.classes(names[0])}
    rows = [
        row
        for request_class, stat in compared.items() if stat
        for name in names if (row := figures.row(name, request_class, figures.loss_metric, stat))
    ]  # fmt: skip
    lines = [
        (row.variant, f"{row.request_class} {row.stat}", number(row.predicted), number(row.median),
         spread([*row.values.values()], row.low, row.high))
        for row in rows
    ]  # fmt: skip
    head = ("way", "class", "predicted", "measured", "interval or trials")
    _print_table(console, "Tried: what requests lose, in ms", head, lines)
    console.print()
    _say(console, advice_verdict(summary, names), "bold")


def advice_verdict(summary: Summary, tried: Sequence[str]) -> str:
    """Say whether the first way was as good as the best of all that were tried, in every class, as far as trials tell.

    If intervals do not come apart, the trials are too few to tell; a single trial never tells.
    """
    first, figures = tried[0], Figures(summary)
    compared = [(way, each) for way in tried[1:] for each in compare_losses(figures, first, way) if each.stat]
    reason = suspect_reason(summary, tried)
    doubt = f" ({reason})" if reason else ""
    better = [(way, each) for way, each in compared if each.outcome == "better"]
    saved = [(way, each) for way, each in compared if each.outcome == "open" and each.saves]
    if better or saved:
        way, worst = max(better or saved, key=lambda found: found[1].before.ms - found[1].after.ms)
        lead = "The advice did not hold" if better else "Too few trials to tell whether the advice held"
        told = f"{worst.request_class} {worst.stat} is {_lost(worst.before)} ms with {first}, "
        told += f"and {_lost(worst.after)} ms with {way}."
        more = "" if better else f" {trials_that_tell(worst.trials_needed, summary.round_s)}"
        return f"{lead}{doubt}: {told}{more}"
    if not compared:
        return "Whether the advice held is unknown, because no percentile was measured of all ways."
    nothing = f"of all that were tried, nothing was faster than {first} by more than 10 % and 5 ms."
    if left := [each.trials_needed for _, each in compared if each.outcome == "open"]:
        needed = None if None in left else max(trials for trials in left if trials is not None)
        many = trials_that_tell(needed, summary.round_s)
        return f"As far as these trials tell, the advice held{doubt}: {nothing} {many}"
    return f"The advice held{doubt}: {nothing}"


def _lost(lost: Loss) -> str:
    return value_and_spread(lost.ms, lost.values, lost.low, lost.high)


def print_what_if(console: Console, title: str, before: WhatIf, after: Sequence[WhatIf]) -> None:
    """Print which requests waited, and which of them would have waited with each way to serve them."""
    lines = []
    for served in (before, *after):
        waited = served.waited, served.waited & before.waited, served.waited & ~before.waited
        waits_ms = 1000 * float(np.quantile(served.waits_s, 0.99)), 1000 * float(served.waits_s.max())
        label = served.kind.label if served.kind else "measured"
        counts = (str(int(each.sum())) for each in waited)
        lines.append((label, f"{served.workers} x {served.threads}", *counts, *map(number, waits_ms)))
    head = ("way to serve", "w x t", "waited", "of those", "others", "p99 ms", "longest ms")
    console.print()
    console.print(terminal_table(Table(f"{title}: {len(before.waits_s)} requests, replayed", head, lines)))
    console.print()
    _say(
        console,
        "Each request is sent when it was sent, and works for as long as it worked. It waited if its work began more "
        "than 50 ms after it was sent; of those: requests that also waited when they were measured; others: requests "
        "that did not. A user who had waited less would have sent the next request earlier.",
        "dim",
    )
