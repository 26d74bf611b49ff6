"""Calibrate requests that compute, so that ten milliseconds of computing take ten milliseconds on this machine."""

from collections.abc import Awaitable, Callable
from statistics import median

from stampede.experiment.loads.script import calls_of, request_environment, request_path, service_time_ms
from stampede.experiment.model import Load
from stampede.records.run import Calibration

ALONE = 5
"""The number of requests, one at a time, for a calibration. If requests take LONG_MS or more, two are enough."""
LONG_MS = 500
FIRST_CALL_US = 940.0
CALL_US = 100.0, 1500.0
"""The bounds of ``call_us``, the duration of a call that is to hold the interpreter lock for one millisecond."""

TRIES = 4
"""How often a calibration is tried that a busy machine misleads."""

Ask = Callable[[str], Awaitable[float]]
"""Requests a path and returns how long the server worked, in ms."""


async def calibrate(load: Load, ask: Ask) -> Calibration:
    """Find out how a request computes for as long as ``load`` says, and how long one request takes alone.

    With ``cpu: burn`` the server measures its own CPU time, so only the time of a request alone is measured. With
    ``cpu: hold`` a request makes one call for each millisecond; if requests take too long, their calls are made
    shorter. A busy machine misleads a calibration, so the lab tries up to TRIES times, and takes the calibration that
    missed least. Raise what ``ask`` raises.
    """
    path, work_ms = request_path(load.settings), service_time_ms(load.settings)
    count = ALONE if work_ms < LONG_MS else 2
    if work_ms < LONG_MS:
        await ask(path)  # the first request is slower, because the server loads some modules late
    if load.settings["cpu"] == "burn":
        return Calibration(
            cpu="burn", call_us=None, service_time_ms=work_ms, alone_ms=[await ask(path) for _ in range(count)]
        )

    async def alone(call_us: float) -> list[float]:
        return [await ask(path + _of_calls(call_us)) for _ in range(count)]

    def corrected(call_us: float, took_ms: list[float]) -> float:
        excess_us = 1000 * (median(took_ms) - work_ms) / calls if calls else 0.0
        return float(round(min(max(call_us - excess_us, CALL_US[0]), CALL_US[1])))

    async def tried(call_us: float) -> Calibration:
        return Calibration(cpu="hold", call_us=call_us, service_time_ms=work_ms, alone_ms=await alone(call_us))

    calls = calls_of(load.settings)
    call_us = corrected(FIRST_CALL_US, await alone(FIRST_CALL_US))
    found = [await tried(call_us)]
    while calls and not found[-1].holds() and len(found) < TRIES:
        call_us = corrected(call_us, found[-1].alone_ms)
        found.append(await tried(call_us))
    return min(found, key=lambda calibration: calibration.missed_ms)


def calibrated_request(load: Load, found: Calibration) -> dict[str, str]:
    """Return the variables that tell the script what to ask for, given the result of the calibration."""
    return request_environment(load.settings, "" if found.call_us is None else _of_calls(found.call_us))


def _of_calls(call_us: float) -> str:
    """Return the parameter that says how long each call is with which a request holds the interpreter lock."""
    return f"&call_us={call_us:g}"
