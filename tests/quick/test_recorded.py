"""What a machine with cgroup v2 and systemd told is read as it was: its limits, its counts and their units.

tests/recorded/cgroup2 is from Debian 13 (Docker 26.1.5, containerd 1.7, runc 1.1) on user-mode Linux 6.1. ``server-1``
is what the lab asks of a container: gunicorn with two workers, half a processor, 256 MiB and 64 processes. ``group``
has the files of the container's control group as the machine itself saw them a moment later. Six requests computed
1.5 s each between ``before`` and ``after``; then a process took 400 MiB and was ``killed``; then a shell started
processes until it could start no more, and then memory was taken until a worker was killed and ``lost``.
``pressure-cpu`` is from the same system and load in a virtual machine, because user-mode Linux has no such file.
"""

import asyncio
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from stampede.docker import facts
from stampede.docker.client import HERE
from stampede.docker.cluster.engines import Engines
from stampede.docker.machine_usage import pressure_us
from stampede.evaluate.read.observation import Container, Observation, counted_by_worker, parse
from stampede.records.run import Seconds
from stampede.run.trial.batch import Batch
from stampede.run.trial.trial import Trial
from tests.in_memory import judged, trial_of
from tests.synthetic import Request
from tests.told import Told

RECORDED = Path(__file__).parents[1] / "recorded" / "cgroup2"
MOMENTS = ("before", "after", "killed", "lost")


def group(moment: str) -> dict[str, str]:
    """Return what the machine told of the container's control group, e.g. of ``cpu.stat usage_usec`` or ``cpu.max``."""
    text = (RECORDED / f"group.{moment}.txt").read_text()
    parts = re.split(r"^==> (.+) <==\n", text, flags=re.MULTILINE)[1:]
    found = {}
    for file, content in zip(parts[::2], parts[1::2], strict=True):
        found[file] = content.strip()
        found |= {f"{file} {name}": value for name, _, value in (line.partition(" ") for line in content.splitlines())}
    return found


def seen(moment: str) -> Observation:
    """Return what the lab reads of the container at a moment."""
    return parse((RECORDED / f"server-1.{moment}.txt").read_text())


def test_what_is_read_in_the_container_is_what_the_machine_told() -> None:
    """The machine's files were read after the container's, and the counts of both only grow."""
    told = [(seen(moment), group(moment)) for moment in MOMENTS]
    used_s = [each for one, of in told for each in (one.processor_s or 0, seconds(of["cpu.stat usage_usec"]))]
    kept_s = [each for one, of in told for each in (one.throttled_s or 0, seconds(of["cpu.stat throttled_usec"]))]

    assert used_s == sorted(used_s)
    assert kept_s == sorted(kept_s)
    for limit, value in {"cpu.max": "50000 100000", "memory.max": str(256 * 2**20), "pids.max": "64"}.items():
        assert group("before")[limit] == value, "what the engine was told"
    for one, of_group in told:
        assert one.memory_mib == pytest.approx(int(of_group["memory.stat anon"]) / 2**20, abs=1)
        assert one.out_of_memory == int(of_group["memory.events oom_kill"])


def seconds(microseconds: str) -> float:
    """Return a time in seconds."""
    return int(microseconds) / 1e6


def test_computing_throttling_and_killing_are_counted() -> None:
    before, after, killed, lost = map(seen, MOMENTS)
    assert before.processor_s is not None
    assert after.processor_s is not None
    assert before.throttled_s is not None
    assert after.throttled_s is not None

    assert (after.processor_s, after.throttled_s, after.memory_mib) == (35.97, 28.07, 32608256 / 2**20)
    assert after.processor_s - before.processor_s > 9  # six requests of 1.5 s
    assert after.throttled_s - before.throttled_s > 9  # two workers computed on half a processor
    assert [one.out_of_memory for one in (before, after, killed, lost)] == [0, 0, 1, 2]
    assert before.workers == after.workers == killed.workers
    assert len(before.workers) == 2
    assert len(before.workers & lost.workers) == 1
    assert [group(moment)["pids.events max"] for moment in MOMENTS] == ["0", "0", "0", "1"]


def test_the_engine_says_which_limits_that_kernel_does_not_enforce(monkeypatch: pytest.MonkeyPatch) -> None:
    """This kernel was built without the choice of cores."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(facts, "HERE", Told(answers=lambda _: (RECORDED / "docker-info.json").read_bytes()))
    monkeypatch.setenv("DOCKER_HOST", "recorded")

    told = facts.ask_engine()

    assert told is not None
    assert told.kind == "Docker 26, cgroups 2, x86_64, root"
    assert (told.cores, told.memory_mib, told.unenforced) == (1, 1554, ("the choice of cores",))


@pytest.mark.parametrize(
    ("moment", "reason"),
    [("after", "server-1 was kept from computing by its limit for 16.1 s"),
     ("lost", "server-1 lost worker 36 during the load (out of memory)")],
)  # fmt: skip
def test_a_trial_with_such_a_server_is_judged_by_its_counts(moment: str, reason: str) -> None:
    seen = {when: {"server-1": (RECORDED / f"server-1.{of}.txt").read_text()}
            for when, of in (("before", "before"), ("after", moment))}  # fmt: skip
    before, after = (parse(seen[when]["server-1"]) for when in seen)
    served = counted_by_worker((Container(name="server-1", before=before, after=after),), "served")
    requests = [Request(worker=worker) for worker, count in served.items() for _ in range(count)]

    assert reason in judged(trial_of(requests), seconds=Seconds(load=60), **seen)[1]


def test_an_event_of_the_engine_ends_the_trial_of_the_container_that_ran_out_of_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container lived on, because only a process of it was killed."""
    told: list[tuple[str, str]] = []

    async def react_to(event: dict[str, Any]) -> None:
        told.append((event["Action"], event["Actor"]["Attributes"]["com.docker.compose.service"]))

    trial = SimpleNamespace(project="stampede-recorded", react_to=react_to, loading=set())
    (tmp_path / "docker").write_text(f"#!/bin/sh\ncat {RECORDED}/events.txt\nexec sleep 100\n")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    batch = Batch([cast("Trial", trial)], Engines((HERE,)), lambda *_: None)

    async def watch() -> None:
        async with batch._watched():
            while not told:
                await asyncio.sleep(0.01)

    asyncio.run(watch())

    assert set(told) == {("oom", "gunicorn")}


def test_pressure_counts_what_the_limit_of_a_container_keeps_back() -> None:
    """Two workers wanted a processor each and had half of one, so something waited for most of the 31.4 s."""
    before_us, after_us = (pressure_us((RECORDED / f"pressure-cpu.{when}.txt").read_text()) for when in MOMENTS[:2])
    assert before_us is not None
    assert after_us is not None
    assert (after_us - before_us) / 31.4e6 == pytest.approx(0.75, abs=0.01)
