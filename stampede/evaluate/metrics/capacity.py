"""The capacity that a trial shows, computed during its run, because the rates of later loads may depend on it."""

from collections.abc import Sequence
from pathlib import Path

import duckdb

from stampede.evaluate.metrics import visits
from stampede.evaluate.read import Key
from stampede.evaluate.read.rows import write_requests
from stampede.records.run import MachineRecord


def measured_capacity_per_s(
    trial_folder: Path, key: Key, settings: dict[str, str], duration: str, machines: Sequence[MachineRecord] = ()
) -> float:
    """Write requests.parquet of a trial and return the capacity that the trial shows, in visits/s.

    Raise the same errors as ``write_requests``. Raise ValueError if no visit was made, if the load generator made
    fewer visits than were due, if the rate does not climb, or if visits do not begin to fail.
    """
    rates = visits.rates_per_s(settings, duration)
    if len(rates) < 2:
        raise ValueError("the rate of visits does not climb")
    if dropped := write_requests(trial_folder, *key, machines).dropped:
        raise ValueError(f"the load generator dropped {dropped} visits")
    with duckdb.connect() as database:
        database.read_parquet(str(trial_folder / "requests.parquet")).create_view("requests")
        if not visits.count_visits(database, key).made:
            raise ValueError("no visit was made")
        capacity = visits.capacity_per_s(database, key, rates, float(settings["STEP_S"]))
    if capacity is None:
        raise ValueError(f"{rates[-1]} visits a second are too few to fail, raise last_per_s")
    return capacity
