"""The answer of a diagnosis on one screen of 80 columns."""

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from textwrap import wrap

import numpy as np
from rich.console import Console
from rich.text import Text

from stampede.evaluate.metrics.waiting import FROM_S
from stampede.logs.columns import Bounds
from stampede.logs.diagnose.capacity import Capacity
from stampede.logs.diagnose.diagnosis import Diagnosis
from stampede.logs.diagnose.findings import NOTICED, Findings
from stampede.logs.diagnose.logs import Logs
from stampede.logs.diagnose.replayed import SEEDS, Replay
from stampede.logs.diagnose.requests import BAD_GATEWAY, Noted, Requests, has_header
from stampede.logs.durations import ASSUMED
from stampede.logs.error_log import SAYS
from stampede.predict.symptoms import SYMPTOMS, UNSEEN, Symptom
from stampede.records.words import noun_for, plural
from stampede.report.tables import Table
from stampede.report.terminal import terminal_table
from stampede.report.wording import percent

WIDTH = 80
MOST_ROWS = 3
_BLOCKS = "▁▂▃▄▅▆▇█"
_NAME = 15


def print_diagnosis(console: Console, found: Diagnosis, replayed: Replay | None) -> None:
    """Print who waited, how long, where, when, behind what, and what would have helped."""
    logs, requests, _, findings = found
    for sentence in (*_sources(logs, requests), _capacity(found)):
        _say(console, sentence, "dim")
    console.print()
    for paragraph in (*found.capacity.doubts, " ".join(answer(found))):
        _say(console, paragraph)
    console.print()
    known, rows = bool(requests.joins), []
    for each in findings.classes:
        name = each.name.removeprefix("GET ")
        name = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        waits = [*map(_wait, (each.wait_p90_s, each.wait_p99_s)), *map(share_in_words, (each.waited, each.avoidably))]
        rows.append([name, f"{each.requests:,}", _time(each.latency_p99_s), *(waits if known else [])])
    head = ["class", "requests", "latency p99", *(["queueing p90", "p99", "> 50 ms", "avoidably"] if known else [])]
    console.print(terminal_table(Table("", head, rows)))
    if known:
        most_s = float(findings.periods_s.max())
        levels = np.geomspace(FROM_S, max(most_s, FROM_S), len(_BLOCKS))[:-1]
        strip = "".join(_BLOCKS[place] for place in np.searchsorted(levels, findings.periods_s))
        ends = [datetime.fromtimestamp(requests.first + at, UTC) for at in (0.0, float(requests.sent_s[-1]))]
        scale = f"up to 50 ms {_BLOCKS[0]}, up to {_time(most_s)} {_BLOCKS[-1]} (logarithmic)"
        console.print(Text(f"{ends[0]:%H:%M:%S} {strip} {ends[1]:%H:%M:%S}\nlongest wait of each period: {scale}"))
    if cures := [*cures_in_words(found, replayed)]:
        console.print()
        for sentence in cures:
            _say(console, sentence)


def findings_in_words(found: Diagnosis) -> Iterator[str]:
    """Yield what is doubtful, and what was wrong: the sentences of the terminal in the paragraphs of the page."""
    yield from found.capacity.doubts
    verdict, *further = answer(found)
    yield verdict
    if further:
        yield " ".join(further)


def cures_in_words(found: Diagnosis, replayed: Replay | None) -> Iterator[str]:
    """Yield what would have helped, or where docs/ says more, in the same sentences on the terminal and on the page."""
    if found.findings.cause:
        if replayed:
            yield from _replayed(replayed, found.capacity, found.findings)
        if not (replayed and replayed.better):
            yield _symptom(found.findings).more


def _say(console: Console, sentence: str, style: str = "") -> None:
    whole = re.sub(r"(\d) (ms|s|min|h)\b", "\\1\u00a0\\2", sentence)  # a number and its unit stay in one line
    for line in wrap(whole, WIDTH, subsequent_indent="  " if sentence.startswith("- ") else "", break_on_hyphens=False):
        console.print(Text(line.replace("\u00a0", " "), style=style))


def _sources(logs: Logs, requests: Requests) -> Iterator[str]:
    began = datetime.fromtimestamp(requests.first, UTC)
    lasts = _time(float(requests.ended_s.max()))
    yield f"{len(requests):,} {noun_for(len(requests), 'request')} in {lasts}, from {began:%d %B %Y, %H:%M:%S} UTC on."
    for balancer, server, joined in requests.joins:
        by = "by id" if joined.by_id == len(joined.server) else "by path, status, order and times"
        ahead_s, way = abs(joined.clock.ahead_s), "ahead" if joined.clock.ahead_s > 0 else "behind"
        clock = f"; its clock is {_time(ahead_s)} {way}" if ahead_s > max(joined.clock.uncertain_s, 0.05) else ""
        share = percent(len(joined.server) / len(server))
        if balancer.file == server.file:
            yield f"{server.file}: {share} of its lines say when the balancer got the request{clock}."
        else:
            yield f"{server.file}: {share} of its lines are in {balancer.file}, joined {by}{clock}."
        if joined.ambiguous > NOTICED:
            yield (f"For {percent(joined.ambiguous)} of the lines, the next line fits as well, so single waits may be "
                   "exchanged.")  # fmt: skip
    if lost := sum(log.unreadable for log in (*logs.balancers, *logs.servers)):
        yield f"{plural(lost, 'line')} could not be read."
    joined_logs = [log for balancer, server, _ in requests.joins for log in (balancer, server)]
    for log in {log.file: log for log in (*logs.balancers, *logs.servers, *joined_logs)}.values():
        yield from log.notes
        if log.assumed and not requests.joins:  # the durations of two logs fit in the same unit only
            yield f"{log.assumed} of {log.file} counts as seconds, {ASSUMED}."
        if log.took_tick_s and requests.joins:
            yield f"The durations of {log.file} are whole seconds, so a wait is known to a second only."
        if untimed := int(np.isnan(log.took_s).sum()):
            have = "has" if untimed == 1 else "have"
            yield f"{plural(untimed, 'line')} of {log.file} {have} no duration; what those requests waited is unknown."
    if requests.joins and requests.in_both < 1 - NOTICED:
        yield (f"{percent(1 - requests.in_both)} of the balancer's lines are in no server's log; what these requests "
               "waited is unknown.")  # fmt: skip


def _capacity(found: Diagnosis) -> str:
    logs, requests, capacity, _ = found
    of_hosts = []
    for log in logs.servers if len(logs.servers) > 1 else ():  # each is a host of its own
        workers = len(np.unique(capacity.place[np.isin(requests.worker, log.worker[log.worker >= 0])]))
        of_hosts.append(f"{workers} in {log.file}" if workers else log.file)
    *others, last = of_hosts or [""]
    hosts = f" on {len(of_hosts)} hosts: {', '.join(others)} and {last}" if others else ""
    least = "at least " if found.threads_at_least else "at most " if len(capacity.lacking) else ""
    if (capacity.place < 0).any() and "workers" in capacity.found:
        threads, assumed = plural(capacity.total, "thread"), ""
        if requests.joins and least:
            assumed = (f", and waits do not tell how many threads there are: at least {threads}. If you know, say "
                       "--workers and --threads")  # fmt: skip
        elif requests.joins:
            assumed = f", and requests wait meanwhile, so there {'is' if capacity.total == 1 else 'are'} {threads}"
        of = "at work" if requests.joins else "under way"
        return (f"At most {plural(capacity.total, 'request')} {'is' if capacity.total == 1 else 'are'} {of} at once"
                f"{hosts}{assumed}.")  # fmt: skip
    shown = f" ({' and '.join(capacity.found)} as the logs show them)" if capacity.found else ""
    restarts = f" {plural(capacity.restarts, 'worker')} came in the place of another." if capacity.restarts else ""
    threads = f"{least}{plural(capacity.threads, 'thread')}"
    return f"{plural(capacity.workers, 'worker')} x {threads}{hosts}{shown}.{restarts}"


def answer(found: Diagnosis) -> Iterator[str]:
    """Yield what was wrong, in sentences; the first is the verdict."""
    _, requests, capacity, findings = found
    failed = sum(each.requests for each in (*requests.refused, *requests.left))
    comes_first = failed > findings.waited.likely * int(requests.joined.sum())  # more got no answer than waited
    if not requests.joins:
        if not found.logs.balancers and any(map(has_header, found.logs.servers)):
            yield ("The log says when the balancer got each request, but its own times are whole seconds, so nobody "
                   "can tell how long requests waited. stampede diagnose --setup prints what is missing.")  # fmt: skip
        else:
            kind = "a balancer" if found.logs.balancers else "a server"
            yield (f"Only the log of {kind} is there, so nobody can tell how long requests waited. The logs of a "
                   "balancer and of its servers together can, or a server's log with the header X-Request-Start: "
                   "stampede diagnose --setup prints the lines to add.")  # fmt: skip
    elif not findings.cause or comes_first:
        yield from _not_answered(found)
    if requests.joins and not findings.cause:
        known = "Hardly any request" if findings.waited.high <= NOTICED else "Hardly any request that has all its lines"
        yield f"{known} waited: {percent(findings.waited.likely)} waited for a worker for more than 50 ms."
    elif requests.joins:
        sent_s, began_s = requests.sent_s[findings.longest], requests.began_s[findings.longest]
        first, last = (datetime.fromtimestamp(requests.first + float(at), UTC) for at in (sent_s, began_s))
        slow = max(findings.classes, key=lambda each: each.waited.likely)
        alone = (
            f", {percent(slow.waited.likely)} of those for {slow.name}," if findings.waited.likely <= NOTICED else ""
        )
        if findings.bad_minute and not slow.is_often_slow:
            minute = datetime.fromtimestamp(requests.first + findings.bad_minute[0], UTC)
            alone = f", {percent(findings.bad_minute[1])} of those in the minute from {minute:%H:%M:%S} on,"
        waited, verdict = percent(findings.waited.likely), _symptom(findings).verdict
        if findings.cause == "missing" and not findings.ranges:
            verdict = "Nobody can tell the cause"
        if findings.is_doubtful and findings.cause != "missing":
            waited, alone = range_in_words(findings.waited, percent), ""
            if findings.cause == "coarse" and findings.waited.low <= NOTICED:
                verdict = "Whole seconds do not tell whether requests wait"
        yield (f"{verdict}: {waited} of the requests{alone} waited for a worker for more than "
               f"50 ms, at most {_time(float(began_s - sent_s))} (from {first:%H:%M:%S} to {last:%H:%M:%S}). "
               f"{percent(findings.queueing)} of all latency is queueing delay.")  # fmt: skip
        yield from _cause(requests, capacity, findings)
        if not comes_first:
            yield from _not_answered(found)
    yield from _told(found)


def _told(found: Diagnosis) -> Iterator[str]:
    _, requests, capacity, findings = found
    if requests.slow_clients:
        yield (f"{plural(requests.slow_clients, 'request')} ended in the balancer's log long after the server was "
               "done: their clients were slow, and no worker was busy with them meanwhile.")  # fmt: skip
    if requests.killed:
        count, rows = sum(each.requests for each in requests.killed), _rows(requests.killed, found)
        worker = f"ended together with {'its' if count == 1 else 'their'} worker"
        how = worker if capacity.seen else "failed at the same time limit"
        yield (f"{plural(count, 'request')} {how}: {rows}. "
               "The server's log gives far less time, as gunicorn does when it kills a worker at its timeout. Until "
               "then, the request counts as at work, and no log tells what it did.")  # fmt: skip
    for kind, (noun, says) in SAYS.items():
        if of_kind := [event.at for event in found.logs.events if event.kind == kind]:
            yield f"The error log: {says.format(plural(len(of_kind), noun))}{_when(list(filter(None, of_kind)))}."
    if ranges := findings.ranges:
        p90, p99 = (range_in_words(each, _time) for each in ranges.waits_s[1:])
        yield (
            f"Of {percent(ranges.missing)} of the requests, a line is missing. Probably, "
            f"{range_in_words(ranges.waited, percent)} of the requests waited for more than 50 ms, "
            f"{range_in_words(ranges.avoidably, percent)} avoidably, and the queueing delay was {p90} (p90) and "
            f"{p99} (p99)."
        )
    when = "In the busiest minute" if findings.of_minutes else "On average"
    if not requests.joins:
        yield f"{when}, {findings.load.max():.3g} requests were under way{' on average' * findings.of_minutes}."
    elif not len(findings.busy):
        yield f"{when}, the requests kept {findings.load.max():.3g} threads at work."
    else:
        low, high = findings.busy.min(), findings.busy.max()
        least = "at least " if found.threads_at_least else ""
        when = f"In {plural(len(findings.busy), 'minute')}" if findings.of_minutes else when
        work = f"{findings.busy_load:.3g}" + (f" ({low:.3g} to {high:.3g})" if len(findings.busy) > 1 else "")
        yield f"{when}, the work that came was enough for {work} threads; there are {least}{capacity.total}."


def _when(at: Sequence[float]) -> str:
    times = [f"{datetime.fromtimestamp(each, UTC):%H:%M:%S}" for each in (*at[:1], *at[-1:])]
    return f", from {times[0]} to {times[1]}" if len({*times}) > 1 else f", at {times[0]}" if times else ""


def _not_answered(found: Diagnosis) -> Iterator[str]:
    requests = found.requests
    if refused := requests.refused:
        count = sum(each.requests for each in refused)
        when = _when([min(each.first for each in refused), max(each.last for each in refused)])
        yield (f"The balancer answered {plural(count, 'request')} itself{when}, without a line in any server's log: "
               f"{_rows(refused, found)}.")  # fmt: skip
        bad = [each for each in refused if each.status == BAD_GATEWAY]
        if any(each.median_s <= FROM_S for each in bad):
            yield ("A 502 at once means that the server refused or closed the connection: it was down, its listen "
                   "queue was full, or it closed an idle connection that the balancer kept for longer.")  # fmt: skip
        if any(each.median_s > FROM_S for each in bad):
            yield "A 502 after a while means that the worker ended while it had the request."
    if requests.left:
        count = sum(each.requests for each in requests.left)
        yield (f"The server went on with {plural(count, 'request')} that the balancer or its client had left: "
               f"{_rows(requests.left, found)}. That was {percent(requests.left_work)} of all work.")  # fmt: skip
    if busy := requests.turned_away:
        count = sum(each.requests for each in busy)
        yield (f"The server turned away {plural(count, 'request')}: {_rows(busy, found)}, as a limit of the "
               "application or of the server does, such as uvicorn's --limit-concurrency.")  # fmt: skip


def _rows(noted: Sequence[Noted], found: Diagnosis) -> str:
    names = found.logs.routes.names
    rows = []
    for each in noted[:MOST_ROWS]:
        after = ", at once" if each.median_s <= FROM_S else f", after {_time(each.median_s)}" * (each.median_s > 0)
        rows.append(f"status {each.status} for {names[each.route]} ({each.requests:,}{after})")
    rest = sum(each.requests for each in noted[MOST_ROWS:])
    return ", ".join([*rows, *([f"others ({rest:,})"] if rest else [])])


def _symptom(findings: Findings) -> Symptom:
    if findings.cause == "idle" and findings.overtaken >= 0.5:  # the workers were no obstacle
        return SYMPTOMS["overtaken"]
    return SYMPTOMS[{"avoidable": "avoidable-wait", "full": "threads"}.get(findings.cause, findings.cause)]


def range_in_words(of: Bounds[float], in_words: Callable[[float], str]) -> str:
    """Return both ends of a range, or one of them if they read the same."""
    low, high = in_words(of.low), in_words(of.high)
    return low if low == high else f"{low} to {high}"


def share_in_words(share: Bounds[float]) -> str:
    """Return a share, or the range in which it lies, in whole percent."""
    is_known = share.high - share.low < 0.005
    return percent(share.likely) if is_known else f"{100 * share.low:.0f}-{100 * share.high:.0f}%"


def _wait(within: Bounds[float]) -> str:
    """Return a wait, or the range in which it lies if that is more than 5 % and 5 ms."""
    if within.high - within.low <= max(0.05 * within.high, 0.005):
        return _time(within.likely)
    unit, of_unit = next(each for each in (("min", 60.0), ("s", 1.0), ("ms", 0.001)) if within.high >= each[1])
    digits = 0 if within.high >= 10 * of_unit else 1
    return f"{within.low / of_unit:.{digits}f}-{within.high / of_unit:.{digits}f} {unit}"


def _cause(requests: Requests, capacity: Capacity, findings: Findings) -> Iterator[str]:
    symptom = _symptom(findings)
    if findings.cause == "idle":
        one = "" if capacity.seen else ", or one of several workers that was stopped"
        restarts = ", restarts" if capacity.restarts else ""
        says = f"{symptom.says.format(one=one, restarts=restarts)} {UNSEEN}"
        yield f"For {percent(findings.idle.likely)} of the delay, no request was at work. {says}"
    elif findings.cause == "avoidable":
        other = "another worker had a free thread" if (capacity.place >= 0).all() else "a thread was free"
        front = sorted(findings.in_front.items(), key=lambda item: -item[1])[:2]
        held = " and ".join(f"{name} ({percent(share)} of the time)" for name, share in front if share > 0.1)
        yield (f"For {percent(findings.avoidable.likely)} of the delay, {other}"
               + (f". Their own worker was busy with {held}." if front else "."))  # fmt: skip
    elif findings.cause in ("full", "away"):
        busy = f"all {capacity.total} threads were" if capacity.total > 1 else "the only thread was"
        away = f" or away (some were away for {percent(findings.away)})" if findings.away > NOTICED else ""
        yield (f"For {percent(findings.full.likely)} of the delay, {busy} at work{away}. {symptom.says}")  # fmt: skip
    elif findings.cause == "missing":
        within = [range_in_words(each, percent) for each in
                  (findings.avoidable, findings.full, findings.idle)]  # fmt: skip
        yield (f"A thread was free elsewhere for {within[0]} of the delay, all threads were at work for {within[1]}, "
               f"and no request was at work for {within[2]}.")  # fmt: skip
        if len(capacity.perhaps_away) > len(requests.hung):
            yield ("Nobody knows whether a worker was there before its first request and after its last one; if it "
                   "was, it had a free thread.")  # fmt: skip
        if len(requests.hung):
            yield ("Nobody knows whether the requests without a server's line held threads until the balancer or its "
                   "client had left them, and for how much longer.")  # fmt: skip
        if len(capacity.lacking) and capacity.at_least:
            yield (f"Some workers have fewer threads than {capacity.threads}, and nobody knows how many more the "
                   "others have.")  # fmt: skip
        if not findings.ranges and len(requests.held):
            yield ("While a worker ended with its request, nobody knows which others went on. The server's log would "
                   "tell, if it named the processes: stampede diagnose --setup.")  # fmt: skip
    elif findings.cause == "coarse":
        if findings.avoidable.likely > NOTICED and not findings.is_doubtful:
            share = percent(findings.avoidable.likely)
            yield f"As far as they tell, a thread was free elsewhere for about {share} of the delay."
        yield symptom.cures[""]
    elif told := [name for name in ("workers", "threads") if name not in capacity.found]:
        yield (f"While they waited, their own worker had a free thread, if there are {capacity.workers} x "
               f"{capacity.threads}. Check {' and '.join(f'--{name}' for name in told)}.")  # fmt: skip
    else:
        fewer = f"It had fewer threads than {capacity.threads} then, or something"
        yield f"{symptom.says.format(something=fewer if capacity.threads > 1 else 'Something')} {UNSEEN}"


def _replayed(replayed: Replay, capacity: Capacity, findings: Findings) -> Iterator[str]:
    today, measured = replayed.today, replayed.measured
    if not today:
        yield "No way to serve that the simulator knows reproduces these waits, so no cure is named."
    else:
        spread = f"; {SEEDS} replays: {percent(today.least)} to {percent(today.most)}" * (today.least < today.most)
        said = "Cures (threads of a worker):" if replayed.better else "No other way halves the waits."
        yield (f"Replayed as today ({today.label}: {today.serves.removeprefix('gunicorn: ').rstrip('.')}), "
               f"{percent(today.waited)} of requests wait, p99 {_time(today.p99_s)} (measured: "
               f"{percent(measured.waited)}, {_time(measured.p99_s)}{spread}). {said}")  # fmt: skip
        yield from _ways(replayed, findings)
    if replayed.threads > capacity.total:
        yield f"With {replayed.threads} threads that take all requests from one queue, hardly any request waits."


def _ways(replayed: Replay, findings: Findings) -> Iterator[str]:
    sure = [way for way in replayed.better if not replayed.is_doubtful(way)]
    for way in sure:
        if way.is_setting:
            yield f"- {way.in_words}"
    if more := [way for way in sure if not way.is_setting]:
        least, most = (percent(bound(way.waited for way in more)) for bound in (min, max))
        yield (f"- {', '.join(f'{way.change} ({way.cost})' for way in more)}: "
               f"{most if least == most else f'up to {most}'} wait.")  # fmt: skip
    doubtful = replayed.better[len(sure) :]
    for way in doubtful[:-1]:
        yield f"- {way.in_words}"
    if doubtful:
        limits = [way for way in doubtful if way.most_computing < 1]
        shares = " and for more than ".join(
            f"{percent(way.most_computing)} of their time, {way.change}" for way in limits
        )
        p99s = ", ".join(f"{_time(way.computing_p99_s or 0)} with {way.change}" for way in doubtful)
        today = _time((replayed.today and replayed.today.computing_p99_s) or 0)
        fails = f"compute for more than {shares} cannot keep up" if limits else (
            f"only compute, their p99 overhead is {p99s} (today: {today})")  # fmt: skip
        yield f"- {doubtful[-1].in_words} No log says how much the requests compute. If they {fails}."
    if findings.cause == "avoidable" and findings.in_front:
        slowest, share = max(findings.in_front.items(), key=lambda item: item[1])
        if share > 0.75:
            yield f"Not replayed: workers of its own for {slowest}, or less work in it."


def _time(seconds: float) -> str:
    if abs(seconds) >= 3600:
        return f"{seconds / 3600:.3g} h"
    if abs(seconds) >= 60:
        return f"{seconds / 60:.3g} min"
    return f"{seconds:.3g} s" if abs(seconds) >= 1 else f"{1000 * seconds:.3g} ms"


def as_values(found: Diagnosis, replayed: Replay | None) -> dict[str, object]:
    """Return a diagnosis for JSON: times in seconds, shares of requests, of latency or of delay."""
    _, requests, capacity, findings = found
    noted = {"refused": requests.refused, "killed": requests.killed, "left": requests.left,
             "turned_away": requests.turned_away}  # fmt: skip
    names = found.logs.routes.names
    return {
        "requests": len(requests), "in_both": requests.in_both, "workers": capacity.workers,
        "threads": capacity.threads, "threads_at_least": found.threads_at_least,
        "hosts": [log.file for log in found.logs.servers], "found": [*capacity.found], "restarts": capacity.restarts,
        "cause": findings.cause, "waited": findings.waited.likely,
        "waited_within": _ends(findings.waited), "waited_avoidably": findings.avoidably.likely,
        "avoidably_within": _ends(findings.avoidably), "queueing": findings.queueing,
        "avoidable": findings.avoidable.likely, "full": findings.full.likely, "away": findings.away,
        "idle": findings.idle.likely, "overtaken": findings.overtaken,
        "unexplained": findings.unexplained, "doubts": [*capacity.doubts],
        "ranges": findings.ranges and {
            name: _ends(value) if isinstance(value, Bounds) else [*map(_ends, value)] if name == "waits_s" else value
            for name, value in findings.ranges._asdict().items()
        },
        **{kind: [each._asdict() | {"route": names[each.route]} for each in rows] for kind, rows in noted.items()},
        "left_work": requests.left_work, "slow_clients": requests.slow_clients,
        "events": [event._asdict() for event in found.logs.events],
        "in_front": findings.in_front, "busy_load": findings.busy_load,
        "classes": [
            {"name": each.name, "requests": each.requests, "latency_p99_s": each.latency_p99_s,
             "wait_p50_s": each.wait_p50_s, "wait_p90_s": each.wait_p90_s.likely,
             "wait_p99_s": each.wait_p99_s.likely, "longest_s": each.longest_s, "waited": each.waited.likely,
             "avoidably": each.avoidably.likely, "waited_within": _ends(each.waited),
             "avoidably_within": _ends(each.avoidably), "p90_within": _ends(each.wait_p90_s),
             "p99_within": _ends(each.wait_p99_s)} for each in findings.classes
        ],
        "replay": replayed and replayed.as_values(),
    }  # fmt: skip


def _ends(of: Bounds[float]) -> list[float]:
    return [of.low, of.high]
