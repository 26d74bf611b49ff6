"""The page of a diagnosis: the lanes of the real workers around the longest wait, and the same requests in other ways.

It opens offline, and has nothing of a person: routes, times and numbers of workers only.
"""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import numpy as np

from stampede.evaluate.read.rows import COLUMNS
from stampede.logs.columns import Floats, Integers
from stampede.logs.diagnose.capacity import Capacity
from stampede.logs.diagnose.diagnosis import Diagnosis
from stampede.logs.diagnose.replayed import Replay, around_longest
from stampede.logs.diagnose.screen import cures_in_words, findings_in_words, range_in_words, share_in_words
from stampede.records.run import LoadRecord, Run, VariantRecord
from stampede.records.summary import Summary, TrialValidity
from stampede.report.html import timeline_page
from stampede.report.wording import percent

MOST = 4000
"""So many requests are shown at most: those around the longest wait."""
_VARIANT, _LOAD = "production", "logs"
_ROWS = f"""
WITH logged AS (
    SELECT unnest($class) AS request_class, unnest($worker) AS place, unnest($thread) AS thread,
        unnest($sent) AS sent_s, unnest($began) AS began, unnest($ended) AS ended, unnest($status) AS status)
INSERT INTO requests BY NAME
SELECT '{_VARIANT}' AS variant, '{_LOAD}' AS load, 1 AS trial, request_class, status, began, ended, 'app' AS generator,
    row_number() OVER (ORDER BY sent_s) AS id, make_timestamp((1e6 * sent_s)::BIGINT) AS sent,
    make_timestamp((1e6 * ended)::BIGINT) AS answered, 0 AS service_time_ms, 'app:' || (1000 + place) AS worker,
    thread
FROM logged
"""  # noqa: S608  # made of constants


def diagnosis_page(found: Diagnosis, replayed: Replay | None) -> str:
    """Return the page of a diagnosis: what the terminal says of causes and cures, and the lanes of the workers."""
    _, requests, capacity, findings = found
    known = (capacity.place >= 0).all()  # otherwise nobody knows which worker had a free thread
    workers, threads = (capacity.workers, capacity.threads) if known else (1, capacity.total)
    variant = VariantRecord(name=_VARIANT, workers=workers, accept="shared",
                            settings={"threads": threads} if known else {})  # fmt: skip
    load = LoadRecord(name=_LOAD, script="", loop="open", duration="", settings={})
    run = Run(
        experiment="diagnosis", title="Production, from its logs", question="Who waited?", variants=[variant],
        loads=[load], order=[[_VARIANT, _LOAD, "1"]], command="stampede diagnose",
        began=datetime.fromtimestamp(requests.first, UTC).isoformat(timespec="seconds"),
    )  # fmt: skip
    valid = TrialValidity(variant=_VARIANT, load=_LOAD, trial=1, verdict="valid", reasons=[])
    summary = Summary.of_nothing("diagnosis").model_copy(update={"trials": [valid]})
    shown = around_longest(requests.waited_s, MOST)
    sent_s, began_s, ended_s = (requests.first + times[shown]
                                for times in (requests.sent_s, requests.began_s, requests.ended_s))  # fmt: skip
    place = capacity.place[shown]
    thread, early_s = _threads(began_s, ended_s, place, capacity)
    verdict, *further = findings_in_words(found)
    sentences = [verdict, *cures_in_words(found, replayed), *further]
    if early_s > 0.001:
        sentences.append(
            f"Some requests seem to begin up to {1000 * early_s:.0f} ms before a thread is free, probably because "
            "the balancer notes some ends late. So a worker may have more rows than threads."
        )
    first, bars_title, bars = None, "", []
    if requests.joins:
        waited = range_in_words(findings.waited, percent) if findings.is_doubtful else percent(findings.waited.likely)
        first = (waited, "of the requests waited for a worker for more than 50 ms")
        bars_title = "Requests that waited for more than 50 ms, by class"
        bars = [(each.name, share_in_words(each.waited), each.waited.likely) for each in findings.classes]
    from_at, to_at = (datetime.fromtimestamp(float(at), UTC) for at in (sent_s.min(), sent_s.max()))
    which = f"The {len(sent_s):,} of {len(requests):,} requests around the longest wait"
    which = which if len(sent_s) < len(requests) else f"All {len(requests):,} requests"
    title = (f"{which}, sent from {from_at:%H:%M:%S} to {to_at:%H:%M:%S} UTC: which worker served each, and which "
             "waited")  # fmt: skip
    columns = {
        "class": np.array(findings.names)[findings.of_class[shown]], "worker": place, "thread": thread, "sent": sent_s,
        "began": began_s, "ended": ended_s, "status": requests.status[shown],
    }  # fmt: skip
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE requests ({COLUMNS})")
        database.execute(_ROWS, {name: column.tolist() for name, column in columns.items()})
        return timeline_page(database, Path(), run, summary, sentences, (workers, threads), title, float(sent_s.min()),
                             first, bars_title, bars)  # fmt: skip


def _threads(began_s: Floats, ended_s: Floats, place: Integers, capacity: Capacity) -> tuple[Integers, float]:
    """Return a thread for each request, that which is free first, and how long before that a request began at most.

    0: nobody knows.
    """
    thread, early_s = np.zeros_like(place), 0.0
    if not capacity.seen or capacity.doubts:
        return thread, early_s
    free_s = np.full((capacity.workers, capacity.threads), -np.inf)
    for at in np.argsort(began_s, kind="stable"):
        mine = free_s[place[at]]
        thread[at] = mine.argmin()
        early_s = max(early_s, float(mine.min() - began_s[at]))
        mine[thread[at]] = ended_s[at]
    return thread, early_s
