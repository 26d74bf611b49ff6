"""How much time requests lose: from when they are sent to when their work ends, minus what they take alone."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from stampede.evaluate.metrics.waiting import Answered, Times

_QUICK = 10
"""The percentile of a class's times at work that stands for a request alone, if alone took longer or is unknown."""


class LostTimes(NamedTuple):
    """What each answered request of a trial lost before its work began, and at work, in seconds.

    ``takes_s`` is what a request of each class takes without such a loss.
    """

    before_s: Times
    at_work_s: Times
    takes_s: Times

    @property
    def all_s(self) -> Times:
        """What each request lost."""
        return self.before_s + self.at_work_s


def lost_times(answered: Answered, alone_ms: Mapping[str, float]) -> LostTimes:
    """Return what requests lost. ``alone_ms`` is how long a request of each class takes alone, as far as is known.

    A request takes as long as one alone, or as the quickest tenth of its class under the load, whichever is less:
    single requests may meet a job in the background, too.
    """
    work_s = np.maximum(answered.ended_s - answered.began_s, 0.0)
    takes_s = np.array([
        min(alone_ms.get(name, np.inf) / 1000, float(np.percentile(work_s[answered.request_class == place], _QUICK)))
        for place, name in enumerate(answered.classes)
    ])  # fmt: skip
    before_s = np.maximum(answered.began_s - answered.sent_s, 0.0)
    if not answered.classes:
        return LostTimes(before_s, work_s, takes_s)
    return LostTimes(before_s, np.maximum(work_s - takes_s[answered.request_class], 0.0), takes_s)
