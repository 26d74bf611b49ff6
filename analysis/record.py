"""What a run records of itself: the models of run.json and of each trial's trial.json."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from analysis.quantities import Claim, Curve, Published

SCHEMA = 1
OTHERS_CORES = 2
"""What the balancer and the load generator need beside workers that compute."""
STAIRS = 50
"""Of bursts of at most so many requests each has its place in figures and pictures."""
SHOWN_STAIRS = 12
"""Of bursts of at most so many requests each has its place in tables, too."""


class Record(BaseModel):
    """A frozen record read back from a file that an older or newer version may have written."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Image(Record):
    """A container image that took part. ``stand_in`` names what it was built from when no registry was reached.

    ``digests`` are those under which a registry knows the image; a stand-in, and what was built here, has none.
    ``packages`` has the version of every package inside; Python's own are called ``python/…``. ``programs`` has the
    versions of what the image is for.
    """

    name: str
    id: str
    stand_in: str | None = None
    digests: list[str] = []
    packages: dict[str, str] = {}
    programs: dict[str, str] = {}

    @model_validator(mode="before")
    @classmethod
    def _programs_of_older_records(cls, values: Any) -> Any:  # noqa: ANN401  # whatever a file says
        """Choose the programs from the packages, as long as a record does not say what its image is for."""
        if not isinstance(values, dict) or "programs" in values or not isinstance(values.get("packages"), dict):
            return values
        packages = values["packages"]
        chosen = {name.removeprefix("python/"): packages[name] for name in _PROGRAMS if name in packages}
        return values | {"programs": chosen}


_PROGRAMS = ("k6", "nginx", "haproxy", "python3", "python/gunicorn", "python/uwsgi")


class Host(Record):
    """The machine that measured."""

    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    engine: str
    compose: str


class Git(Record):
    """The state of the lab's own files."""

    commit: str
    dirty: bool


class VariantRecord(Record):
    """A variant as it was asked for, with the number of workers that should have shared its requests.

    ``accept`` says whether the workers of one container share a listening socket or have one each. An ``elastic``
    server starts and ends workers as it needs them, up to ``workers``.
    """

    name: str
    workers: int
    elastic: bool = False
    accept: Literal["shared", "per-worker"] | None = None
    settings: dict[str, Any]


class ClientRecord(Record):
    """A client beside k6 as it was asked for; ``settings`` is the environment that it got."""

    script: str
    settings: dict[str, str]


class RelativeRate(Record):
    """A rate: so many ``times`` the capacity that variant ``of`` showed under load ``under`` in the same round."""

    times: float
    of: str
    under: str


LoadKind = Literal["steady", "burst", "crash", "visits"]
"""How requests come: on and on, many at once, at once with one that kills its worker, or as visits of several."""
_KINDS: dict[str, LoadKind] = {"burst.js": "burst", "crash.js": "crash", "visits.js": "visits"}
"""The kinds of the scripts that there were before a record said its kind; all others were steady."""


class LoadRecord(Record):
    """A load as it was asked for; ``settings`` is the environment that its script got.

    ``generators`` is how many k6 containers shared it. ``api`` is what was said of the service that the servers call,
    times in seconds, ``database`` what was said of their database; None: they have none. A load that ``overloads`` asks
    for more than can be answered: failures are findings. ``relative`` is how its rate follows from a capacity.
    """

    name: str
    script: str
    kind: LoadKind = "steady"
    client: ClientRecord | None = None
    generators: int = 1
    api: dict[str, float | bool] | None = None
    database: dict[str, int] | None = None
    overloads: bool = False
    relative: RelativeRate | None = None
    loop: Literal["closed", "open"] = "closed"
    duration: str
    settings: dict[str, str]

    @model_validator(mode="before")
    @classmethod
    def _kind_of_older_records(cls, values: Any) -> Any:  # noqa: ANN401  # whatever a file says
        """Choose the kind by the script, as long as a record does not say it."""
        if not isinstance(values, dict) or "kind" in values or values.get("script") not in _KINDS:
            return values
        return values | {"kind": _KINDS[values["script"]]}

    @property
    def burst(self) -> int | None:
        """How many requests it sends at once; None: they do not come in bursts.

        A crash and the requests that come before and after it are a burst, too.
        """
        match self.kind:
            case "burst":
                parts = [self.settings.get("BURST", "")]
            case "crash":
                parts = ["1", self.settings.get("BEFORE", ""), self.settings.get("AFTER", "")]
            case _:
                return None
        return sum(map(int, parts)) or None if all(part.isdecimal() for part in parts) else None

    @property
    def has_stairs(self) -> bool:
        """Whether its bursts are so small that each of their requests is drawn."""
        return self.burst is not None and self.burst <= STAIRS

    @property
    def has_few_stairs(self) -> bool:
        """Whether its bursts are so small that a table says of each of their requests when it was answered."""
        return self.burst is not None and self.burst <= SHOWN_STAIRS

    @property
    def crashes(self) -> bool:
        """Whether one of its requests kills the worker that serves it."""
        return self.kind == "crash"


class Source(Record):
    """Where published figures come from."""

    title: str
    publisher: str
    year: int | None = None
    unknown: list[str] = Field([])


class Run(Record):
    """run.json: what was asked, of which machine, and how it ended. ``sleeping``: no request uses a core."""

    schema_: int = SCHEMA
    experiment: str
    title: str
    question: str
    source: Source | None
    published: list[Published]
    claims: list[Claim]
    curve: Curve | None = None
    variants: list[VariantRecord]
    loads: list[LoadRecord]
    sleeping: bool = False
    full: bool
    trials: int
    jobs: int
    seed: int
    order: list[list[str]]
    command: str
    host: Host
    git: Git | None
    images: list[Image]
    began: str
    ended: str | None = None
    outcome: Literal["running", "completed", "interrupted", "failed"] = "running"
    reason: str | None = None

    def load(self, name: str) -> LoadRecord:
        """Return the load of this name."""
        return next(one for one in self.loads if one.name == name)

    def variant(self, name: str) -> VariantRecord:
        """Return the variant of this name."""
        return next(one for one in self.variants if one.name == name)

    def has_several_workers(self, load: str) -> bool:
        """Whether there is a variant under a load whose requests several workers share."""
        return any(variant.workers > 1 for variant in self.variants_under(load))

    def variants_under(self, load: str) -> list[VariantRecord]:
        """Return the variants that were to be measured under a load."""
        asked = {variant for variant, under, _ in self.order if under == load}
        return [variant for variant in self.variants if variant.name in asked]

    @property
    def against_itself(self) -> bool:
        """Whether two variants are the same, so that a difference between them is chance."""
        return len(self.variants) == 2 and self.variants[0].settings == self.variants[1].settings


class Seconds(Record):
    """Where the time of a trial went. None: it did not get that far."""

    up: float | None = None
    settle: float | None = None
    calibrate: float | None = None
    load: float | None = None
    collect: float | None = None


class Calibration(Record):
    """What one request that computes takes alone, before the load.

    ``cpu`` is how it computes, ``call_us`` the length of the calls with which it holds the interpreter lock (None: it
    burns). It asks for ``asked_ms``; ``alone_ms`` is how long each of some such requests was at work, one at a time.
    """

    cpu: Literal["hold", "burn"]
    call_us: float | None
    asked_ms: float
    alone_ms: list[float]


class TrialRecord(Record):
    """trial.json: one variant under one load, once.

    The machine's state is in shares between 0 and 1: ``busy`` and ``steal`` of all cores, ``pressure`` of the time in
    which something waited for a processor. None: this machine does not tell. ``settings`` is what each container says
    that its settings are, by the container's name; ``calibration`` is None where no request computes, ``visits_per_s``
    where the rate of a load does not follow from what was measured.
    """

    schema_: int = SCHEMA
    variant: str
    load: str
    trial: int
    outcome: Literal["measured", "interrupted", "failed"]
    reason: str | None = None
    k6_exit_code: int | None = None
    began: str
    ended: str
    side_by_side: int
    busy_before: float | None = None
    busy_during: float | None = None
    steal_during: float | None = None
    pressure_during: float | None = None
    clock_step_s: float | None = None
    calibration: Calibration | None = None
    visits_per_s: float | None = None
    settings: dict[str, str] = {}
    seconds: Seconds = Seconds()
