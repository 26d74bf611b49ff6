"""Renew what follows from the code: ``python -m tools.reference``. A test does the same, and fails if it was stale.

These files follow from the code: parts of docs/, which stand between ``<!-- generated: NAME -->`` and ``<!-- end -->``;
the .env file of each load script, for people who start the script by hand; the schema of experiment files, for editors.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any

import typer

from stampede import __version__, cli
from stampede.cli.help import GROUPS
from stampede.docker.facts import combinations
from stampede.evaluate.metrics import METRICS
from stampede.experiment.file import editor_schema, load_experiment, names
from stampede.experiment.loads.script import LoadScript, as_variables, request_environment
from stampede.experiment.loads.scripts import CLIENT_SCRIPTS, K6_SCRIPTS
from stampede.logs.format_strings import DIALECTS
from stampede.logs.formats import CSV, FORMATS, FREE, JSON_FORMATS, LOGFMT, LTSV, Format
from stampede.paths import CLIENTS, EXPERIMENTS, K6, ROOT
from stampede.plan import lay_out
from stampede.plan.timing import expected_s
from stampede.predict.options import KINDS
from stampede.reproduce.reproduction import REFERENCE, Reproduced, read_reproduction
from stampede.servers.program import GUNICORN, PROGRAMS
from stampede.service.description import Served, UserService
from stampede.service.variants import lifting_kinds
from tools.measured_advice import kept
from tools.pages import page_block, with_block

DOCS = ROOT / "docs"
JOBS_ON_TWO_CORES = 8
"""How many variants run side by side on two cores, by default."""
MOST_NAMED = 12
"""The most allowed words that a table of keys names."""


def commands() -> Iterator[str]:
    """Yield the lines of the reference of all commands of ``stampede``, in the groups of ``stampede --help``."""
    known: dict[str, Any] = typer.main.get_command(cli.app).commands  # type: ignore[attr-defined]  # it is a group
    for group, lines in GROUPS.items():
        yield f"\n## {group}"
        for name in (name for line in lines for name in line.split(", ")):
            yield from _command(f"stampede {name}", known[name])


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
    for known in (*FORMATS, *JSON_FORMATS, LOGFMT, LTSV, CSV, FREE):
        duration = known.duration if isinstance(known, Format) else (known.duration or ("",))[0]
        yield f"| {known.name} | {(duration and f'`{duration}`') or 'by their name or unit'} | {known.clock or '–'} |"


def log_strings() -> Iterator[str]:
    """Yield the table of the configurations whose formats the lab reads."""
    yield "| format | durations, the best first | measured by |\n| --- | --- | --- |"
    for dialect in DIALECTS:
        yield f"| {dialect.name} | {', '.join(f'`{name}`' for name in dialect.durations)} | {dialect.clock} |"


def metrics() -> Iterator[str]:
    """Yield the table of all metrics, with a row for each statistic or group of statistics."""
    yield "| metric | statistics | unit | of which requests | how it is counted |\n| --- | --- | --- | --- | --- |"
    for metric in METRICS.values():
        of, name = "all" if metric.of_all else "each class", f"`{metric.name}` "
        for how, stats in metric.explained():
            units = [metric.units[stat] for stat in stats]
            named = "times" if metric.is_of_times else ", ".join(f"`{stat}`" for stat in stats)
            yield f"| {name}| {named} | {units[0] if len({*units}) == 1 else ', '.join(units)} | {of} | {how} |"
            name = ""


def scripts(folder: Path, what: str, declared: Mapping[str, LoadScript]) -> Iterator[str]:
    """Yield the table of the scripts in a folder; ``what`` is the head of its second column."""
    yield f"| script in `{folder.name}/` | {what} |\n| --- | --- |"
    for name, script in declared.items():
        yield f"| `{name}` | {script.sends} |"


def catalogue() -> Iterator[str]:
    """Yield the table of all experiments, the shortest first, with what the reference says of their claims."""
    kept = {each.experiment: each for each in read_reproduction(REFERENCE).experiments}
    found = {name: load_experiment(name) for name in names()}
    halves = {
        name: ceil(expected_s(lay_out(each, trials=each.trials, jobs=JOBS_ON_TWO_CORES, seed=0)) / 30)
        for name, each in found.items()
    }
    yield "| experiment | minutes | question | what it finds | compared with the article |\n|" + " --- |" * 5
    for name, each in sorted(found.items(), key=lambda of: (halves[of[0]], of[0])):
        answer = next((claim for claim in each.claims if claim.role == "answer"), each.claims[0])
        judged, minutes = _judged(kept.get(name)), f"{halves[name] // 2}{'½' * (halves[name] % 2)}"
        yield f"| [{name}](experiments/{name}.md) | {minutes} | {each.question} | {answer.says} | {judged} |"


def _judged(kept: Reproduced | None) -> str:
    if kept is None or kept.shown is None:
        return "not measured yet"
    verdicts = [row[0] for table in kept.shown.tables if table.title == "Claims" for row in table.rows]
    claims = f"{sum(verdict.startswith('reproduced') for verdict in verdicts)} of {len(verdicts)} claims hold"
    return f"{kept.words.removesuffix('.')}; {claims}" if kept.figures else f"new; {claims}"


def still_holds(kept: Reproduced) -> Iterator[str]:
    """Yield whether an article still holds: what became of its figures, and of the claim that answers the question."""
    claim, verdict, measured = _answer(kept)
    yield f"**Does the article still hold?** {claim}: {verdict}, {measured}. Beside its figures: {kept.words}"


def to_quote(kept: Reproduced) -> Iterator[str]:
    """Yield the results on an experiment's page, and below them the paragraph that a writer may quote."""
    assert kept.shown
    yield from kept.shown.lines()
    claim, verdict, measured = _answer(kept)
    yield (
        f"To quote, under the MIT licence ([citation](../../CITATION.cff)):\n\n> {claim}: {verdict}, {measured}. "
        f"{_SENTENCE.split(kept.shown.about)[0]} (Stampede {__version__}, experiment {kept.experiment})."
    )


_SENTENCE = re.compile(r"\.(?= [A-Z0-9]|$)", re.MULTILINE)
"""Where a sentence ends; the points of version numbers end none."""


def _answer(kept: Reproduced) -> tuple[str, str, str]:
    """Return the claim that answers an experiment's question, its verdict, and what was measured."""
    claims = load_experiment(kept.experiment).claims
    says = next((claim for claim in claims if claim.role == "answer"), claims[0]).says.replace("_", r"\_")
    rows = [row for table in kept.shown.tables if table.title == "Claims" for row in table.rows] if kept.shown else []
    verdict, _, measured, _ = next(row for row in rows if row[1].startswith(says.replace(r"\_", "_")))
    return says, verdict, measured


def claims_to_measure(name: str) -> Iterator[str]:
    """Yield what the page of an experiment that nobody has measured shows in the place of results."""
    yield "Not measured yet. The claims:\n"
    for claim in load_experiment(name).claims:
        yield f"- {claim.says.replace('_', chr(92) + '_')}"


def service_keys() -> Iterator[str]:
    """Yield the table of the keys of a file that describes somebody's own service."""
    yield "| key | what it says | values | if it is left out |\n| --- | --- | --- | --- |"
    schema = UserService.model_json_schema()
    yield from _keys(schema, schema["$defs"], "")


def ways() -> Iterator[str]:
    """Yield the table of the ways in which somebody's own service is tried, with the servers that each is for."""
    kinds_when: dict[str, Callable[[Served], tuple[str, ...]]] = {
        "with several workers": lambda served: served.kind.tried,
        "if a bottleneck asks for it": lifting_kinds,
        "with `--ways`": lambda served: served.kind.named,
    }
    yield "| way | how it serves | for | when it is tried |\n| --- | --- | --- | --- |"
    for when, kinds_of in kinds_when.items():
        for kind in KINDS:
            if served := [word for word, each in _SERVED.items() if kind.name in kinds_of(each)]:
                first = f"gunicorn from {GUNICORN.first[kind.name][0]} on: " if kind.name in GUNICORN.first else ""
                yield f"| `{kind.name}` | {kind.reason} | {first}{_listed(served)} | {when} |"


_SERVED = {
    f"`{kind}`" if program is GUNICORN else f"{program.name} with {kind.upper()}" if kind else program.name:
    Served.model_validate({
        program.name: "25.0.0" if program is GUNICORN else program.release, "workers": 1, "replicas": 2,
        **({program.kind_by: kind} if kind else {}),
    }) for program in PROGRAMS.values() for kind in program.kinds
}  # fmt: skip
"""Every kind of workers that serves somebody's own application: gunicorn 25 has all classes."""


def _listed(served: Collection[str]) -> str:
    """Return some of the words of _SERVED in short."""
    if {*served} == {f"`{kind}`" for kind in GUNICORN.kinds}:
        return "every class of gunicorn"
    others = [word for word in _SERVED if word not in served]
    if not others:
        return "all"
    return f"all but {', '.join(others)}" if len(others) < len(served) / 2 else ", ".join(served)


def experiment_keys() -> Iterator[str]:
    """Yield the table of the keys of an experiment file, without those of variants. ``loads`` has a load by name."""
    schema = json.loads(editor_schema())
    schema["properties"] = {
        name: key for name, key in schema["properties"].items() if name not in ("loads", "variants")
    }
    yield "| key | what it says | values | if it is left out |\n| --- | --- | --- | --- |"
    yield from _keys(schema, schema["$defs"], "")


def variant_keys() -> Iterator[str]:
    """Yield a table of the keys that all variants have, and for each kind of server its words and further keys."""
    schema = json.loads(editor_schema())
    kinds: dict[str, list[str]] = {}
    for word, model in _variant_schema(schema)["discriminator"]["mapping"].items():
        kinds.setdefault(model.rpartition("/")[2], []).append(word)
    models = [schema["$defs"][kind] for kind in kinds]
    common = {name for name in models[0]["properties"] if all(name in each["properties"] for each in models)}
    common -= {"server", "app", "workers", "threads"}
    yield "| key of every variant | what it says | values | if it is left out |\n| --- | --- | --- | --- |"
    yield from _keys(_only(schema["$defs"]["GunicornGthread"], common), {}, "")
    for kind, words in kinds.items():
        model = schema["$defs"][kind]
        yield f"\n**{', '.join(f'`{word}`' for word in words)}**: {model['description'].partition(chr(10) * 2)[0]}\n"
        yield "| key | what it says | values | if it is left out |\n| --- | --- | --- | --- |"
        own = {name for name, key in model["properties"].items() if "const" not in key and key.get("type") != "null"}
        yield from _keys(_only(model, own - common - {"server"}), {}, "")


def _variant_schema(schema: dict[str, Any]) -> dict[str, Any]:
    [each] = schema["properties"]["variants"]["patternProperties"].values()
    return dict(each)


def _only(model: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return model | {"properties": {name: key for name, key in model["properties"].items() if name in names}}


def _keys(model: dict[str, Any], models: dict[str, Any], of: str) -> Iterator[str]:
    for name, key in model["properties"].items():
        named = [*key.get("patternProperties", {}).values()]
        listed = [key["items"]] if "items" in key else []
        refs = [each["$ref"] for each in [key, *key.get("anyOf", []), *named, *listed] if "$ref" in each]
        if inner := next((models[kind] for ref in refs if (kind := ref.rpartition("/")[2]) in models), None):
            yield from _keys(inner, models, f"{of}{name}{'[]' * len(listed)}.{'NAME.' if named else ''}")
        else:
            left_out = "required" if name in model.get("required", []) else _left_out(key.get("default"))
            yield f"| `{of}{name}` | {key.get('description', '')} | {_values(key)} | {left_out} |"


def _values(key: dict[str, Any]) -> str:
    """Return which values a key of a JSON schema takes: words, or numbers from the least to the most."""
    each = next((kind for kind in key.get("anyOf", []) if kind.get("type") != "null"), key)
    if "enum" in each:
        return "" if len(each["enum"]) > MOST_NAMED else ", ".join(f"`{word}`" for word in each["enum"])
    least, most = each.get("minimum", each.get("exclusiveMinimum")), each.get("maximum")
    return "" if least is None else f"from {least}" if most is None else f"{least} to {most:,}"


def _left_out(default: object) -> str:
    words = ", ".join(default) if isinstance(default, list) else default
    return f"`{words}`" if words not in (None, "", 0, {}) else "–"


def _name(parameter: Any) -> str:  # noqa: ANN401
    if parameter.param_type_name == "argument":
        return f"`{parameter.name}`"
    value = "" if parameter.is_flag else f" {parameter.opts[0].strip('-').upper()}"
    return f"`{parameter.opts[0]}{value}`"


def _default(parameter: Any) -> str:  # noqa: ANN401
    if isinstance(parameter.show_default, str):
        return f"`{parameter.show_default}`"
    return f"`{parameter.default}`" if parameter.default not in (None, "", 0, False) else "–"


def machines_tried() -> Iterator[str]:
    """Yield the table of the machines on which the lab was tried."""
    for each in combinations():
        yield f"\n### {each['kind']}\n"
        yield f"{each['date']}: {each['engine']} on {each['system']}.{' ' if each['wrong'] else ''}{each['wrong']}\n"
        yield "| what ran | result |\n| --- | --- |"
        yield from (f"| {what} | {result} |" for what, result in each["ran"].items())


PARTS: dict[str, tuple[str, Callable[[], Iterator[str]]]] = {
    "commands": ("reference/commands.md", commands),
    "experiment keys": ("reference/experiment-file.md", experiment_keys),
    "variant keys": ("reference/experiment-file.md", variant_keys),
    "catalogue": ("README.md", catalogue),
    "service keys": ("reference/service-file.md", service_keys),
    "ways": ("how-to/your-service.md", ways),
    "log formats": ("how-to/advise.md", log_formats),
    "log strings": ("how-to/advise.md", log_strings),
    "metrics": ("reference/metrics.md", metrics),
    "k6": ("reference/experiment-file.md", partial(scripts, K6, "what it sends", K6_SCRIPTS)),
    "tried": ("reference/tried.md", machines_tried),
    "measured advice": ("how-to/advise.md", kept),
    "clients": ("reference/experiment-file.md", partial(scripts, CLIENTS, "what it does", CLIENT_SCRIPTS)),
    **{page_block(name): (f"experiments/{name}.md", partial(claims_to_measure, name)) for name in names()},
    **{
        block: (f"experiments/{kept.experiment}.md", partial(lines, kept))
        for kept in read_reproduction(REFERENCE).experiments
        if kept.shown
        for block, lines in {
            page_block(kept.experiment): to_quote,
            **({f"{kept.experiment} today": still_holds} if kept.figures else {}),
        }.items()
    },
}
"""The generated parts by name: the document of docs/, and the function that yields its lines."""


def env_file(script: Path, declared: LoadScript) -> str:
    """Return the env file with which people start a script by hand: each variable that it reads."""
    settings = declared.example | ({"cpu": "hold"} if "cpu_ms" in declared.example else {})
    by_hand = {"DURATION": "30s", "START_AT_MS": "0", "START_AFTER": "0s"}
    known = as_variables(settings) | declared.derived_environment(declared.example, by_hand["DURATION"]) | by_hand
    if "rounds" in settings:
        known |= request_environment(settings)
    shared = {name for file in (script.parent / "lib").glob(f"*{script.suffix}") for name in _read_by(file)}
    read = _read_by(script) | (shared & known.keys())
    lines = [f"# The settings of {script.name} when you start it by hand. {declared.needs}".rstrip()]
    lines += [f"{name}={known[name]}" for name in sorted(read, key=list(known).index)]
    return "".join(f"{line}\n" for line in lines)


def _read_by(program: Path) -> set[str]:
    """Return the variables that a program reads with a function of k6/lib/settings.js or clients/lib/settings.py."""
    return set(_READ.findall(program.read_text(encoding="utf-8")))


_READ = re.compile(r"""\b(?:text|numbers?|count|duration_s)\(["'](?!LAB_)(\w+)["']\)""")
"""How a script reads a variable. Compose sets the variables that begin with LAB_."""


def generated() -> Iterator[tuple[Path, str]]:
    """Yield each file that follows from the code, and the text that it should have."""
    documents: dict[Path, str] = {}
    for name, (document, lines) in PARTS.items():
        text = documents.get(DOCS / document) or (DOCS / document).read_text(encoding="utf-8")
        documents[DOCS / document] = with_block(text, name, lines())
    yield from documents.items()
    for folder, declared in ((K6, K6_SCRIPTS), (CLIENTS, CLIENT_SCRIPTS)):
        for name, script in declared.items():
            yield (folder / name).with_suffix(".env"), env_file(folder / name, script)
    yield EXPERIMENTS / "schema.json", editor_schema()


def renew() -> list[str]:
    """Write the files that are stale, and return their paths in the checkout."""
    stale = []
    for path, text in generated():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            stale.append(str(path.relative_to(ROOT)))
    return stale


if __name__ == "__main__":
    print("\n".join(renew()) or "Nothing was stale.")
