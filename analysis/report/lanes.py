"""What the report's lanes show: when each request of a trial was sent, and which thread was at work on it.

``page/draw.js`` draws the lanes from this data. All times are whole tenths of a millisecond, because they take little
room as text and are finer than a screen.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

from analysis.metrics import waiting
from analysis.metrics.workers import labels
from analysis.predict import what_if
from analysis.predict.options import OPTION_KINDS
from analysis.read import OF_TRIAL, of_trial
from analysis.read.lab_time import clocks_of_hosts
from analysis.read.observation import read_containers, stalls_by_lab_clock, stalls_within
from analysis.read.rows import COLUMNS
from analysis.records.folder import trial_folder
from analysis.records.run import LoadRecord, Run, VariantRecord
from analysis.records.summary import Summary
from analysis.report.figures.drawing import first_trials
from analysis.report.lane_rows import Request, columns_of, in_tenths, lasted_s, rows_of_threads
from analysis.report.wording import number

MOST = 20_000
"""A variant's lanes show at most this many requests: the requests around the longest wait."""
IN_ALL = 40_000
"""All lanes of a report together show at most this many requests, so that the page stays small."""

COLOURS = ("#e69f00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#8c6d31")
"""The colours of classes of request, which colour-blind eyes can tell apart."""

Lanes = dict[str, Any]
"""The lanes of one trial, as the script reads them (see ``_of_trial``)."""


class Shown(NamedTuple):
    """The lanes of one load. ``pair`` are the places of the two variants that are shown first.

    At most ``most`` requests of each variant are shown. The last of ``trials`` may be ``computed``: the requests of the
    first shown variant, served in other ways.
    """

    load: str
    title: str
    trials: list[Lanes]
    pair: tuple[int, ...]
    classes: list[str]
    asked: dict[str, str]
    most: int

    @property
    def alt(self) -> str:
        """What the lanes show, in words."""
        return " ".join(f"{self.trials[place]['variant']}: {self.trials[place]['says']}." for place in self.pair)

    @property
    def sampled(self) -> bool:
        """Whether any variant has more requests than its lanes show."""
        return any(trial["window"] for trial in self.trials)

    @property
    def of_threads(self) -> bool:
        """Whether the rows of every worker are threads."""
        return all(trial["of_threads"] for trial in self.trials)

    @property
    def knows_free_threads(self) -> bool:
        """Whether it is known for any variant how many threads each of its workers has."""
        return any(trial["blocked"] is not None for trial in self.trials)

    @property
    def measured(self) -> list[Lanes]:
        """The lanes that were measured."""
        return [trial for trial in self.trials if not trial["computed"]]

    @property
    def colours(self) -> list[tuple[str, str]]:
        """Each class of request with its colour."""
        return [(name, COLOURS[place % len(COLOURS)]) for place, name in enumerate(self.classes)]

    @property
    def table(self) -> Iterator[tuple[str, ...]]:
        """A line for each worker: how many requests it served, their longest wait, and how long it was blocked."""
        for trial in self.measured:
            for worker in trial["workers"]:
                longest, blocked = (_in_seconds(worker[name]) for name in ("longest_wait", "blocked"))
                yield trial["variant"], worker["name"], str(worker["served"]), longest, blocked


def _in_seconds(tenths: int | None) -> str:
    return "–" if tenths is None else f"{number(tenths / 10_000)} s"


def of_run(
    database: duckdb.DuckDBPyConnection,
    run_folder: Path,
    run: Run,
    summary: Summary,
    of: tuple[int, int] | None = None,
) -> Iterator[Shown]:
    """Yield the lanes of every load, the load of the first claim first: each variant's first trusted trial.

    The requests of the first variant that is shown are also served in other ways, as theory computes it, by ``of``
    workers and threads; None: by as many as were measured.
    """
    first = [next((claim for claim in run.claims if claim.role == role), None) for role in ("answer", "cure")]
    asked = [(claim.value.variant, claim.value.load) for claim in [*first, *run.claims] if claim]
    for load in sorted(run.loads, key=lambda one: one.name not in [of for _, of in asked[:1]]):
        firsts = first_trials(summary, load.name)
        variants = [variant for variant in run.variants_under(load.name) if variant.name in firsts]
        if not variants:
            continue
        names = [variant.name for variant in variants]
        wanted = [name for name, of in asked if of in (None, load.name) and name in names]
        pair = tuple(names.index(name) for name in [*dict.fromkeys([*wanted, *names])][:2])
        first_variant = variants[pair[0]]
        again = _can_be_served_again(database, first_variant, load, firsts[first_variant.name])
        most = min(MOST, IN_ALL // ((len(variants) + again * len(OPTION_KINDS)) * len(run.loads)))
        rows = [_rows(database, variant, load.name, firsts[variant.name]) for variant in variants]
        at_s = _longest_wait(rows[pair[0]])
        trials = [
            _of_trial(
                database, run_folder, summary, variant, load.name, firsts[variant.name], mine, _window(mine, most, at_s)
            )
            for variant, mine in zip(variants, rows, strict=True)
        ]
        if again:
            trial = firsts[first_variant.name]
            trials += _served_again(database, run_folder, summary, first_variant, load.name, trial, of, most, at_s)
            pair = (0, 1) if of else pair
        title = _title([trials[place] for place in pair]) + (f" ({load.name})" if len(run.loads) > 1 else "")
        ranges = _asked(row for mine in rows for row in mine)
        classes = longest_first({name: high for name, (_, high) in ranges.items()})
        yield Shown(load.name, title, trials, pair, classes, _in_words(ranges), most)


def longest_first(asked: Mapping[str, float]) -> list[str]:
    """Return classes in the order of their colours: by the longest service time that a request asks for, or by name.

    So the slowest class is orange, and the next one blue, in every report and on every page.
    """
    return sorted(asked, key=lambda name: (-asked[name], name))


def _can_be_served_again(
    database: duckdb.DuckDBPyConnection, variant: VariantRecord, load: LoadRecord, trial: int
) -> bool:
    """Whether a trial shows in which other ways its requests could have been served."""
    threads = variant.settings.get("threads")
    several = type(threads) is int and not variant.elastic and variant.workers > 1
    if not several or not what_if.can_serve_otherwise(variant, load):
        return False
    [(sent, answered)] = database.execute(_COUNT, of_trial((variant.name, load.name, trial))).fetchall()
    return int(answered) > 0 and int(sent) <= MOST


_COUNT = f"SELECT count(*), count(worker) FROM requests WHERE {OF_TRIAL}"  # noqa: S608  # made of a constant


def _served_again(
    database: duckdb.DuckDBPyConnection,
    run_folder: Path,
    summary: Summary,
    variant: VariantRecord,
    load: str,
    trial: int,
    of: tuple[int, int] | None,
    most: int,
    at_s: float,
) -> Iterator[Lanes]:
    """Yield the lanes of the requests of a trial as theory serves them in each way."""
    key = of_trial((variant.name, load, trial))
    with database.cursor() as again:  # where ``requests`` has only these requests
        again.execute("CREATE SCHEMA again")
        again.execute("SET schema = 'again'")
        again.execute(f"CREATE TABLE again.requests ({COLUMNS})")
        again.execute(f"INSERT INTO again.requests BY NAME FROM main.requests WHERE {OF_TRIAL}", key)
        answered = waiting.read_answered(again, variant.name, load, trial)
        for one in what_if.serve_otherwise(answered, *(of or (variant.workers, int(variant.settings["threads"])))):
            what_if.insert_requests(again, variant, one)
            served = one.variant(variant)
            rows = _rows(again, served, load, trial)
            yield _of_trial(
                again, run_folder, summary, served, load, trial, rows, _window(rows, most, at_s), computed=True
            )
        again.execute("DROP SCHEMA again CASCADE")


def _asked(rows: Iterable[Request]) -> dict[str, tuple[float, float]]:
    """Return the least and the most service time that the requests of each class asked for, in seconds."""
    service_time_ms: dict[str, list[float]] = {}
    for row in rows:
        service_time_ms.setdefault(row.request_class, []).append(row.service_time_ms)
    return {name: (min(values) / 1000, max(values) / 1000) for name, values in service_time_ms.items()}


def _in_words(ranges: Mapping[str, tuple[float, float]]) -> dict[str, str]:
    """Return in words how much service time the requests of each class asked for; some classes ask for none."""
    return {
        name: f"{number(high)} s" if high - low < 0.05 * high else f"{number(low)} to {number(high)} s"
        for name, (low, high) in ranges.items()
        if high
    }


def _title(pair: list[Lanes]) -> str:
    """Return what two trials say of requests that waited beside a free thread."""
    told = [trial for trial in pair if trial["beside"]]
    if not told:
        return "Which worker served each request, and which requests waited"
    parts = [
        f"with {trial['variant']}, {trial['beside']} of {trial['answered']} requests"
        + (f", {trial['all_of']}," if trial["all_of"] else "")
        for trial in told
    ]
    parts += [f"with {trial['variant']}, none" for trial in pair if trial["beside"] == 0]
    first, *others = parts
    rest = "".join(f"; {other}" for other in others)
    return f"{first[0].upper()}{first[1:]} waited although another worker had a free thread{rest}"


def _of_trial(
    database: duckdb.DuckDBPyConnection,
    run_folder: Path,
    summary: Summary,
    variant: VariantRecord,
    load: str,
    trial: int,
    rows: list[Request],
    window: list[int] | None,
    *,
    computed: bool = False,
) -> Lanes:
    """Return the lanes of one trial, which was measured or ``computed``.

    ``workers`` has the label of each worker and how many rows it has: a row for each thread, or, if a thread works on
    several requests at once, for each request under way. ``blocked`` says for each worker when all its threads were
    busy while another worker had a free thread; None: that is unknown. ``stalls`` says when the service that the
    servers call answered nobody. ``window`` is from and to when requests are shown; None: all requests are shown.

    The columns of ``requests`` have a value for each request in the order of sending. ``number`` and ``sent`` are
    differences to the request before; ``wait``, ``work`` and ``back`` are from sent to began, from began to ended, and
    from ended to answered. A request that failed has worker -1, and its ``wait`` ends when it failed.
    """
    answered = waiting.read_answered(database, variant.name, load, trial)
    waits = waiting.of_variant(variant, answered)
    named = labels(row.worker for row in rows if row.worker is not None)
    threads = variant.settings.get("threads")
    thread_rows, of_threads = rows_of_threads(rows, threads if type(threads) is int else None)
    classes = list(dict.fromkeys(row.request_class for row in rows))
    shown = range(len(rows)) if window is None else window
    sent_s = [rows[i].sent_s for i in shown]
    containers = stalls_by_lab_clock(
        read_containers(trial_folder(run_folder, variant.name, load, trial)),
        clocks_of_hosts(summary.clocks, (variant.name, load, trial)),
    )
    stalls = [
        (began - answered.first, ended - answered.first)
        for began, ended in stalls_within(containers, answered.first, answered.last)
    ]
    return {
        "variant": variant.name,
        "trial": trial,
        "computed": computed,
        "says": _says(rows, waits),
        "answered": sum(row.error is None for row in rows),
        "beside": waiting.statistics(waits.beside_s).get("count", 0) if waits else None,
        "all_of": _only_class_beside(answered, waits),
        "layout": _layout(variant),
        "of_threads": of_threads,
        "threads": threads if waits and type(threads) is int else None,
        "lasted": in_tenths(lasted_s(rows)),
        "window": None if window is None else [in_tenths(min(sent_s)), in_tenths(max(sent_s))],
        "workers": list(_workers(variant, rows, thread_rows, named, answered, waits, of_threads=of_threads)),
        "blocked": [_turns(segments) for segments in _blocked(variant, named, answered, waits)] if waits else None,
        "stalls": _turns(np.array(stalls).reshape(-1, 2)),
        "classes": classes,
        "requests": columns_of(rows, thread_rows, list(named), classes, shown),
    }


def _only_class_beside(answered: waiting.Answered, waits: waiting.Waits | None) -> str | None:
    """Return the class of all requests that waited beside a free thread; None: there are several, or no other class."""
    if waits is None or len(answered.classes) < 2:
        return None
    found = {answered.classes[one] for one in answered.request_class[waits.beside_s > waiting.FROM_S]}
    return f"all {found.pop()}" if len(found) == 1 else None


def _layout(variant: VariantRecord) -> str:
    """Return in words how many workers a variant has, and how many threads; empty if they come and go."""
    threads = variant.settings.get("threads")
    if variant.elastic or type(threads) is not int:
        return ""
    workers = f"{variant.workers} worker{'s' if variant.workers > 1 else ''}"
    return f"{workers} of {threads} thread{'s' if threads > 1 else ''}"


def _rows(database: duckdb.DuckDBPyConnection, variant: VariantRecord, load: str, trial: int) -> list[Request]:
    found = database.execute(_ROWS, of_trial((variant.name, load, trial))).fetchall()
    return [Request(*row) for row in found]


def _workers(
    variant: VariantRecord,
    rows: list[Request],
    thread_rows: list[int],
    named: dict[str, str],
    answered: waiting.Answered,
    waits: waiting.Waits | None,
    *,
    of_threads: bool,
) -> Iterator[dict[str, Any]]:
    """Yield each worker with what it did during the whole trial, and at last the workers that served nothing."""
    threads = variant.settings.get("threads")
    least = threads if of_threads and type(threads) is int else 1
    blocked = _blocked(variant, named, answered, waits)
    for segments, (worker, name) in zip(blocked, [*named.items(), *_idle(variant, named)], strict=True):
        mine = [(row, place) for row, place in zip(rows, thread_rows, strict=True) if row.worker == worker]
        waits_s = [(row.began_s or row.sent_s) - row.sent_s for row, _ in mine]
        yield {
            "name": name,
            "rows": max([least, *(place + 1 for _, place in mine)]),
            "served": len(mine),
            "longest_wait": in_tenths(max(waits_s)) if waits_s else None,
            "blocked": in_tenths(float((segments[:, 1] - segments[:, 0]).sum())) if waits else None,
        }


def _idle(variant: VariantRecord, named: dict[str, str]) -> list[tuple[str, str]]:
    """Return the workers that served nothing, whose place in the order of forking is unknown."""
    idle = 0 if variant.elastic else max(0, variant.workers - len(named))
    return [("", f"idle worker {place}") for place in range(1, idle + 1)]


def _blocked(
    variant: VariantRecord, named: dict[str, str], answered: waiting.Answered, waits: waiting.Waits | None
) -> list[waiting.Segments]:
    """Return when each worker was blocked, in the order of their labels; workers that served nothing never were."""
    by_worker = dict(zip(answered.workers, waits.blocked, strict=True)) if waits else {}
    return [by_worker.get(worker, _NEVER) for worker in [*named, *(worker for worker, _ in _idle(variant, named))]]


_NEVER: waiting.Segments = np.empty((0, 2))

_ROWS = f"""
WITH trial AS (FROM requests WHERE {OF_TRIAL}), start AS (SELECT epoch(min(sent)) AS first FROM trial)
SELECT request_class, epoch(sent) - first, began - first, ended - first, epoch(answered) - first,
    greatest(coalesce(blocked_ms, 0), coalesce(connecting_ms, 0)), service_time_ms,
    CASE WHEN error IS NULL AND began IS NOT NULL AND ended IS NOT NULL THEN worker END,
    coalesce(thread, 0), error
FROM trial, start ORDER BY sent, id, generator
"""  # noqa: S608  # made of this module's own constants


def _says(rows: list[Request], waits: waiting.Waits | None) -> str:
    """Return in words how many requests waited beside a free thread, and how many failed."""
    failed = sum(row.error is not None for row in rows)
    parts = [f"{failed} of {len(rows)} requests failed"] if failed else []
    if waits is not None:
        stats = waiting.statistics(waits.beside_s)
        some = f"{stats.get('count', 0)} of {len(waits.beside_s)} requests" if stats.get("count") else "no request"
        longest = f", the longest for {number(stats['max'] / 1000)} s" if stats.get("count") else ""
        parts.insert(0, f"{some} waited although another worker had a free thread{longest}")
    return "; ".join(parts) or f"{len(rows)} requests"


def _longest_wait(rows: list[Request]) -> float:
    """Return when the request was sent that waited longest, in seconds."""
    waited = max(rows, key=lambda row: (row.began_s or row.sent_s) - row.sent_s, default=None)
    return waited.sent_s if waited else 0.0


def _window(rows: list[Request], most: int, at_s: float) -> list[int] | None:
    """Return the places of the requests that are shown: those sent around a time, and those then under way.

    None: all requests are shown.
    """
    if len(rows) <= most:
        return None
    middle = bisect_left([row.sent_s for row in rows], at_s)
    first = min(max(0, middle - most // 2), len(rows) - most)
    began_s = rows[first].sent_s
    under_way = [i for i in range(first) if (rows[i].answered_s or 0.0) > began_s]
    return [*under_way, *range(first, first + most)]


def _turns(segments: waiting.Segments) -> list[int]:
    times = np.round(segments.ravel() * 10_000).astype(int)
    steps: list[int] = np.diff(times, prepend=0).tolist()
    return steps
