"""Where a log has its durations: decided from many lines at once, because a single number can be anything.

A number counts as a duration if its place in a known format, its name or its unit says so. A number that has none of
them counts only if all lines together look like durations: they vary, they do not only grow, and they do not follow
another field. What is not believed is said, with the reason.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stampede.errors import WrongUse
from stampede.logs.formats import (
    DURATIONS,
    MOST_FIELDS,
    UNITS,
    Clock,
    Entry,
    Format,
    JsonFormat,
    Value,
    duration_name,
    parse_value,
    rest_at,
    rest_with,
    seconds_of,
)

NO_UNIT = "none"
"""--unit none: whole numbers without a name are no durations."""
ASSUMED = "as nothing says another unit (--unit ms)"
HOW = "nginx: rt=$request_time; gunicorn: rt=%(L)s; Apache: duration_us=%D"
FEW, ENOUGH = 5, 20
"""From so many lines on, it counts whether numbers vary, and from so many whether they follow something else."""
LONG_S = 30.0
"""If half of the requests took longer in the unit that UNIT says, the numbers are no durations in this unit."""
DECIMALS = 3
"""nginx writes so many decimals, and gunicorn more."""
_A_LENGTH = 100
_UNITS_HINT = (
    "--unit us for gunicorn's %(D)s and Apache's %D, --unit ms for %(M)s, --unit ns for Go and structlog; --unit none "
    "if it is no duration. Whole seconds (%(T)s, %T) are too coarse."
)
MOST_LINES = 0.9
"""A column is one that at least so many of the lines have."""
_IN_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

Floats = npt.NDArray[np.float64]
Sample = Sequence[tuple[int, Entry]]
"""The first entries of a log, each with the number of its line."""


@dataclass(frozen=True)
class DurationSource:
    """Where the durations of a log are: where its format has them, in a field with a name, or in a column.

    ``says`` is the place in words; empty: the log has no durations. ``notes`` say what is not believed, and why.
    ``format`` is that of most entries. ``name`` is the name of the field; ``place`` is that of the column among the
    ``width`` fields without a name that follow the head of a line, and ``kind`` what it must have: a unit, decimals, or
    neither. Numbers without a unit are in ``unit``. ``assumed`` is the field that counts as seconds although nothing
    says its unit; empty: something says it.
    """

    says: str
    clock: Clock | None = None
    notes: tuple[str, ...] = ()
    format: Format | JsonFormat | None = None
    name: str = ""
    place: int = -1
    width: int = 0
    kind: str = ""
    unit: str = "s"
    assumed: str = ""

    @property
    def recognised(self) -> str:
        """The format and the place of the durations, in words."""
        assumed = f", {ASSUMED}" if self.assumed else ""
        return f"{self.format.name if self.format else 'no format'}; durations: {self.says or 'none'}{assumed}"

    @property
    def rest(self) -> str:
        """A pattern of all that follows the head of a line, whose group ``value`` is the duration as it is written."""
        return rest_with(self.name) if self.name else rest_at(self.place, self.width) if self.width else ".*"

    def text_of(self, entry: Entry) -> str:
        """Return the duration as an entry has it beside what its format says."""
        if self.name:
            return entry.named.get(self.name, "")
        return entry.fields[self.place] if 0 < self.width == len(entry.fields) else ""

    def take(self, entry: Entry) -> float | None:
        """Return the duration of an entry in seconds; None: it has none."""
        if self.name or self.width:
            return self.seconds(self.text_of(entry))
        return entry.own_s if self.says and entry.format == self.format else None

    def seconds(self, text: str) -> float | None:
        """Return a duration as it is written in seconds; None: it is none."""
        if self.kind and (value := parse_value(text)) and _kind([value]) != self.kind:
            return None
        return seconds_of(text, self.unit)


class _Field(NamedTuple):
    """A field of the sample: where it is, and in which of the entries it has which numbers."""

    source: DurationSource
    rows: Sequence[int]
    values: Sequence[Value]

    @property
    def says(self) -> str:
        return self.source.says

    @property
    def numbers(self) -> Floats:
        return np.array([value.number for value in self.values])

    @property
    def decimals(self) -> set[int]:
        return {value.decimals for value in self.values}

    @property
    def seconds(self) -> Floats:
        """The numbers, if those without a unit are seconds."""
        return np.array([value.number * UNITS[value.unit or "s"] for value in self.values])


def _field(source: DurationSource, sample: Sample) -> _Field:
    found = [(row, value) for row, (_, each) in enumerate(sample) if (value := parse_value(source.text_of(each)))]
    return _Field(source, [row for row, _ in found], [value for _, value in found])


def _kind(values: Sequence[Value]) -> str:
    if all(value.unit for value in values):
        return "unit"
    return "decimal" if any(value.decimals for value in values) else "whole"


def find_durations(sample: Sample, unit: str, file: str) -> DurationSource:
    """Return where the durations of a log are. Raise WrongUse if a number may be one, and nothing says its unit.

    They are where the format has them, or where most lines have a name of durations; else in a column, else where any
    line has a name.
    """
    entries = [entry for _, entry in sample]
    [(most, _)] = Counter(entry.format for entry in entries).most_common(1)
    notes: list[str] = []
    finders: tuple[Callable[[], DurationSource], ...] = (
        lambda: _of_format(entries),
        lambda: _of_name(sample, unit, file, len(sample) / 2),
        lambda: _of_columns(sample, unit, file),
        lambda: _of_name(sample, unit, file, 1),
    )
    for find in finders:
        if (found := find()).says:
            return replace(found, format=found.format or most)
        notes += found.notes
    unknown: dict[str, list[str]] = {}
    for entry in entries:
        for name, text in entry.named.items():
            if parse_value(text) and not duration_name(name) and "status" not in name:
                unknown.setdefault(name, []).append(text)
    for name, texts in sorted(unknown.items(), key=lambda item: -len(item[1]))[:3]:
        notes.append(f"{name}={texts[0]} has a name that the lab does not know as that of a duration.")
    return DurationSource("", notes=tuple(dict.fromkeys(notes)), format=most)


def _of_format(entries: Sequence[Entry]) -> DurationSource:
    known = Counter(entry.format for entry in entries if entry.own_s is not None)
    if not known:
        return DurationSource("")
    [(most, _)] = known.most_common(1)
    mine = [entry for entry in entries if entry.format == most]
    if isinstance(most, Format):
        name, units = most.duration, [unit for unit in UNITS if unit in {entry.own_unit for entry in mine}]
    else:
        name, units = (most.duration or ("", "s"))[0], [(most.duration or ("", "s"))[1]]
    says = f"{name} of {most.name}, in {' or '.join(_IN_WORDS[unit] for unit in units)}"
    numbers = np.array([entry.own_s for entry in mine if entry.own_s is not None])
    if units == ["s"] and len(numbers) >= FEW and (reason := _too_coarse(numbers, "s")):
        return DurationSource("", notes=(f"{says}, is no duration: {reason}.",))
    return DurationSource(says, most.clock, format=most)


def _of_name(sample: Sample, unit: str, file: str, least: float) -> DurationSource:
    """Return the named field that comes first in DURATIONS, of those that so many lines have at least."""
    names = Counter(
        name
        for _, entry in sample
        for name, text in entry.named.items()
        if (duration_name(name) or name == "time") and (value := parse_value(text)) and (value.unit or name != "time")
    )
    order = {base: place for place, base in enumerate([*DURATIONS, "time"])}
    often = [name for name, count in names.items() if count >= least]
    notes: list[str] = []
    for name in sorted(often, key=lambda name: order[(duration_name(name) or ("time", ""))[0]]):
        found = _field(DurationSource(f"{name}=…", name=name), sample)
        base, own = duration_name(name) or ("", "")
        known = own or next((value.unit for value in found.values if value.unit), "")
        if len(found.values) >= FEW and not found.numbers.any():
            reason: str | None = f"it never varies, and is always {_written(found.values[0])}"
        else:
            reason = _too_coarse(found.numbers, "s") if known == "s" else None
        if reason:
            notes.append(f"{found.says} is no duration: {reason}.")
            continue
        is_nginx = DURATIONS.get(base) == "s" and max(found.decimals) == DECIMALS
        are_seconds = is_nginx or (DURATIONS.get(base) == "s" and found.decimals == {6})  # gunicorn's
        said = known or _unit_of(found, unit, file, sample, are_seconds=are_seconds, is_usual=are_seconds)
        clock: Clock | None = "server" if found.decimals == {6} and not known else None
        return replace(
            found.source,
            says=f"{found.says}, in {_IN_WORDS[said or 's']}",
            clock="balancer" if is_nginx and said in ("", "s") else clock,
            unit=said or "s",
            assumed="" if said or are_seconds else found.says,
        )
    return DurationSource("", notes=tuple(notes))


def _of_columns(sample: Sample, unit: str, file: str) -> DurationSource:
    entries = [entry for _, entry in sample]
    [(width, lines)] = Counter(len(entry.fields) for entry in entries).most_common(1)
    known = entries[0].format
    where = "beside the request" if isinstance(known, Format) and known.is_free else "after the size of the answer"
    columns = []
    for place in range(width if width <= MOST_FIELDS else 0):
        source = DurationSource("", place=place, width=width)
        column, empty = _field(source, sample), sum(source.text_of(entry) == "-" for entry in entries)
        if column.values and len(column.values) + empty >= MOST_LINES * lines:
            says = f"field {place + 1} {where} ({', '.join(map(_written, column.values[:3]))}, …)"
            columns.append(column._replace(source=replace(source, says=says, kind=_kind(column.values))))
    doubts = {column.says: next(_doubts(column, entries), None) for column in columns}
    notes = [f"{says} is no duration: {doubt}." for says, doubt in doubts.items() if doubt]
    for kind in ("unit", "decimal"):
        believed = [column for column in columns if column.source.kind == kind and not doubts[column.says]]
        if longest := _longest(believed):
            return _source(longest, unit, file, sample)
        if believed:
            says = " and ".join(column.says for column in believed)
            notes.append(f"{says} may be durations, and neither is always the longer.")
            return DurationSource("", notes=tuple(notes))
    whole = [column for column in columns if column.source.kind == "whole"]
    believed = [column for column in whole if not doubts[column.says]]
    if columns and not believed and unit in UNITS:
        raise WrongUse(f"{file}: --unit {unit}, but {notes[-1]}", hint=f"Write the duration with a name: {HOW}.")
    if not believed or unit == NO_UNIT:
        return DurationSource("", notes=tuple(notes))
    if len(whole) > 1:
        says = "; ".join(column.says for column in whole)
        problem = f"{file}: several fields could be durations, lengths or counters: {says}."
        raise WrongUse(problem, hint=f"Write the duration with a name ({HOW}), or say --unit none to do without.")
    return _source(believed[0], unit, file, sample)


def _doubts(column: _Field, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield why a column of bare numbers is not believed to hold durations."""
    numbers, lines = column.numbers, len(column.numbers)
    whole, decimal = column.source.kind == "whole", column.source.kind == "decimal"
    if numbers.min() > 1e9:  # seconds or milliseconds since 1970
        yield "it is a time of day"
    if decimal and max(column.decimals) < DECIMALS:
        yield "it has fewer than three decimals; nginx writes three, and gunicorn six"
    if lines < FEW:
        return
    if np.ptp(numbers) == 0:
        if whole or numbers[0] == 0:
            yield f"it never varies, and is always {_written(column.values[0])}"
        return
    if decimal and len(set(numbers)) >= ENOUGH and (np.diff(numbers) >= 0).all():
        yield "it only grows"
    if not whole:
        return
    order, of_each = np.arange(lines), [entries[row] for row in column.rows]
    if _correlation(np.argsort(np.argsort(numbers, kind="stable"), kind="stable"), order) > 0.98:
        yield "it only grows, as a counter does"
    if np.mean(numbers == [entry.status for entry in of_each]) > MOST_LINES:
        yield "it equals the status"
    sizes = np.array([float(entry.size) if entry.size.isdecimal() else 0.0 for entry in of_each])
    if _correlation(numbers, sizes) > 0.99:
        yield "it follows the size of the answer"
    asked = [len(entry.target) + sum(map(len, entry.fields[:2])) for entry in of_each]
    more = np.cov(numbers, asked)[0, 1] / max(float(np.var(asked, ddof=1)), 1e-9)  # with each character of the request
    if lines >= ENOUGH and _correlation(numbers, asked) > 0.9 and more < 4:
        yield "it follows the length of the request"
    low, high = np.quantile(numbers, (0.01, 0.99))
    if lines >= ENOUGH and low >= _A_LENGTH and high <= min(100 * _A_LENGTH, 4 * low):
        yield f"it lies between {low:.0f} and {high:.0f}, as the lengths of requests do"


def _too_coarse(numbers: Floats, unit: str) -> str | None:
    if (numbers == np.floor(numbers)).all() and (none := np.mean(numbers == 0)) > (0.05 if unit == "s" else 0.5):
        return f"whole numbers are too coarse, because {none:.0%} of them are 0"
    return None


def _correlation(numbers: npt.ArrayLike, others: npt.ArrayLike) -> float:
    one, other = np.asarray(numbers, dtype=float), np.asarray(others, dtype=float)
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) and np.ptp(other) else 0.0


def _longest(columns: Sequence[_Field]) -> _Field | None:
    """Return the column that is never the shorter: the duration of a request contains all its parts."""
    best = max(columns, key=lambda column: column.seconds.sum(), default=None)  # of equal columns the first
    for other in columns:
        both, at, there = np.intersect1d(best.rows if best else [], other.rows, return_indices=True)
        if best and len(both) and np.mean(best.seconds[at] >= other.seconds[there] - 0.002) < 0.98:
            return None
    return best


def _source(column: _Field, unit: str, file: str, sample: Sample) -> DurationSource:
    kind = column.source.kind
    is_usual = column.decimals in ({DECIMALS}, {6})  # as nginx and gunicorn write seconds
    said = "" if kind == "unit" else _unit_of(column, unit, file, sample, is_usual=is_usual)
    clock: Clock | None = None
    why = f", as --unit {unit} says" if said else ""
    if kind == "decimal" and not said and is_usual:
        is_nginx = column.decimals == {DECIMALS}
        clock = "balancer" if is_nginx else "server"
        why = f", as {'nginx writes $request_time' if is_nginx else 'gunicorn writes %(L)s'}"
    in_unit = "with its unit" if kind == "unit" else f"in {_IN_WORDS[said or 's']}"
    return replace(
        column.source,
        says=f"{column.says}, {in_unit}{why}",
        clock=clock,
        unit=said or "s",
        assumed=column.says if kind == "decimal" and not said and not is_usual else "",
    )


def _unit_of(field: _Field, unit: str, file: str, sample: Sample, *, are_seconds: bool = False, is_usual: bool) -> str:
    """Return the unit that UNIT gives to numbers without a unit; empty: they are seconds.

    UNIT is for numbers of which nothing else says the unit. Decimal numbers of which half are below 1 are seconds,
    whatever it says, if they are written as seconds usually are (``is_usual``). Raise WrongUse if whole numbers have no
    unit, or another unit, or if other numbers are too large for seconds.
    """
    numbers, is_whole, median = field.numbers, not any(field.decimals), float(np.median(field.numbers))
    said = unit if unit in UNITS and (is_whole or median >= 1 or not is_usual) else ""
    if not said and is_whole and numbers.any():
        row, first = next((row, value) for row, value in zip(field.rows, field.values, strict=True) if value.number)
        problem = f"{file}:{sample[row][0]}: {field.says} has whole numbers such as {_written(first)}, and no unit."
        raise WrongUse(problem, hint=_UNITS_HINT)
    reason = None
    if said and is_whole:
        reason = _too_coarse(numbers, said)
        if median * UNITS[said] > LONG_S:
            reason = f"half of the requests would take {median * UNITS[said]:.0f} s or more"
        if reason:
            raise WrongUse(f"{file}: {field.says} is not in {_IN_WORDS[said]}: {reason}.", hint=_UNITS_HINT)
    if said or are_seconds:
        return said
    times = [entry.at for _, entry in sample]
    at_once = numbers.sum() / max(max(times) - min(times), 1.0)  # Little's law
    if (quick := float(np.quantile(numbers, 0.1))) > 1:
        reason = f"nine in ten requests would take {quick:.4g} s or more"
    elif median > (LONG_S if is_usual else 1):
        reason = f"half of the requests would take {median:.4g} s or more"
    elif at_once > 200 and len(numbers) >= ENOUGH:
        reason = f"{at_once:,.0f} requests would be at work at once"
    if reason:
        problem = f"{file}: {field.says} has no unit, and in seconds, {reason}."
        raise WrongUse(problem, hint="--unit ms or --unit s says which it is.")
    return ""


def _written(value: Value) -> str:
    return f"{value.number:.{value.decimals}f}{value.unit}"
