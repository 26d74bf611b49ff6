"""Trials whose containers ran on several machines, made of trials of one machine: each machine's clock is known."""

import gzip
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from stampede.records.folder import OBSERVATIONS, POINTS, read_trial, write_record
from stampede.records.run import Exchange, MachineRecord


class Machine(NamedTuple):
    """A machine whose clock is ``ahead_s`` ahead of the lab's clock at the beginning of 2026, and gains ``drift``.

    From ``stepped_at`` on (epoch seconds), the clock is a further ``step_s`` ahead: somebody set it.
    """

    hosts: Sequence[str] = ()
    generators: Sequence[str] = ()
    ahead_s: float = 0.0
    drift: float = 0.0
    step_s: float = 0.0
    stepped_at: float = 0.0

    def shows(self, at: float, since: float) -> float:
        """Return what the machine's clock shows at a time of the lab's clock, both in epoch seconds."""
        step_s = self.step_s if at >= self.stepped_at else 0.0
        return at + self.ahead_s + self.drift * (at - since) + step_s


def questions(machine: Machine, first: float, last: float, takes_s: float) -> list[Exchange]:
    """Return what a machine told before and after a load; each question takes ``takes_s`` there, and as long back."""
    asked = [first - 3 + n / 10 for n in range(5)] + [last + 1 + n / 10 for n in range(5)]
    return [
        Exchange(asked=at, told=machine.shows(at + takes_s, first), answered=at + 2 * takes_s) for at in asked
    ]  # fmt: skip


def set_apart(folder: Path, machines: Mapping[str, Machine], takes_s: float = 0.001) -> None:
    """Rewrite a trial's files as if its containers had run on ``machines``, whose clocks differ from the lab's."""
    by_host = {host: one for one in machines.values() for host in one.hosts}
    by_generator = {name: one for one in machines.values() for name in one.generators}
    files = {path: _lines(path) for path in sorted(folder.glob(POINTS))}
    times = [_at(line) for lines in files.values() for line in lines if line["type"] == "Point"]
    first, last = min(times), max(times)
    for path, lines in files.items():
        asking = by_generator[path.name.split(".")[0]]
        for line in lines:
            if line["type"] != "Point":
                continue
            told = line["data"].get("metadata", {})
            host = told.get("worker", "").rpartition(":")[0]
            if host in by_host:
                told |= {
                    name: repr(round(by_host[host].shows(float(told[name]), first), 6)) for name in ("began", "ended")
                }
            line["data"]["time"] = _stamp(asking.shows(_at(line), first))
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    for pattern in OBSERVATIONS:
        for path in folder.glob(pattern):
            _set_stalls_apart(path, by_host, first)
    records = [
        MachineRecord(
            name=name, hosts=[*one.hosts], generators=[*one.generators], exchanges=questions(one, first, last, takes_s)
        )
        for name, one in machines.items()
    ]
    write_record(folder / "trial.json", read_trial(folder).model_copy(update={"machines": records}))


def _set_stalls_apart(path: Path, by_host: Mapping[str, Machine], first: float) -> None:
    text = path.read_text(encoding="utf-8")
    host = text.split("==> /etc/hostname <==\n")[1].split("\n")[0]
    before, mark, after = text.partition("==> stalls <==\n")
    if mark and host in by_host:
        stalls, more, rest = after.partition("==> ")
        moved = (
            " ".join(f"{by_host[host].shows(float(time), first):.6f}" for time in line.split())
            for line in stalls.splitlines()
        )
        path.write_text(before + mark + "".join(f"{line}\n" for line in moved) + more + rest, encoding="utf-8")


def _lines(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def _at(line: dict[str, Any]) -> float:
    return datetime.fromisoformat(line["data"]["time"]).timestamp()


def _stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
