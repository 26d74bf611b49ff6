"""Where a log has its durations: decided from many lines at once, because a single number can be anything.

A number counts as a duration if its place in a known format, its name or its unit says so. A number that has none of
them counts only if all lines together look like durations: they vary, they do not only grow, and they do not follow
another field. What is not believed is said, with the reason.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt

from stampede.errors import WrongUse
from stampede.logs.formats import (
    DURATIONS,
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
QUICK_S, AT_ONCE = 1.0, 200
"""If nine in ten requests took longer, or so many were at work at once, decimal numbers may be milliseconds."""
LONG_S = 30.0
"""If half of the requests took longer in the unit that UNIT says, the numbers are no durations in this unit."""
A_TIME = 1e9
"""Numbers above this are seconds or milliseconds since 1970."""
DECIMALS = 3
"""nginx writes so many decimals, and gunicorn more."""
_A_LENGTH, _PER_CHARACTER = 100, 4.0
_MOST_COLUMNS = 100
_COARSE = 0.05
_UNITS_HINT = (
    "--unit us for gunicorn's %(D)s and Apache's %D, --unit ms for %(M)s, --unit ns for Go and structlog; --unit none "
    "if it is no "
    "duration. Whole seconds (%(T)s, %T) are too coarse."
)
MOST_LINES = 0.9
"""A column is one that at least so many of the lines have."""

_IN_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class DurationSource:
    """Where the durations of a log are: ``take`` returns the duration of an entry in seconds, if it has one.

    ``says`` is the place in words; empty: the log has no durations. ``format`` is that of most entries.
    """

    says: str
    clock: Clock | None = None
    take: Callable[[Entry], float | None] = field(default=lambda _: None, compare=False)
    notes: tuple[str, ...] = ()
    """What is not believed, and why."""
    rest: str = ".*"
    """A pattern of all that follows the head of a line, whose group ``value`` is the duration as it is written."""
    seconds: Callable[[str], float | None] = field(default=lambda _: None, compare=False)
    """Returns in seconds what this group holds, or the value of ``key``."""
    key: str = ""
    """The name of the field that is the duration, if it has one."""
    format: Format | JsonFormat | None = None
    assumed: str = ""
    """The field that counts as seconds although nothing says its unit; empty: something says it."""

    @property
    def recognised(self) -> str:
        """The format and the place of the durations, in words."""
        assumed = f", {ASSUMED}" if self.assumed else ""
        return f"{self.format.name if self.format else 'no format'}; durations: {self.says or 'none'}{assumed}"


def find_durations(sample: Sequence[tuple[int, Entry]], unit: str, file: str) -> DurationSource:
    """Return where the durations of a log are. ``sample``: its first entries, each with the number of its line.

    Raise WrongUse if a whole number may be a duration, and nothing says its unit.
    """
    entries = [entry for _, entry in sample]
    [(most, _)] = Counter(entry.format for entry in entries).most_common(1)
    notes: list[str] = []
    for find in (_of_format, partial(_of_name, least=len(sample) / 2), _of_columns, partial(_of_name, least=1)):
        if (found := find(sample, unit, file)).says:
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


def _of_format(sample: Sequence[tuple[int, Entry]], _unit: str, _file: str) -> DurationSource:
    known = Counter(entry.format for _, entry in sample if entry.own_s is not None)
    if not known:
        return DurationSource("")
    [(most, _)] = known.most_common(1)
    match most:
        case Format(name=name, duration=duration):
            written = {entry.own_unit for _, entry in sample if entry.format == most}
            units = [unit for unit in UNITS if unit in written]
            says = f"{duration} of {name}, in {' or '.join(_IN_WORDS[unit] for unit in units)}"
        case JsonFormat(name=name, duration=pair):
            key, unit = pair or ("", "s")
            units, says = [unit], f"{key} of {name}, in {_IN_WORDS[unit]}"
    numbers = np.array([entry.own_s for _, entry in sample if entry.format == most and entry.own_s is not None])
    if units == ["s"] and len(numbers) >= FEW and (reason := _too_coarse(numbers, "s")):
        return DurationSource("", notes=(f"{says}, is no duration: {reason}.",))
    return DurationSource(says, most.clock, lambda entry: entry.own_s if entry.format == most else None, format=most)


def _of_name(sample: Sequence[tuple[int, Entry]], unit: str, file: str, *, least: float) -> DurationSource:
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
        found = _named(name, sample, unit, file)
        if isinstance(found, DurationSource):
            return found
        notes.append(found)
    return DurationSource("", notes=tuple(notes))


def _named(name: str, sample: Sequence[tuple[int, Entry]], unit: str, file: str) -> DurationSource | str:
    """Return a named field as the durations of a log, or why it does not hold them."""
    base, own = duration_name(name) or ("", "")
    field = _field(f"{name}=…", lambda entry: entry.named.get(name, ""), sample)
    if len(field.values) >= FEW and not field.numbers.any():
        return f"{field.says} is no duration: it never varies, and is always {_written(field.values[0])}."
    known = own or next((value.unit for value in field.values if value.unit), "")
    if known == "s" and (reason := _too_coarse(field.numbers, "s")):
        return f"{field.says} is no duration: {reason}."
    is_nginx = DURATIONS.get(base) == "s" and max(field.decimals) == DECIMALS
    is_gunicorn = DURATIONS.get(base) == "s" and field.decimals == {6}
    are_seconds = is_nginx or is_gunicorn
    said = known or _unit_of(field, unit, file, sample, are_seconds=are_seconds, is_usual=are_seconds)
    in_seconds = is_nginx and said in ("", "s")
    clock: Clock | None = "balancer" if in_seconds else "server" if field.decimals == {6} and not known else None

    def seconds(text: str) -> float | None:
        return seconds_of(text, said or "s")

    says = f"{field.says}, in {_IN_WORDS[said or 's']}"
    return DurationSource(says, clock, lambda entry: seconds(field.text_of(entry)), rest=rest_with(name),
                          seconds=seconds, key=name, assumed="" if said or are_seconds else field.says)  # fmt: skip


@dataclass(frozen=True)
class _Field:
    """A field after the head of each line: its words for people, its text in an entry, and its numbers in the sample.

    ``rows``: where in the sample the numbers stand.
    """

    says: str
    text_of: Callable[[Entry], str]
    rows: Sequence[int]
    values: Sequence[Value]
    rest: str = ".*"

    @property
    def numbers(self) -> Floats:
        """The numbers as they are written."""
        return np.array([value.number for value in self.values])

    @property
    def decimals(self) -> set[int]:
        """How many decimals the numbers have."""
        return {value.decimals for value in self.values}

    @property
    def kind(self) -> str:
        """What is written beside all numbers: a unit, decimals, or nothing."""
        return "unit" if all(value.unit for value in self.values) else "decimal" if any(self.decimals) else "whole"

    @property
    def seconds(self) -> Floats:
        """The numbers in seconds, if those without a unit are seconds."""
        return np.array([value.number * UNITS[value.unit or "s"] for value in self.values])


def _field(says: str, text_of: Callable[[Entry], str], sample: Sequence[tuple[int, Entry]]) -> _Field:
    found = [(row, value) for row, (_, entry) in enumerate(sample) if (value := parse_value(text_of(entry)))]
    return _Field(says, text_of, [row for row, _ in found], [value for _, value in found])


def _of_columns(sample: Sequence[tuple[int, Entry]], unit: str, file: str) -> DurationSource:
    entries = [entry for _, entry in sample]
    [(width, _)] = Counter(len(entry.fields) for entry in entries).most_common(1)
    columns = [
        column for place in range(width if width <= _MOST_COLUMNS else 0) if (column := _column(sample, place, width))
    ]
    doubts = {column.says: next(_doubts(column, entries), None) for column in columns}
    notes = [f"{says} is no duration: {doubt}." for says, doubt in doubts.items() if doubt]
    for kind in ("unit", "decimal"):
        believed = [column for column in columns if column.kind == kind and not doubts[column.says]]
        if longest := _longest(believed):
            return _source(longest, unit, file, sample)
        if believed:
            says = " and ".join(column.says for column in believed)
            notes.append(f"{says} may be durations, and neither is always the longer.")
            return DurationSource("", notes=tuple(notes))
    whole = [column for column in columns if column.kind == "whole"]
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


def _column(sample: Sequence[tuple[int, Entry]], place: int, width: int) -> _Field | None:
    """Return the numbers in one place after the head; None: too few of the lines have a number or ``-`` there."""

    def text_of(entry: Entry) -> str:
        return entry.fields[place] if len(entry.fields) == width else ""

    column = _field("", text_of, sample)
    empty = sum(text_of(entry) == "-" for _, entry in sample)
    lines = sum(len(entry.fields) == width for _, entry in sample)
    if not column.values or len(column.values) + empty < MOST_LINES * lines:
        return None
    shown = ", ".join(map(_written, column.values[:3]))
    is_free = isinstance(known := sample[0][1].format, Format) and known.is_free
    says = f"field {place + 1} {'beside the request' if is_free else 'after the size of the answer'} ({shown}, …)"
    return replace(column, says=says, rest=rest_at(place, width))


def _doubts(column: _Field, entries: Sequence[Entry]) -> Iterator[str]:
    """Yield why a column of bare numbers is not believed to hold durations."""
    numbers, lines = column.numbers, len(column.numbers)
    whole, decimal = column.kind == "whole", column.kind == "decimal"
    if numbers.min() > A_TIME:
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
    if lines >= ENOUGH and _correlation(numbers, asked) > 0.9 and more < _PER_CHARACTER:
        yield "it follows the length of the request"
    low, high = np.quantile(numbers, (0.01, 0.99))
    if lines >= ENOUGH and low >= _A_LENGTH and high <= min(100 * _A_LENGTH, 4 * low):
        yield f"it lies between {low:.0f} and {high:.0f}, as the lengths of requests do"


def _too_coarse(numbers: Floats, unit: str) -> str | None:
    if (numbers == np.floor(numbers)).all() and (none := np.mean(numbers == 0)) > (_COARSE if unit == "s" else 0.5):
        return f"whole numbers are too coarse, because {none:.0%} of them are 0"
    return None


def _correlation(numbers: npt.ArrayLike, others: npt.ArrayLike) -> float:
    one, other = np.asarray(numbers, dtype=float), np.asarray(others, dtype=float)
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) and np.ptp(other) else 0.0


def _longest(columns: Sequence[_Field]) -> _Field | None:
    """Return the column that is never the shorter: the duration of a request contains all its parts."""
    if not columns:
        return None
    best = max(columns, key=lambda column: column.seconds.sum())  # of equal columns the first
    for other in columns:
        both, at, there = np.intersect1d(best.rows, other.rows, return_indices=True)
        if len(both) and np.mean(best.seconds[at] >= other.seconds[there] - 0.002) < 0.98:
            return None
    return best


def _source(column: _Field, unit: str, file: str, sample: Sequence[tuple[int, Entry]]) -> DurationSource:
    kind = column.kind
    is_usual = column.decimals in ({3}, {6})  # as nginx and gunicorn write seconds
    said = "" if kind == "unit" else _unit_of(column, unit, file, sample, is_usual=is_usual)
    clocks: dict[int, tuple[Clock, str]] = {
        3: ("balancer", ", as nginx writes $request_time"),
        6: ("server", ", as gunicorn writes %(L)s"),
    }
    clock, why = (None, f", as --unit {unit} says") if said else (None, "")
    if kind == "decimal" and not said and len(column.decimals) == 1:
        clock, why = clocks.get(max(column.decimals), (None, ""))

    @lru_cache(maxsize=1 << 16)
    def seconds(text: str) -> float | None:
        value = parse_value(text)
        if value is None or ("unit" if value.unit else "decimal" if value.decimals else "whole") != kind:
            return None
        return value.number * UNITS[value.unit or said or "s"]

    in_unit = "with its unit" if kind == "unit" else f"in {_IN_WORDS[said or 's']}"
    return DurationSource(f"{column.says}, {in_unit}{why}", clock, lambda entry: seconds(column.text_of(entry)),
                          rest=column.rest, seconds=seconds,
                          assumed=column.says if kind == "decimal" and not said and not is_usual else "")  # fmt: skip


def _unit_of(
    field: _Field,
    unit: str,
    file: str,
    sample: Sequence[tuple[int, Entry]],
    *,
    are_seconds: bool = False,
    is_usual: bool,
) -> str:
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
    if (quick := float(np.quantile(numbers, 0.1))) > QUICK_S:
        reason = f"nine in ten requests would take {quick:.4g} s or more"
    elif median > (LONG_S if is_usual else QUICK_S):
        reason = f"half of the requests would take {median:.4g} s or more"
    elif at_once > AT_ONCE and len(numbers) >= ENOUGH:
        reason = f"{at_once:,.0f} requests would be at work at once"
    if reason:
        problem = f"{file}: {field.says} has no unit, and in seconds, {reason}."
        raise WrongUse(problem, hint="--unit ms or --unit s says which it is.")
    return ""


def _written(value: Value) -> str:
    return f"{value.number:.{value.decimals}f}{value.unit}"
