"""diagnosis.json: what is found of the way in which somebody's own service is served today."""

import json
from pathlib import Path
from typing import Literal

from pydantic import Field

from stampede.records.folder import read_values, validated, write_whole
from stampede.records.model import Model

FILE = "diagnosis.json"
SCHEMA = 1
Limit = Literal[
    "avoidable-wait", "processors", "interpreter-lock", "threads", "event-loop", "thread-pool", "inside", "output",
    "max-requests", "worker-timeout", "worker-deaths", "unknown",
]  # fmt: skip
"""What limits a service: requests wait beside a free thread; the processors that its workers can use are busy; other
threads have the interpreter lock; all threads are busy with requests that wait; event loops or hubs do not go on; a
pool of threads behind an event loop is full; requests wait inside the application; the workers write much to their
output; workers end because of a limit of requests, because of the server's time limit, or for another reason; requests
wait although their own worker has a free thread, and nothing shows why."""


class Bottleneck(Model):
    """What limits a service as it is served today.

    ``limit`` is a ``Limit``, or a word of another version. ``requests`` are the classes of requests that are known to
    wait for it. ``numbers`` say of workers that ended how many requests were ``lost``, and how long it takes to load
    the application (``loads_s``). ``sentences`` say what was seen, the remedy last; a summary has them in its
    diagnosis.

    ``explains`` is which share of the lost time the limit explains. Lost time is what requests take from when they are
    sent until their work ends, minus what they take alone, summed over all requests. Two limits may explain the same
    time. None: no share can be told.
    """

    limit: str
    requests: list[str] = Field([])
    explains: float | None = Field(None, exclude_if=lambda value: value is None)
    numbers: dict[str, float] = Field({}, exclude_if=lambda value: not value)
    sentences: list[str] = Field([], exclude=True, repr=False)


class Diagnosis(Model):
    """What is found of the way in which somebody's own service is served today, and whether to change something.

    ``bottlenecks`` has the limits that the sentences name, the limit that explains most of the lost time first.
    Each limit has one of the ``sentences``, which may be a paragraph, or of the ``minor`` ones if it
    explains less than a twentieth of what the first limit explains.
    """

    alarm: bool
    sentences: list[str]
    minor: list[str] = Field([], exclude_if=lambda value: not value)
    bottlenecks: list[Bottleneck] = Field([], exclude_if=lambda value: not value)


def write_diagnosis(run_folder: Path, diagnosis: Diagnosis) -> None:
    """Write the diagnosis of a run into its folder."""
    values = {"schema": SCHEMA, **diagnosis.model_dump(mode="json")}
    write_whole(run_folder / FILE, json.dumps(values, indent=1, ensure_ascii=False) + "\n")


def read_diagnosis(run_folder: Path) -> Diagnosis | None:
    """Return the diagnosis of a run; None: it has none."""
    path = run_folder / FILE
    if not path.exists():
        return None
    values = read_values(path)
    del values["schema"]
    return validated(path, Diagnosis, values)
