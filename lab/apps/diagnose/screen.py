"""The answer of a diagnosis on one screen of 80 columns."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from textwrap import wrap

from rich.console import Console
from rich.text import Text

from analysis.records.plural import plural
from analysis.report.tables import Table
from analysis.report.terminal import terminal_table
from analysis.report.wording import percent
from lab.apps.diagnose.capacity import Capacity
from lab.apps.diagnose.diagnosis import Diagnosis
from lab.apps.diagnose.findings import NOTICED, ClassFindings, Findings
from lab.apps.diagnose.logs import Floats, Logs
from lab.apps.diagnose.replayed import Replay
from lab.apps.diagnose.requests import Requests

WIDTH = 80
CLOCK_S = 0.05
"""The clock of a server is mentioned if it differs by more than this."""
_BLOCKS = "▁▂▃▄▅▆▇█"
_MOST_WAYS, _NAME = 4, 18


def print_diagnosis(
    console: Console, logs: Logs, requests: Requests, capacity: Capacity, findings: Findings, replay: Replay | None
) -> None:
    """Print who waited, how long, where, when, behind what, and what would have helped."""
    for sentence in (*_sources(logs, requests), *_capacity(capacity)):
        _say(console, sentence, "dim")
    console.print()
    for sentence in answer(requests, capacity, findings):
        _say(console, sentence)
    console.print()
    console.print(terminal_table(_table(findings, known=bool(requests.joins))))
    console.print(Text("\n" + _when(requests, findings.periods_s)))
    if replay:
        console.print()
        for sentence in _replayed(replay, capacity):
            _say(console, sentence)


def _say(console: Console, sentence: str, style: str = "") -> None:
    for line in wrap(sentence, WIDTH, subsequent_indent="  " if sentence.startswith("- ") else ""):
        console.print(Text(line, style=style))


def _sources(logs: Logs, requests: Requests) -> Iterator[str]:
    lasts_s = float(requests.ended_s.max())
    began = datetime.fromtimestamp(requests.first, UTC)
    yield f"{len(requests):,} requests in {_time(lasts_s)}, from {began:%d %B %Y, %H:%M:%S} UTC on."
    for balancer, server, joined in requests.joins:
        by = "by id" if joined.by_id == len(joined.server) else "by path, status, order and times"
        ahead_s, way = abs(joined.clock.ahead_s), "ahead" if joined.clock.ahead_s > 0 else "behind"
        clock = f"; its clock is {_time(ahead_s)} {way}" if ahead_s > max(joined.clock.uncertain_s, CLOCK_S) else ""
        unsure = f"; {percent(joined.ambiguous)} could be a neighbour" if joined.ambiguous > NOTICED else ""
        yield (f"{server.file}: {percent(len(joined.server) / len(server))} of its lines are in {balancer.file}, "
               f"joined {by}{unsure}{clock}.")  # fmt: skip
    lost = sum(log.unreadable for log in (*logs.balancers, *logs.servers))
    if lost:
        yield f"{plural(lost, 'line')} could not be read."
    if requests.joins and requests.in_both < 1 - NOTICED:
        yield (f"{percent(1 - requests.in_both)} of the balancer's lines are in no server's log; what these requests "
               "waited is unknown.")  # fmt: skip


def _capacity(capacity: Capacity) -> Iterator[str]:
    if (capacity.place < 0).any() and "workers" in capacity.found:
        yield (
            f"At most {plural(capacity.total, 'request')} were at work at once, so there are at least as many threads; "
            "--workers and --threads say how many there are. No log says which worker served a request."
        )
        return
    found = f" ({' and '.join(capacity.found)} as the logs show them)" if capacity.found else ""
    restarts = f" {plural(capacity.restarts, 'worker')} came in the place of another." if capacity.restarts else ""
    yield f"{plural(capacity.workers, 'worker')} x {plural(capacity.threads, 'thread')}{found}.{restarts}"


def answer(requests: Requests, capacity: Capacity, findings: Findings) -> Iterator[str]:
    """Yield what was wrong, in sentences."""
    if not requests.joins:
        yield from _one_log(capacity, findings)
        return
    if not findings.cause:
        yield f"Hardly any request waited: {percent(findings.waited)} waited for a worker for more than 50 ms."
        yield from _load(capacity, findings)
        return
    worst = max(findings.classes, key=lambda each: each.longest_s)
    yield (f"{percent(findings.queueing)} of all latency is queueing delay: {percent(findings.waited)} of the requests "
           f"waited for a worker for more than 50 ms, for up to {_time(worst.longest_s)}.")  # fmt: skip
    if findings.cause == "idle":
        yield (f"For {percent(findings.idle)} of the delay, no request was at work: something else held the workers, "
               "such as connections that say nothing, a restart, or a process that was stopped.")  # fmt: skip
    elif findings.cause == "avoidable":
        yield (f"Most of it was avoidable: for {percent(findings.avoidable)} of the delay, another thread was free "
               "(head-of-line blocking).")  # fmt: skip
        front = sorted(findings.in_front.items(), key=lambda item: -item[1])[:2]
        if front:
            yield ("Meanwhile, the threads of their workers were held by "
                   + " and ".join(f"{name} ({percent(share)})" for name, share in front) + ".")  # fmt: skip
    else:
        busy = f"all {capacity.total} threads were" if capacity.total > 1 else "the only thread was"
        yield (f"For {percent(1 - findings.avoidable)} of the delay, {busy} at work: the requests queued before the "
               "servers, where a server's own log cannot see them.")  # fmt: skip
    yield from _load(capacity, findings)


def _one_log(capacity: Capacity, findings: Findings) -> Iterator[str]:
    yield ("With one kind of log, nobody can tell how long requests waited. A balancer's log and the servers' logs "
           "together can: lab diagnose --setup prints the lines to add.")  # fmt: skip
    yield from _load(capacity, findings)


def _load(capacity: Capacity, findings: Findings) -> Iterator[str]:
    if findings.busy_minutes:
        least, most = findings.busy_load_range
        yield (f"In {plural(findings.busy_minutes, 'minute')}, the work that came would keep {findings.busy_load:.3g} "
               f"threads at work ({least:.3g} to {most:.3g} by minute); there are {capacity.total}.")  # fmt: skip
    else:
        yield f"In the busiest minute, the work that came would keep {findings.busy_load:.3g} threads at work."


def _table(findings: Findings, *, known: bool) -> Table:
    head = ["class", "requests", "latency, p99", *(["queueing, p90", "p99", "> 50 ms", "avoidable"] if known else [])]
    return Table("", head, [_row(each, known=known) for each in findings.classes])


def _row(each: ClassFindings, *, known: bool) -> Sequence[str]:
    name = each.name.removeprefix("GET ")
    name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
    waits = [_time(each.wait_p90_s), _time(each.wait_p99_s), percent(each.waited), percent(each.avoidably)]
    return [name, f"{each.requests:,}", _time(each.latency_p99_s), *(waits if known else [])]


def _when(requests: Requests, periods_s: Floats) -> str:
    """Return a strip of the longest waits over time, and its scale."""
    most = max(float(periods_s.max()), 1e-9)
    strip = "".join(_BLOCKS[min(int(wait / most * len(_BLOCKS)), len(_BLOCKS) - 1)] for wait in periods_s.tolist())
    ends = [datetime.fromtimestamp(requests.first + at, UTC) for at in (0.0, float(requests.sent_s[-1]))]
    return f"{ends[0]:%H:%M:%S} {strip} {ends[1]:%H:%M:%S}\nlongest wait of each period, up to {_time(most)}"


def _replayed(replay: Replay, capacity: Capacity) -> Iterator[str]:
    if replay.measured.waited <= NOTICED:
        return
    if not replay.today:
        yield ("The simulator serves these requests in no way as they were served, so it cannot say what would have "
               "helped.")  # fmt: skip
        return
    yield (f"Replayed by the simulator, as {replay.today.label}, {percent(replay.today.waited)} wait for more than 50 "
           f"ms (measured: {percent(replay.measured.waited)}), p99 {_time(replay.today.p99_s)} (measured: "
           f"{_time(replay.measured.p99_s)}).")  # fmt: skip
    better = sorted((way for way in replay.ways if way.waited < 0.5 * replay.today.waited), key=lambda way: way.waited)
    for way in better[:_MOST_WAYS]:
        yield f"- {way.label}: {percent(way.waited)} wait, p99 {_time(way.p99_s)}"
    if not better:
        yield f"With {plural(capacity.total, 'thread')}, no other way to serve them halves that."
    if replay.threads > capacity.total:
        yield f"With {replay.threads} threads that take all requests from one queue, hardly any request waits."


def _time(seconds: float) -> str:
    """Return a time in the unit that suits it, with three digits."""
    if abs(seconds) >= 3600:
        return f"{seconds / 3600:.3g} h"
    if abs(seconds) >= 60:
        return f"{seconds / 60:.3g} min"
    return f"{seconds:.3g} s" if abs(seconds) >= 1 else f"{1000 * seconds:.3g} ms"


def as_values(found: Diagnosis, replayed: Replay | None) -> dict[str, object]:
    """Return a diagnosis for JSON: times in seconds, shares of requests, of latency or of delay."""
    _, requests, capacity, findings = found
    return {
        "requests": len(requests), "in_both": requests.in_both, "workers": capacity.workers,
        "threads": capacity.threads, "found": [*capacity.found], "restarts": capacity.restarts,
        "cause": findings.cause, "waited": findings.waited, "waited_avoidably": findings.waited_avoidably,
        "queueing": findings.queueing, "avoidable": findings.avoidable, "idle": findings.idle,
        "in_front": findings.in_front, "busy_load": findings.busy_load,
        "classes": [asdict(each) for each in findings.classes], "replay": replayed and replayed.as_values(),
    }  # fmt: skip
