"""A strip of characters for each variant that shows one quantity on a common scale."""

from collections.abc import Sequence
from math import floor, log10
from typing import NamedTuple

_BAR, _MARK = "━", "◆"


class Scale(NamedTuple):
    """A scale of ``width`` characters from ``low`` to ``high``; ``is_log``: in powers of ten."""

    low: float
    high: float
    width: int
    is_log: bool

    def place(self, value: float) -> int:
        """Return the character, from 0 to ``width - 1``, at which a value lies; values beyond an end lie at the end."""
        value = min(max(value, self.low), self.high)
        low, high, at = (
            (log10(self.low), log10(self.high), log10(value)) if self.is_log else (self.low, self.high, value)
        )
        return round((at - low) / (high - low) * (self.width - 1))

    def axis(self, unit: str) -> str:
        """Return the line above the strips, with the powers of ten, or both ends, as labels."""
        line = [" "] * self.width
        values = self._ticks()
        for value in values:
            label = tick(value, unit)
            start = min(self.place(value), self.width - len(label))
            if all(character == " " for character in line[max(start - 1, 0) : start + len(label)]):
                line[start : start + len(label)] = label
        return "".join(line)

    def _ticks(self) -> list[float]:
        if not self.is_log:
            return [self.low, self.high, (self.low + self.high) / 2]
        return [10.0**power for power in range(round(log10(self.low)), floor(log10(self.high)) + 1)]


def scale_of(values: Sequence[float], unit: str, width: int) -> Scale:
    """Return a scale for values: linear for shares and indices, logarithmic from a power of ten for all else."""
    if unit == "share":
        return Scale(0, 1, width, is_log=False)
    positive = [value for value in values if value > 0]
    if unit in ("ratio", "index") or not positive:
        return Scale(0, max([*positive, 1.0]), width, is_log=False)
    low = max(floor(log10(min(positive))), 0 if unit == "ms" else -9)
    return Scale(10.0**low, max(*positive, 10.0 ** (low + 1)), width, is_log=True)


def strip(scale: Scale, value: float | None, published: float | None) -> str:
    """Return a bar up to the measured value, with a mark at the published value."""
    line = [" "] * scale.width
    if value is not None:
        line[: scale.place(value) + 1] = _BAR * (scale.place(value) + 1)
    if published is not None:
        line[scale.place(published)] = _MARK
    return "".join(line)


def tick(value: float, unit: str) -> str:
    """Return the label of a value: milliseconds from 1000 on in seconds, shares in percent."""
    if unit == "share":
        return f"{value:.0%}"
    if unit == "ms":
        return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"
    return f"{value:.3g}"
