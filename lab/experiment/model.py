"""An experiment: a question with its variants, loads, claims and published figures, and their cross-checks."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictInt, model_validator

from analysis.model import Model, Name
from analysis.nearest import nearest_first
from analysis.quantities import Claim, Curve, Published, Quantity
from lab import limits
from lab.errors import Misplaced, WrongUse
from lab.loads import CLIENT_SCRIPTS, K6_SCRIPTS, RELATIVE, LoadScript, WrongSetting, as_variables, in_seconds
from lab.paths import CLIENTS, K6
from lab.servers import Server

DURATION_PATTERN = r"^[1-9][0-9]*(s|m)$"
DURATION_MAX_S = 24 * 3600


def _short_enough(duration: str) -> str:
    if not re.fullmatch(DURATION_PATTERN, duration):
        raise ValueError(f"{duration!r} is neither whole seconds nor minutes, such as 90s or 5m")
    if in_seconds(duration) > DURATION_MAX_S:
        raise ValueError(f"{duration} is longer than a day, which is the longest that a load may last")
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
"""It stands between single quotes in an env file, where Compose takes a backslash before the last one for an escape."""
SET_BY_THE_LAB = {"duration", "start_after", "start_at_ms", "lab_url", "lab_server", "cpu"}


class Durations(Model):
    """How long a load lasts: ``short`` by default, ``full`` as it was published."""

    short: Duration
    full: Duration


class Source(Model):
    """Where the published figures come from, and what it does not say of its set-up."""

    title: str
    publisher: str
    year: int | None = None
    unknown: list[str] = Field([])


def _with_settings(scripts: Mapping[str, LoadScript]) -> Callable[[dict[str, Any]], None]:
    """Return what tells an editor which settings each script has; whose rate is relative, says no rate."""

    def tell(schema: dict[str, Any]) -> None:
        schema["properties"]["script"]["enum"] = list(scripts)
        schema["required"].append("settings")
        schema["allOf"] = [
            {
                "if": {"properties": {"script": {"const": name}}},
                "then": {"properties": {"settings": declared.schema}},
            }
            for name, declared in scripts.items()
        ] + [
            {
                "if": {"properties": {"script": {"const": name}}, "not": {"required": ["relative"]}},
                "then": {"properties": {"settings": {"required": sorted(RELATIVE)}}},
            }
            for name, declared in scripts.items()
            if declared.settings.keys() >= RELATIVE
        ]

    return tell


class Script(Model):
    """A program that asks, and its settings, which reach it as upper-case environment variables."""

    script: str
    settings: dict[SettingName, SettingNumber | SettingText] = Field({})

    programs: ClassVar[tuple[Path, Mapping[str, LoadScript]]]
    """The folder that holds them, and what each of them can be asked for."""

    @model_validator(mode="after")
    def _script_can(self) -> Self:
        folder, known = self.programs
        if self.script not in known:
            there = nearest_first(self.script, list(known))
            exists = self.script in {path.name for path in folder.iterdir()}
            problem = "has no entry in lab/loads.py" if exists else "does not exist"
            raise Misplaced(f"{folder.name}/{self.script} {problem}; there are {there}", "script")
        if taken := self.settings.keys() & SET_BY_THE_LAB:
            raise WrongSetting("the lab itself sets this; leave it out", min(taken))
        self._check(known[self.script])
        return self

    def _check(self, declared: LoadScript) -> None:
        """Raise WrongSetting where the script cannot be asked for this."""
        declared.check(self.script, self.settings, generators=1)

    def environment(self) -> dict[str, str]:
        """Return what was asked for as the script reads it; a run's record keeps it."""
        return as_variables(self.settings)

    def handed_over(self, duration: str) -> dict[str, str]:
        """Return what else the script reads, which follows from the settings and the duration."""
        return self.declared.handed_over(self.settings, duration)

    @property
    def declared(self) -> LoadScript:
        """What the script was declared to be in lab/loads.py."""
        return self.programs[1][self.script]


class Client(Script):
    """A client that misbehaves as k6 cannot, and asks the server past the balancer."""

    model_config = ConfigDict(json_schema_extra=_with_settings(CLIENT_SCRIPTS))

    programs = (CLIENTS, CLIENT_SCRIPTS)


class Api(Model):
    """A service that the application calls, and its stalls, which are counted from the first call."""

    one_device: bool = Field(False, description="It works on one call at a time, a slice for each in turn.")
    first_s: float = Field(0, ge=0, le=3600, description="When it stalls first, after the first call.")
    every_s: float = Field(3600, gt=0, le=3600, description="How often it stalls.")
    stall_s: float = Field(0, ge=0, le=3600, description="How long a stall lasts; 0: there is none.")
    takes_s: float = Field(0, ge=0, le=30, description="How long a call takes that comes during a stall.")

    @model_validator(mode="after")
    def _stalls_end(self) -> Self:
        if self.stall_s >= self.every_s:
            raise ValueError(f"a stall of {self.stall_s:g} s every {self.every_s:g} s never ends")
        return self

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return {f"LAB_API_{name.upper()}": _as_factor(value) for name, value in self.model_dump().items()}


class Database(Model):
    """A database of the application's own, empty at the beginning of each trial."""

    max_connections: int = Field(151, ge=10, le=1000, description="More than so many at once it refuses.")

    def factors(self) -> dict[str, str]:
        """Return the factors that docker-compose.yml reads."""
        return {"LAB_DATABASE": DATABASE, "LAB_DATABASE_CONNECTIONS": str(self.max_connections)}


DATABASE = "mariadb"
"""The service that is the database, and its name on the lab's network."""


class Relative(Model):
    """A rate that follows from what another load has shown in the same round."""

    times: float = Field(gt=0, le=100, description="So many times the capacity.")
    of: Name = Field(description="The variant whose capacity it is.")
    under: Name = Field(description="The load under which it shows its capacity: one whose rate climbs.")


def _as_factor(value: float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}"


Cpu = Literal["hold", "burn"]
"""How a request computes: really, or by holding the interpreter lock without using a core."""


class Load(Script):
    """One way of asking: a k6 script, how long, and perhaps somebody who misbehaves meanwhile.

    Requests compute where there is a setting ``cpu_ms``: ``rounds`` times, after waiting for ``wait_ms`` each time.
    """

    model_config = ConfigDict(json_schema_extra=_with_settings(K6_SCRIPTS))

    duration: Durations
    generators: int = Field(1, ge=1, le=16, description="k6 containers that share it.")
    client: Client | None = Field(None, description="A client that misbehaves beside k6.")
    api: Api | None = Field(None, description="A service that the application calls.")
    database: Database | None = Field(None, description="The application's database.")
    overloads: bool = Field(False, description="It asks for more than can be answered: failures are findings.")
    relative: Relative | None = Field(
        None, description="Its rate, first_per_s and last_per_s, is relative to a capacity."
    )
    variants: list[Name] = Field([], description="Only these are measured under this load; left out: all.")

    programs = (K6, K6_SCRIPTS)

    def _check(self, declared: LoadScript) -> None:
        """Raise WrongSetting where the script cannot be asked for this, or the rate is said twice."""
        if self.relative and (twice := RELATIVE & self.settings.keys()):
            raise WrongSetting("relative says the rate; leave one of them out", min(twice))
        declared.check(self.script, self.settings, self.generators, relative=self.relative is not None)

    def k6_mib(self, duration: str) -> int:
        """Return how much memory each of its k6 containers may use when it lasts so long, in MiB."""
        return limits.k6_mib(self.script, self.settings, in_seconds(duration), self.generators)

    @property
    def climbs(self) -> bool:
        """Whether its rate climbs, so that a capacity shows."""
        first, last = (self.settings.get(name) for name in ("first_per_s", "last_per_s"))
        return isinstance(first, int | float) and isinstance(last, int | float) and first < last

    def at(self, visits_per_s: float | None) -> "Load":
        """Return the load with its rate, if that is relative. Raise WrongSetting when k6 cannot send so much."""
        if visits_per_s is None:
            return self
        rate = max(1, round(visits_per_s))
        settings = self.settings | {"first_per_s": rate, "last_per_s": rate}
        self.declared.check(self.script, settings, self.generators)
        return self.model_copy(update={"settings": settings})

    def grace_s(self, duration: str) -> float:
        """Return how long k6 waits for the last answers after a load of this duration."""
        return float(self.handed_over(duration)["GRACE_S"])

    @property
    def loop(self) -> Literal["closed", "open"]:
        """Whether a user waits for an answer before the next request (closed)."""
        return "open" if self.declared.open_loop else "closed"

    @property
    def computes(self) -> bool:
        """Whether its requests compute."""
        return "cpu_ms" in self.settings

    def is_for(self, variant: str) -> bool:
        """Whether a variant is measured under this load."""
        return not self.variants or variant in self.variants


class Experiment(Model):
    """A question with its variants, loads, claims and published figures."""

    title: str
    question: str
    source: Source | None = None
    load: Load | None = Field(None, description="The load, when there is one.")
    loads: dict[Name, Load] = Field({}, description="Several loads by name.")
    parallel: bool = Field(False, description="Requests only sleep: variants may be measured side by side.")
    variants: dict[Name, Server] = Field(min_length=1)
    published: list[Published] = Field([])
    claims: list[Claim] = Field([])
    curve: Curve | None = Field(None, description="What a setting does, as a picture in the report.")

    @model_validator(mode="after")
    def _curve_fits(self) -> Self:
        if self.curve:
            for name, variant in self.variants.items():
                if self.curve.over not in type(variant).model_fields:
                    known = nearest_first(self.curve.over, list(type(variant).model_fields))
                    raise Misplaced(f"{name} has no setting {self.curve.over}; it has {known}", "curve", "over")
        return self

    @model_validator(mode="after")
    def _capacities_show(self) -> Self:
        if self.load and self.load.relative:
            raise Misplaced("there is no other load whose capacity it could follow", "load", "relative")
        earlier: dict[str, Load] = {}
        for name, load in self.loads.items():
            if load.relative:
                self._check_relative(name, load.relative, earlier)
            earlier[name] = load
        return self

    def _check_relative(self, name: str, relative: Relative, earlier: dict[str, Load]) -> None:
        place = ("loads", name, "relative")
        if relative.under not in earlier:
            there = f"there are {nearest_first(relative.under, list(earlier))}" if earlier else "it is the first"
            raise Misplaced(f"there is no load {relative.under} before it; {there}", *place, "under")
        if not earlier[relative.under].climbs:
            raise Misplaced(f"the rate of {relative.under} does not climb", *place, "under")
        if relative.of not in self.variants:
            known = nearest_first(relative.of, list(self.variants))
            raise Misplaced(f"there is no variant {relative.of}; there are {known}", *place, "of")
        if not earlier[relative.under].is_for(relative.of):
            raise Misplaced(f"{relative.of} is not measured under load {relative.under}", *place, "of")

    @model_validator(mode="after")
    def _names_fit(self) -> Self:
        if bool(self.load) == bool(self.loads):
            raise ValueError("give either load or loads")
        loads = list(self.all_loads)
        for place, one in self._references():
            if one.variant not in self.variants:
                known = nearest_first(one.variant, list(self.variants))
                raise Misplaced(f"there is no variant {one.variant}; there are {known}", *place, "variant")
            if one.load is None and len(loads) > 1:
                raise Misplaced(f"say which load; there are {', '.join(loads)}", *place)
            if one.load is not None and one.load not in loads:
                raise Misplaced(
                    f"there is no load {one.load}; there are {nearest_first(one.load, loads)}", *place, "load"
                )
            if not self.all_loads[one.load or loads[0]].is_for(one.variant):
                raise Misplaced(f"{one.variant} is not measured under load {one.load or loads[0]}", *place)
        for name, load in self.all_loads.items():
            if unknown := [one for one in load.variants if one not in self.variants]:
                known = nearest_first(unknown[0], list(self.variants))
                raise Misplaced(f"there is no variant {unknown[0]}; there are {known}", *self._place(name), "variants")
        for variant in self.variants:
            if not any(load.is_for(variant) for load in self.all_loads.values()):
                raise Misplaced("it is measured under no load", "variants", variant)
        return self

    @model_validator(mode="after")
    def _databases_are_asked(self) -> Self:
        for name, load in self.all_loads.items():
            for variant, one in self.variants.items():
                if not (load.database and load.is_for(variant)):
                    continue
                if one.app != "django":
                    problem = f"{variant} has no use for a database; only app: django has"
                    raise Misplaced(problem, *self._place(name), "database")
                if one.server == "gunicorn-tornado":
                    problem = f"{variant}: Django asks no database on the event loop of tornado"
                    raise Misplaced(problem, *self._place(name), "database")
        return self

    @property
    def all_loads(self) -> dict[str, Load]:
        """The loads by name; a single one bears the name of its script."""
        return {Path(self.load.script).stem: self.load} if self.load else dict(self.loads)

    @property
    def holds(self) -> bool:
        """Whether requests that compute hold the interpreter lock without using a core."""
        return any(load.settings.get("cpu") == "hold" for load in self.all_loads.values())

    def _place(self, load: str) -> tuple[str, ...]:
        """Return where the file describes a load."""
        return ("load",) if self.load else ("loads", load)

    def _references(self) -> list[tuple[tuple[str | int, ...], Quantity | Published]]:
        """Return what names a variant and a load, and where."""
        published = [(("published", number), one) for number, one in enumerate(self.published)]
        claims = [
            (("claims", number, key), quantity)
            for number, claim in enumerate(self.claims)
            for key, quantity in (("value", claim.value), ("relative_to", claim.relative_to))
            if quantity
        ]
        return [*published, *claims]


def unknown_variant(name: str, experiment: Experiment) -> WrongUse:
    """Return the error that lists the variants there are."""
    return WrongUse(
        f"There is no variant {name!r}.", hint=f"VARIANTS=…, any of {nearest_first(name, list(experiment.variants))}"
    )


def check_duration(duration: str) -> None:
    """Raise WrongUse when a duration is not like 90s or 5m, or is longer than a day."""
    try:
        _short_enough(duration)
    except ValueError as error:
        raise WrongUse(f"The duration {error}.", hint="DURATION=90s or DURATION=5m") from None
