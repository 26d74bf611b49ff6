"""The load of a run, as it is offered to servers."""

from pydantic import ValidationError

from stampede.advise.offered import OfferedLoad
from stampede.errors import WrongUse
from stampede.predict.system import NotModelled, classes_of
from stampede.records.run import LoadRecord, Run, VariantRecord
from stampede.servers import KINDS
from stampede.servers.limits import WORKER_MIB


def offered_in(run: Run, record: LoadRecord, serving: VariantRecord) -> OfferedLoad:
    """Return a load of a run, and a variant of it as today's. Raise WrongUse if theory cannot serve such a load."""
    try:
        kind = KINDS[serving.settings["server"]]
        fields = kind.model_fields  # leave out what is as by default: some settings may only be named if they differ
        known = {name: value for name, value in serving.settings.items() if value is not None and name in fields}
        today = kind.model_validate({name: value for name, value in known.items() if fields[name].default != value})
    except (KeyError, ValidationError):
        problem = f"There is no advice for {serving.name}, because this lab cannot serve like that any more."
        raise WrongUse(problem, hint="RUN=…:VARIANT, with another variant of the run") from None
    if today.app.startswith("fastapi"):
        problem = f"There is no advice for {serving.name}, because only servers of WSGI applications are ranked."
        raise WrongUse(problem, hint=f"RUN=…:VARIANT, where VARIANT does not serve {today.app}")
    try:
        classes = classes_of(record)
    except NotModelled as reason:
        raise WrongUse(f"There is no advice for the load {record.name}, because theory lacks {reason}.") from None
    # requests that only hold the interpreter lock need no core of their own
    computes = record.settings.get("CPU") == "burn"
    cpus = today.cpus * today.replicas if computes else 0
    return OfferedLoad(
        classes=classes,
        one_device=bool((record.api or {}).get("one_device")),
        computes=computes,
        cores=cpus or run.host.cores,
        cpus=cpus or None,
        memory_mib=round(1024 * run.host.memory_gib),
        worker_mib=WORKER_MIB[today.factors()["LAB_APP"].partition(":")[0]],
        today=today,
    )


def find_cell(run: Run, variant: str | None, load: str | None) -> tuple[LoadRecord, VariantRecord]:
    """Return a load and a variant of a run: the only load, and the first variant, if no name is given."""
    loads = {record.name: record for record in run.loads}
    if (load not in loads) if load else len(loads) > 1:
        problem = f"no load {load!r}" if load else f"{len(loads)} loads"
        raise WrongUse(f"The run has {problem}.", hint=f"--load …, one of {', '.join(loads)}")
    record = loads[load] if load else run.loads[0]
    serving = {each.name: each for each in run.variants_under(record.name)}
    if not serving:
        measured = [name for name in loads if run.variants_under(name)]
        problem = f"The run measured no variant under {record.name}."
        raise WrongUse(problem, hint=f"--load …, one of {', '.join(measured)}")
    if variant is not None and variant not in serving:
        problem = f"The run has no variant {variant!r} under this load."
        raise WrongUse(problem, hint=f"Its variants: {', '.join(serving)}")
    return record, serving[variant] if variant else next(iter(serving.values()))
