"""Classes of requests as a person describes them: how they come, and how long one of them takes."""

import json
import re
from collections.abc import Mapping
from math import ceil
from statistics import fmean
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import Discriminator, Field, Tag, TypeAdapter, model_validator

from stampede.records.model import Model, Name

Seconds = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
Short = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]


class Range(Model):
    """Durations between two ends as a record has them: both ends are 0 if requests take no time."""

    least: Short
    most: Short

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.least > self.most:
            raise ValueError(f"least, {self.least:g} s, is more than most, {self.most:g} s")
        return self


class Between(Range):
    """Durations in seconds of which every length between two ends is as likely."""

    most: Seconds


class Mean(Model):
    """Durations that are mostly short and sometimes long (exponential)."""

    mean: Seconds


def _kind(takes: object) -> str:
    if isinstance(takes, dict | Range | Mean):
        return "a mean" if isinstance(takes, Mean) or (isinstance(takes, dict) and "mean" in takes) else "two ends"
    return "a list" if isinstance(takes, list) else "a number"


Takes = Annotated[
    Annotated[float, Tag("a number")]
    | Annotated[Range, Tag("two ends")]
    | Annotated[Mean, Tag("a mean")]
    | Annotated[list[float], Tag("a list")],
    Discriminator(_kind),
]
"""How long requests take: a constant, between two ends, exponential, or one of these durations, each as likely."""
_Spread = (
    Annotated[Between, Tag("two ends")]
    | Annotated[Mean, Tag("a mean")]
    | Annotated[list[Seconds], Field(min_length=2), Tag("a list")]
)
"""Durations that differ."""


class Arrivals(Model):
    """How the requests of one class come: from users who wait for each answer, or so many per second."""

    users: int | None = Field(
        None, ge=1, le=100_000, strict=True, description="How many users send these requests; each waits for the "
        "answer, pauses, and sends the next request. Give `users` or `per_second`.",
    )  # fmt: skip
    pause_s: Short = Field(0, description="How long a user pauses, in seconds.")
    per_second: float | None = Field(
        None, gt=0, le=1_000_000, strict=True, allow_inf_nan=False, description="How many requests come per "
        "second, however long the answers take.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _either(self) -> Self:
        if (self.users is None) == (self.per_second is None):
            raise ValueError("give either users or per_second: who sends these requests, or how many come per second")
        if self.pause_s and self.users is None:
            raise ValueError("pause_s is for users; requests per second come however long the last one takes")
        return self

    @property
    def mean_s(self) -> float:
        """The mean duration; 0 if nobody knows it."""
        return 0.0

    @property
    def users_at_once(self) -> int:
        """How many users send these requests, or how many may wait at once if each waits for up to ten seconds."""
        return self.users or ceil((self.per_second or 0.0) * (3 * self.mean_s + 10))

    @property
    def at_most_per_second(self) -> float:
        """How many requests come in a second if none waits."""
        takes_s = max(self.mean_s + self.pause_s, 0.0005)
        return self.users / takes_s if self.users else self.per_second or 0.0


PATH_PATTERN = r"^/[!#-&(-\[\]-~]*$"
"""A path that fits into a URL and into an env file, which allows no quote and no backslash."""
SECRET = re.compile(r"\$\{([\w.-]+)\}")
"""Where a request has the value of a secret, or of a cookie: ``${cookie.csrftoken}``."""


def fill(said: str, secrets: Mapping[str, str]) -> str:
    """Return a text with the values of secrets where it has ``${NAME}``. Unknown names stay."""
    return SECRET.sub(lambda found: secrets.get(found[1], found[0]), said)


HEADER_PATTERN = r"^[A-Za-z0-9-]{1,100}$"
METHOD_PATTERN = r"^[A-Z]{3,10}$"
KEYS_PATTERN = r"^[\w.-]*$"
HeaderName = Annotated[str, Field(pattern=HEADER_PATTERN)]


class OwnRequest(Model):
    """A request to somebody's own application; records keep secrets as they are written here: ``${NAME}``."""

    path: str = Field(pattern=PATH_PATTERN, max_length=2000, description="The path, perhaps with a query string.")
    method: str = Field("GET", pattern=METHOD_PATTERN, description="The method.")
    headers: dict[HeaderName, Annotated[str, Field(max_length=4000)]] = Field({}, description="Headers.")
    body: str | None = Field(
        None, max_length=100_000, description="The body. Here and in the path and the headers, `${NAME}` is a variable "
        "of `env_file`; a run records the name only.",
    )  # fmt: skip

    @property
    def names_of_secrets(self) -> list[str]:
        """The names that stand as ``${NAME}`` in what is sent."""
        return SECRET.findall("\n".join(self._sent))

    @property
    def _sent(self) -> list[str]:
        return [self.path, *self.headers.values(), self.body or ""]


class Login(OwnRequest):
    """How a user logs in before the first request: with ``body``, or with the form of a page and these fields of it."""

    method: str = Field("POST", pattern=METHOD_PATTERN, description="The method of a login with a body.")
    form: dict[str, str] = Field(
        {}, description="Fields of the page's form, which is sent with these values and with its hidden fields."
    )
    token: str = Field(
        "", pattern=KEYS_PATTERN, description="The key in the JSON answer whose value each request has as its bearer "
        "token; a dot leads to an inner key.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _either_form_or_body(self) -> Self:
        if self.form and (self.body or "method" in self.model_fields_set):
            raise ValueError("form sends the fields as the page's form says; leave body and method out")
        return self

    @property
    def _sent(self) -> list[str]:
        return [*super()._sent, *self.form.values()]


class OwnRequestClass(OwnRequest, Arrivals):
    """One class of requests to somebody's own application. Nobody knows beforehand how long they take."""

    expected_status: int | None = Field(
        None, ge=100, le=599, description="The status with which a request succeeds. Without it, any below 400."
    )


class RequestClass(Arrivals):
    """One class of requests: how they come, and how long one of them takes if it never waits, in seconds."""

    takes_s: Annotated[Annotated[Seconds, Tag("a number")] | _Spread, Discriminator(_kind)]
    computes: float | None = Field(None, ge=0, le=1)

    @property
    def at_work(self) -> float:
        """How many of these requests are at work at once on average, if none waits."""
        return self.mean_s * (self.users / (self.mean_s + self.pause_s) if self.users else self.per_second or 0.0)

    def times(self, factor: float) -> Self:
        """Return the class with so many times the users, or the requests per second."""
        if self.users:
            return self.model_copy(update={"users": ceil(self.users * factor)})
        return self.model_copy(update={"per_second": (self.per_second or 0.0) * factor})

    @property
    def mean_s(self) -> float:
        """The mean duration."""
        return spread_s(self.takes_s)[1]

    @property
    def longest_s(self) -> float:
        """The longest duration; of exponential durations, the mean."""
        return spread_s(self.takes_s)[2]

    @property
    def shortest_s(self) -> float:
        """The duration that a tenth of the requests do not exceed."""
        return spread_s(self.takes_s)[0]


def spread_s(takes: Takes) -> tuple[float, float, float]:
    """Return of durations in seconds the one that a tenth do not exceed, the mean, and the longest (or the mean)."""
    match takes:
        case Range(least=least, most=most):
            return least + 0.1 * (most - least), (least + most) / 2, most
        case Mean(mean=mean):
            return 0.105 * mean, mean, mean
        case list(measured):
            return sorted(measured)[len(measured) // 10], fmean(measured), max(measured)
        case seconds:
            return seconds, seconds, seconds


class LoadClass(RequestClass):
    """One class of requests of a load, whose application is the lab's own."""

    takes_s: Annotated[Annotated[Short, Tag("a number")] | _Spread, Discriminator(_kind)] = Field(
        0, description="How long a request takes if it never waits, in seconds: a number, `{least, most}`, the "
        "`{mean}` of exponential durations, or a list of durations of which each is as likely.",
    )  # fmt: skip
    computes: float | None = Field(
        None, gt=0, le=1, description="The part of its time for which a request computes; left out: it only waits."
    )
    does: Literal["wait", "call", "query", "stream", "probe"] = Field(
        "wait", description="What a request does for this time: it waits, calls the service `api`, asks the database, "
        "or sends a stream. A `probe` asks for the health, and gives up after `timeout_s`.",
    )  # fmt: skip
    rounds: int = Field(
        1, ge=1, le=10_000, strict=True, description="In how many equal rounds a request waits and computes, or "
        "how many parts its stream has.",
    )  # fmt: skip
    timeout_s: Seconds | None = Field(None, description="How long a probe waits for its answer, in seconds.")
    asks: str | None = Field(
        None, pattern=PATH_PATTERN, max_length=200, description="A path of the lab's application, in place of "
        "`takes_s`, for work whose duration nobody knows, such as `/fibonacci?n=28`.",
    )  # fmt: skip
    users_max: int | None = Field(
        None, ge=1, le=100_000, strict=True, description="How many requests of `per_second` wait at once at most; k6 "
        "drops and counts those that come then.",
    )  # fmt: skip

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        constant = isinstance(self.takes_s, int | float)
        if self.asks and self.model_fields_set & {"takes_s", "does", "computes", "rounds"}:
            raise ValueError("asks is a path of its own; leave out takes_s, does, computes and rounds")
        if self.computes and self.does != "wait":
            raise ValueError("computes is for requests that wait")
        if (self.rounds > 1 and not (self.computes or self.does == "stream")) or (
            self.does == "stream" and not constant
        ):
            raise ValueError("rounds are for requests that compute, and for streams that all take the same time")
        if (self.does == "probe") != (self.timeout_s is not None) or (self.does == "probe" and self.takes_s != 0):
            raise ValueError("a probe has timeout_s, and no takes_s; other requests have no timeout_s")
        if self.users_max and self.users:
            raise ValueError("users_max is for per_second")
        return self

    @property
    def users_at_once(self) -> int:
        """How many users send these requests, or how many requests may wait at once."""
        if self.timeout_s:  # and one for a probe that begins as another gives up
            return self.users or ceil(self.timeout_s * (self.per_second or 0.0)) + 1
        return self.users_max or super().users_at_once

    @property
    def path(self) -> str:
        """What a request asks for, without how it computes.

        ``{s}`` stands for the seconds that it takes, and ``{wait_ms}`` and ``{cpu_ms}`` for its times in each round.
        """
        if self.computes:
            return f"/work?rounds={self.rounds}&wait_ms={{wait_ms}}&cpu_ms={{cpu_ms}}"
        if self.does == "stream":
            return f"/stream?parts={self.rounds}&every={self.mean_s / self.rounds:.10g}"
        paths = {"wait": "/?delay={s}", "call": "/call?delay={s}", "query": "/query?takes={s}", "probe": "/health"}
        return self.asks or paths[self.does]

    def path_of(self, takes_s: float) -> str:
        """Return what a request that takes so long asks for."""
        cpu_ms = 1000 * takes_s * (self.computes or 0) / self.rounds
        wait_ms = 1000 * takes_s / self.rounds - cpu_ms
        path = self.path.replace("{s}", f"{takes_s:.10g}").replace("{wait_ms}", f"{wait_ms:.10g}")
        return path.replace("{cpu_ms}", f"{cpu_ms:.10g}")


Classes = Annotated[dict[Name, RequestClass], Field(min_length=1, max_length=20)]
LoadClasses = Annotated[dict[Name, LoadClass], Field(min_length=1, max_length=20)]
OwnRequestClasses = Annotated[dict[Name, OwnRequestClass], Field(min_length=1, max_length=20)]


def as_json(asked: Model | Mapping[str, Model]) -> str:
    """Return a login, or classes of requests, as JSON for the setting of a load.

    Headers and bodies are percent-encoded where a character does not fit into an env file.
    """
    said = {name: _fitting(of) for name, of in asked.items()} if isinstance(asked, Mapping) else _fitting(asked)
    return json.dumps(said, separators=(",", ":"))


def _fitting(asked: Model) -> dict[str, Any]:
    said = asked.model_dump(mode="json", exclude_defaults=True)
    if "body" in said:
        said["body"] = quote(said["body"], safe=_FITS)
    for part in {"headers", "form"} & said.keys():
        said[part] = {quote(name, safe=_FITS): quote(value, safe=_FITS) for name, value in said[part].items()}
    return said


_FITS = "".join(set(map(chr, range(0x20, 0x7F))) - set("'\"\\%"))
LOAD_CLASSES: TypeAdapter[dict[str, LoadClass]] = TypeAdapter(LoadClasses)
OWN_CLASSES: TypeAdapter[dict[str, OwnRequestClass]] = TypeAdapter(OwnRequestClasses)
