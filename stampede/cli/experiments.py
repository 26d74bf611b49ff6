"""The commands of ``stampede`` that list experiments, and plan their measurement."""

from typing import Annotated

import typer

from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment, names
from stampede.run.options import MeasureOptions, Name, measure_options
from stampede.terminal import out, print_json, print_plan


@measure_options("until", "budget", "machines")
def plan(
    options: MeasureOptions,
    name: Name = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Print what would be measured, in which order and for how long, e.g. stampede plan heavy-mix --full."""
    from stampede.docker.engine import own_memory  # noqa: PLC0415
    from stampede.plan.timing import expected_s  # noqa: PLC0415

    planned = options.plan(options.experiment(name), own_memory())
    if as_json:
        print_json({"experiment": name, "expected_s": expected_s(planned), **planned.as_json()})
    else:
        print_plan(out, name, planned, expected_s(planned))


def list_experiments(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per experiment.")] = False,
) -> None:
    """List the experiments with their questions, e.g. stampede list --json."""
    broken = []
    for name in names():
        try:
            experiment = load_experiment(name)
        except WrongUse as error:
            broken.append(error.message)
            continue
        if as_json:
            values = {
                "name": name,
                "title": experiment.title,
                "question": experiment.question,
                "source": experiment.source.model_dump(mode="json") if experiment.source else None,
                "variants": {key: value.model_dump(mode="json") for key, value in experiment.variants.items()},
                "loads": {key: value.model_dump(mode="json") for key, value in experiment.all_loads.items()},
            }
            print_json(values)
        else:
            out.print(f"{name}\n  {experiment.title}\n  {experiment.question}", markup=False)
    if broken:
        raise WrongUse(
            "\n".join(broken), hint="Correct each file that is named here; all other experiments are listed."
        )
