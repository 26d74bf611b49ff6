"""What is to be served, and with what: from a run, or from a file that describes a service."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, sqrt
from typing import Any

from pydantic import ValidationError

from analysis.predict.system import NotModelled, classes_of
from analysis.records.run import LoadRecord, Run, VariantRecord
from lab.errors import WrongUse
from lab.limits import WORKER_MIB
from lab.servers import KINDS
from lab.servers.base import Variant
from theory.model import Bursts, Class, Closed, Open


@dataclass(frozen=True)
class Load:
    """The classes of requests, the machine, and the variant that serves them today.

    ``computes``: requests need cores. ``least_workers``: 2 if one process could be too few.
    ``threads`` is the most threads in all workers; None: as many as help.
    """

    classes: Sequence[Class]
    one_device: bool = False
    computes: bool = False
    cores: int = 1
    memory_mib: int = 1 << 20
    worker_mib: float = WORKER_MIB["wsgi"]
    least_workers: int = 1
    threads: int | None = None
    today: Variant | None = None

    @property
    def busy(self) -> float:
        """About how many threads are busy at once at most."""
        return sum(_busy(one) for one in self.classes)

    @property
    def rate(self) -> float:
        """About how many requests come in a second, if none waits."""
        return sum(one.rate for one in self.classes)

    def times(self, factor: float) -> "Load":
        """Return the load with more users, or with more requests per second or burst."""
        return replace(self, classes=[_times(one, factor) for one in self.classes])


def of_run(run: Run, record: LoadRecord, serving: VariantRecord) -> Load:
    """Return a load of a run, and a variant of it as today's. Raise WrongUse if theory cannot serve such a load."""
    today = _variant(serving)
    if today.app.startswith("fastapi"):
        problem = f"There is no advice for {serving.name}, because only servers of WSGI applications are ranked."
        raise WrongUse(problem, hint=f"RUN=…:VARIANT, where VARIANT does not serve {today.app}")
    try:
        classes = classes_of(record)
    except NotModelled as reason:
        raise WrongUse(f"There is no advice for the load {record.name}, because theory lacks {reason}.") from None
    return Load(
        classes=classes,
        one_device=bool((record.api or {}).get("one_device")),
        computes=_computes(record),
        cores=run.host.cores,
        memory_mib=round(1024 * run.host.memory_gib),
        worker_mib=WORKER_MIB[today.factors()["LAB_APP"].partition(":")[0]],
        today=today,
    )


def chosen(run: Run, variant: str | None, load: str | None) -> tuple[LoadRecord, VariantRecord]:
    """Return a load and a variant of a run: the only load, and the first variant, if no name is given."""
    under = {one.name: one for one in run.loads}
    if load is None and len(under) > 1:
        raise WrongUse(f"The run has {len(under)} loads.", hint=f"LOAD=…, one of {', '.join(under)}")
    if load is not None and load not in under:
        raise WrongUse(f"The run has no load {load!r}.", hint=f"LOAD=…, one of {', '.join(under)}")
    record = under[load] if load else run.loads[0]
    serving = {one.name: one for one in run.variants_under(record.name)}
    if not serving:
        loads = [one.name for one in run.loads if run.variants_under(one.name)]
        raise WrongUse(f"The run measured no variant under {record.name}.", hint=f"LOAD=…, one of {', '.join(loads)}")
    if variant is not None and variant not in serving:
        raise WrongUse(
            f"The run has no variant {variant!r} under this load.", hint=f"Its variants: {', '.join(serving)}"
        )
    return record, serving[variant] if variant else next(iter(serving.values()))


def _variant(record: VariantRecord) -> Variant:
    known = {name: value for name, value in record.settings.items() if value is not None}
    try:
        return KINDS[known["server"]].model_validate(_without_defaults(KINDS[known["server"]], known))
    except (KeyError, ValidationError):
        problem = f"There is no advice for {record.name}, because this lab cannot serve like that any more."
        raise WrongUse(problem, hint="RUN=…:VARIANT, with another variant of the run") from None


def _without_defaults(kind: type[Variant], settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings that are not as by default, because some settings may only be named if they differ."""
    fields = kind.model_fields
    return {name: value for name, value in settings.items() if name in fields and fields[name].default != value}


def _computes(record: LoadRecord) -> bool:
    """Whether requests need a core of their own: those that only hold the interpreter lock do not."""
    return float(record.settings.get("CPU_MS", 0)) > 0 and record.settings.get("CPU") != "hold"


def _busy(one: Class) -> float:
    match one.arrivals:
        case Closed(users=users, pause=pause):
            mean = users * one.mean / (one.mean + pause.mean)
            return min(users, mean + 3 * sqrt(mean))
        case Open(per_second=rate):
            longest = max((step.stalls.takes for step in one.steps if step.stalls), default=0.0)
            mean = rate * max(one.mean, longest)
            return mean + 3 * sqrt(mean)
        case Bursts(size=size):
            return size
    return 1.0


def _times(one: Class, factor: float) -> Class:
    match one.arrivals:
        case Closed(users=users):
            return replace(one, arrivals=replace(one.arrivals, users=ceil(users * factor)))
        case Open(per_second=rate):
            return replace(one, arrivals=replace(one.arrivals, per_second=rate * factor))
        case Bursts(size=size):
            return replace(one, arrivals=replace(one.arrivals, size=ceil(size * factor)))
    return one
