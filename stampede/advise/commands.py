"""The command ``stampede advise``, which asks theory how to serve a load."""

import re
from pathlib import Path
from typing import Annotated

import typer

from stampede.errors import WrongUse
from stampede.paths import RESULTS
from stampede.records.model import name_from
from stampede.run.options import Duration, Limits, MeasureOptions, Results, RunRequest, Trials
from stampede.terminal import out, print_json, say, say_how_theory_runs


def advise(
    file: Annotated[
        Path | None, typer.Argument(show_default=False, help="The file that describes a service, e.g. mine.yaml.")
    ] = None,
    p99: Annotated[str, typer.Option(help="How long 99 of 100 requests may take, e.g. 300ms or 2s.")] = "",
    limits: Limits = None,
    ways: Annotated[bool, typer.Option("--ways", help="Print all ways that were compared, and why.")] = False,
    attempts: Annotated[int, typer.Option("--try", min=0, max=7, help="Measure the best so many ways.")] = 0,
    duration: Duration = "",
    trials: Trials = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the ranked ways as JSON.")] = False,
    results: Results = RESULTS,
) -> None:
    """Say how to serve a load, and what one container stands, e.g. stampede advise mine.yaml --p99 300ms."""
    from stampede.advise import show  # noqa: PLC0415
    from stampede.advise.ranking import best_of, ranked_names  # noqa: PLC0415
    from stampede.advise.service import read_service, tries  # noqa: PLC0415
    from stampede.resources import read_resources  # noqa: PLC0415

    if file is None:
        hint = "stampede advise mine.yaml; docs/how-to/advise.md has an example of such a file."
        raise WrongUse("Name the file that describes a service.", hint)
    if as_json and attempts:
        problem = "--json prints the ranking, and --try measures it."
        raise WrongUse(problem, hint="stampede advise --json, without --try")
    bound = re.fullmatch(r"(\d+\.?\d*)(ms|s)", p99)
    if p99 and not (bound and float(bound[1])):
        raise WrongUse(f"--p99 {p99}: it must be a time with its unit.", hint="--p99 300ms, or --p99 2s")
    p99_ms = float(bound[1]) * {"ms": 1, "s": 1000}[bound[2]] if bound else None
    say_how_theory_runs()
    service = read_service(file, read_resources(limits) if limits else None)
    if service.waits:
        if attempts or as_json:
            doing = "there is nothing to try" if attempts else "no way can be ranked"
            raise WrongUse(f"{file.name}: the durations include waits, so {doing}.",
                           hint="docs/how-to/advise.md says which durations to take.")  # fmt: skip
        show.print_bounds(out, service)
        return
    cases = service.cases()
    if as_json:
        print_json(show.as_values(cases))
        return
    show.print_answer(out, cases, p99_ms, service.worker_mib)
    if ways:
        show.print_ways(out, cases, service)
    if attempts:
        from stampede.run.measuring import measure  # noqa: PLC0415  # it needs Docker's client

        if service.unknown:
            say("The lab's requests sleep where the file does not say how much they compute.")
        first = next(case for case in cases if case.ways)
        best = best_of([first.ways[name] for name in ranked_names(cases)[0]], attempts)
        options = MeasureOptions(duration=duration, trials=trials)
        command = options.command(f"stampede advise {file.name}", **{"try": attempts})
        experiment = tries(service, [way.option for way in best])
        measure(RunRequest(f"{name_from(file.stem, 'service')}-advice", experiment, options, results, command))
