"""The options that several commands of ``lab`` have."""

from pathlib import Path
from typing import Annotated

import typer

Results = Annotated[Path, typer.Option(envvar="RESULTS", resolve_path=True, help="The folder that keeps the runs.")]
Variants = Annotated[str, typer.Option(envvar="VARIANTS", help="Measure only these variants, e.g. a,b.")]
Full = Annotated[bool, typer.Option(envvar="FULL", help="Use the full durations, as in the article.")]
Duration = Annotated[str, typer.Option(envvar="DURATION", help="How long each load lasts, e.g. 90s or 5m.")]
Trials = Annotated[
    int,
    typer.Option(envvar="TRIALS", min=0, max=1000, help="How often each variant is measured; 0: as the file says."),
]
Jobs = Annotated[
    int, typer.Option(envvar="JOBS", min=0, max=1000, help="Most variants side by side; 0: four for each core.")
]
Seed = Annotated[int, typer.Option(envvar="SEED", help="The seed of the random order of the variants.")]
Cpu = Annotated[str, typer.Option(help="burn: requests compute; hold: they only hold the interpreter lock.")]
Machines = Annotated[
    Path | None,
    typer.Option("--machines", envvar="MACHINES", help="Measure on the machines that this file names."),
]
Name = Annotated[str, typer.Argument(show_default=False, help="The experiment: a file of experiments/.")]

RunFolder = Annotated[Path | None, typer.Argument(help="The folder of a run; default: the latest run.")]
