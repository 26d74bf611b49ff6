"""The record of a run that begins."""

from datetime import UTC, datetime

from stampede import __version__
from stampede.experiment.model import Experiment
from stampede.plan import Plan
from stampede.records.run import METHOD, ClientRecord, Git, Host, Image, LoadRecord, RelativeRate, Run, SourceRecord


def now() -> str:
    """Return the time in UTC with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def record_of(
    name: str,
    experiment: Experiment,
    plan: Plan,
    *,
    full: bool,
    command: str,
    host: Host,
    git: Git | None,
    images: list[Image],
) -> Run:
    """Return the record of a run that begins now."""
    asked = list(dict.fromkeys(trial.variant_name for trial in plan.trials))
    durations = {trial.load_name: trial.duration for trial in plan.trials}
    return Run(
        method=METHOD,
        version=__version__,
        experiment=name,
        title=experiment.title,
        question=experiment.question,
        because=experiment.because,
        source=SourceRecord.model_validate(experiment.source.model_dump()) if experiment.source else None,
        published=[entry for entry in experiment.published if entry.variant in asked],
        claims=[claim for claim in experiment.claims if claim.variants <= set(asked)],
        curve=experiment.curve,
        variants=[server.record(variant) for variant, server in experiment.variants.items() if variant in asked],
        loads=[
            LoadRecord(
                name=load,
                script=load_entry.script,
                kind=load_entry.declared.kind,
                generators=load_entry.generators,
                overloads=load_entry.overloads,
                relative=load_entry.relative and RelativeRate.model_validate(load_entry.relative.model_dump()),
                loop=load_entry.loop,
                duration=durations[load],
                settings=load_entry.environment(),
                traffic=load_entry.declared.recorded_traffic(load_entry.settings),
                client=ClientRecord(
                    script=load_entry.client.script,
                    settings=load_entry.client.environment(),
                    through_balancer=load_entry.client.through_balancer,
                )
                if load_entry.client
                else None,
                api=load_entry.api and load_entry.api.model_dump(exclude_unset=True),
                database=load_entry.database and load_entry.database.model_dump(),
            )
            for load, load_entry in experiment.all_loads.items()
            if load in durations  # leave out a load that is only for other variants
        ],
        sleeping=experiment.parallel or experiment.holds,
        full=full,
        trials=max(trial.number for trial in plan.trials),
        jobs=plan.jobs,
        seed=plan.seed,
        order=[[trial.variant_name, trial.load_name, str(trial.number)] for trial in plan.trials],
        command=command,
        host=host,
        git=git,
        images=images,
        began=now(),
    )
