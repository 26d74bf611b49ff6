"""The commands of ``stampede`` that list experiments, plan their measurement, and predict it."""

from collections import defaultdict
from typing import Annotated

import typer
from rich.text import Text

from stampede.errors import WrongUse
from stampede.experiment.file import load_experiment, names
from stampede.run.options import MeasureOptions, Name, measure_options
from stampede.terminal import out, print_json, print_plan, say_how_theory_runs, write


@measure_options("until", "budget", "machines")
def plan(
    options: MeasureOptions,
    name: Name = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
) -> None:
    """Print what would be measured, in which order and for how long, e.g. stampede plan heavy-mix --full."""
    from stampede.docker.engine import memory_budgets  # noqa: PLC0415
    from stampede.plan.timing import expected_s  # noqa: PLC0415

    planned = options.plan(options.experiment(name), memory_budgets())
    if as_json:
        print_json({"experiment": name, "expected_s": expected_s(planned), **planned.as_json()})
    else:
        print_plan(out, name, planned, expected_s(planned))


def list_experiments(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per experiment.")] = False,
) -> None:
    """List the experiments by topic, e.g. stampede list --json. In a pipe: a name, a tab and a title on each line."""
    broken, titles = [], defaultdict[str, dict[str, str]](dict)
    for name in names():
        try:
            experiment = load_experiment(name)
        except WrongUse as error:
            broken.append(error.message)
            continue
        if as_json:
            told = experiment.model_dump(mode="json", include={"topic", "title", "question", "source", "variants"})
            loads = {key: value.model_dump(mode="json") for key, value in experiment.all_loads.items()}
            print_json({"name": name, **told, "loads": loads})
        else:
            titles[experiment.topic][name] = experiment.title
    for topic, of_topic in titles.items():
        if out.is_terminal:
            out.print(Text(f"\n{topic}", style="bold"))
        for name, title in of_topic.items():
            write(f"  {name:<20}  {title}\n" if out.is_terminal else f"{name}\t{title}\n")
    if broken:
        raise WrongUse(
            "\n".join(broken), hint="Correct each file that is named here; all other experiments are listed."
        )


@measure_options("until", "budget", "seed", "machines")
def predict(
    options: MeasureOptions,
    name: Name = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print all predicted values as JSON.")] = False,
) -> None:
    """Print what theory predicts of a run on this machine, without measuring, e.g. stampede predict heavy-mix."""
    from stampede.docker.engine import engine_cores  # noqa: PLC0415
    from stampede.predict.prediction import PARTS, predict_summary  # noqa: PLC0415
    from stampede.records.run import UNKNOWN  # noqa: PLC0415
    from stampede.report.terminal import print_predicted  # noqa: PLC0415
    from stampede.run.record import record_of  # noqa: PLC0415

    experiment = options.experiment(name)
    plan = options.plan(experiment)
    say_how_theory_runs()
    here = UNKNOWN.model_copy(update={"cores": engine_cores()})
    run = record_of(name, experiment, plan, full=options.full, command="stampede predict", host=here)
    predicted = predict_summary(run)
    if as_json:
        print_json(predicted.model_dump(mode="json", include={"experiment", *PARTS}))
    else:
        print_predicted(out, run, predicted)
