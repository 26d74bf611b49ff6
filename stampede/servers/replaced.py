"""Servers whose workers are replaced while requests come: after a number of requests, by HUP, or by SIGTERM."""

from abc import ABC
from typing import Self

from pydantic import Field, model_validator

from stampede.servers.base import MaxRequests, MaxRequestsJitter, Variant
from stampede.servers.program import PROGRAMS


class Replaced(Variant, ABC):
    """A server that can replace its workers. The time that an application takes to start is its own setting."""

    max_requests: MaxRequests = 0
    max_requests_jitter: MaxRequestsJitter = 0
    hup_after_s: float = Field(
        0, ge=0, le=3600, description="The server gets HUP so many seconds after the load begins; 0: never."
    )
    term_after_s: float = Field(
        0,
        ge=0,
        le=3600,
        description="The replicas are restarted by SIGTERM, one after another, beginning so many seconds after the "
        "load begins; 0: never. nginx learns of each a second later, and passes it no more requests until it is ready.",
    )
    pre_stop_s: float = Field(
        0, ge=0, le=60, description="How long each replica goes on before it gets SIGTERM, as with a preStop hook."
    )
    boot_s: float = Field(0, ge=0, le=20, description="How long a worker sleeps before it loads the application.")

    @model_validator(mode="after")
    def _workers_can_be_replaced(self) -> Self:
        if self.max_requests and "max_requests" not in PROGRAMS[self.program].names:
            others = "uvicorn, uwsgi or gunicorn-…"
            raise ValueError(f"max_requests: {self.server} does not count here; choose server: {others}")
        if self.max_requests_jitter and self.server == "uwsgi":
            raise ValueError("max_requests_jitter: uWSGI adds nothing by chance; leave it out")
        if self.max_requests_jitter and not self.max_requests:
            raise ValueError("max_requests_jitter: give max_requests, too")
        if self.hup_after_s and self.server == "hypercorn":
            raise ValueError("hup_after_s: hypercorn ends when it gets HUP; choose another server")
        if self.hup_after_s and self.workers == 1 and not self.server.startswith(("gunicorn", "uwsgi")):
            raise ValueError(f"hup_after_s: {self.server} with one worker has nobody who replaces it; use 2 or more")
        if self.pre_stop_s and not self.term_after_s:
            raise ValueError("pre_stop_s: give term_after_s, too")
        if self.term_after_s and self.balancer != "nginx":
            raise ValueError(
                f"term_after_s: the lab tells nginx of a restart, not {self.balancer}; use balancer: nginx"
            )
        if self.term_after_s and self.replicas == 1:
            raise ValueError("term_after_s: while one replica is away, nginx needs another; use replicas: 2 or more")
        return self

    @property
    def elastic(self) -> bool:
        """Whether workers come and go during the load."""
        return bool(self.max_requests or self.hup_after_s or self.term_after_s)
