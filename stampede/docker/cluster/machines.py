"""The machines of a run, by the names of their Docker contexts, and what each machine is for."""

from pathlib import Path

from pydantic import Field, model_validator

from stampede.docker.client import Machine, Role
from stampede.records.mistakes import PATTERNS, Wording
from stampede.records.model import NAME_PATTERN, Model, Name


class MachineEntry(Model):
    """One machine as machines.yaml describes it."""

    context: str = Field(
        min_length=1, examples=["bench-1"], description="The Docker context that reaches the machine's engine."
    )
    role: Role = Field("both", description="What runs on the machine: servers, load generators, or both.")
    cores: int | None = Field(None, ge=1, le=1024, description="How many cores containers may use; left out: all.")


class Cluster(Model):
    """machines.yaml: the machines by name."""

    machines: dict[Name, MachineEntry] = Field(min_length=1)

    @model_validator(mode="after")
    def _roles_are_filled(self) -> "Cluster":
        for role, what in (("servers", "servers"), ("load", "load generators")):
            if not any(entry.role in (role, "both") for entry in self.machines.values()):
                raise ValueError(f"no machine is for {what}; give a machine role: {role}, or leave its role out")
        seen: dict[str, str] = {}
        for name, machine in self.machines.items():
            if machine.context in seen:
                raise ValueError(f"{seen[machine.context]} and {name} have the same context {machine.context}")
            seen[machine.context] = name
        return self


WORDING = Wording(
    {NAME_PATTERN: (PATTERNS[NAME_PATTERN][0], "bench-1")},
    {"MachineEntry": "{context: bench-1, role: servers}"},
    hint="A complete machine: bench-1: {context: bench-1, role: servers}",
)


def read_machines(path: Path) -> tuple[Machine, ...]:
    """Read and check machines.yaml. The first machine is one for servers: it builds the images.

    Raise WrongUse with the place of the first mistake.
    """
    from stampede.experiment.yaml_file import YamlFile  # noqa: PLC0415  # starts faster

    machines = []
    for name, entry in YamlFile(path, WORDING).read_as(Cluster).machines.items():
        cpuset = "" if entry.cores is None else "0" if entry.cores == 1 else f"0-{entry.cores - 1}"
        machines.append(Machine(name, entry.context, entry.role, cpuset, shares_files=False))
    return tuple(sorted(machines, key=lambda machine: machine.role == "load"))
