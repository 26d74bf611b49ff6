"""Requests of access logs, by route, and a file for ``stampede advise`` from them.

A log holds what must not leave it: query strings, tokens in paths, addresses and agents of users. Only methods, the
fixed parts of paths, counts and durations are taken from it; whole targets only to be sent again.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from stampede.errors import WrongUse
from stampede.logs.columns import Floats, read_files
from stampede.logs.durations import ASSUMED, HOW, NO_UNIT, DurationSource
from stampede.logs.formats import KNOWN, UNITS, Formats
from stampede.logs.reading import LoggedRequest, name_of, opened_log, without_durations
from stampede.records.model import name_from
from stampede.records.words import plural
from stampede.resources import Found

MOST_CLASSES = 20
DURATIONS = 50
"""How many durations describe a class. Each of them is the mean of as many requests, so that their mean is right."""
_YEAR_S = 366 * 24 * 3600


@dataclass(frozen=True)
class Route:
    """The requests of one method for one route: when each ended, in seconds since 1970, and how long it took.

    ``took_s`` is NaN where the log has no duration. ``failed`` is how many ended with a status from 500 on.
    """

    ends_s: Floats
    took_s: Floats
    failed: int

    @property
    def requests(self) -> int:
        """How many requests were counted."""
        return len(self.ends_s)

    @property
    def seconds(self) -> Floats:
        """How long those requests took of which the log has a duration."""
        return self.took_s[~np.isnan(self.took_s)]

    @classmethod
    def of_all(cls, routes: Iterable["Route"]) -> "Route":
        """Return the requests of several routes as those of one."""
        ends_s, took_s, failed = zip(*((each.ends_s, each.took_s, each.failed) for each in routes), strict=True)
        return cls(np.concatenate(ends_s), np.concatenate(took_s), sum(failed))


@dataclass(frozen=True)
class AccessLog:
    """What was found in logs. ``first`` and ``last`` are seconds since 1970.

    ``sources`` say where the durations of each file are. ``astray`` requests are left out because they are more than
    a year from half of the others: a clock or a line is wrong, or is of another time.
    """

    routes: dict[tuple[str, str], Route]
    first: float
    last: float
    left_out: "Counter[str]"
    unreadable: int
    astray: int
    sources: dict[str, DurationSource] = field(default_factory=dict)

    @property
    def requests(self) -> int:
        """How many requests were counted."""
        return sum(route.requests for route in self.routes.values())

    @property
    def without(self) -> int:
        """How many of the counted requests have no duration."""
        return sum(route.requests - len(route.seconds) for route in self.routes.values())

    @property
    def warning(self) -> str | None:
        """What is said at once if requests have no duration; the file says why."""
        if not self.without:
            return None
        return f"{self.without:,} of {self.requests:,} requests have no duration; the first lines of the file say why."

    @property
    def recognised(self) -> list[str]:
        """What is said at once of each file: its format, and where its durations are."""
        return [f"{file}: {source.recognised}." for file, source in self.sources.items()]

    @property
    def clock(self) -> str | None:
        """Whose clock measured the durations; None: unknown, or there are several."""
        clocks = {source.clock for source in self.sources.values()}
        return clocks.pop() if len(clocks) == 1 else None


def read_logs(
    paths: Sequence[Path],
    methods: Collection[str],
    unit: str = "",
    formats: Formats = KNOWN,
    *,
    need_durations: bool = False,
) -> AccessLog:
    """Read logs, one after the other. ``-`` is standard input. ``unit`` is that of durations that are whole numbers.

    Raise WrongUse if a file cannot be read, has no line in one of the formats, has durations without a unit, or has
    no durations although they are needed.
    """
    if unit and unit not in (*UNITS, NO_UNIT):
        raise WrongUse(
            f"--unit {unit} is unknown.",
            hint="--unit s, --unit ms or --unit us; --unit none if no number is a duration",
        )
    found = read_files(paths, formats, unit, without_durations if need_durations else None)
    of_key: dict[tuple[str, str], list[Route]] = {}
    left_out: Counter[str] = Counter()
    for part in found.values():
        columns, counts = part.columns, np.bincount(part.columns["route"], minlength=len(part.routes))
        mine = np.split(np.argsort(columns["route"], kind="stable"), np.cumsum(counts))[:-1]
        for route, places in zip(part.routes, mine, strict=True):
            method, _, path = route.partition(" ")
            if method not in methods:
                left_out[method] += len(places)
                continue
            failed = int((columns["status"][places] >= 500).sum())
            each = Route(columns["ends_s"][places], columns["took_s"][places], failed)
            of_key.setdefault((method, path), []).append(each)
    routes = {key: Route.of_all(each) for key, each in of_key.items()}
    if sum(route.requests for route in routes.values()) < 2:
        found_in_all = sum(route.requests for route in routes.values())
        others = ", ".join(f"{count} {name}" for name, count in left_out.most_common(3))
        raise WrongUse(f"The log has {found_in_all} requests with {', '.join(methods)}, and {others or 'no others'}.",
                       hint="--methods GET,HEAD,POST counts further methods.")  # fmt: skip
    every_s = np.concatenate([route.ends_s for route in routes.values()])
    near = np.abs(every_s - np.median(every_s)) <= _YEAR_S
    if not near.all():
        is_near = {key: np.abs(route.ends_s - np.median(every_s)) <= _YEAR_S for key, route in routes.items()}
        routes = {key: replace(route, ends_s=route.ends_s[is_near[key]], took_s=route.took_s[is_near[key]])
                  for key, route in routes.items() if is_near[key].any()}  # fmt: skip
    return AccessLog(
        _without_names_of_things(routes),
        float(every_s[near].min()),
        float(every_s[near].max()),
        left_out,
        sum(part.unreadable for part in found.values()),
        int((~near).sum()),
        {name_of(path): part.source for path, part in found.items()},
    )


def read_requests(path: Path, formats: Formats = KNOWN) -> Iterator[LoggedRequest]:
    """Yield what is taken from each line of a log that has a known format. Raise WrongUse if it cannot be read.

    Whole numbers whose unit nothing says are no durations.
    """
    with opened_log(path, NO_UNIT, formats) as reader:
        for batch in reader.batches():
            yield from batch.requests()


def _without_names_of_things(routes: dict[tuple[str, str], Route]) -> dict[tuple[str, str], Route]:
    """Return routes in which a part of a path that has more than ten values stands as {name}."""
    for place in range(1, max(path.count("/") for _, path in routes) + 1):
        alike: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for method, path in routes:
            parts = path.split("/")
            if len(parts) > place and parts[place]:
                like = "/".join([*parts[:place], "{name}", *parts[place + 1 :]])
                alike.setdefault((method, like), []).append((method, path))
        for like_these, these in alike.items():
            if len(these) > 10:
                merged = [routes.pop(key) for key in (*these, like_these) if key in routes]
                routes[like_these] = Route.of_all(merged)
    return routes


def representative_durations(seconds: npt.ArrayLike) -> list[float]:
    """Return at most DURATIONS durations in order, which stand for all those of a class, and have the same mean."""
    ordered = np.sort(np.asarray(seconds, dtype=float))
    groups = min(DURATIONS, len(ordered))
    up_to = np.interp(np.linspace(0, len(ordered), groups + 1), np.arange(len(ordered) + 1), [0, *ordered.cumsum()])
    return [float(mean_s) for mean_s in np.diff(up_to) * groups / len(ordered)]


def class_name(method: str, path: str, names: "Counter[str]") -> str:
    """Return a name that a class can have, which no other class has."""
    name = name_from(f"{method} {path}", "request")[:40].strip("-")
    names[name] += 1
    return name if names[name] == 1 else f"{name}-{names[name]}"


def describe_log(log: AccessLog, of: str, cores: int, limits: Found | None = None) -> str:
    """Return the file for ``stampede advise``: the most frequent routes as classes, and all others as one class.

    ``limits`` are those of the cgroup of this command, which the machine with so many ``cores`` may have.
    """
    lasts_s = max(log.last - log.first, 1.0)
    left_out = ", ".join(f"{count:,} {name}" for name, count in log.left_out.most_common())
    lines = [f"# From {of}: {log.requests:,} requests in {lasts_s:,.0f} s."]
    if left_out:
        lines.append(f"# Left out: {left_out}. --methods GET,HEAD,POST counts further methods.")
    if log.unreadable:
        lines.append(f"# Lines without a format that the lab knows: {log.unreadable:,}.")
    if log.astray:
        lines.append(f"# Left out, because they are more than a year from the others: {plural(log.astray, 'request')}.")
    for file, source in log.sources.items():
        at = f"{file}: " if len(log.sources) > 1 else ""
        if source.says:
            lines.append(f"# Durations: {at}{source.says}{f', {ASSUMED}' if source.assumed else ''}.")
        else:
            lines.append(f"# No durations: {at}no field of the log is known to be one. Add one by name, {HOW}.")
            lines += [f"#   {note}" for note in source.notes]
    if log.without < log.requests:
        lines += _of_clock(log)
    lines += [
        f"cpus: {limits['cpus'][0]:g}  # a guess: the limit of {limits['cpus'][1]}" if limits and "cpus" in limits else
        f"cores: {cores}  # a guess: as many as this machine has",
        f"memory_mib: {limits['memory_mib'][0]}  # a guess: the limit of {limits['memory_mib'][1]}" if limits
        and "memory_mib" in limits else "memory_mib: 1024  # a guess: the memory for all workers together",
        "# worker_mib: 80  # the memory of one of your workers; without it, the advice has no column of memory",
    ]  # fmt: skip
    ends = np.sort(np.concatenate([route.ends_s for route in log.routes.values()]))
    most = int((np.searchsorted(ends, ends + 60) - np.arange(len(ends))).max())
    if lasts_s >= 180 and most >= 60 and (peak := most / 60 / (log.requests / lasts_s)) >= 1.25:
        lines.append(f"peak: {peak:.3g}  # in the busiest minute, {most / 60:.3g} requests came per second")
    lines.append("classes:")
    ordered = sorted(log.routes.items(), key=lambda item: (-item[1].requests, item[0]))
    chosen = ordered if len(ordered) <= MOST_CLASSES else ordered[: MOST_CLASSES - 1]
    names: Counter[str] = Counter()
    classes = [(class_name(method, path, names), f"{method} {path}", route) for (method, path), route in chosen]
    if further := ordered[len(chosen) :]:
        others = Route.of_all(route for _, route in further)
        classes.append((class_name("", "others", names), f"{len(further)} further routes", others))
    for name, what, route in classes:
        failed = f"; {route.failed:,} ended with a status from 500 on" if route.failed else ""
        shown = "".join(character if character.isprintable() else "?" for character in what[:80])
        lines.append(f"  {name}:  # {shown}: {route.requests / log.requests:.1%} of the requests{failed}")
        lines.append(f"    per_second: {route.requests / lasts_s:.4g}")
        means = [f"{seconds:.4g}" for seconds in representative_durations(route.seconds)] if len(route.seconds) else []
        rows, more = [", ".join(means[start : start + 10]) for start in range(0, len(means), 10)], ",\n" + 14 * " "
        takes_s = f"[{more.join(rows)}]" if len(means) > 1 else "".join(means)
        unknown = " # write how many seconds a request takes; the log has no durations of these requests"
        lines.append(f"    takes_s: {takes_s or unknown}")
    return "\n".join(lines) + "\n"


def _of_clock(log: AccessLog) -> list[str]:
    """Return what the durations mean: whose they are, and whether requests waited."""
    lines = []
    if log.without:
        lines.append(f"# {log.without:,} of {log.requests:,} requests have no duration.")
    slow = slow_together(list(log.routes.values()))
    if log.clock == "server":
        lines.append("# They are a server's own, so they begin when a worker takes the request.")
    else:
        whose = "They are a balancer's, so" if log.clock == "balancer" else "If they are a balancer's,"
        lines.append(f"# {whose} they include the time that a request waited for a worker.")
    lines += [f"clock: {log.clock}"] if log.clock else []
    if log.clock != "server" and slow >= 0.05:
        lines.append(
            f"# {slow:.0%} of the requests took much longer than usual, at moments at which all did: they waited."
        )
        lines.append("waits: true")
    elif log.clock != "server":
        lines.append("# Prefer a log of a time when nobody waited.")
    return [
        *lines,
        "# No log says which part of its duration a request computes. A class without computes is therefore ranked as",
        "# if it computed 0, 50 and 100 % of it. make try measures it: processor time beside the durations.",
    ]


def slow_together(routes: Sequence[Route]) -> float:
    """Return the share of requests that were slow at a moment at which all were.

    Twenty requests that end after each other are a group. A group is slow if nine in ten of its requests took three
    times as long as the quick requests of the same route (the tenth of them that is quickest), and 50 ms more.
    Durations that differ by chance make hardly any such group; a queue makes nothing else.
    """
    timed = [route for route in routes if len(route.seconds) >= 20]
    if not timed:
        return 0.0
    ends = np.concatenate([route.ends_s[~np.isnan(route.took_s)] for route in timed])
    quick = [(route.seconds, np.quantile(route.seconds, 0.1)) for route in timed]
    slow = np.concatenate([(seconds > 3 * least) & (seconds > least + 0.05) for seconds, least in quick])
    slow = slow[np.argsort(ends, kind="stable")]
    return float((slow[: len(slow) // 20 * 20].reshape(-1, 20).mean(axis=1) >= 0.9).mean())
