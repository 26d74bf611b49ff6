"""Explain the first mistake in the values that a model refuses: the place, the value, and what is allowed.

What is allowed follows from the JSON schema of the model, so a new key of a file needs no new message.
"""

import json
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from stampede.records.classes import HEADER_PATTERN, KEYS_PATTERN, METHOD_PATTERN, PATH_PATTERN
from stampede.records.model import ADDRESS_PATTERN, NAME_PATTERN
from stampede.records.words import nearest_first

Place = tuple[str | int, ...]
"""The keys that lead to a value of the file."""
Schema = dict[str, Any]
Kind = type[BaseModel] | TypeAdapter[Any]
"""What values are read as."""


@dataclass(frozen=True)
class Wording:
    """What messages about one kind of file say in addition to its JSON schema.

    ``patterns`` has, for each pattern of the schema, what a text must be in words, and an example. ``examples`` has an
    example of each model by its title, and of each choice of models by the key that chooses. ``allowed`` returns what
    is allowed at a place if the values of the file decide it, otherwise None. ``hint`` is the way out of any mistake.
    """

    patterns: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    allowed: Callable[[Place, Any], str | None] = lambda _place, _values: None
    hint: str = ""


PLAIN = Wording()
PATTERNS = {
    NAME_PATTERN: ("a name of lower-case letters, digits and single hyphens", "one-process"),
    PATH_PATTERN: ("the path of a request", "/items?page=2"),
    HEADER_PATTERN: ("the name of a header", "X-Api-Key"),
    METHOD_PATTERN: ("a method", "POST"),
    KEYS_PATTERN: ("a key, or keys with dots between them", "session.token"),
    ADDRESS_PATTERN: ("an address", "https://example.com/article"),
}
"""For patterns of records, what a text must be in words, and an example."""


def explain(error: ValidationError, kind: Kind, values: object, wording: Wording = PLAIN) -> tuple[Place, str]:
    """Return the place of the first mistake in the values of a file, and what is wrong there."""
    problems = error.errors()  # pydantic reports a misspelt key as unknown and as missing: prefer unknown
    first: Any = next((problem for problem in problems if problem["type"] == "extra_forbidden"), problems[0])
    inner: Any = values
    found: list[str | int] = []  # without what the file does not have, such as the name of a model
    for key in first["loc"]:
        if (isinstance(inner, dict) and key in inner) or (isinstance(inner, list) and isinstance(key, int)):
            inner = inner[key]
            found.append(key)
    found += first["loc"][-1:] if first["type"] == "missing" else ()
    place = (*found, *getattr(first.get("ctx", {}).get("error"), "place", ()))
    return place, _problem(first, _Schemas(kind, wording), place, lambda: wording.allowed(place, values))


def reason_of(error: ValidationError, kind: Kind, values: object) -> str:
    """Return what is wrong with values; the place comes first, unless a validator of the model says what is wrong."""
    place, problem = explain(error, kind, values)
    return problem if error.errors()[0]["type"] == "value_error" else placed(place, problem)


def reason_in_json(error: ValidationError, kind: Kind, text: str | bytes) -> str:
    """Return the place of the first mistake in a text of JSON, and what is wrong there."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return f"not valid JSON: {first['ctx']['error']}"
    return placed(*explain(error, kind, json.loads(text)))


def placed(place: Place, problem: str) -> str:
    """Return a problem with its place before it; a problem of the whole file has none."""
    return f"{'.'.join(map(str, place))}: {problem}" if place else problem


def unread(error: Exception) -> str:
    """Return why a file cannot be read, after the error of the attempt."""
    match error:
        case OSError(strerror=str(said)):
            return said
        case UnicodeDecodeError():
            return "it is not UTF-8"
        case RecursionError():
            return "it is nested too deeply"
        case json.JSONDecodeError(msg=said, lineno=line, colno=column):
            return f"not valid JSON: {said[0].lower()}{said[1:]} at line {line} column {column}"
        case _:
            return str(error)


@cache
def schema_of(kind: Kind) -> Schema:
    """Return the JSON schema of what values are read as."""
    return kind.json_schema() if isinstance(kind, TypeAdapter) else kind.model_json_schema()


def allowed_by(schema: Schema) -> str:
    """Return what a JSON schema of one value allows, in words."""
    return TYPES[schema["type"]] + _bounds(schema)


def _problem(error: Any, schemas: "_Schemas", place: Place, depends: Callable[[], str | None]) -> str:  # noqa: ANN401
    """Return what is wrong. ``depends`` returns what is allowed if the values of the file decide it."""
    location, given = error["loc"], error["input"]
    key = "" if not place or str(place[-1]).isdecimal() else str(place[-1])
    match error["type"]:
        case "value_error":  # a validator of the model, which may have built another model that failed
            own = error["ctx"]["error"]
            return (
                _problem(own.errors()[0], schemas, (), lambda: None) if isinstance(own, ValidationError) else str(own)
            )
        case "extra_forbidden" | "invalid_key":
            is_text = error["type"] != "invalid_key"
            wrong, word = ("unknown key", str(place[-1])) if is_text else (f"the key {given!r} is not text", str(given))
            return f"{wrong}; there are {nearest_first(word, schemas.keys_beside(location))}"
        case "missing":
            return f"missing key; it must be {schemas.allowed(schemas.at(location), key)}"
        case "union_tag_not_found":
            chooser, words = schemas.choice_at(location)
            return f"missing key {chooser}; it must be one of {nearest_first('', words)}"
        case "union_tag_invalid":
            chooser, words = schemas.choice_at(location)
            tag = error["ctx"]["tag"]
            return f"there is no {chooser} {tag}; there are {nearest_first(tag, words)}"
    if location[-1:] == ("[key]",):
        allowed = schemas.allowed(schemas.at(location), "", given)
    else:
        allowed = depends() or schemas.allowed(schemas.at(location), key, given)
    if error["type"] == "finite_number":
        allowed = allowed.replace("a number", "a finite number", 1)
    is_number = isinstance(given, int) and abs(given) < _LONG
    as_written = str(given).lower() if isinstance(given, bool) else f"{given:,}" if is_number else _SHORT.repr(given)
    return f"{'no value; it' if given is None else as_written} must be {allowed}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_LONG = 10**20


TYPES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "left out",
    "number": "a number",
    "object": "a mapping",
    "string": "text",
}
"""The words for the types of a JSON schema."""


@dataclass(frozen=True)
class _Schemas:
    """The JSON schema of what values are read as, with what messages say of its parts."""

    kind: Kind
    wording: Wording

    def at(self, location: Place) -> Schema:
        """Return the schema at pydantic's place of an error, which also names the chosen model of a choice."""
        if location[-1:] == ("[key]",):
            return _key_schema(self.at(location[:-2]))
        schema = self._resolved(schema_of(self.kind))
        for key in location:
            if "discriminator" in schema:
                schema = self._resolved({"$ref": schema["discriminator"]["mapping"][key]})
            elif choice := _alternatives(schema):  # the next key shows which alternative is meant
                schema = next(
                    (part for part in map(self._resolved, choice) if key in part.get("properties", {})), schema
                )
                schema = self._resolved(schema.get("properties", {}).get(key, schema))
            elif isinstance(key, int) and "items" in schema:
                schema = self._resolved(schema["items"])
            else:
                schema = self._resolved(schema.get("properties", {}).get(key) or self._each(schema) or {})
        return schema

    def keys_beside(self, location: Place) -> list[str]:
        """Return the keys that a mapping may have in which the last key of a place is unknown."""
        schema = self.at(location[:-1])
        parts = [self._resolved(part).get("properties", {}) for part in _alternatives(schema) or [schema]]
        return [key for part in parts if location[-1] not in part for key in part]

    def choice_at(self, location: Place) -> tuple[str, list[str]]:
        """Return the key that chooses between several models, and the words that it may have."""
        discriminator = self.at(location)["discriminator"]
        return discriminator["propertyName"], list(discriminator["mapping"])

    def allowed(self, schema: Schema, key: str, given: object = None) -> str:
        """Return what is allowed at a place, with an example if the words alone are not enough."""
        words, example = self._in_words(schema, given), self._example(schema, given)
        if not example or "enum" in schema or "const" in schema:
            return words
        return f"{words}, e.g. {key}: {example}" if key else f"{words}, e.g. {example}"

    def _in_words(self, schema: Schema, given: object) -> str:
        """Return what a schema allows. In a list of words, the words nearest to the given value come first."""
        if "discriminator" not in schema and (choice := _alternatives(schema)):
            return " or ".join(dict.fromkeys(self._in_words(self._resolved(part), given) for part in choice))
        if "const" in schema:
            return str(schema["const"])
        if "enum" in schema:
            return f"one of {nearest_first(given if isinstance(given, str) else '', schema['enum'])}"
        if "pattern" in schema:
            return self._pattern(schema)[0] or f"text like {schema['pattern']}"
        words = TYPES[schema.get("type", "object")] + _bounds(schema)
        least, most = (
            next((schema[f"{end}{what}"] for what in ("Length", "Items", "Properties") if f"{end}{what}" in schema), 0)
            for end in ("min", "max")
        )
        what = "characters" if schema.keys() & {"minLength", "maxLength"} else "entries"
        if most:
            return words + (f" of {least} to {most:,} {what}" if least else f" of at most {most:,} {what}")
        return words + ((f" of at least {least} {what}" if least > 1 else " that is not empty") if least else "")

    def _example(self, schema: Schema, given: object = None) -> str:
        """Return an example of what a schema allows, as a file writes it; empty if the words are enough."""
        name = schema.get("discriminator", {}).get("propertyName") or schema.get("title", "")
        if "pattern" in schema:
            return self._pattern(schema)[1]
        if name in self.wording.examples and schema.keys() & {"properties", "discriminator"}:
            return self.wording.examples[name]
        kind: str = schema.get("type", "")
        example = str(schema.get("examples", [""])[0])
        if example:
            return example
        if kind in ("integer", "number"):
            default, least = schema.get("default"), schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
            example = f"{default if default is not None else least:g}"
        elif kind == "string":
            example = f"'{given}'" if isinstance(given, int | float) else "some words"
        elif kind == "array" and "items" in schema:
            example = f"[{self._example(self._resolved(schema['items']))}]"
        elif kind == "object" and (of_each := self._each(schema)):
            key = _key_schema(schema)
            of_key = self._pattern(key)[1] or str(key.get("enum", ["…"])[0])
            example = f"{{{of_key}: {self._example(of_each) or '…'}}}"
        return example

    def _pattern(self, schema: Schema) -> tuple[str, str]:
        return (PATTERNS | dict(self.wording.patterns)).get(schema.get("pattern", ""), ("", ""))

    def _resolved(self, schema: Schema) -> Schema:
        """Return the schema that a schema refers to; the schema of an optional value is the one of the value itself."""
        if "$ref" in schema:
            return self._resolved(schema_of(self.kind)["$defs"][schema["$ref"].rpartition("/")[2]])
        choice = [part for part in schema.get("anyOf", []) if part.get("type") != "null"]
        return self._resolved(choice[0]) if len(choice) == 1 else schema

    def _each(self, schema: Schema) -> Schema:
        """Return the schema of the values of a mapping whose keys the file chooses."""
        further = schema.get("additionalProperties")
        found = [*schema.get("patternProperties", {}).values(), *([further] if isinstance(further, Mapping) else [])]
        return self._resolved(found[0]) if found else {}


def _alternatives(schema: Schema) -> list[Schema]:
    return [part for part in (schema.get("anyOf") or schema.get("oneOf") or []) if part.get("type") != "null"]


def _key_schema(schema: Schema) -> Schema:
    pattern = next(iter(schema.get("patternProperties", {})), None)
    return {"type": "string", "pattern": pattern} if pattern else {"type": "string", **schema.get("propertyNames", {})}


def _bounds(schema: Schema) -> str:
    least, above, most = (schema.get(name) for name in ("minimum", "exclusiveMinimum", "maximum"))
    if above is not None:
        return f" above {above:g}" + (f", up to {most:,.10g}" if most is not None else "")
    if least is not None and most is not None:
        return f" from {least:g} to {most:,.10g}"
    return f", at least {least:g}" if least is not None else ""
