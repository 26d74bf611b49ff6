"""A file for ``stampede advise`` from an access log: a class for each route, and what is known of the durations."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from stampede.logs.access_log import MOST_CLASSES, AccessLog, Route, class_name, representative_durations
from stampede.logs.durations import ASSUMED, HOW
from stampede.records.plural import plural
from stampede.resources import Found


def describe_log(log: AccessLog, of: str, cores: int, limits: Found | None = None) -> str:
    """Return the file for ``stampede advise``: the most frequent routes as classes, and all others as one class.

    ``limits`` are those of the cgroup of this command, which the machine with so many ``cores`` may have.
    """
    lasts_s = max(log.last - log.first, 1.0)
    ordered = sorted(log.routes.items(), key=lambda item: (-item[1].requests, item[0]))
    chosen = ordered if len(ordered) <= MOST_CLASSES else ordered[: MOST_CLASSES - 1]
    left_out = ", ".join(f"{count:,} {name}" for name, count in log.left_out.most_common())
    lines = [
        f"# From {of}: {log.requests:,} requests in {lasts_s:,.0f} s.",
        *([f"# Left out: {left_out}. --methods GET,HEAD,POST counts further methods."] if left_out else []),
        *([f"# Lines without a format that the lab knows: {log.unreadable:,}."] if log.unreadable else []),
        *([f"# Left out, because they are more than a year from the others: {plural(log.astray, 'request')}."]
          if log.astray else []),
        *_of_durations(log),
        f"cpus: {limits['cpus'][0]:g}  # a guess: the limit of {limits['cpus'][1]}" if limits and "cpus" in limits else
        f"cores: {cores}  # a guess: as many as this machine has",
        f"memory_mib: {limits['memory_mib'][0]}  # a guess: the limit of {limits['memory_mib'][1]}" if limits
        and "memory_mib" in limits else "memory_mib: 1024  # a guess: the memory for all workers together",
        "# worker_mib: 80  # the memory of one of your workers; without it, the advice has no column of memory",
        *_busiest(log, lasts_s),
        "classes:",
    ]  # fmt: skip
    names: Counter[str] = Counter()
    for (method, path), route in chosen:
        lines += _class(class_name(method, path, names), f"{method} {path}", route, log.requests, lasts_s)
    if len(chosen) < len(ordered):
        others = Route()
        for _, route in ordered[len(chosen) :]:
            others.add(route)
        what = f"{len(ordered) - len(chosen)} further routes"
        lines += _class(class_name("", "others", names), what, others, log.requests, lasts_s)
    return "\n".join(lines) + "\n"


def _of_durations(log: AccessLog) -> list[str]:
    """Return what the file says of the durations: where they are in the log, whose they are, and what is unknown."""
    several = len(log.sources) > 1
    lines = []
    for file, source in log.sources.items():
        at = f"{file}: " if several else ""
        if source.says:
            lines.append(f"# Durations: {at}{source.says}{f', {ASSUMED}' if source.assumed else ''}.")
        else:
            lines.append(f"# No durations: {at}no field of the log is known to be one. Add one by name, {HOW}.")
            lines += [f"#   {note}" for note in source.notes]
    if log.without == log.requests:
        return lines
    if log.without:
        lines.append(f"# {log.without:,} of {log.requests:,} requests have no duration.")
    slow = slow_together(list(log.routes.values()))
    if log.clock == "server":
        lines.append("# They are a server's own, so they begin when a worker takes the request.")
        lines.append("clock: server")
    else:
        whose = "They are a balancer's" if log.clock == "balancer" else "If they are a balancer's"
        lines.append(
            f"# {whose}, {'so ' if log.clock else ''}they include the time that a request waited for a worker."
        )
        lines += ["clock: balancer"] if log.clock else []
        if slow >= SLOW_TOGETHER:
            lines.append(
                f"# {slow:.0%} of the requests took much longer than usual, at moments at which all did: they waited."
            )
        else:
            lines.append("# Prefer a log of a time when nobody waited.")
        lines += ["waits: true"] if slow >= SLOW_TOGETHER else []
    return [
        *lines,
        "# No log says which part of its duration a request computes. A class without computes is therefore ranked as",
        "# if it computed 0, 50 and 100 % of it. make try measures it: processor time beside the durations.",
    ]


SLOW_TOGETHER = 0.05
"""If so many of the requests are slow at the same moments, requests wait."""
_GROUP, _QUICK, _TIMES_SLOWER, _SLOWER_S = 20, 0.1, 3.0, 0.05


def slow_together(routes: Sequence[Route]) -> float:
    """Return the share of requests that were slow at a moment at which all were.

    Requests that end after each other are a group. A group is slow if nine in ten of its requests took three times as
    long as the quick requests of the same route (the tenth of them that is quickest), and 50 ms more. Durations that
    differ by chance make hardly any such group; a queue makes nothing else.
    """
    timed = [route for route in routes if len(route.seconds) >= _GROUP]
    if not timed:
        return 0.0
    ends = np.concatenate([np.asarray(route.timed_ends) for route in timed])
    slow = np.concatenate([_slow(np.asarray(route.seconds)) for route in timed])[np.argsort(ends, kind="stable")]
    groups = slow[: len(slow) // _GROUP * _GROUP].reshape(-1, _GROUP)
    return float((groups.mean(axis=1) >= 1 - _QUICK).mean())


def _slow(seconds: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    quick = np.quantile(seconds, _QUICK)
    return (seconds > _TIMES_SLOWER * quick) & (seconds > quick + _SLOWER_S)


def _busiest(log: AccessLog, lasts_s: float) -> list[str]:
    """Return how many times the mean rate came in the busiest minute, if that is clearly more."""
    ends = np.sort(np.concatenate([np.asarray(route.ends) for route in log.routes.values()]))
    in_a_minute = np.searchsorted(ends, ends + 60) - np.arange(len(ends))
    peak = float(in_a_minute.max() / 60 / (log.requests / lasts_s))
    if lasts_s < 180 or in_a_minute.max() < 60 or peak < 1.25:
        return []
    return [f"peak: {peak:.3g}  # in the busiest minute, {in_a_minute.max() / 60:.3g} requests came per second"]


def _class(name: str, what: str, route: Route, of: int, lasts_s: float) -> list[str]:
    failed = f"; {route.failed:,} ended with a status from 500 on" if route.failed else ""
    shown = "".join(character if character.isprintable() else "?" for character in what[:80])
    lines = [f"  {name}:  # {shown}: {route.requests / of:.1%} of the requests{failed}"]
    lines.append(f"    per_second: {route.requests / lasts_s:.4g}")
    if not route.seconds:
        return [
            *lines,
            "    takes_s:  # write how many seconds a request takes; the log has no durations of these requests",
        ]
    means = [f"{seconds:.4g}" for seconds in representative_durations(route.seconds)]
    if len(means) == 1:
        return [*lines, f"    takes_s: {means[0]}"]
    rows = [", ".join(means[start : start + 10]) for start in range(0, len(means), 10)]
    return [*lines, "    takes_s: [" + ",\n              ".join(rows) + "]"]
