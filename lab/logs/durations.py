"""Where a log has its durations: decided from many lines at once, because a single number can be anything.

A number counts as a duration if its place in a known format, its name or its unit says so. A number that has none of
them counts only if all lines together look like durations: they vary, they do not only grow, and they do not follow
another field. What is not believed is said, with the reason.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import numpy.typing as npt

from lab.errors import WrongUse
from lab.logs.formats import DURATIONS, UNITS, Clock, Entry, Format, JsonFormat, Value, duration_name, parse_value

NO_UNIT = "none"
"""--unit none: whole numbers without a name are no durations."""
HOW = "nginx: rt=$request_time; gunicorn: rt=%(L)s; Apache: duration_us=%D"
FEW, ENOUGH = 5, 20
"""From so many lines on, it counts whether numbers vary, and from so many whether they follow something else."""
QUICK_S, AT_ONCE = 1.0, 200
"""If nine in ten requests took longer, or so many were at work at once, decimal numbers may be milliseconds."""
LONG_S = 30.0
"""If half of the requests took longer in the unit that UNIT says, the numbers are no durations in this unit."""
A_TIME = 1e9
"""Numbers above this are seconds or milliseconds since 1970."""
DECIMALS = 3
"""nginx writes so many decimals, and gunicorn more."""
_A_LENGTH = 100
_COARSE = 0.05
MOST_LINES = 0.9
"""A column is one that at least so many of the lines have."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DurationSource:
    """Where the durations of a log are: ``take`` returns the duration of an entry in seconds, if it has one."""

    says: str
    clock: Clock | None = None
    take: Callable[[Entry], float | None] = field(default=lambda _: None, compare=False)
    found: bool = True
    notes: tuple[str, ...] = ()
    """What is not believed, and why."""


def find_durations(sample: Sequence[tuple[int, Entry]], unit: str, file: str) -> DurationSource:
    """Return where the durations of a log are. ``sample``: its first entries, each with the number of its line.

    Raise WrongUse if a whole number may be a duration, and nothing says its unit.
    """
    entries = [entry for _, entry in sample]
    if known := _of_format(entries):
        return known
    notes: list[str] = []
    for find in (partial(_of_name, least=len(sample) / 2), _of_columns, partial(_of_name, least=1)):
        if (found := find(sample, unit, file)).found:
            return found
        notes += found.notes
    return DurationSource("", found=False, notes=tuple(dict.fromkeys([*notes, *_unknown_names(entries)])))


def _unknown_names(entries: Sequence[Entry]) -> Iterator[str]:
    """Yield the named numbers that no name in DURATIONS explains, at most three."""
    names = Counter(name for entry in entries for name, text in entry.named.items()
                    if parse_value(text) and not duration_name(name) and "status" not in name)  # fmt: skip
    for name, _ in names.most_common(3):
        text = next(entry.named[name] for entry in entries if name in entry.named and parse_value(entry.named[name]))
        yield f"{name}={text} has a name that the lab does not know as that of a duration."


def _of_format(entries: Sequence[Entry]) -> DurationSource | None:
    known = Counter(entry.format for entry in entries if entry.own_s is not None)
    if not known:
        return None
    [(most, _)] = known.most_common(1)
    match most:
        case Format(name=name, duration=duration, clock=clock, line=line):
            units = [unit for unit in UNITS if unit in line.groupindex]
            says = f"{duration} of {name}, in {' or '.join(map(_in_words, units))}"
        case JsonFormat(name=name, duration=(key, unit), clock=clock):
            says = f"{key} of {name}, in {_in_words(unit)}"
        case _:
            return None
    return DurationSource(says, clock, lambda entry: entry.own_s if entry.format == most else None)


def _of_name(sample: Sequence[tuple[int, Entry]], unit: str, file: str, *, least: float) -> DurationSource:
    """Return the named field that comes first in DURATIONS, of those that so many lines have at least."""
    names = Counter(name for _, entry in sample for name in entry.named
                    if duration_name(name) and parse_value(entry.named[name]))  # fmt: skip
    order = {base: place for place, base in enumerate(DURATIONS)}
    often = [name for name, count in names.items() if count >= least]
    notes: list[str] = []
    for name in sorted(often, key=lambda name: order[(duration_name(name) or ("rt", ""))[0]]):
        found = _named(name, sample, unit, file)
        if isinstance(found, DurationSource):
            return found
        notes.append(found)
    return DurationSource("", found=False, notes=tuple(notes))


def _named(name: str, sample: Sequence[tuple[int, Entry]], unit: str, file: str) -> DurationSource | str:
    """Return a named field as the durations of a log, or why it does not hold them."""
    base, own = duration_name(name) or ("", "")
    values = [(line, value) for line, entry in sample if (value := parse_value(entry.named.get(name, "")))]
    beside = next((value.unit for _, value in values if value.unit), "")
    whole = all(not value.decimals for _, value in values)
    numbers = np.array([value.number for _, value in values])
    if len(values) >= FEW and not numbers.any():
        return f"{name}=… is no duration: it never varies, and is always {_written(values[0][1])}."
    nginx = DURATIONS.get(base) == "s" and max(value.decimals for _, value in values) == DECIMALS
    taken = own or beside or (_unit_of_decimals(numbers, unit) if not whole else unit if unit in UNITS else "")
    if not taken and whole and numbers.any():
        line, first = next((line, value) for line, value in values if value.number)
        problem = f"{file}:{line}: {name}={_written(first)} is a whole number, and has no unit."
        raise WrongUse(problem, hint=_units_hint())
    if not taken and not nginx:
        _check_seconds(numbers, f"{name}=…", file, sample)
    if (own or beside) == "s" and (reason := _too_coarse(numbers, "s")):
        return f"{name}=… is no duration: {reason}."
    if not own and not beside and (reason := _doubt_of_unit(numbers, unit)):
        raise WrongUse(f"{file}: {name}=… is not in {_in_words(unit)}: {reason}.", hint=_units_hint())
    taken = taken or "s"
    clock: Clock | None = "balancer" if nginx and taken == "s" else "server" if _is_gunicorn(values) else None

    def take(entry: Entry) -> float | None:
        value = parse_value(entry.named.get(name, ""))
        return value.number * UNITS[value.unit or taken] if value else None

    return DurationSource(f"{name}=…, in {_in_words(taken)}", clock, take)


def _is_gunicorn(values: Sequence[tuple[int, Value]]) -> bool:
    return all(value.decimals == 6 and not value.unit for _, value in values)


@dataclass(frozen=True)
class _Column:
    """The numbers in one place after the head of each line. ``rows``: where in the sample they stand."""

    place: int
    rows: npt.NDArray[np.intp]
    numbers: Floats
    values: Sequence[Value]
    lines: Sequence[int]

    @property
    def kind(self) -> str:
        """What is written beside all numbers: a unit, decimals, or nothing."""
        if all(value.unit for value in self.values):
            return "unit"
        return "decimal" if any(value.decimals for value in self.values) else "whole"

    @property
    def says(self) -> str:
        """Name the place for people, with the first numbers."""
        shown = ", ".join(_written(value) for value in self.values[:3])
        return f"field {self.place + 1} after the size of the answer ({shown}, …)"


def _of_columns(sample: Sequence[tuple[int, Entry]], unit: str, file: str) -> DurationSource:
    widths = Counter(len(entry.fields) for _, entry in sample)
    [(width, _)] = widths.most_common(1)
    columns = [column for place in range(width) if (column := _column(sample, place, width))]
    entries = [entry for _, entry in sample]
    doubts = {column.place: next(_doubts(column, entries), None) for column in columns}
    notes = [f"{column.says} is no duration: {doubts[column.place]}." for column in columns if doubts[column.place]]
    for kind in ("unit", "decimal"):
        believed = [column for column in columns if column.kind == kind and not doubts[column.place]]
        if longest := _longest(believed):
            return _source(longest, unit, file, width, sample)
        if believed:
            says = " and ".join(column.says for column in believed)
            notes.append(f"{says} may be durations, and neither is always the longer.")
            return DurationSource("", found=False, notes=tuple(notes))
    whole = [column for column in columns if column.kind == "whole"]
    believed = [column for column in whole if not doubts[column.place]]
    if columns and not believed and unit in UNITS:
        raise WrongUse(f"{file}: --unit {unit}, but {notes[-1]}", hint=f"Write the duration with a name: {HOW}.")
    if not believed or unit == NO_UNIT:
        return DurationSource("", found=False, notes=tuple(notes))
    first = believed[0]
    if len(whole) > 1:
        says = "; ".join(column.says for column in whole)
        problem = f"{file}:{first.lines[0]}: several fields could be durations, lengths or counters: {says}."
        raise WrongUse(problem, hint=f"Write the duration with a name ({HOW}), or say --unit none to do without.")
    if not unit:
        problem = (f"{file}:{first.lines[0]}: {first.says} has no unit. Such a number may be a duration, a length or "
                   "a counter.")  # fmt: skip
        raise WrongUse(problem, hint=_units_hint())
    if reason := _doubt_of_unit(first.numbers, unit):
        raise WrongUse(f"{file}: {first.says} is not in {_in_words(unit)}: {reason}.", hint=_units_hint())
    return _source(first, unit, file, width, sample)


def _column(sample: Sequence[tuple[int, Entry]], place: int, width: int) -> _Column | None:
    rows, values, lines, empty = [], [], [], 0
    for row, (line, entry) in enumerate(sample):
        if len(entry.fields) != width:
            continue
        if value := parse_value(entry.fields[place]):
            rows.append(row)
            values.append(value)
            lines.append(line)
        else:
            empty += entry.fields[place] == "-"
    if not values or len(values) + empty < MOST_LINES * len(sample):
        return None
    return _Column(place, np.array(rows), np.array([value.number for value in values]), values, lines)


def _doubts(column: _Column, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield why a column of bare numbers is not believed to hold durations."""
    numbers, lines = column.numbers, len(column.numbers)
    whole, decimal = column.kind == "whole", column.kind == "decimal"
    if numbers.min() > A_TIME:
        yield "it is a time of day"
    if decimal and max(value.decimals for value in column.values) < DECIMALS:
        yield "it has fewer than three decimals; nginx writes three, and gunicorn six"
    if lines < FEW:
        return
    if np.ptp(numbers) == 0:
        if whole or numbers[0] == 0:
            yield f"it never varies, and is always {_written(column.values[0])}"
        return
    if decimal and len(set(numbers)) >= ENOUGH and (np.diff(numbers) >= 0).all():
        yield "it only grows"
    if whole:
        yield from _doubts_of_whole(numbers, [entries[row] for row in column.rows])


def _doubts_of_whole(numbers: Floats, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield which other thing whole numbers are."""
    if _correlation(_ranks(numbers), np.arange(len(numbers))) > 0.98:
        yield "it only grows, as a counter does"
    if np.mean(numbers == [entry.status for entry in entries]) > MOST_LINES:
        yield "it equals the status"
    sizes = np.array([float(entry.size) if entry.size.isdecimal() else 0.0 for entry in entries])
    if _correlation(numbers, sizes) > 0.99:
        yield "it follows the size of the answer"
    if len(numbers) < ENOUGH:
        return
    if _correlation(numbers, _asked(entries)) > 0.9:
        yield "it follows the length of the request"
    low, high = np.quantile(numbers, (0.01, 0.99))
    if low >= _A_LENGTH and high <= min(100 * _A_LENGTH, 4 * low):
        yield f"it lies between {low:.0f} and {high:.0f}, as the lengths of requests do"


def _doubt_of_unit(numbers: Floats, unit: str) -> str | None:
    """Return why numbers are not in the unit that UNIT says; None: nothing speaks against it."""
    if unit not in UNITS:
        return None
    if (median := float(np.median(numbers))) * UNITS[unit] > LONG_S:
        return f"half of the requests would take {median * UNITS[unit]:.0f} s or more"
    return _too_coarse(numbers, unit)


def _too_coarse(numbers: Floats, unit: str) -> str | None:
    if (numbers == np.floor(numbers)).all() and (none := np.mean(numbers == 0)) > (_COARSE if unit == "s" else 0.5):
        return f"whole numbers are too coarse, because {none:.0%} of them are 0"
    return None


def _asked(entries: Sequence[Entry]) -> Floats:
    """Return how many characters of each request a log shows: its target, and what is in the fields."""
    return np.array([len(entry.target) + sum(map(len, entry.fields[:2])) for entry in entries], dtype=float)


def _ranks(numbers: Floats) -> Floats:
    return np.argsort(np.argsort(numbers, kind="stable"), kind="stable").astype(float)


def _correlation(numbers: Floats, other: npt.NDArray[np.generic]) -> float:
    if np.ptp(numbers) == 0 or np.ptp(other.astype(float)) == 0:
        return 0.0
    return float(np.corrcoef(numbers, other.astype(float))[0, 1])


def _longest(columns: Sequence[_Column]) -> _Column | None:
    """Return the column that is never the shorter: the duration of a request contains all its parts."""
    if not columns:
        return None
    best = max(columns, key=lambda column: (_seconds(column).sum(), -column.place))
    for other in columns:
        both, at, there = np.intersect1d(best.rows, other.rows, return_indices=True)
        if len(both) and np.mean(_seconds(best)[at] >= _seconds(other)[there] - 0.002) < 0.98:
            return None
    return best


def _seconds(column: _Column) -> Floats:
    return np.array([value.number * UNITS[value.unit or "s"] for value in column.values])


def _source(column: _Column, unit: str, file: str, width: int, sample: Sequence[tuple[int, Entry]]) -> DurationSource:
    kind = column.kind
    said = _unit_of_decimals(column.numbers, unit) if kind == "decimal" else unit
    of = said or "s"
    if kind == "decimal" and not said:
        _check_seconds(column.numbers, column.says, file, sample)
    clock: Clock | None = None
    why = f"as --unit {unit} says" if kind != "unit" and said else ""
    if kind == "decimal" and not why:
        decimals = {value.decimals for value in column.values}
        clock = "balancer" if decimals == {3} else "server" if decimals == {6} else None
        why = {"balancer": "as nginx writes $request_time", "server": "as gunicorn writes %(L)s"}.get(clock or "", "")

    def take(entry: Entry) -> float | None:
        if len(entry.fields) != width:
            return None
        value = parse_value(entry.fields[column.place])
        if (
            value is None
            or (kind == "unit") != bool(value.unit)
            or (kind != "unit" and bool(value.decimals) != (kind == "decimal"))
        ):
            return None
        return value.number * UNITS[value.unit or of]

    in_unit = "with its unit" if kind == "unit" else f"in {_in_words(of)}"
    return DurationSource(f"{column.says}, {in_unit}{', ' + why if why else ''}", clock, take)


def _unit_of_decimals(numbers: Floats, unit: str) -> str:
    """Return the unit of decimal numbers if UNIT says it; otherwise they are seconds.

    UNIT is for whole numbers. Decimal numbers of which half are below 1 are seconds, whatever it says.
    """
    return unit if unit in UNITS and float(np.median(numbers)) >= 1 else ""


def _check_seconds(numbers: Floats, says: str, file: str, sample: Sequence[tuple[int, Entry]]) -> None:
    """Raise WrongUse if decimal numbers whose unit nothing says are too large for seconds."""
    times = [entry.at for _, entry in sample]
    at_once = numbers.sum() / max(max(times) - min(times), 1.0)  # Little's law
    reason = None
    if (quick := float(np.quantile(numbers, 0.1))) > QUICK_S:
        reason = f"nine in ten requests would take {quick:.4g} s or more"
    elif (median := float(np.median(numbers))) > LONG_S:
        reason = f"half of the requests would take {median:.4g} s or more"
    elif at_once > AT_ONCE and len(numbers) >= ENOUGH:
        reason = f"{at_once:,.0f} requests would be at work at once"
    if reason:
        problem = f"{file}: {says} has no unit, and in seconds, {reason}."
        raise WrongUse(problem, hint="--unit ms or --unit s says which it is.")


def _written(value: Value) -> str:
    return f"{value.number:.{value.decimals}f}{value.unit}"


def _in_words(unit: str) -> str:
    return {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}[unit]


def _units_hint() -> str:
    return ("--unit us for gunicorn's %(D)s and Apache's %D, --unit ms for %(M)s; --unit none if it is no "
            "duration. Whole seconds (%(T)s, %T) are too coarse.")  # fmt: skip
