"""The options of commands, and the options of a measurement as one value."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stampede.errors import WrongUse
from stampede.evaluate.statistics.stopping import MOST
from stampede.plan import Plan, lay_out
from stampede.typed import option

if TYPE_CHECKING:
    from stampede.docker.client import Machine
    from stampede.experiment.model import Experiment
    from stampede.plan import MemoryBudgets

Results = Annotated[
    Path, typer.Option(resolve_path=True, show_default="results/", help="The folder that keeps the runs.")
]
Full = Annotated[bool, typer.Option("--full", help="Use the full durations, as in the article if there is one.")]
Duration = Annotated[str, typer.Option(help="How long each load lasts, e.g. 90s or 5m.")]
Trials = Annotated[
    int,
    typer.Option(min=0, max=1000, help="How often each variant is measured; 0: as the file says."),
]
Seed = Annotated[int, typer.Option(help="The seed of the random order of the variants.")]
Machines = Annotated[
    Path | None,
    typer.Option("--machines", help="Measure on the machines that this file names."),
]
Name = Annotated[str, typer.Argument(show_default=False, help="The experiment: a file of experiments/.")]
RunFolder = Annotated[Path | None, typer.Argument(help="The folder of a run; default: the latest run.")]
LogFormat = Annotated[str, typer.Option("--format", help="The format of the log, or a configuration that declares it.")]
Limits = Annotated[
    Path | None,
    typer.Option(
        show_default=False, help="Where cores and memory are limited: a Kubernetes deployment, Helm's values, a "
        "Compose file, a unit of systemd; cgroup: that of this command.",
    ),
]  # fmt: skip
JsonKeys = Annotated[str, typer.Option(help="Keys of a JSON log, e.g. time=ts,path=route,duration=elapsed:ms.")]


@dataclass(frozen=True)
class MeasureOptions:
    """How an experiment is measured. An option that was not given leaves the choice to the experiment's file."""

    variants: Annotated[str, typer.Option(help="Measure only these variants, e.g. a,b.")] = ""
    full: Full = False
    duration: Duration = ""
    trials: Trials = 0
    until: Annotated[str, typer.Option(help="decided: measure rounds until every claim is decided.")] = ""
    budget: Annotated[str, typer.Option(help="The longest time for that, e.g. 30m.")] = "15m"
    jobs: Annotated[int, typer.Option(min=0, max=1000, help="Most variants side by side; 0: four for each core.")] = 0
    seed: Seed = 0
    cpu: Annotated[str, typer.Option(help="burn: requests compute; hold: they only hold the interpreter lock.")] = ""
    machines: Machines = None

    @property
    def names(self) -> list[str] | None:
        """The variants by name; None: all."""
        return [name.strip() for name in self.variants.split(",")] if self.variants else None

    @property
    def budget_s(self) -> float | None:
        """For how long rounds are measured at most; None: there are as many rounds as planned."""
        from stampede.records.traffic import in_seconds  # noqa: PLC0415

        return in_seconds(self.budget) if self.until else None

    def check(self) -> None:
        """Raise WrongUse if the options contradict each other."""
        from stampede.experiment.model import check_duration  # noqa: PLC0415

        if not self.until:
            return
        if self.until != "decided":
            raise WrongUse(f"{option('until', self.until)} is unknown.", hint=option("until", "decided"))
        if self.trials:
            raise WrongUse(
                "TRIALS and UNTIL contradict each other: one names the number of rounds, the other finds it.",
                hint="--until decided --budget 30m",
            )
        check_duration(self.budget, "budget")

    def experiment(self, name: str) -> "Experiment":
        """Read an experiment, and adapt it to these options."""
        from stampede.experiment.file import load_experiment  # noqa: PLC0415

        return self.adapt(load_experiment(name))

    def adapt(self, experiment: "Experiment", cores: int | None = None) -> "Experiment":
        """Return an experiment whose requests compute as these options say, on so many cores (None: the engine's)."""
        from stampede.docker.engine import engine_cores  # noqa: PLC0415
        from stampede.experiment.variations import computing  # noqa: PLC0415

        return computing(experiment, self.cpu, self.names, cores or engine_cores())

    def plan(self, experiment: "Experiment", memory: "MemoryBudgets | None" = None, *, live: bool = False) -> Plan:
        """Lay out the trials in a given amount of memory; None: memory does not limit the plan."""
        from stampede.docker.engine import default_jobs  # noqa: PLC0415

        return lay_out(
            experiment,
            variants=self.names,
            full=self.full,
            duration=self.duration or None,
            trials=MOST if self.until else self.trials or experiment.trials,
            jobs=self.jobs or default_jobs(),
            seed=self.seed,
            memory=memory,
            live=live,
        )

    def command(self, beginning: str, **further: object) -> str:
        """Return the command of lab that measures the same again; ``beginning`` has its arguments."""
        options = {field.name: getattr(self, field.name) for field in fields(self)}
        options |= {"budget": self.budget if self.until else "", "machines": self.machines and self.machines.name}
        given = {name.replace("_", "-"): value for name, value in {**further, **options}.items() if value}
        flags = (f"--{name}" + ("" if value is True else f" {value}") for name, value in given.items())
        return " ".join([beginning, *flags])


@dataclass(frozen=True)
class RunRequest:
    """What a command asks to be measured: an experiment, under which name and where its results go, and how.

    ``command`` measures the same again. ``machines``: those to measure on; none: the engine that Docker's own
    settings choose. ``live``: a page reads the points while they are written. ``check``: first ask somebody's own
    application once; ``only_check``: ask it, and measure nothing.
    """

    name: str
    experiment: "Experiment"
    options: MeasureOptions
    results: Path
    command: str
    machines: "tuple[Machine, ...]" = ()
    live: bool = False
    check: bool = True
    only_check: bool = False


def measure_options(*without: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command with a parameter ``options`` every option of a measurement but those that are named here."""
    shared = [field for field in fields(MeasureOptions) if field.name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def wrapper(**arguments: Any) -> None:  # noqa: ANN401  # each option has its own type
            options = MeasureOptions(**{field.name: arguments.pop(field.name) for field in shared})
            command(options=options, **arguments)

        own = inspect.signature(command).parameters
        further = [
            inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type)
            for field in shared
        ]
        parameters = [
            *[parameter for name, parameter in own.items() if name == "name"],
            *further,
            *[parameter for name, parameter in own.items() if name not in ("name", "options")],
        ]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return wrapper

    return decorate
