"""One small container on each machine of a cluster, which tells the machine's time and what its kernel reports.

The engine allows a container's name only once. So the container is also the lock of its machine: a second lab, on any
other computer, waits until the container has gone. The container ends when its standard input is closed, which also
happens when the lab is killed.
"""

import json
import os
import select
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from math import inf

from stampede.docker.client import Machine
from stampede.docker.commands import Say
from stampede.docker.containers import BOX, OWNER_LABEL, owner
from stampede.docker.machine_usage import READS, MachineState, state_of
from stampede.errors import LabError
from stampede.records.run import Exchange

NAME = "stampede-measures"
IMAGE = "stampede/client:trixie"
ANSWERS_WITHIN_S = 15
EXCHANGES = 20
"""How many times a machine is asked for its time before the load, and again after the load."""
TELL_AGAIN_S, LOOK_AGAIN_S = 60, 1.0
_TELL = """\
import json, sys, time
def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return ""
while asked := sys.stdin.readline():
    now = time.time()
    print(json.dumps([now, [read(path) for path in asked.split()]]), flush=True)
"""


class MachineLost(LabError):
    """A machine does not answer any more."""


class Probe:
    """The container on one machine, to which the lab writes a line for each answer that it wants."""

    def __init__(self, machine: Machine, process: "subprocess.Popen[bytes]") -> None:
        self.machine = machine
        self._process = process
        self._unread = b""
        self._turn = threading.Lock()

    def exchange(self, *paths: str) -> tuple[Exchange, list[str]]:
        """Ask for the machine's time and the texts of files in /proc. Raise MachineLost if no answer comes in time."""
        assert self._process.stdin
        with self._turn:
            asked = time.time()
            try:
                self._process.stdin.write(" ".join(paths).encode() + b"\n")
                self._process.stdin.flush()
            except OSError:
                raise self._lost() from None
            line = self._line()
            answered = time.time()
        told, texts = json.loads(line)
        return Exchange(asked=asked, told=told, answered=answered), texts

    def exchanges(self) -> list[Exchange]:
        """Ask for the machine's time EXCHANGES times."""
        return [self.exchange()[0] for _ in range(EXCHANGES)]

    def look(self) -> MachineState:
        """Look at the machine, as ``stampede.docker.machine_usage.local_state`` does on the lab's own machine."""
        return state_of(self.exchange(*READS)[1])

    def _line(self) -> bytes:
        assert self._process.stdout
        deadline = time.monotonic() + ANSWERS_WITHIN_S
        stdout = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            part = os.read(stdout, 2**16) if ready else b""
            if not part:
                raise self._lost()
            self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _lost(self) -> MachineLost:
        return MachineLost(f"The machine {self.machine.name} does not answer any more.", hint="stampede machines")


@contextmanager
def start_probes(machines: Sequence[Machine], say: Say) -> Iterator[dict[str, Probe]]:
    """Start a probe on each machine, and yield the probes by the names of the machines.

    If another lab measures on a machine, say so and wait until it has ended. All labs begin with the machine whose
    engine has the smallest id, so that no two labs wait for each other. Raise LabError if a probe does not start.
    """
    with ExitStack() as stack:
        probes = {}
        for machine in sorted(machines, key=lambda machine: str(machine.info()["ID"])):
            probes[machine.name] = stack.enter_context(_probe(machine, say))
        yield {machine.name: probes[machine.name] for machine in machines}


@contextmanager
def _probe(machine: Machine, say: Say) -> Iterator[Probe]:
    told_s = -inf
    while True:
        command = [*machine.docker, "run", "--rm", "--interactive", "--name", NAME, "--network", "none", *BOX,
                   "--label", f"{OWNER_LABEL}.probe={owner()}",
                   IMAGE, "python", "-u", "-c", _TELL]  # fmt: skip
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   start_new_session=True)  # fmt: skip
        probe = Probe(machine, process)
        try:
            probe.exchange()
        except MachineLost:
            problem = _end(process)
            if "is already in use" not in problem:
                last = (problem.splitlines() or ["its engine gave no reason"])[-1]
                raise LabError(f"Nothing can be measured on {machine.name}: {last}", "stampede machines") from None
            # an engine that was killed may have forgotten to remove the probe
            state = machine.told("inspect", "--format", "{{.State.Status}}", NAME)
            if state in ("exited", "dead"):
                machine.told("rm", NAME)
            if time.monotonic() - told_s > TELL_AGAIN_S:
                told_s = time.monotonic()
                label = f'{{{{index .Config.Labels "{OWNER_LABEL}.probe"}}}}'
                holder = machine.told("inspect", "--format", label, NAME) or "unknown"
                say(f"Another run is measuring on {machine.name} ({holder}). "
                    "This run starts when that run has ended.")  # fmt: skip
            time.sleep(LOOK_AGAIN_S)
            continue
        break
    try:
        yield probe
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> str:
    """Let a probe end, and return what was written to its standard error."""
    try:
        _, said = process.communicate(timeout=5)
    except (subprocess.TimeoutExpired, ValueError, OSError):
        process.kill()
        _, said = process.communicate()
    return said.decode(errors="replace").strip()
