"""Write the parts of docs/ that follow from the code. ``python -m tools.reference`` renews them.

A part stands between ``<!-- generated: NAME -->`` and ``<!-- end -->``. A test fails when a part is stale.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import typer

from lab import cli
from lab.cli.help import GROUPS
from lab.logs.format_strings import DIALECTS
from lab.logs.formats import FORMATS, JSON_FORMATS, LOGFMT, Format
from lab.paths import ROOT

DOCS = ROOT / "docs"


def commands() -> Iterator[str]:
    """Yield the lines of the reference of all commands of ``lab``, in the groups of ``lab --help``."""
    known: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]  # it is a group
    for group, lines in GROUPS.items():
        yield f"\n## {group}"
        for name in (name for names in lines for name in names.split(", ")):
            yield from _command(f"lab {name}", known[name])


def _command(name: str, command: Any) -> Iterator[str]:  # noqa: ANN401  # typer has its own classes
    parts = getattr(command, "commands", {})
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    yield f"\n### {name}\n"
    yield " ".join(command.help.split())
    if command.epilog:
        yield f"\n    {command.epilog.removeprefix('Example: ')}"
    options = [each for each in command.params if each.param_type_name == "option" and each.name != "help"]
    if arguments or options:
        yield "\n| argument or option | what it says | default |\n| --- | --- | --- |"
    for each in [*arguments, *options]:
        yield f"| {_name(each)} | {each.help} | {_default(each)} |"
    for part, its in parts.items():
        yield from _command(f"{name} {part}", its)


def log_formats() -> Iterator[str]:
    """Yield the table of the formats of access logs that the lab recognises."""
    yield "| format | durations | measured by |\n| --- | --- | --- |"
    for known in (*FORMATS, *JSON_FORMATS, LOGFMT):
        duration = known.duration if isinstance(known, Format) else (known.duration or ("",))[0]
        yield f"| {known.name} | {(duration and f'`{duration}`') or 'by their name or unit'} | {known.clock or '–'} |"


def log_strings() -> Iterator[str]:
    """Yield the table of the configurations whose formats the lab reads."""
    yield "| format | durations, the best first | measured by |\n| --- | --- | --- |"
    for dialect in DIALECTS:
        yield f"| {dialect.name} | {', '.join(f'`{name}`' for name in dialect.durations)} | {dialect.clock} |"


def _name(parameter: Any) -> str:  # noqa: ANN401
    if parameter.param_type_name == "argument":
        return f"`{parameter.name}`"
    value = "" if parameter.is_flag else f" {parameter.opts[0].strip('-').upper()}"
    return f"`{parameter.opts[0]}{value}`"


def _default(parameter: Any) -> str:  # noqa: ANN401
    if isinstance(parameter.show_default, str):
        return f"`{parameter.show_default}`"
    return f"`{parameter.default}`" if parameter.default not in (None, "", 0, False) else "–"


PARTS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "commands": ("commands.md", commands),
    "log formats": ("advice.md", log_formats),
    "log strings": ("advice.md", log_strings),
}
"""The generated parts by name: the document of docs/, and the function that yields its lines."""


def renewed(name: str) -> tuple[str, str]:
    """Return the text of a part's document as it is, and as it should be."""
    path, lines = PARTS[name]
    text = (DOCS / path).read_text(encoding="utf-8")
    part = f"<!-- generated: {name} -->\n" + "\n".join(lines()) + "\n\n<!-- end -->"
    return text, re.sub(rf"<!-- generated: {name} -->.*?<!-- end -->", lambda _: part, text, flags=re.DOTALL)


if __name__ == "__main__":
    for each in PARTS:
        (DOCS / PARTS[each][0]).write_text(renewed(each)[1], encoding="utf-8")
