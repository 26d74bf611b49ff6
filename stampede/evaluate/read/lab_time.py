"""The times of a trial by the lab's clock, if the trial's containers ran on several machines."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import duckdb
import numpy as np

from stampede.evaluate.read import Key
from stampede.evaluate.read.clocks import Clock, ClockEstimates, Messages, UnknownClock, find
from stampede.records.run import MachineRecord
from stampede.records.summary import MachineClock, TrialClocks

PARTS = 1000
"""Into how many parts a load is divided: of each part, only the messages that bound the clocks most are kept. Leaving
out a message can only make the clocks less certain."""
HOST = "regexp_extract(worker, '^(.*):', 1)"
"""The host of a worker (host:pid), in SQL."""


class Clocks(NamedTuple):
    """The machines on which a trial's containers ran, and what was found of the clocks of these machines.

    ``asking`` are the machines of load generators, ``serving`` the machines of servers.
    """

    machines: tuple[MachineRecord, ...]
    asking: tuple[str, ...]
    serving: tuple[str, ...]
    found: ClockEstimates

    @property
    def worst(self) -> tuple[str, str, float] | None:
        """The load generator's and the server's machine whose clocks are the least certain, and by how many seconds.

        None: no request went to another machine.
        """
        apart = [(seconds, *pair) for pair, seconds in self.found.apart_s.items() if pair[1] in self.serving]
        seconds, asking, serving = max(apart, default=(0.0, "", ""))
        return (asking, serving, seconds) if apart else None

    def record(self, key: Key) -> TrialClocks:
        """Return what a summary keeps of the clocks in a trial."""
        variant, load, number = key
        asking, serving, apart_s = self.worst or ("", "", 0.0)
        machines = []
        for machine in self.machines:
            clock, uncertain_s = self.found.clocks[machine.name], self.found.uncertain_s[machine.name]
            machines.append(MachineClock(
                machine=machine.name, hosts=machine.hosts, generators=machine.generators, since=clock.since,
                ahead_ms=round(1000 * clock.ahead_s, 6), drift_ppm=round(1e6 * clock.drift, 6),
                uncertain_ms=round(1000 * uncertain_s, 6),
            ))  # fmt: skip
        pair, apart_ms = (asking, serving) if self.worst else None, round(1000 * apart_s, 6)
        return TrialClocks(variant=variant, load=load, trial=number, pair=pair, apart_ms=apart_ms, machines=machines)

    @property
    def of_hosts(self) -> dict[str, Clock]:
        """The clock of each host."""
        return {host: self.found.clocks[machine.name] for machine in self.machines for host in machine.hosts}

    @property
    def of_generators(self) -> dict[str, Clock]:
        """The clock of each load generator."""
        return {name: self.found.clocks[machine.name] for machine in self.machines for name in machine.generators}


def find_clocks(
    database: duckdb.DuckDBPyConnection, machines: Sequence[MachineRecord], others: Iterable[str], *, own: bool
) -> Clocks | None:
    """Return what the table ``requests`` and the ``machines`` tell of their clocks; None: only one machine took part.

    ``others`` are hosts that report times and serve no requests. ``own``: the requests are for somebody's own
    application, which may end its work after the answer has arrived. Raise UnknownClock if the clocks cannot be
    compared.
    """
    by_generator = {name: machine for machine in machines for name in machine.generators}
    by_host = {host: machine for machine in machines for host in machine.hosts}
    asking = {_machine(name, by_generator) for name in _names(database, "generator")}
    serving = {_machine(host, by_host) for host in {*_names(database, HOST), *others}}
    in_use = tuple(machine for machine in machines if machine.name in asking | serving)
    if len(in_use) < 2:
        return None
    to_servers = [(source, other) for source in sorted(asking) for other in sorted(serving) if source != other]
    pairs = dict.fromkeys([*to_servers, *combinations(sorted(asking), 2)])
    place = {machine: number for number, machine in enumerate(machine.name for machine in in_use)}
    _put(database, "machine_of_generator", {name: place[of.name] for name, of in by_generator.items() if of in in_use})
    _put(database, "machine_of_host", {host: place[of.name] for host, of in by_host.items() if of in in_use})
    messages: list[Messages] = []  # first the questions for the time of each machine, and the answers
    for machine in in_use:
        if times := [(exchange.asked, exchange.told, exchange.answered) for exchange in machine.exchanges]:
            asked, told, answered = np.array(times).T
            messages += [Messages(None, machine.name, asked, told), Messages(machine.name, None, told, answered)]
    messages += _of_requests(database, [machine.name for machine in in_use], own=own)
    return Clocks(in_use, tuple(sorted(asking)), tuple(sorted(serving)), find(messages, [*pairs]))


def _names(database: duckdb.DuckDBPyConnection, column: str) -> list[str]:
    query = f"SELECT DISTINCT {column} FROM requests WHERE {column} IS NOT NULL"  # noqa: S608  # a constant
    return [name for (name,) in database.execute(query).fetchall()]


def _machine(name: str, machines: Mapping[str, MachineRecord]) -> str:
    """Return the name of the machine of a host or a load generator. Raise UnknownClock if it is unknown."""
    if name not in machines:
        raise UnknownClock(f"the clock of {name} is unknown: trial.json does not say on which machine it ran")
    return machines[name].name


def _put(database: duckdb.DuckDBPyConnection, table: str, places: Mapping[str, int]) -> None:
    database.execute(
        f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT unnest($1::VARCHAR[]) AS name, unnest($2::INTEGER[]) AS place",
        [[*places], [*places.values()]],
    )


def _of_requests(database: duckdb.DuckDBPyConnection, names: Sequence[str], *, own: bool) -> Iterator[Messages]:
    """Yield the requests between machines, and their answers: the tightest of each part of the load."""
    at_work, parts = ("began" if own else "ended"), {"parts": PARTS}
    there = _TIGHTEST.format(left="epoch(sent)", arrived="began", known="true")
    back = _TIGHTEST.format(left=at_work, arrived="epoch(answered)", known="error IS NULL")
    for query, is_back in ((there, False), (back, True)):
        found = database.execute(query, parts).fetchnumpy()
        for asks, serves in sorted({*zip(found["asks"].tolist(), found["serves"].tolist(), strict=True)}):
            mine = (found["asks"] == asks) & (found["serves"] == serves)
            sent, arrived = (np.asarray(found[name][mine], dtype=np.float64) for name in ("sent", "arrived"))
            origin, target = (serves, asks) if is_back else (asks, serves)
            yield Messages(names[origin], names[target], sent, arrived)


_TIGHTEST = f"""
WITH messages AS (
    SELECT asking.place AS asks, serving.place AS serves, {{left}} AS sent, {{arrived}} AS arrived,
        min({{left}}) OVER between_two AS first, max({{left}}) OVER between_two AS last
    FROM requests
    JOIN machine_of_generator AS asking ON asking.name = requests.generator
    JOIN machine_of_host AS serving ON serving.name = {HOST}
    WHERE asking.place <> serving.place AND {{left}} IS NOT NULL AND {{arrived}} IS NOT NULL AND {{known}}
    WINDOW between_two AS (PARTITION BY asking.place, serving.place))
SELECT asks, serves, tightest.sent AS sent, tightest.arrived AS arrived
FROM (SELECT asks, serves, arg_min({{{{'sent': sent, 'arrived': arrived}}}}, (arrived - sent, sent)) AS tightest
      FROM messages GROUP BY asks, serves, floor($parts * coalesce((sent - first) / nullif(last - first, 0), 0)))
ORDER BY asks, serves, sent
"""  # noqa: S608  # made of constants


def correct(database: duckdb.DuckDBPyConnection, clocks: Clocks) -> None:
    """Correct all times in the table ``requests`` to the lab's clock."""
    for of, name, columns in (
        (clocks.of_generators, "generator", {"sent": _of_timestamp("sent"), "answered": _of_timestamp("answered")}),
        (clocks.of_hosts, HOST, {"began": corrected("began"), "ended": corrected("ended")}),
    ):
        put_clocks(database, of)
        new = ", ".join(f"{column} = {value}" for column, value in columns.items())
        database.execute(f"UPDATE requests SET {new} FROM clocks WHERE clocks.name = {name}")  # noqa: S608  # constants


def corrected(column: str) -> str:
    """Return the SQL of a time in epoch seconds by the lab's clock, for rows joined with the table ``clocks``."""
    return f"{column} - ({_ahead_s(column)})"


def _of_timestamp(column: str) -> str:
    return f"{column} - to_microseconds(round(1e6 * ({_ahead_s(f'epoch({column})')}))::BIGINT)"


def _ahead_s(time: str) -> str:
    return f"ahead_s + drift * ({time} - since)"


def clocks_of_hosts(found: Iterable[TrialClocks], key: Key) -> dict[str, Clock]:
    """Return the clock of each host of a trial; empty if the trial's containers ran on one machine."""
    return {
        host: Clock(machine.ahead_ms / 1000, machine.drift_ppm / 1e6, machine.since)
        for trial in found
        if trial.key == key
        for machine in trial.machines
        for host in machine.hosts
    }


def put_clocks(database: duckdb.DuckDBPyConnection, clocks: Mapping[str, Clock]) -> None:
    """Write the table ``clocks`` (name, ahead_s, drift, since) for queries that correct times."""
    database.execute(
        "CREATE OR REPLACE TEMP TABLE clocks AS SELECT unnest($1::VARCHAR[]) AS name, "
        "unnest($2::DOUBLE[]) AS ahead_s, unnest($3::DOUBLE[]) AS drift, unnest($4::DOUBLE[]) AS since",
        [[*clocks], *([[getattr(clock, field) for clock in clocks.values()] for field in Clock._fields])],
    )
