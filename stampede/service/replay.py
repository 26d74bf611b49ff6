"""The requests of an access log, to be sent again at the times at which they came."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil
from pathlib import Path

from stampede.errors import WrongUse
from stampede.logs.access_log import MOST_CLASSES, class_name, read_requests, route_of
from stampede.logs.reading import LoggedRequest
from stampede.records.classes import PATH_PATTERN, OwnRequestClass

OTHERS = "others"
MOST_USERS = 2000
MOST_REQUESTS = 200_000


@dataclass(frozen=True)
class Replay:
    """Requests in the order of sending: when, in ms after the first one; of which class; method and target.

    ``classes`` are the routes, each with its mean rate. ``users_max`` is how many requests may be under way at once.
    """

    classes: dict[str, OwnRequestClass]
    requests: list[tuple[float, str, str, str]]
    users_max: int

    @property
    def lasts_s(self) -> int:
        """How long the requests take to send, in whole seconds."""
        return max(1, ceil(self.requests[-1][0] / 1000 + 0.001))

    def write(self, folder: Path) -> None:
        """Write what k6/replay.js reads."""
        folder.mkdir()
        (folder / "requests.json").write_text(json.dumps(self.requests), encoding="utf-8")


def read_replay(path: Path, methods: Sequence[str]) -> Replay:
    """Read the requests of a log. Raise WrongUse if it has fewer than two, or more than MOST_REQUESTS.

    A log has the time at which an answer was complete, so a request came earlier by its duration, if the log has it.
    Requests of a log whose times are whole seconds are spread evenly over their second.
    """
    lines = [line for line in read_requests(path) if line.method in methods and re.fullmatch(PATH_PATTERN, line.target)]
    if not 2 <= len(lines) <= MOST_REQUESTS:
        raise WrongUse(
            f"{path.name} has {len(lines):,} requests with {', '.join(methods)}, but a replay has 2 to "
            f"{MOST_REQUESTS:,}.",
            hint="replay.methods: [GET, HEAD, POST] counts further methods.",
        )
    times = sorted(_times(lines), key=lambda timed: timed[0])
    first = times[0][0]
    frequent = Counter((line.method, route_of(line.target)) for _, line in times).most_common(MOST_CLASSES - 1)
    names: Counter[str] = Counter([OTHERS])
    classes = {route: class_name(*route, names) for route, _ in frequent}
    requests = [
        (round(1000 * (at - first), 3), classes.get((line.method, route_of(line.target)), OTHERS),
         line.method, line.target)
        for at, line in times
    ]  # fmt: skip
    lasts_s = max(1.0, requests[-1][0] / 1000)
    counts = Counter(name for _, name, _, _ in requests)
    routes = {name: (method, route) for (method, route), name in classes.items()} | {OTHERS: ("GET", "/")}
    asked = {
        name: OwnRequestClass(path=routes[name][1], method=routes[name][0], per_second=count / lasts_s)
        for name, count in sorted(counts.items())
    }
    busiest = max(Counter(int(at // 1000) for at, _, _, _ in requests).values())
    return Replay(asked, requests, min(len(requests), MOST_USERS, 10 * busiest + 10))


def _times(lines: Sequence[LoggedRequest]) -> Iterator[tuple[float, LoggedRequest]]:
    """Yield when each request came, in epoch seconds."""
    whole = all(line.at == int(line.at) for line in lines)
    for at, same in groupby(sorted(lines, key=lambda line: line.at), key=lambda line: line.at):
        together = list(same)
        for place, line in enumerate(together):
            within = (place + 0.5) / len(together) if whole else 0.0
            yield at + within - (line.took_s or 0.0), line
