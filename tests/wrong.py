"""Wrong values for each place of a file, generated from the model that reads it, with what a message must name."""

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stampede.errors import LabError, WrongUse
from stampede.records.mistakes import TYPES, Kind, schema_of

Place = tuple[Any, ...]
Schema = dict[str, Any]
UNKNOWN = "no such word!"
FURTHER: tuple[Any, ...] = (True, 10**9, float("inf"), "10", "a b", ["x"], [None], {}, {"x": 1}, {1: 1})
"""Values that belong into few places; whether they are wrong depends on the place."""


class Mistake(NamedTuple):
    """The values of a file with one mistake at a place, and all that the message must contain beside the place."""

    place: Place
    values: Any
    names: list[str]


def mistakes(kind: Kind, files: Iterable[Any]) -> Iterator[Mistake]:
    """Yield each mistake that the schema of a kind of file knows, once for each kind of place of some files.

    Each place gets values of other types, values beyond each bound, no value, a key too many, and a key too few.
    """
    whole = schema_of(kind)
    for values, place, schema in kinds_of_places(whole, files):
        for wrong in wrong_values(schema):
            given = (
                [UNKNOWN]
                if wrong == UNKNOWN
                else ["no value; it must be" if wrong is None else f"{shown(wrong)} must be"]
            )
            yield Mistake(place, changed(values, (*place, wrong)), [*given, *allowed(whole, schema)])
        if isinstance(at(values, place), dict):
            yield from _wrong_keys(whole, values, place, schema)


def _wrong_keys(whole: Schema, values: Any, place: Place, schema: Schema) -> Iterator[Mistake]:
    """Yield a mapping without each key that it needs, without the key that chooses it, and with a key too many."""
    chooser, words = schema.get("chosen by", ("", []))
    if chooser:
        without = changed(values, (*place, chooser), remove=True)
        yield Mistake(place, without, [f"missing key {chooser}; it must be one of", *words])
        yield Mistake(place, changed(values, (*place, chooser, UNKNOWN)), [f"there is no {chooser} {UNKNOWN}", *words])
    for key in set(schema.get("required", [])) & at(values, place).keys() - {chooser}:
        missing = changed(values, (*place, key), remove=True)
        names = allowed(whole, resolved(whole, schema["properties"][key]))
        yield Mistake((*place, key), missing, ["missing key; it must be", *names])
    if ("patternProperties" in schema or "propertyNames" in schema) and (there := [*at(values, place).values()]):
        yield Mistake((*place, UNKNOWN), changed(values, (*place, UNKNOWN, there[0])), [f"{UNKNOWN!r} must be"])
    elif schema.get("additionalProperties") is False:
        further = changed(values, (*place, "further", 1))
        yield Mistake((*place, "further"), further, ["unknown key; there are", *schema["properties"]])


def garbled(kind: Kind, files: Iterable[Any]) -> Iterator[Any]:
    """Yield the values of files with each of FURTHER in a place of each schema, because messages follow from it."""
    seen = set()
    for values, place, schema in kinds_of_places(schema_of(kind), files):
        if (same := _of_messages(schema)) not in seen:
            seen.add(same)
            yield from (changed(values, (*place, wrong)) for wrong in FURTHER)


def kinds_of_places(whole: Schema, files: Iterable[Any]) -> Iterator[tuple[Any, Place, Schema]]:
    """Yield a file, a place and its schema, once for each kind of place; shorter files first.

    A key of several models, of which the file chooses one, is one kind of place if its schema is the same in all.
    """
    seen = set()
    for values in sorted(files, key=lambda values: len(str(values))):
        for place, schema, kind in _places(whole, whole, values, (), ()):
            if (same := (kind, _of_messages(schema))) not in seen:
                seen.add(same)
                yield values, place, schema


def _of_messages(schema: Schema) -> str:
    """Return the part of a schema from which messages follow."""
    return json.dumps({key: schema[key] for key in schema.keys() - {"title", "description"}}, sort_keys=True)


def _places(
    whole: Schema, schema: Schema, value: Any, place: Place, kind: Place
) -> Iterator[tuple[Place, Schema, Place]]:
    """Yield each place with its schema, and without the names and numbers that the file chooses."""
    schema = resolved(whole, schema, value)
    yield place, schema, kind
    if schema.get("type") == "object" and isinstance(value, dict):
        known, each = schema.get("properties", {}), schema.get("patternProperties", {})
        each = next(iter(each.values()), schema.get("additionalProperties"))
        chooser, _ = schema.get("chosen by", ("", []))
        for key in {**known, **(value if isinstance(each, dict) else {})}.keys() - {chooser}:
            of_key = (*kind, key if key in known else "*")
            yield from _places(whole, known.get(key, each), value.get(key), (*place, key), of_key)
    elif "items" in schema:
        for number, one in enumerate(value or []):
            yield from _places(whole, schema["items"], one, (*place, number), (*kind, "*"))


def resolved(whole: Schema, schema: Schema, value: Any = None) -> Schema:
    """Return the schema that a schema refers to: of an optional value, and of the model that a value chooses."""
    if "$ref" in schema:
        return resolved(whole, whole["$defs"][schema["$ref"].rpartition("/")[2]], value)
    if "discriminator" in schema and isinstance(value, dict):
        chooser, mapping = schema["discriminator"]["propertyName"], schema["discriminator"]["mapping"]
        return resolved(whole, {"$ref": mapping[value[chooser]]}) | {"chosen by": (chooser, [*mapping])}
    choice = [part for part in schema.get("anyOf", []) if part.get("type") != "null"]
    optional = {"default": None} if len(choice) < len(schema.get("anyOf", [])) else {}
    return resolved(whole, choice[0], value) | optional if len(choice) == 1 else schema


def wrong_values(schema: Schema) -> Iterator[Any]:
    """Yield values that a schema refuses: of other types, and beyond each bound."""
    kind = schema.get("type", "")
    if not kind:
        return  # a choice of several models or types
    if schema.get("default", 0) is not None:
        yield None
    yield {"string": 5, "object": 5, "array": 5}.get(kind, "many")
    yield {"array": "x", "object": "x"}.get(kind, [1])
    if kind == "integer":
        yield 1.5
    if kind == "number":
        yield float("nan")
    for bound, beyond in (("minimum", -1), ("exclusiveMinimum", 0), ("maximum", 1)):
        if bound in schema:
            yield schema[bound] + beyond
    if "enum" in schema or "pattern" in schema:
        yield UNKNOWN
    for bound, empty in (("minLength", ""), ("minItems", []), ("minProperties", {})):
        if schema.get(bound):
            yield empty


def allowed(whole: Schema, schema: Schema) -> list[str]:
    """Return what a message must say of what is allowed: the words, or the type and its bounds."""
    if "discriminator" in schema:
        return []
    if choice := schema.get("anyOf"):
        parts = [part for part in choice if part.get("type") != "null"]
        return [word for part in parts for word in allowed(whole, resolved(whole, part))]
    if words := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return [str(word) for word in words]
    if "pattern" in schema:
        return []
    bounds = [f"{schema[one]:,.10g}" for one in ("minimum", "exclusiveMinimum", "maximum") if one in schema]
    return [TYPES[schema.get("type", "object")].removeprefix("a "), *bounds]


def changed(values: Any, path: Place, remove: bool = False) -> Any:
    """Return the values of a file with the last part of a path as the value at its place, or without this place."""
    if not remove and len(path) == 1:
        return path[0]
    copy = dict(values) if isinstance(values, dict) else list(values)
    if remove and len(path) == 1:
        del copy[path[0]]
    else:
        inner = copy.get(path[0]) if isinstance(copy, dict) else copy[path[0]]
        copy[path[0]] = changed(inner, path[1:], remove)
    return copy


def at(values: Any, place: Place) -> Any:
    """Return what is at a place; None if nothing is."""
    for key in place:
        values = values.get(key) if isinstance(values, dict) else values[key]
    return values


def places_in(value: Any, place: Place = ()) -> Iterator[Place]:
    """Yield every place within a value, in the order of the file."""
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield (*place, key)
        yield from places_in(value[key], (*place, key))


def shown(value: Any) -> str:
    """Return a value as messages show it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else repr(value)


def refusal(read: Callable[[Path], object], path: Path, text: str, hint: str = "") -> str:
    """Return the message with which a file of this text is refused, with the way out ``hint`` if one is given."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(WrongUse) as caught:
        read(path)
    assert hint in ("", caught.value.hint)
    return caught.value.message.replace(str(path.parent), "…")


def problem_of(act: Callable[..., object], *arguments: object) -> str:
    """Return the message and the way out of the error that an act ends with."""
    with pytest.raises(LabError) as caught:
        act(*arguments)
    return f"{caught.value.message}\n{caught.value.hint}"


def unnamed(read: Callable[[Path], object], path: Path, files: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the messages that do not say all the words that they must, with these words, of texts that are refused."""
    said = [(refusal(read, path, text), names) for text, names in files]
    return [(message, names) for message, names in said if not all(name in message for name in names.split())]


def listed(messages: Iterable[str]) -> str:
    """Return messages as lines for a snapshot; what follows the first line of a message is indented.

    Of a long list of words, the first three are left, so that a new word changes no snapshot.
    """
    fill = textwrap.TextWrapper(110, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False).fill
    return "".join(fill(_LONG_LIST.sub(r"\1…", one)) + "\n" for one in messages)


_LONG_LIST = re.compile(r"((?:there are|it has|one of|releases) (?:[\w.-]+, ){3})[\w.-]+, [\w.-]+(?:, [\w.-]+)*")
