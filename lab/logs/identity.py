"""What tells a request of a log from all others: its id, and its time as precisely as its line has it."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_FEW = 0.5
"""A log has ids, or precise times, if at least this share of its first lines has them."""
_NAME = re.compile(
    r"""(?<![\w.-])(?:(?:x[-_])?(?:request|req|correlation|trace)[-_]?id|rid|id)["']?[=:]\s?"?(?=[\w.:+=-]{6})""",
    re.IGNORECASE,
)
_BARE = r"(?<![\w/-])([0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![\w/-])"
"""An id without a name, as nginx writes $request_id."""
_MOMENT = re.compile(r"(?<![\d.])(\d{10}\.\d{3,6})(?![\d.])")
"""Seconds since 1970 with decimals, as nginx writes $msec."""


class Identity(NamedTuple):
    """Where the lines of a log have ids and precise times: a pattern with one group; None: they have none."""

    id: re.Pattern[str] | None = None
    moment: re.Pattern[str] | None = None

    def id_in(self, text: str) -> str | None:
        """Return the id that a line gives its request; None: it has none."""
        found = self.id.search(text) if self.id else None
        return found[1] if found else None

    def moment_in(self, text: str, at: float) -> float:
        """Return the time of a line, of which ``at`` are whole seconds, as precisely as the line has it."""
        found = self.moment.search(text) if self.moment else None
        return moment if found and 0 <= (moment := float(found[1])) - at < 1 else at


def find_identity(texts: Sequence[str]) -> Identity:
    """Return where lines such as these have ids and precise times."""
    enough = _FEW * len(texts)
    names = Counter(found[0] for text in texts if (found := _NAME.search(text)))
    pattern = None
    if names and names.most_common(1)[0][1] >= enough:
        pattern = re.compile(rf"(?<![\w.-]){re.escape(names.most_common(1)[0][0])}([\w.:+=-]+)")
    elif sum(bool(re.search(_BARE, text)) for text in texts) >= enough:
        pattern = re.compile(_BARE)
    return Identity(pattern, _MOMENT if sum(bool(_MOMENT.search(text)) for text in texts) >= enough else None)
