"""``stampede --help`` on one screen, its commands in groups."""

from typing import Any

from stampede.cli.commands import Commands, LazyCommands

PLACES = {
    "stampede.cli.experiments": ("list:list_experiments", "plan", "predict"),
    "stampede.cli.measure": ("run", "watch", "reproduce"),
    "stampede.cli.reading": ("report", "compare", "verify", "export", "class:class_"),
    "stampede.cli.machine": ("setup", "doctor", "down", "bundle"),
    "stampede.advise.commands": ("advise",),
    "stampede.service.commands": ("init", "try:try_"),
    "stampede.logs.diagnose.commands": ("diagnose", "requests"),
    "stampede.teach.lesson.commands": ("lesson",),
    "stampede.machines": ("machines:check_machines",),
}
"""The commands of each module, as ``name`` or ``name:function``; the module is imported when a command is called."""

GROUPS = {
    "Measure": {
        "run, watch": "measure an experiment; show its requests in a browser meanwhile",
        "list, plan": "the experiments; what would be measured, and for how long",
        "reproduce": "measure every experiment, and draw all published figures",
    },
    "Read": {
        "report": "a run's answer and its tables",
        "compare": "how two runs or variants differ",
        "predict": "what theory predicts of a run",
        "verify, export": "check that a run is unchanged; pack it for somebody else",
    },
    "Your service": {
        "init, try": "describe your service; measure it, and what would help",
        "diagnose": "who waited in production, from the logs of balancer and servers",
        "requests, advise": "read an access log; rank the ways to serve a load",
    },
    "Teach": {"lesson, class": "six steps for one learner; a page of what a class measured"},
    "Machine": {
        "setup, doctor": "make this machine ready; say what it has and lacks",
        "down, bundle": "clean up after killed runs; pack the lab for offline use",
        "machines": "measure on several machines",
    },
}
"""What ``stampede --help`` says of each command; commands that belong together share a line."""


class GroupedCommands(Commands):
    """The commands of ``stampede``, in groups."""

    def __init__(self, **settings: Any) -> None:  # noqa: ANN401  # typer's signature
        super().__init__(**settings | {"commands": {}})
        self.commands = LazyCommands(PLACES)  # type: ignore[assignment]  # typer only reads it

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002  # typer's signature
        """Write a line for each command, or for commands that belong together, below the name of their group."""
        formatter.write(
            "Usage: stampede COMMAND …, e.g. stampede run heavy-mix. stampede COMMAND --help has its options.\n"
        )
        for group, lines in GROUPS.items():
            formatter.write(f"{group}\n")
            for names, says in lines.items():
                formatter.write(f"  {names:18} {says}\n")
