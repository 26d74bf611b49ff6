"""Explain a mistake in an experiment file: its line, its place, the value, and what is allowed instead.

What is allowed comes from the JSON schema of experiment files, so a new key needs no new text here.
"""

import reprlib
from collections.abc import Mapping
from functools import cache
from typing import Any

import yaml
from pydantic import ValidationError

from analysis.records.model import NAME_PATTERN
from analysis.records.nearest import nearest_first
from lab.experiment.model import (
    DURATION_PATTERN,
    SETTING_NAME_PATTERN,
    SETTING_TEXT_PATTERN,
    Experiment,
)
from lab.loads import CLIENT_SCRIPTS, K6_SCRIPTS
from lab.servers import KINDS
from lab.servers.base import CPUSET_PATTERN, RELEASE_PATTERN

Place = tuple[str | int, ...]
Schema = dict[str, Any]

PATTERNS = {
    NAME_PATTERN: ("a name of lower-case letters, digits and single hyphens", "one-process"),
    DURATION_PATTERN: ("whole seconds or minutes", "90s"),
    RELEASE_PATTERN: ("a release, digits with dots between them", "27.0.1"),
    CPUSET_PATTERN: ("the numbers of cores", "0-1"),
    SETTING_NAME_PATTERN: ("a name of lower-case letters, digits and underscores", "light_vus"),
    SETTING_TEXT_PATTERN: ("a number, or a word without quotes and backslashes", "wait"),
}
"""For each pattern, what a text must be, in words, and an example."""

EXAMPLES = {
    "Api": "{first_s: 5, every_s: 20, stall_s: 5, takes_s: 10}",
    "ClaimEntry": "{says: One process is quick, value: {variant: one-process, metric: overhead, stat: p99}, "
    "at_most: 50}",
    "Client": "{script: silent.py, settings: {connections: 2, silent_s: 10}}",
    "CurveEntry": "{over: threads, values: [{metric: overhead, stat: p99}]}",
    "Database": "{max_connections: 151}",
    "Durations": "{short: 60s, full: 5m}",
    "Experiment": "title: …, question: …, load: {…}, variants: {…}",
    "Load": "{script: heavy-mix.js, duration: {short: 60s, full: 5m}, settings: {…}}",
    "MeasureEntry": "{request: light, metric: overhead, stat: p99}",
    "PublishedEntry": "{variant: one-process, request: light, metric: overhead, stats: {p99: 13.07}}",
    "QuantityEntry": "{variant: one-process, request: light, metric: overhead, stat: p99}",
    "Relative": "{times: 2, of: gunicorn-5, under: capacity}",
    "Source": "{title: …, publisher: …, year: 2025}",
}
"""An example of each model as a file writes it, by the model's title."""


def explain(file: str, document: yaml.Node | None, values: object, error: ValidationError) -> str:
    """Return a sentence about the first mistake, which begins with the file, the line and the place."""
    problems = error.errors()  # pydantic reports a misspelt key as unknown and as missing: prefer unknown
    first = next((one for one in problems if one["type"] == "extra_forbidden"), problems[0])
    further = getattr(first.get("ctx", {}).get("error"), "place", ())
    place = _in_file((*first["loc"], *further))
    line = line_of(document, place)
    where = ".".join(map(str, place))
    problem = _problem(first, place, values)
    return f"{file}:{line}: {where}: {problem}" if where else f"{file}: {problem}"


def _problem(error: Any, place: Place, values: object) -> str:  # noqa: ANN401  # pydantic's ErrorDetails
    given, key = error["input"], str(place[-1]) if place else ""
    if error["type"] == "value_error":
        return _own_words(error["ctx"]["error"])
    if of_keys := _about_keys(error, place, key):
        return of_keys
    if error["loc"][-1:] == ("[key]",):
        allowed = _allowed(_schema_at(error["loc"]), "", given)
    elif script := _script_of_settings(place, values):
        allowed = _setting(script, place, values)
    else:
        allowed = _allowed(_schema_at(error["loc"]), "" if key.isdecimal() else key, given)
    finite = error["type"] == "finite_number"
    allowed = allowed.replace("a number", "a finite number", 1) if finite else allowed
    return f"no value; it must be {allowed}" if given is None else f"{_shown(given)} must be {allowed}"


def _about_keys(error: Any, place: Place, key: str) -> str | None:  # noqa: ANN401  # pydantic's ErrorDetails
    """Return the message for a key that is unknown or missing; None if the mistake is another one."""
    kind, said = error["type"], None
    if kind in ("extra_forbidden", "invalid_key") and place[0] in ("load", "loads") and key == "loop":
        said = "loop follows from the script; delete this line"
    elif kind in ("extra_forbidden", "invalid_key"):
        said = f"unknown key; there are {nearest_first(key, _keys(_schema_at(error['loc'][:-1])))}"
    elif kind == "missing":
        said = f"missing key; it must be {_allowed(_schema_at(error['loc']), key)}"
    elif kind == "union_tag_not_found":
        said = f"missing key server; it must be one of {nearest_first('', list(KINDS))}"
    elif kind == "union_tag_invalid":
        tag = error["ctx"]["tag"]
        said = f"there is no server {tag}; there are {nearest_first(tag, list(KINDS))}"
    return said


def _own_words(error: Exception) -> str:
    """Return the message of one of our validators, also if the validator built another model that failed."""
    if isinstance(error, ValidationError):
        inner = error.errors()[0]
        return _own_words(inner["ctx"]["error"]) if inner["type"] == "value_error" else _problem(inner, (), None)
    return str(error)


def _script_of_settings(place: Place, values: object) -> str | None:
    """Return the script whose settings contain a place; None if the place is elsewhere or the script is unknown."""
    if not place or place[0] not in ("load", "loads") or "settings" not in place:
        return None
    holder: Any = values
    for key in place[: place.index("settings")]:
        holder = holder[key]
    script = holder.get("script")
    return script if isinstance(script, str) and script in K6_SCRIPTS | CLIENT_SCRIPTS else None


def _setting(script: str, place: Place, values: object) -> str:
    """Return what lab/loads.py allows at a place: for a single setting, or for all settings of a script."""
    given: Any = values
    for key in place[: place.index("settings") + 1]:
        given = given[key]
    declared = (K6_SCRIPTS | CLIENT_SCRIPTS)[script].declared(given if isinstance(given, Mapping) else {})
    if place[-1] == "settings":
        return f"a mapping with {', '.join(declared)}"
    return declared[str(place[-1])].allowed if place[-1] in declared else f"one of the settings {', '.join(declared)}"


def _allowed(schema: Schema, key: str, given: object = None) -> str:
    """Return what is allowed at a place, with an example if the words alone are not enough."""
    said, example = _in_words(schema, given), _example(schema, given)
    if not example or "enum" in schema or "const" in schema:
        return said
    return f"{said}, e.g. {key}: {example}" if key else f"{said}, e.g. {example}"


_TYPES = {
    "array": "a list",
    "boolean": "true or false",
    "integer": "a whole number",
    "null": "left out",
    "number": "a number",
    "object": "a mapping",
    "string": "text",
}


def _in_words(schema: Schema, given: object) -> str:
    """Return in words what a schema allows. In a list of words, the words nearest to the given value come first."""
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return f"one of {nearest_first(given if isinstance(given, str) else '', schema['enum'])}"
    if schema.get("pattern") in PATTERNS:
        return PATTERNS[schema["pattern"]][0]
    filled = " that is not empty" if schema.get("minItems") or schema.get("minProperties") else ""
    return _TYPES[schema.get("type", "object")] + _bounds(schema) + filled


def _bounds(schema: Schema) -> str:
    least, above, most = (schema.get(name) for name in ("minimum", "exclusiveMinimum", "maximum"))
    if above is not None:
        return f" above {above:g}" + (f", up to {most:,.10g}" if most is not None else "")
    if least is not None and most is not None:
        return f" from {least:g} to {most:,.10g}"
    return f", at least {least:g}" if least is not None else ""


def _example(schema: Schema, given: object = None) -> str:
    """Return an example of what a schema allows, as a file writes it; empty if the words of the schema are enough."""
    if schema.get("pattern") in PATTERNS:
        return PATTERNS[schema["pattern"]][1]
    if "properties" in schema and schema.get("title") in EXAMPLES:
        return EXAMPLES[str(schema["title"])]
    if "oneOf" in schema:
        word, server = next(iter(KINDS.items()))
        return "{" + ", ".join(f"{name}: {value}" for name, value in {"server": word, **server.example}.items()) + "}"
    kind: str = schema.get("type", "")
    example = ""
    if kind in ("integer", "number"):
        default, least = schema.get("default"), schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        example = f"{default if default is not None else least:g}"
    elif kind == "string":
        example = f"'{given}'" if isinstance(given, int | float) else "some words"
    elif kind == "array":
        example = f"[{_example(_resolved(schema['items']))}]"
    elif kind == "object" and (of_each := _each(schema)):
        example = f"{{{_key_example(schema)}: {_example(of_each)}}}"
    return example


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80


def _shown(value: object) -> str:
    """Return a value as a file writes it, shortened."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else _SHORT.repr(value)


@cache
def _whole() -> Schema:
    return Experiment.model_json_schema()


def _resolved(schema: Schema) -> Schema:
    """Return the schema that a schema refers to. The schema of an optional value is the schema of the value itself."""
    if "$ref" in schema:
        return _resolved(_whole()["$defs"][schema["$ref"].rpartition("/")[2]])
    if there := [one for one in schema.get("anyOf", []) if one.get("type") != "null"]:
        return _resolved(there[0]) if len(there) == 1 else schema
    return schema


def _schema_at(place: Place) -> Schema:
    """Return the schema at a place. Pydantic's places have the kind of server after a variant's name."""
    if place[-1:] == ("[key]",):
        return _key_schema(_schema_at(place[:-2]))
    schema = _resolved(_whole())
    for key in place:
        if "oneOf" in schema:
            schema = _resolved({"$ref": schema["discriminator"]["mapping"][key]})
        elif isinstance(key, int) and "items" in schema:
            schema = _resolved(schema["items"])
        else:
            schema = _resolved(schema.get("properties", {}).get(key) or _each(schema) or {})
    return schema


def _each(schema: Schema) -> Schema:
    """Return the schema of the values of a mapping whose keys the file chooses."""
    further = schema.get("additionalProperties")
    found = [*schema.get("patternProperties", {}).values(), *([further] if isinstance(further, Mapping) else [])]
    return _resolved(found[0]) if found else {}


def _key_schema(schema: Schema) -> Schema:
    """Return the schema of the keys of a mapping whose keys the file chooses."""
    pattern = next(iter(schema.get("patternProperties", {})), None)
    return {"type": "string", "pattern": pattern} if pattern else {"type": "string", **schema.get("propertyNames", {})}


def _key_example(schema: Schema) -> str:
    key = _key_schema(schema)
    return PATTERNS[key["pattern"]][1] if key.get("pattern") in PATTERNS else str(key.get("enum", ["…"])[0])


def _keys(schema: Schema) -> list[str]:
    return list(schema.get("properties", {}))


def _in_file(location: Place) -> Place:
    """Return pydantic's place as a place in the file, without kinds of servers, types of settings and ``[key]``."""
    place = tuple(key for key in location if key != "[key]")
    if place[:1] == ("variants",) and KINDS.keys() & {*place[2:3]}:
        place = (*place[:2], *place[3:])
    at = place.index("settings") if "settings" in place and place[0] in ("load", "loads") else len(place)
    return place[: at + 2]


def line_of(node: yaml.Node | None, place: Place) -> int:
    """Return the line of a place, or the line of the nearest enclosing place if the place itself is missing."""
    line = node.start_mark.line + 1 if node else 0
    for key in place:
        if isinstance(node, yaml.MappingNode):
            found = [(k, v) for k, v in node.value if k.value == str(key)]
            if found:
                line, node = found[0][0].start_mark.line + 1, found[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            node = node.value[key]
            line = node.start_mark.line + 1
    return line
