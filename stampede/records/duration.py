"""Durations as experiments and records have them: whole seconds or minutes, such as 90s or 5m."""


def in_seconds(duration: str) -> int:
    """Return a duration such as 90s or 5m in seconds."""
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]
