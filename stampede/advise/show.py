"""What the advice says: one screen with the answer and the configuration to paste, and the ways that were compared."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, floor

from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from stampede.advise.ranking import (
    WAITS_MS,
    Capacity,
    Case,
    best_of,
    capacity,
    predict_option,
    ranked_names,
)
from stampede.advise.service import Service
from stampede.evaluate.statistics.losses import AS_GOOD, AS_GOOD_MS
from stampede.records.words import plural
from stampede.report.tables import Table
from stampede.report.terminal import terminal_table
from stampede.report.wording import number, percent
from stampede.servers.base import SERVER_MIB

MOST_WAYS = 7
MOST_CLASSES = 2
"""So many classes of requests have a column each; of more classes, the one that loses most has the only column."""


def as_values(cases: Sequence[Case]) -> dict[str, object]:
    """Return what theory predicts, for JSON: the ranked options, in each case if there are several.

    Times are in ms, waits and refusals shares.
    """
    ranked_names(cases)  # or there is no way at all
    found = [{"computes": case.computes, "ways": [{
        "way": ranked.option.name, "memory_mib": ranked.option.memory_mib,
        "settings": ranked.option.variant.model_dump(mode="json", exclude_defaults=True),
        "p50_ms": ranked.p50_ms, "p99_ms": ranked.p99_ms, "avoidable_wait_share": ranked.beside,
        "refused_share": ranked.refused,
    } for ranked in (case.ranked if case.ways else ())]} for case in cases]  # fmt: skip
    return {"assumptions": found} if len(found) > 1 else {"ways": found[0]["ways"]}


def print_answer(console: Console, cases: Sequence[Case], p99_ms: float | None, worker_mib: float | None) -> None:
    """Print the best option on one screen: its size, memory and rate, and the configuration and rule to paste.

    There are so many containers that the p99 stays within ``p99_ms``; None: as many as the load has. ``worker_mib`` is
    the memory of each worker; None: nobody knows it.
    """
    names, good = ranked_names(cases)
    possible = [case for case in cases if case.ways]
    console.print()
    if len(cases) > 1 and (not good or len(possible) < len(cases)):
        _say(console, "It depends on how much requests compute, which the file does not say:", "bold")
        for case in cases:
            best = case.ranked[0].option if case.ways else None
            stands = _stands([capacity(best, case.load, p99_ms)], case.load.pods or 1, p99_ms) if best else ""
            told = f"{best.size}, {best.kind.label}: {stands}" if best else "more cores"
            _say(console, f"{case.computes:4.0%}  {told}")
        _say(console, _TO_FIND_OUT)
        return
    ways, load = [case.ways[names[0]] for case in cases], cases[-1].load
    option, last = ways[-1].option, ways[-1]
    carried = [capacity(option, case.load, p99_ms) for case in cases]
    pods = load.pods or 1
    least = min((found.rate / pods for found in carried if found), default=0.0)
    needed = ceil(load.rate / least) if least and p99_ms else pods
    where = f", {plural(needed, 'container')}" if load.pods else ""
    rest = (load.memory_mib - SERVER_MIB) / option.workers
    slowest = sorted(last.response_ms, key=lambda name: -last.response_ms[name])[:MOST_CLASSES]
    p99 = ", ".join(f"{name} {_range(way.response_ms.get(name) for way in ways)} ms" for name in slowest)
    throttled = ""  # what the quota of cores costs, unless it is hardly anything
    if load.computes and load.cpus:
        free = predict_option(option, replace(load, cpus=None, cores=1024.0))
        lost = {name: last.p99_ms[name] - free.p99_ms.get(name, 0.0) for name in last.p99_ms}
        name = max(lost, key=lambda name: lost[name])
        if lost[name] > WAITS_MS:
            throttled = f"p99 of {name} has {number(lost[name])} ms of throttling at {load.cpus:g} cores"
    answer = {
        "serve with": f"{plural(option.workers, 'worker')} x {plural(option.threads, 'thread')}{where} "
                      f"({option.kind.label}; others: --ways)",
        "memory": f"{option.memory_mib:.0f} of {load.memory_mib} MiB, for workers of {worker_mib:g} MiB each"
                  if worker_mib else
                  f"{load.memory_mib} MiB hold workers of up to {rest:.0f} MiB (stampede try measures them)",
        "now": f"{number(load.rate)}/s{f' on {pods}' if load.pods else ''}: p99 {p99}; {percent(last.beside)} wait "
               "avoidably",
        "stands": _stands(carried, pods, p99_ms),
        "quota": throttled,
        "unknown": "how much requests compute: from none to all of their time" if len(cases) > 1 else
                   _QUOTA_UNKNOWN if load.computes and load.cpus and option.threads > 1 else "",
    }  # fmt: skip
    shown = Grid.grid(padding=(0, 1))
    for name, text in answer.items():
        if text:
            shown.add_row(Text(name, "dim"), Text(text, "bold" if name == "serve with" else ""))
    console.print(shown)
    console.print()
    lines = option.variant.configuration() if load.pods else option.variant.deployment().splitlines()
    console.print("\n".join(lines), markup=False, highlight=False)
    if load.pods and least:
        busy = min(found.at.busy for found in carried if found)
        busy = busy if p99_ms else max(busy, min(way.busy for way in ways))  # nobody asks for more than now
        console.print(_SCALE.format(threshold=max(0.01, floor(100 * busy) / 100)), markup=False, highlight=False)


_QUOTA_UNKNOWN = "threads that compute within a limit: measured, they lose twice what is predicted (--try)"
"""Seen in experiments/cpu-limit.yaml: four threads of a process, 69 ms predicted and 150 ms measured."""
_TO_FIND_OUT = (
    "To find out, let stampede try measure processor time beside durations; then write computes: into the file."
)
_SCALE = """
# KEDA's triggers, with stampede-probe in the workers; an HPA takes this query
- type: prometheus
  metricType: Value
  metadata:
    serverAddress: http://prometheus:9090
    query: sum(stampede_busy_threads) / sum(stampede_threads)
    threshold: "{threshold:g}\""""


def _range(values: Iterable[float | None]) -> str:
    found = [number(value) for value in sorted(value for value in values if value is not None)]
    return f"{found[0]} to {found[-1]}" if found and found[0] != found[-1] else (found or ["?"])[0]


def _stands(carried: Sequence[Capacity | None], pods: int, p99_ms: float | None) -> str:
    """Return how many requests a second a container carries, under each assumption, and what bounds them."""
    known = [found for found in carried if found]
    bound = f"p99 within {number(p99_ms)} ms" if p99_ms else f"99 of 100 wait less than {WAITS_MS} ms"
    if len(known) < len(carried):
        return f"no rate: {bound} is more than it can do even with hardly any requests"
    rate, alone = _range(found.rate / pods for found in known), ", ".join(known[-1].alone)
    but = f", but {alone} takes longer even alone" if alone else ""
    return f"{rate}/s{' a container' if pods > 1 else ''}: {bound}{but}"


def print_ways(console: Console, cases: Sequence[Case], service: Service) -> None:
    """Print all options of each case, with a sentence each."""
    if service.clock == "balancer":
        _say(console, "\nThe durations are a balancer's, with every wait for a worker in them; there may be less work.")
    if service.load().least_workers > 1:
        _say(console, "\nOne process is left out: its threads share one interpreter lock, so it computes on one core.")
    names, _ = ranked_names(cases)
    reasons: dict[str, str] = {}
    for case in (case for case in cases if case.ways):
        best = best_of([case.ways[name] for name in names], MOST_WAYS)
        reasons |= {way.option.kind.label: way.option.kind.reason for way in best}
        classes = [*best[0].p99_ms]
        if len(classes) > MOST_CLASSES:
            classes = [max(classes, key=lambda name: best[-1].p99_ms.get(name, 0.0))]
        lines = []
        for way in best:
            times = (f"{number(way.p50_ms.get(name))}, {number(way.p99_ms.get(name))}" for name in classes)
            beside = f"{percent(way.refused)} refused" if way.refuses else percent(way.beside)
            line = [way.option.kind.label, way.option.size, *times, beside]
            line += [f"{way.option.memory_mib:.0f}"] if service.worker_mib else []
            if case.computes is None:
                carried = capacity(way.option, case.load)
                line.append(f"{carried.times:.2g} x" if carried and carried.times >= 1 else "waits")
            lines.append(line)
        head = ["way to serve", "w x t", *(f"{name}: p50, p99" for name in classes), "beside"]
        head += ["MiB"] * bool(service.worker_mib) + ["up to"] * (case.computes is None)
        if_ = "" if case.computes is None else f", if requests compute {case.computes:.0%} of their time"
        title = f"Predicted: what requests lose, in ms; the waits beside a free thread; the load{if_}"
        console.print("", terminal_table(Table(title, head, lines, words=2)), sep="\n")
        good = sum(case.is_good(way.option.name) for way in best)
        which, most = "The first is" if good == 1 else f"{good} are", f"{AS_GOOD - 1:.0%} and {AS_GOOD_MS} ms"
        _say(console, f"{which} as good as the fastest (in no class is p99 more than {most} above). Of these, the way "
             "with the least memory comes first.", "dim")  # fmt: skip
    console.print()
    for label, reason in reasons.items():
        _say(console, f"{label}: {reason}")


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style))


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
