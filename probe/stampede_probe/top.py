"""The screen of ``stampede-probe top``."""

from __future__ import annotations

from typing import Any


def screen(found: dict[str, Any], width: int, height: int) -> list[str]:
    """Return the lines of the screen, each no wider than the terminal and without control characters."""
    workers, minute = found["workers"], found["minute"]
    busy = f", {found['busy_threads']} of {found['threads']} threads busy" if found["threads"] else ""
    lines = [f"{found['host']}: {len(workers)} workers{busy}, {found['in_flight']} requests at work"]
    if minute["known"]:
        lines.append(
            f"last minute: {share(minute['avoidable_share'])} of {minute['known']} requests "
            f"waited avoidably (> 50 ms), {share(minute['waited_share'])} waited"
        )
    else:
        lines.append("last minute: waits unknown; let the proxy set X-Request-Start: t=${msec}")
    ahead = found["unknown"]["clock_ahead"]
    if ahead:
        lines.append(
            f"The proxy's clock is ahead by up to {1000 * found['clock_ahead_s']:.0f} ms: {ahead} waits are unknown."
        )
    if found["faults"]:
        lines.append(f"The probe failed in {found['faults']} workers and turned itself off there.")
    lines += ["", f"{'WORKER':>8} {'UP':>6} {'BUSY':>7}  AT WORK ON (SINCE)"]
    for one in sorted(workers, key=lambda each: each["generation"]):
        state = f"{one['busy']}/{one['threads']}" if one["threads"] else f"{one['busy']}"
        held = f"LOOP HELD {span(one['held_s'])}  " if one["held_s"] else "full  " if one["full"] else ""
        doing = ", ".join(f"{of['route']} ({span(of['since_s'])})" for of in one["requests"][:4])
        idle = "" if one["busy"] else f"idle for {span(one['idle_s'])}"
        lines.append(f"{one['pid']:>8} {span(one['up_s']):>6} {state:>7}  {held}{doing or idle}")
    routes = sorted(found["routes"].items(), key=lambda of: (-of[1]["avoidable_s"], -of[1]["work_s"]))
    if routes:
        lines += ["", f"{'REQUESTS':>9} {'MEAN':>7} {'WAITED':>7} {'AVOIDABLY':>9}  ROUTE, SINCE THE START"]
    for name, of in routes[:8]:
        known = of["known"]
        waited = span(of["delay_s"] / known) if known else "?"
        avoidably = share(of["avoidable"] / known) if known else "?"
        lines.append(f"{of['requests']:>9} {span(of['work_s'] / of['requests']):>7} {waited:>7} {avoidably:>9}  {name}")
    notes, collector = found["notes"], found["collector"]
    lines += _shares("FILLED THE WORKERS WHILE OTHERS WAITED AVOIDABLY, FOR SO LONG IN ALL", notes.get("filled by"), 4)
    lines += _shares("POOLS THAT WERE FULL", notes.get("pool full"), 4)
    lines += _shares("WHERE LONG REQUESTS AND HELD LOOPS SPEND THEIR TIME", notes.get("stacks"), 10)
    if collector["longest_s"] > 0.01:
        paused, longest = span(collector["paused_s"]), span(collector["longest_s"])
        lines += ["", f"garbage collector: {paused} in {collector['count']} pauses, the longest {longest}"]
    return ["".join(one if one.isprintable() else "?" for one in line)[:width] for line in lines[:height]]


def _shares(title: str, of: dict[str, float] | None, most: int) -> list[str]:
    whole = sum((of or {}).values())
    if not of or not whole:
        return []
    greatest = sorted(of.items(), key=lambda one: -one[1])[:most]
    shares = (f"{share(value / whole):>6} {span(value):>6}  {name.replace('|', '  ')}" for name, value in greatest)
    return ["", title, *shares]


def share(value: float) -> str:
    """Return a share in per cent."""
    return f"{100 * value:.1f}%"


def span(seconds: float) -> str:
    """Return a time in the unit that suits it."""
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 600:
        return f"{seconds:.{1 if seconds < 10 else 0}f} s"
    return f"{seconds / 60:.0f} min" if seconds < 36000 else f"{seconds / 3600:.0f} h"
