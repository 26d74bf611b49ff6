"""Containers that run one program after another, because starting a container takes longer than most programs."""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from stampede.paths import CLIENTS, K6

PATIENCE_S = 120
END = "-- end of a run --"
Done = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Box:
    """A container of an image. Nothing runs in the container until ``each`` or ``run`` is called."""

    container: str

    def each(self, command: str, environments: Iterable[Mapping[str, str]]) -> list[Done]:
        """Run a shell command once with each environment, and return how each run ended.

        Before each run, /tmp and /results are emptied.
        """
        scripts = [
            f"rm -rf /tmp/* /results/*; ({_exports(one)} {command}) < /dev/null\n"
            f'echo "{END}$?"; echo "{END}" >&2\n'
            for one in environments
        ]  # fmt: skip
        told = subprocess.run(
            ["docker", "exec", "--interactive", self.container, "sh", "-s"],
            input="".join(scripts), capture_output=True, text=True, check=True, timeout=PATIENCE_S,
        )  # fmt: skip
        *outs, rest = re.split(rf"{END}(\d+)\n", told.stdout)
        *errs, further = told.stderr.split(f"{END}\n")
        assert (len(errs), rest, further) == (len(scripts), "", ""), told
        return [
            subprocess.CompletedProcess(command, int(code), out, err)
            for out, code, err in zip(outs[::2], outs[1::2], errs, strict=True)
        ]

    def run(self, command: str, environment: Mapping[str, str]) -> Done:
        """Run a shell command once."""
        [done] = self.each(command, [environment])
        return done


BoxOf = Callable[..., Box]
"""Returns the container of an image, in the named network or without a network."""


@contextmanager
def boxes() -> Iterator[BoxOf]:
    """Start a container for each image and network that a test asks for, and remove all containers at the end."""
    started: dict[tuple[str, str], Box] = {}

    def box_of(image: str, network: str = "none") -> Box:
        if (image, network) not in started:
            done = subprocess.run(
                ["docker", "run", "--detach", "--rm", "--network", network, "--tmpfs", "/tmp",
                 "--tmpfs", "/results:mode=777", "--volume", f"{K6}:/k6:ro", "--volume", f"{CLIENTS}:/clients:ro",
                 "--entrypoint", "sleep", image, "600"],
                capture_output=True, text=True, check=True,
            )  # fmt: skip
            started[image, network] = Box(done.stdout.strip())
        return started[image, network]

    try:
        yield box_of
    finally:
        if started:
            containers = [one.container for one in started.values()]
            subprocess.run(["docker", "rm", "--force", *containers], capture_output=True, check=True)


def _exports(environment: Mapping[str, str]) -> str:
    """Return the shell commands that set an environment."""
    return " ".join(f"export {name}={shlex.quote(value)};" for name, value in environment.items())
