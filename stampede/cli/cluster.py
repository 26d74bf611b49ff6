"""The command ``stampede machines``, whose commands are about the machines of a cluster."""

import typer

from stampede.cli.commands import Commands, add_command
from stampede.machines import check_machines, join_machines, leave_machines

machines = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    help="The machines that stampede run --machines machines.yaml measures on.\n\nExample: stampede machines check",
)
for name, function in {"check": check_machines, "join": join_machines, "leave": leave_machines}.items():
    add_command(machines, function, name)
