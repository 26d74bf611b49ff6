"""An experiment of a few seconds, and a small disk, for tests that make something fail and read what the lab says."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from python_on_whales import Container, DockerClient
from python_on_whales.exceptions import DockerException

from stampede.docker.containers import OWNER_LABEL
from tests.conftest import PATIENCE_S, Lab, wait_until

EXPERIMENT = """\
title: A load that something spoils
question: Does the lab notice?
loads:
  users:
    duration: {{short: {duration}, full: 1m}}
    classes: {{user: {{users: 8, takes_s: {{least: 0.05, most: 0.15}}}}}}
parallel: true
variants:
  spoilt: {variant}
"""
GTHREAD = "{server: gunicorn-gthread, workers: 2, threads: 8}"
ANSWERS_WITHIN_S = 30
"""Without limits a machine did not answer for 25 minutes; with them it answers within a tenth of a second, and later
where other machines share the processor."""
LOOKS_EVERY_S = 1.5
"""How often the engine is asked which container runs; each look starts a client, which takes processor time."""
ENDS_WITHIN_S = 60


def write_experiment(lab: Lab, variant: str = GTHREAD, duration: str = "4s") -> None:
    text = EXPERIMENT.format(variant=variant, duration=duration)
    (lab.root / "experiments" / "spoilt.yaml").write_text(text)


def tell_which(lab: Lab, **factors: str) -> None:
    """Make a copy of the lab set WHICH to the variant's name for each load script. So each variant can have a fault.

    ``factors`` are further variables for the Compose file, as expressions of the variant's ``name``.
    """
    told = '"load": _variables(load.at(visits_per_s), trial.duration) | {"WHICH": trial.variant_name}'
    lab.edit("stampede/run/trial/compose.py", '"load": _variables(load.at(visits_per_s), trial.duration)', told)
    lab.edit("stampede/run/trial/compose.py", "    if load.api:\n", "    name = trial.variant_name\n" + "".join(
        f"    factors |= {{{factor!r}: {value}}}\n" for factor, value in factors.items()
    ) + "    if load.api:\n")  # fmt: skip


def trials(lab: Lab, name: str = "spoilt") -> dict[str, dict[str, Any]]:
    """Return the trials of the last run's summary, by variant; trials of the variant ``plain`` by load."""
    found = json.loads((lab.latest(name) / "summary.json").read_text())["trials"]
    return {one["load"] if one["variant"] == "plain" else one["variant"]: one for one in found}


def container_of(variant: str, service: str) -> Container | None:
    """Return the container of a service of a variant while the variant is measured; None if there is none.

    In the name of a trial's project, the variant follows the time of the run: one variant's name may end as another's.
    """
    of_service = f"com.docker.compose.service={service}"
    found = DockerClient().container.list(
        filters=[("label", OWNER_LABEL), ("label", of_service), ("name", f"z-{variant}-")]
    )
    return next(iter(found), None)


def container_after(variant: str, service: str, command: str) -> Container:
    """Wait until a shell command has ended in the container of a service of a variant, and return the container.

    The command waits in the container, because asking the engine again and again takes long on a busy machine.
    """

    def find() -> Container | None:
        container = container_of(variant, service)
        with suppress(DockerException):  # it is being started
            if container:
                container.execute(["sh", "-c", command])
                return container
        return None

    return wait_until(find, 2 * PATIENCE_S, LOOKS_EVERY_S)


def judged(lab: Lab) -> tuple[str, list[str]]:
    latest = (lab.results / "spoilt" / "latest").resolve()
    [trial] = json.loads((latest / "summary.json").read_text())["trials"]
    return trial["verdict"], trial["reasons"]


def wait_for_requests(client: DockerClient) -> dict[str, Container]:
    """Wait until the server's workers have counted some requests, and return the containers by service."""
    mine = client.container.list(filters=[("label", OWNER_LABEL)])
    services = {(one.config.labels or {})["com.docker.compose.service"]: one for one in mine}
    deadline = time.monotonic() + PATIENCE_S
    while True:
        said = str(client.container.execute(services["gunicorn"], ["sh", "-c", "cat /tmp/workers/*"]))
        if sum(int(count) for _, count in map(str.split, said.splitlines())) > 20:
            return services
        assert time.monotonic() < deadline, said
        time.sleep(0.1)


class Gaps:
    """How long the machine took at most to run a small program, again and again."""

    longest_s = 0.0

    def watch(self, over: Event) -> None:
        """Run ``date`` until it is over."""
        while not over.wait(0.02):
            began = time.monotonic()
            subprocess.run(["date"], stdout=subprocess.DEVNULL, check=True)
            self.longest_s = max(self.longest_s, time.monotonic() - began)


@contextmanager
def answering() -> Iterator[Gaps]:
    """Fail when the machine did not answer all the while."""
    gaps, over = Gaps(), Event()
    watching = Thread(target=gaps.watch, args=(over,))
    watching.start()
    try:
        yield gaps
    finally:
        over.set()
        watching.join()
    print(f"the machine answered within {gaps.longest_s:.2f} s")  # pytest -s shows it
    assert 0 < gaps.longest_s < ANSWERS_WITHIN_S


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """Mount a disk of a given size. This needs root."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    with pytest.raises(OSError, match="No space left"), path.open("wb") as file:  # noqa: PT012
        while True:
            file.write(bytes(2**20))
            file.flush()


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
