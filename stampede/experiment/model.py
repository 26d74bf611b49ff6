"""The model of an experiment file. It also checks that variants, loads, claims and published figures fit together."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from math import ceil
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, StrictInt, ValidationError, model_validator

from stampede.errors import Misplaced, WrongUse
from stampede.experiment.entries import ClaimEntry, CurveEntry, PublishedEntry, QuantityEntry
from stampede.experiment.loads import script as loads
from stampede.experiment.loads.script import LoadScript, WrongSetting
from stampede.experiment.loads.scripts import CLIENT_SCRIPTS, K6_SCRIPTS
from stampede.paths import CLIENTS, K6
from stampede.records.classes import LOAD_CLASSES, LoadClass
from stampede.records.model import ADDRESS_PATTERN, Model, Name
from stampede.records.traffic import in_seconds
from stampede.records.words import nearest_first
from stampede.servers import Server
from stampede.typed import option

DURATION_PATTERN = r"^[1-9][0-9]*(s|m)$"
DURATION_MAX_S = 24 * 3600


def _short_enough(duration: str) -> str:
    if not re.fullmatch(DURATION_PATTERN, duration):
        raise ValueError(f"{duration!r} must be whole seconds or minutes, such as 90s or 5m")
    if in_seconds(duration) > DURATION_MAX_S:
        raise ValueError(f"{duration} must be at most a day (24 hours)")
    return duration


Duration = Annotated[
    str,
    AfterValidator(_short_enough),
    Field(description="Whole seconds or minutes: 90s, 5m.", json_schema_extra={"pattern": DURATION_PATTERN}),
]
SETTING_NAME_PATTERN = r"^[a-z][a-z0-9_]*$"
SettingName = Annotated[str, Field(pattern=SETTING_NAME_PATTERN)]
SettingNumber = StrictInt | Annotated[float, Field(strict=True, allow_inf_nan=False)]
SETTING_TEXT_PATTERN = r"^[^'\\\x00-\x1f\x7f]*$"
SettingText = Annotated[str, Field(pattern=SETTING_TEXT_PATTERN)]
"""A text between single quotes in an env file. Compose would read a quote or a backslash in it as more than text."""
SET_BY_THE_LAB = {"duration", "start_after", "start_at_ms", "lab_url", "lab_server", "cpu"}


class Durations(Model):
    """How long a load lasts: ``short`` by default; ``full`` with FULL=1, as in the article if there is one."""

    short: Duration
    full: Duration


class Source(Model):
    """Where the published figures come from; ``unknown`` lists what the source does not say about its set-up."""

    title: str = Field(description="The title of the article.")
    publisher: str = Field(description="Who published it.")
    year: int | None = Field(None, description="When.")
    address: str | None = Field(None, pattern=ADDRESS_PATTERN, description="Where the article can be read.")
    unknown: list[str] = Field([], description="What the article does not say of its set-up.")


CLASSES = "classes.js"
"""The script that sends the requests of a load's classes."""


class Script(Model):
    """A program that sends requests, and its settings, which it reads as upper-case environment variables."""

    script: str = Field(description="The program that sends the requests.")
    settings: dict[SettingName, SettingNumber | SettingText] = Field(
        {}, description="The settings that the program declares; a message names those that are missing or wrong."
    )

    programs: ClassVar[tuple[Path, Mapping[str, LoadScript]]]
    """The folder of the programs, and the declaration of each program."""

    @model_validator(mode="after")
    def _script_can(self) -> Self:
        folder, known = self.programs
        if self.script not in known:
            there = nearest_first(self.script, list(known))
            declared = "has no declaration in stampede/experiment/loads/scripts.py"
            problem = declared if self.script in {path.name for path in folder.iterdir()} else "does not exist"
            now = "; requests are described by classes now" if folder == K6 else ""
            raise Misplaced(f"{folder.name}/{self.script} {problem}; there are {there}{now}", "script")
        if taken := self.settings.keys() & SET_BY_THE_LAB:
            raise WrongSetting("the lab itself sets this; leave it out", min(taken))
        generators, relative = getattr(self, "generators", 1), getattr(self, "relative", None) is not None
        known[self.script].check(self.script, self.settings, generators, relative=relative)
        return self

    def environment(self) -> dict[str, str]:
        """Return the settings as environment variables for the script; a run's record keeps these variables."""
        return loads.as_variables(self.settings)

    def derived_environment(self, duration: str) -> dict[str, str]:
        """Return the further variables for the script, which follow from the settings and the duration."""
        return self.declared.derived_environment(self.settings, duration)

    @property
    def declared(self) -> LoadScript:
        """The declaration of the script in stampede/experiment/loads."""
        return self.programs[1][self.script]


class Client(Script):
    """A client that misbehaves in ways that k6 cannot."""

    script: str = Field(
        description="The program that sends the requests.", json_schema_extra={"enum": [*CLIENT_SCRIPTS]}
    )
    through_balancer: bool = Field(
        False, description="true: it connects where the users connect; false: to the server."
    )

    programs = (CLIENTS, CLIENT_SCRIPTS)


class Api(Model):
    """A service that the application calls, and that may stall. The times of its stalls count from the first call."""

    one_device: bool = Field(
        False, description="true: it works on one call at a time, and gives each waiting call a slice in turn."
    )
    first_s: float = Field(0, ge=0, le=3600, description="Seconds from the first call to the first stall.")
    every_s: float = Field(3600, gt=0, le=3600, description="Seconds from the start of a stall to that of the next.")
    stall_s: float = Field(0, ge=0, le=3600, description="How long a stall lasts, in seconds; 0: it never stalls.")
    takes_s: float = Field(0, ge=0, le=30, description="How long a call during a stall takes, in seconds.")

    @model_validator(mode="after")
    def _stalls_end(self) -> Self:
        if (stall := self.stall_s) >= (every := self.every_s):
            raise ValueError(f"a stall of {stall:g} s every {every:g} s never ends; stall_s must be less than every_s")
        return self

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return {
            f"LAB_API_{name.upper()}": str(value).lower() if isinstance(value, bool) else f"{value:g}"
            for name, value in self.model_dump().items()
        }


class Database(Model):
    """The application's database, which is empty at the beginning of each trial."""

    max_connections: int = Field(
        151, ge=10, le=1000, description="Most connections; the database refuses further ones."
    )

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return {"LAB_DATABASE": DATABASE, "LAB_DATABASE_CONNECTIONS": str(self.max_connections)}


DATABASE = "mariadb"
"""The database's service, which is also its name on the lab's network."""


class Relative(Model):
    """A rate that follows from a capacity which another load has measured in the same round."""

    times: float = Field(gt=0, le=100, description="The rate as a multiple of the capacity.")
    of: Name = Field(description="The variant whose capacity counts.")
    under: Name = Field(description="The load, with a rate that climbs, under which the capacity is measured.")


Cpu = Literal["hold", "burn"]
"""How a request computes: burn computes, hold only holds the interpreter lock and uses no core."""


class Load(Script):
    """One way to send requests: classes of requests, or a k6 script and its settings; for a duration."""

    classes: dict[Name, LoadClass] = Field(
        {}, max_length=20, description="The requests by the name of their class, in place of script and settings."
    )
    script: str = Field(
        CLASSES, description="The program that sends the requests.", json_schema_extra={"enum": [*K6_SCRIPTS]}
    )
    duration: Durations
    generators: int = Field(1, ge=1, le=16, description="The number of k6 containers that share the load.")
    client: Client | None = Field(None, description="A client that misbehaves beside k6.")
    api: Api | None = Field(None, description="A service that the application calls.")
    database: Database | None = Field(None, description="The application's database.")
    overloads: bool = Field(False, description="true: servers cannot answer all of it; failed requests are findings.")
    relative: Relative | None = Field(None, description="The capacity that sets first_per_s and last_per_s.")
    variants: list[Name] = Field([], description="The variants that are measured under this load; left out: all.")

    programs = (K6, K6_SCRIPTS)

    @model_validator(mode="before")
    @classmethod
    def _classes_are_settings(cls, said: object) -> object:
        """The script that sends classes of requests has them as its only setting."""
        if not isinstance(said, Mapping):
            return said
        settings = said.get("settings")
        has_script = said.get("script") in [*K6_SCRIPTS] or isinstance(settings, Mapping)
        if said.get("script", CLASSES) == CLASSES and isinstance(settings, Mapping) and [*settings] == ["classes"]:
            return said  # as a load is written that was read
        if said.get("classes") and not has_script:
            with suppress(TypeError, ValueError):  # a mistake in the classes has a place of its own
                return {**said, "settings": {"classes": json.dumps(said["classes"], default=str)}}
        if "classes" in said and has_script:
            with suppress(ValidationError):  # a mistake in the classes has a place of its own
                LOAD_CLASSES.validate_python(said["classes"])
                raise ValueError("give either classes, or a script and its settings")
        if not said.keys() & {"classes", "script", "settings"}:
            raise ValueError("give classes, the requests by the name of their class, or a script and its settings")
        return said

    def k6_mib(self, duration: str) -> int:
        """Return the memory limit of each k6 container for a load of this duration, in MiB."""
        rate_rps = self.declared.rate_at_most_rps(self.settings, self.generators)
        users = self.declared.users_at_once(self.settings) / self.generators
        requests = rate_rps / self.generators * in_seconds(duration)
        return ceil(loads.K6_MIB + users * loads.USER_MIB + requests * loads.REQUEST_MIB)

    @property
    def climbs(self) -> bool:
        """Whether the rate climbs, so that the load can measure a capacity."""
        first, last = (self.settings.get(name) for name in ("first_per_s", "last_per_s"))
        return isinstance(first, int | float) and isinstance(last, int | float) and first < last

    def at(self, visits_per_s: float | None) -> "Load":
        """Return the load with this rate; None: the rate is not relative. Raise WrongSetting if k6 cannot send it."""
        if visits_per_s is None:
            return self
        rate = max(1, round(visits_per_s))
        settings = self.settings | {"first_per_s": rate, "last_per_s": rate}
        self.declared.check(self.script, settings, self.generators)
        return self.model_copy(update={"settings": settings})

    def grace_s(self, duration: str) -> float:
        """Return how long k6 waits for the last answers after a load of this duration."""
        return float(self.derived_environment(duration)["GRACE_S"])

    @property
    def loop(self) -> Literal["closed", "open"]:
        """Whether users wait for an answer before they send the next request (closed) or not (open)."""
        classes = loads.described_classes(self.settings).values() if "classes" in self.settings else ()
        return "open" if self.declared.open_loop or any(of.per_second for of in classes) else "closed"

    @property
    def request_classes(self) -> list[str]:
        """The classes of its requests, and of those of its client."""
        senders = [self, *([self.client] if self.client else [])]
        return [name for sender in senders for name in sender.declared.request_classes(sender.settings)]

    @property
    def computes(self) -> bool:
        """Whether its requests compute."""
        return "cpu_ms" in self.settings or loads.computing_class(self.settings) is not None

    @property
    def asks_database(self) -> bool:
        """Whether a class of its requests asks a database."""
        return any(of.does == "query" for of in self.classes.values())

    def is_for(self, variant: str) -> bool:
        """Whether a variant is measured under this load."""
        return not self.variants or variant in self.variants


class Experiment(Model):
    """A question with its variants, loads, claims and published figures."""

    title: str = Field(description="A few words.")
    question: str = Field(description="The question that the claims answer.")
    topic: str = Field("Other", description="Below which heading stampede list shows the experiment.")
    because: str | None = Field(None, description="Why the claims that answer the question are true, in a sentence.")
    source: Source | None = None
    load: Load | None = Field(None, description="The load, if the experiment has only one load.")
    loads: dict[Name, Load] = Field({}, description="The loads by name, if the experiment has several loads.")
    parallel: bool = Field(False, description="true: requests only sleep, so variants may be measured side by side.")
    burns: bool = Field(
        False, description="true: requests that compute use a core, also where there are few; CPU=hold changes it."
    )
    trials: int = Field(5, ge=1, le=1000, description="How often each variant is measured by default.")
    variants: dict[Name, Server] = Field(min_length=1)
    published: list[PublishedEntry] = Field([])
    claims: list[ClaimEntry] = Field([])
    curve: CurveEntry | None = Field(None, description="A picture in the report that shows what a setting does.")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        for name, variant in self.variants.items():
            if self.curve and self.curve.over not in (known := [*type(variant).model_fields]):
                there = nearest_first(self.curve.over, known)
                raise Misplaced(f"{name} has no setting {self.curve.over}; it has {there}", "curve", "over")
        self._check_capacities()
        self._check_names()
        self._check_databases()
        return self

    def _check_capacities(self) -> None:
        if self.load and self.load.relative:
            raise Misplaced("relative needs another load, which measures the capacity; use loads", "load", "relative")
        for number, (name, load) in enumerate(self.loads.items()):
            if not (relative := load.relative):
                continue
            place, under, earlier = ("loads", name, "relative"), relative.under, [*self.loads][:number]
            if under not in earlier:
                known = f"there are {nearest_first(under, earlier)}" if earlier else f"{name} is the first load"
                raise Misplaced(f"there is no load {under} before {name}; {known}", *place, "under")
            if not self.loads[under].climbs:
                problem = f"the rate of {under} does not climb; last_per_s must be above first_per_s"
                raise Misplaced(problem, *place, "under")
            self.check_variant(relative.of, *place, "of")
            if not self.loads[under].is_for(relative.of):
                raise Misplaced(f"{relative.of} is not measured under load {under}", *place, "of")

    def _check_names(self) -> None:
        if bool(self.load) == bool(self.loads):
            raise ValueError("give either load or loads")
        for number, published in enumerate(self.published):
            self.check_entry(published, "published", number)
        for number, claim in enumerate(self.claims):
            self.check_entry(claim.value, "claims", number, "value")
            if claim.relative_to:
                self.check_entry(claim.relative_to, "claims", number, "relative_to")
        for name, load in self.all_loads.items():
            for variant in load.variants:
                self.check_variant(variant, *self._place(name), "variants")
        for variant in self.variants:
            if not any(load.is_for(variant) for load in self.all_loads.values()):
                raise Misplaced("no load measures this variant; add it to the variants of a load", "variants", variant)

    def check_variant(self, name: str, *place: str | int) -> None:
        """Raise Misplaced if the experiment does not have the variant that a place of a file names."""
        if name not in self.variants:
            known = nearest_first(name, list(self.variants))
            raise Misplaced(f"there is no variant {name}; there are {known}", *place)

    def check_entry(self, entry: QuantityEntry | PublishedEntry, *place: str | int) -> None:
        """Raise Misplaced if the experiment does not measure the variant, the load and the class of an entry."""
        self.check_variant(entry.variant, *place, "variant")
        loads = list(self.all_loads)
        if entry.load is None and len(loads) > 1:
            raise Misplaced(f"give load; there are {', '.join(loads)}", *place)
        load = entry.load or loads[0]
        if load not in loads:
            raise Misplaced(f"there is no load {load}; there are {nearest_first(load, loads)}", *place, "load")
        if not self.all_loads[load].is_for(entry.variant):
            raise Misplaced(f"{entry.variant} is not measured under load {load}", *place)
        classes = self.all_loads[load].request_classes
        if entry.request_class and entry.request_class not in classes:
            known = nearest_first(entry.request_class, classes)
            problem = f"load {load} has no class {entry.request_class}; it has {known}"
            raise Misplaced(problem, *place, "request_class")

    def _check_databases(self) -> None:
        for name, load in self.all_loads.items():
            if load.asks_database and not load.database:
                raise Misplaced("a class of requests asks the database; add database: {}", *self._place(name))
            for variant, server in self.variants.items():
                if not load.database or not load.is_for(variant):
                    continue
                place = (*self._place(name), "database")
                asks = ("asgi", "fastapi-sync"), ("asgi", "fastapi-depends")
                if (server.service, server.app) not in asks if load.asks_database else server.app != "django":
                    known = "fastapi-sync or fastapi-depends on uvicorn" if load.asks_database else "django"
                    raise Misplaced(f"{variant} does not use a database; only variants with app: {known} do", *place)
                if server.server == "gunicorn-tornado":
                    raise Misplaced(f"{variant}: Django refuses to use a database on tornado's event loop", *place)

    @property
    def all_loads(self) -> dict[str, Load]:
        """The loads by name. A single load has the name of its script."""
        return {Path(self.load.script).stem: self.load} if self.load else dict(self.loads)

    @property
    def holds(self) -> bool:
        """Whether requests that compute hold the interpreter lock without using a core."""
        return any(load.settings.get("cpu") == "hold" for load in self.all_loads.values())

    def _place(self, load: str) -> tuple[str, ...]:
        return ("load",) if self.load else ("loads", load)


def unknown_variant(name: str, experiment: Experiment) -> WrongUse:
    """Return the error for an unknown variant. Its hint names the option, and lists the known variants."""
    known = nearest_first(name, list(experiment.variants))
    return WrongUse(f"There is no variant {name!r}.", hint=f"{option('variants', '…')}, any of {known}")


def check_duration(duration: str, name: str = "duration") -> None:
    """Raise WrongUse if the duration of an option is not written like 90s or 5m, or if it is longer than a day."""
    try:
        _short_enough(duration)
    except ValueError as error:
        raise WrongUse(f"The duration {error}.", hint=f"{option(name, '90s')} or {option(name, '5m')}") from None
