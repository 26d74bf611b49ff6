"""The story of a diagnosis: from logs to requests, to workers and threads, to who waited."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from stampede.logs.diagnose.capacity import Capacity, capacity_of
from stampede.logs.diagnose.findings import Findings, findings_of
from stampede.logs.diagnose.logs import Logs, logs_of
from stampede.logs.diagnose.requests import Requests, requests_of
from stampede.logs.formats import KNOWN, Clock, Formats


class Asked(NamedTuple):
    """Which logs are diagnosed, and what the user says of them; 0 workers or threads: find how many there are."""

    paths: Sequence[Path]
    clocks: Mapping[Path, Clock]
    formats: Formats = KNOWN
    unit: str = ""
    workers: int = 0
    threads: int = 0


class Diagnosis(NamedTuple):
    """What logs say of a service."""

    logs: Logs
    requests: Requests
    capacity: Capacity
    findings: Findings

    @property
    def threads_at_least(self) -> bool:
        """Whether there may be more threads than the logs show: no waits tell their number, or lines are missing."""
        return self.capacity.at_least or bool("threads" in self.capacity.found and self.findings.ranges)


def diagnose_logs(asked: Asked) -> Diagnosis:
    """Return what logs say of a service. Raise WrongUse if they cannot be read."""
    logs = logs_of(asked.paths, asked.formats, asked.clocks, asked.unit)
    requests = requests_of(logs)
    capacity = capacity_of(requests, asked.workers, asked.threads)
    findings = findings_of(requests, capacity, logs.routes.names)
    is_named = any((server.worker >= 0).any() for server in logs.servers) or not capacity.seen
    if not is_named and (capacity.seen == 1 or findings.cause == "unknown" or asked.workers > capacity.seen):
        # a balancer names addresses, and behind each of them may be several workers
        requests = replace(requests, worker=np.full_like(requests.worker, -1))
        capacity = capacity_of(requests, asked.workers, asked.threads)
        findings = findings_of(requests, capacity, logs.routes.names)
    return Diagnosis(logs, requests, capacity, findings)
