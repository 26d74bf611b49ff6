"""The record of a run that begins."""

from collections.abc import Sequence
from datetime import UTC, datetime

from stampede import __version__
from stampede.experiment.model import Experiment
from stampede.plan import Plan
from stampede.records.run import METHOD, UNKNOWN, ClientRecord, Git, Host, Image, LoadRecord, Run


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
    host: Host = UNKNOWN,
    git: Git | None = None,
    images: Sequence[Image] = (),
) -> Run:
    """Return the record of a run that begins now."""
    asked = list(dict.fromkeys(trial.variant_name for trial in plan.trials))
    durations = {trial.load_name: trial.duration for trial in plan.trials}
    frozen = experiment.model_dump(include={"title", "question", "because", "source", "curve"})
    return Run(
        **frozen,
        method=METHOD,
        version=__version__,
        experiment=name,
        published=[entry for entry in experiment.published if entry.variant in asked],
        claims=[claim for claim in experiment.claims if claim.variants <= set(asked)],
        variants=[server.record(variant) for variant, server in experiment.variants.items() if variant in asked],
        loads=[
            LoadRecord(
                **load.model_dump(include={"script", "generators", "overloads", "relative", "database"}),
                name=under,
                kind=load.declared.kind,
                loop=load.loop,
                duration=durations[under],
                settings=load.environment(),
                traffic=load.declared.traffic(load.settings),
                client=load.client
                and ClientRecord(
                    script=load.client.script,
                    settings=load.client.environment(),
                    through_balancer=load.client.through_balancer,
                ),
                api=load.api and load.api.model_dump(exclude_unset=True),
            )
            for under, load in experiment.all_loads.items()
            if under in durations  # leave out a load that is only for other variants
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
        images=[*images],
        began=now(),
    )
