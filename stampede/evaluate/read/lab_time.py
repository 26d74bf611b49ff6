"""The times of a trial by the lab's clock, if the trial's containers ran on several machines.

Before and after the load, the lab asks each machine for its time. The machine read its clock between the question and
its answer, so the narrowest of these bounds tell how far the clock was ahead, and how well this is known (Cristian
1989, Probabilistic clock synchronization). In between, a clock is taken to run at a steady rate, unless a request then
began before it was sent, or was answered before it ended.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import duckdb

from stampede.evaluate.read import Key
from stampede.records.run import MachineRecord
from stampede.records.summary import TrialClocks

MOST_DRIFT = 500e-6
"""The most that a clock gains or loses against the lab's clock, in seconds per second: the frequency tolerance of NTP
(RFC 5905), to which Linux, too, limits how it steers its clock."""
PRECISION_S = 2e-6
"""By how much a request may seem to arrive too early, because times are written in microseconds."""
HOST = "regexp_extract(worker, '^(.*):', 1)"
"""The host of a worker (host:pid), in SQL."""


class UnknownClock(ValueError):
    """The clocks of a trial's machines cannot be compared; the message names the machines and the reason."""


class Clock(NamedTuple):
    """How far a clock is ahead of the lab's clock.

    When the clock shows ``since`` (epoch seconds), it is ``ahead_s`` ahead; in every second it gains ``drift`` seconds.
    This is known to within ``uncertain_s``, if the rate is steady. If the clock was set once, or ran at changing rates
    in the same direction, to within a further ``gained_s``: all that it gained or lost.
    """

    ahead_s: float
    drift: float
    since: float
    uncertain_s: float = 0.0
    gained_s: float = 0.0

    def corrected(self, shown: float) -> float:
        """Return the time by the lab's clock at which this clock shows a time; both in epoch seconds."""
        return shown - self.ahead_s - self.drift * (shown - self.since)


def clock_of(machine: MachineRecord) -> Clock:
    """Return the clock of a machine. Raise UnknownClock if it was never asked for its time, or if it was set."""
    told = sorted(machine.exchanges, key=lambda each: each.asked)
    if not told:
        raise UnknownClock(f"the clock of {machine.name} is unknown: the lab did not ask {machine.name} for its time")
    gaps = [after.asked - before.asked for before, after in pairwise(told)]
    load = gaps.index(max(gaps)) + 1 if gaps else 0  # nobody asks during the load
    least_s, most_s = [], []
    for part in (told[:load] or told, told[load:]):
        gained_s = MOST_DRIFT * (part[-1].asked - part[0].asked)  # meanwhile, at most
        least_s.append(max(each.told - each.answered for each in part) - gained_s)
        most_s.append(min(each.told - each.asked for each in part) + gained_s)
    ahead_s, later_s = ((least + most) / 2 for least, most in zip(least_s, most_s, strict=True))
    uncertain_s = [(most - least) / 2 for least, most in zip(least_s, most_s, strict=True)]
    since, lasted_s = told[0].told, told[-1].told - told[0].told
    if min(uncertain_s) < 0 or abs(later_s - ahead_s) > MOST_DRIFT * max(lasted_s, 1.0) + sum(uncertain_s):
        rate = f"gained or lost more than {1e6 * MOST_DRIFT:.0f} ppm"
        raise UnknownClock(f"the clock of {machine.name} was set during the load, or {rate}")
    drift = (later_s - ahead_s) / lasted_s if lasted_s > 0 else 0.0
    gained_s = round(abs(later_s - ahead_s), 7)
    return Clock(round(ahead_s, 7), round(drift, 12), since, round(max(uncertain_s), 7), gained_s)


class Clocks(NamedTuple):
    """The machines on which a trial's containers ran, and their clocks by name.

    ``asking`` are the machines of load generators, ``serving`` the machines of servers.
    """

    machines: tuple[MachineRecord, ...]
    asking: tuple[str, ...]
    serving: tuple[str, ...]
    found: dict[str, Clock]

    @property
    def worst(self) -> tuple[str, str, float] | None:
        """The load generator's and the server's machine whose clocks are the least certain, and by how many seconds.

        None: no request went to another machine.
        """
        pairs = [(asks, serves) for asks in self.asking for serves in self.serving if asks != serves]
        of = {name: clock.uncertain_s + clock.gained_s for name, clock in self.found.items()}
        apart = [(of[one] + of[other], one, other) for one, other in pairs]
        seconds, asking, serving = max(apart, default=(0.0, "", ""))
        return (asking, serving, seconds) if apart else None

    def record(self, key: Key) -> TrialClocks:
        """Return what a summary keeps of the clocks in a trial."""
        variant, load, number = key
        hosts = {host: (clock.ahead_s, clock.drift, clock.since) for host, clock in self.of_hosts.items()}
        return TrialClocks(variant=variant, load=load, trial=number, hosts=hosts)

    @property
    def of_hosts(self) -> dict[str, Clock]:
        """The clock of each host."""
        return {host: self.found[machine.name] for machine in self.machines for host in machine.hosts}

    @property
    def of_generators(self) -> dict[str, Clock]:
        """The clock of each load generator."""
        return {name: self.found[machine.name] for machine in self.machines for name in machine.generators}


def find_clocks(
    database: duckdb.DuckDBPyConnection, machines: Sequence[MachineRecord], others: Iterable[str]
) -> Clocks | None:
    """Return the clocks of the ``machines`` that the table ``requests`` names; None: only one machine took part.

    ``others`` are hosts that report times and serve no requests. Raise UnknownClock if a clock cannot be known.
    """
    named = {}
    by_generator = {name: machine.name for machine in machines for name in machine.generators}
    by_host = {host: machine.name for machine in machines for host in machine.hosts}
    for column, known, further in (("generator", by_generator, ()), (HOST, by_host, others)):
        query = f"SELECT DISTINCT {column} FROM requests WHERE {column} IS NOT NULL"  # noqa: S608  # a constant
        names = {name for (name,) in database.execute(query).fetchall()} | {*further}
        if lacking := sorted(names - known.keys()):
            where = "trial.json does not say on which machine it ran"
            raise UnknownClock(f"the clock of {lacking[0]} is unknown: {where}")
        named[column] = tuple(sorted({known[name] for name in names}))
    in_use = tuple(machine for machine in machines if machine.name in {*named["generator"], *named[HOST]})
    found = {machine.name: clock_of(machine) for machine in in_use} if len(in_use) > 1 else {}
    return Clocks(in_use, named["generator"], named[HOST], found) if found else None


def correct(database: duckdb.DuckDBPyConnection, clocks: Clocks, *, own: bool) -> None:
    """Correct all times in the table ``requests`` to the lab's clock.

    ``own``: the requests are for somebody's own application, which may end its work after the answer has arrived.
    Raise UnknownClock if a machine was not asked for its time after the load, or if requests contradict the clocks.
    """
    stamps = {
        column: f"{column} - to_microseconds(round(1e6 * ({_ahead_s(f'epoch({column})')}))::BIGINT)"
        for column in ("sent", "answered")
    }
    for of, name, columns in (
        (clocks.of_generators, "generator", stamps),
        (clocks.of_hosts, HOST, {"began": corrected("began"), "ended": corrected("ended")}),
    ):
        put_clocks(database, of)
        new = ", ".join(f"{column} = {value}" for column, value in columns.items())
        database.execute(f"UPDATE requests SET {new} FROM clocks WHERE clocks.name = {name}")  # noqa: S608  # constants
    [(last,)] = database.execute("SELECT epoch(max(answered)) FROM requests").fetchall()
    for machine in clocks.machines:
        if last is not None and max(each.asked for each in machine.exchanges) < last:
            why = f"the lab did not ask {machine.name} for its time after the load"
            raise UnknownClock(f"the clock of {machine.name} is unknown: {why}")
    machine_of = {name: one.name for one in clocks.machines for name in (*one.generators, *one.hosts)}
    for generator, host, spare_s in database.execute(_SPARE.format(done="began" if own else "ended")).fetchall():
        asking, serving = machine_of[generator], machine_of[host]
        apart_s = clocks.found[asking].uncertain_s + clocks.found[serving].uncertain_s + PRECISION_S
        if asking != serving and spare_s < -apart_s:
            which = f"the clocks of {asking} and {serving} contradict each other"
            rate = f"gained or lost more than {1e6 * MOST_DRIFT:.0f} ppm"
            raise UnknownClock(f"{which}: one of them was set during the load, or {rate}")


_SPARE = f"""
SELECT generator, {HOST} AS host,
    min(least(began - epoch(sent), CASE WHEN error IS NULL THEN epoch(answered) - {{done}} END)) AS spare_s
FROM requests WHERE host IS NOT NULL AND began IS NOT NULL GROUP BY ALL ORDER BY ALL
"""  # noqa: S608  # a constant


def corrected(column: str) -> str:
    """Return the SQL of a time in epoch seconds by the lab's clock, for rows joined with the table ``clocks``."""
    return f"{column} - ({_ahead_s(column)})"


def _ahead_s(time: str) -> str:
    return f"ahead_s + drift * ({time} - since)"


def clocks_of_hosts(found: Iterable[TrialClocks], key: Key) -> dict[str, Clock]:
    """Return the clock of each host of a trial; empty if the trial's containers ran on one machine."""
    return {host: Clock(*told) for trial in found if trial.key == key for host, told in trial.hosts.items()}


def put_clocks(database: duckdb.DuckDBPyConnection, clocks: Mapping[str, Clock]) -> None:
    """Write the table ``clocks`` (name, ahead_s, drift, since) for queries that correct times."""
    database.execute(
        "CREATE OR REPLACE TEMP TABLE clocks AS SELECT unnest($1::VARCHAR[]) AS name, "
        "unnest($2::DOUBLE[]) AS ahead_s, unnest($3::DOUBLE[]) AS drift, unnest($4::DOUBLE[]) AS since",
        [[*clocks], *([[getattr(clock, field) for clock in clocks.values()] for field in Clock._fields[:3]])],
    )
