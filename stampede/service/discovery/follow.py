"""What a command starts in the end: shells, scripts, wrappers and Python programs are followed to their server."""

import configparser
import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from stampede.service.discovery.programs import command_of_project, start_of_module, start_of_program
from stampede.service.discovery.repository import NO_SERVERS, NOT_OF_THE_SERVICE, SERVERS, Repository, Start, preparing
from stampede.service.discovery.shell import Shell

_SHELLS = ("sh", "bash", "ash", "dash", "zsh")
_MANAGERS = ("honcho", "foreman", "overmind", "hivemind", "goreman")
"""Programs that start the commands of a Procfile."""
_A_COMMAND = re.compile(rf"(?:.*[\s/])?(?:{'|'.join(SERVERS)}) \S", re.DOTALL)
"""A word that is a whole command."""
_DEEPEST = 6
"""How many scripts may call each other."""
_MOST_INCLUDED = 10
"""How often a script may include the same other script."""
_MOST_FOLLOWED = 500
"""How many commands of a repository are followed to what they start."""
_FURTHEST = 12
"""How many words may stand before a command, such as those of ``tini -- poetry run``."""


def follow(start: Start, repository: Repository, depth: int = 0) -> list[Start]:
    """Return the commands that a command starts in the end: those of its script, or the command itself."""
    if not start.words:
        return []
    repository.followed += 1
    if repository.followed > _MOST_FOLLOWED:
        too_many = f"its scripts have more than {_MOST_FOLLOWED} commands; not all are read"
        repository.note_unread(repository.folder, too_many)
    may_go_on = depth < _DEEPEST and repository.followed <= _MOST_FOLLOWED
    found = _further_commands(start, repository, depth) if may_go_on else []
    servers = [each for each in found if each.server]
    return servers or ([start] if start.server else found[-1:] or [start])


def _further_commands(start: Start, repository: Repository, depth: int) -> list[Start]:
    """Return the commands that a command hands on to; none: it is a server, or hands on to nothing that is known."""
    if NO_SERVERS.match(start.words[0].rpartition("/")[2]):
        return []
    for place in range(min(len(start.words), _FURTHEST)):
        program = start.words[place].rpartition("/")[2]
        if program in SERVERS:
            return []
        is_script = place == 0 or start.words[place - 1] in ("--", "run")
        inner = replace(start, words=start.words[place:])
        is_module = program == "-m" and not re.search(r"python[\d.]*$", start.words[place - 1])
        if (is_module or not program.startswith("-")) and (
            found := [*_next_commands(inner, repository, depth, may_be_script=is_script)]
        ):
            return found
    return []


def _next_commands(start: Start, repository: Repository, depth: int, *, may_be_script: bool) -> Iterator[Start]:
    """Yield what a script, a Python program, a manager of processes, or a script that the project names starts."""
    words, program = start.words, start.words[0].rpartition("/")[2]
    if script := _script_of(start, repository):
        yield from _script_commands(start, *script, repository, depth)
    elif started := start_of_program(start, repository):
        yield from follow(started, repository, depth + 1)
    elif program in _MANAGERS and words[1:2] == ["start"]:
        yield from _procfile_commands(start, repository, depth)
    elif program in ("supervisord", "supervisord.py"):
        yield from supervisor_starts(start, repository)
    elif may_be_script:
        yield from _project_commands(start, repository, depth)


def _script_of(start: Start, repository: Repository) -> tuple[str, list[str], str] | None:
    """Return the script that a command runs, its arguments, and the name of its file; None: it runs none."""
    words, program = start.words, start.words[0].rpartition("/")[2]
    if program in _SHELLS or program in ("su", "runuser"):
        for place, word in enumerate(words[1:], start=1):
            if re.fullmatch(r"-[a-z]*c", word) and words[place + 1 :]:
                return words[place + 1], words[place + 3 :], ""
            if not word.startswith("-") and program in _SHELLS and words[place - 1] != "-o":
                return repository.program(word, start), words[place + 1 :], word
        return None
    if len(words) > 2 and _A_COMMAND.match(words[-1]) and not re.match(r"python[\d.]*$", program):
        return words[-1], [], ""  # as sops exec-env takes it
    text = repository.script(words[0], start)
    return (text, words[1:], words[0]) if text else None


def _script_commands(
    start: Start, text: str, arguments: list[str], name: str, repository: Repository, depth: int
) -> Iterator[Start]:
    """Yield what a script starts. ``name`` is that of its file; empty: it is part of the command.

    If a script gets no arguments and starts no server, it may be one that looks at arguments that others give to it.
    """
    found = [*_commands_of(start, text, arguments, name, repository, depth)]
    if not arguments and name and not any(each.server for each in found):
        found = [*_commands_of(start, text, None, name, repository, depth)] or found
    yield from found


def _commands_of(
    start: Start, text: str, arguments: list[str] | None, name: str, repository: Repository, depth: int
) -> Iterator[Start]:
    included = Counter[str]()

    def read(name: str) -> str:
        included[name] += 1
        if included[name] > _MOST_INCLUDED:
            repository.note_unread(repository.folder / name, "scripts include it again and again; the lab does not")
            return ":"
        return repository.program(name, start)

    def has(name: str) -> bool | None:
        return repository.has(name, start)

    before = start.before
    unlikely: list[Start] = []
    for begun in Shell(start.environment, arguments, repository.cores, read, has).run(text):
        at = f"{start.place}, {name}:{begun.line}" if name else start.place
        if command := preparing(shlex.join(begun.words)):
            before = (*before, (command, at))
            continue
        folder = (start.folder / begun.folder).resolve() if begun.folder else start.folder
        if begun.folder and (begun.folder.startswith("/") or not folder.is_dir()):
            folder = repository.folder_of(begun.folder, start.image)
        given = {name: value for name, value in begun.given.items()
                 if not NOT_OF_THE_SERVICE.match(name) and not re.search(r"[$`]", value)}  # fmt: skip
        inner = replace(start, words=begun.words, environment=begun.environment, folder=folder,
                        given={**start.given, **given}, before=before)  # fmt: skip
        if begun.is_repeated:
            often = f"{start.place}: a loop starts the server; how often is not known, so it is taken once"
            inner = replace(inner, problems=(*inner.problems, often))
        for each in follow(inner, repository, depth + 1):
            if each.server and begun.is_unlikely:
                unlikely.append(each)
            else:
                yield each if each.server or depth else replace(each, place=at)
    yield from unlikely


def _project_commands(start: Start, repository: Repository, depth: int) -> Iterator[Start]:
    """Yield what a script that the project names starts."""
    match command_of_project(start.words, repository, start.folder):
        case [module, function], arguments:
            if started := start_of_module(start, module, function, repository, arguments):
                yield from follow(started, repository, depth + 1)
        case str(text), arguments:
            yield from _script_commands(start, text, arguments, "", repository, depth)


def _procfile_commands(start: Start, repository: Repository, depth: int) -> Iterator[Start]:
    """Yield what honcho or a program like it starts of a Procfile."""
    words = start.words[2:]
    file = next((after for before, after in pairwise(words) if before in ("-f", "--procfile")), "")
    for line in repository.program(file or "Procfile", start).splitlines():
        name, colon, command = line.partition(":")
        if colon and (name.strip() == "web" or name.strip() in words):
            yield from _script_commands(start, command, [], "", repository, depth)


def supervisor_starts(start: Start, repository: Repository) -> Iterator[Start]:
    """Yield the servers that supervisord's file starts."""
    said = [word for before, word in pairwise(start.words) if before in ("-c", "--configuration")]
    named = [path for word in said if (path := repository.program_path(word, start))]
    for path in named or repository.files("supervisor*.conf", "supervisor*.ini"):
        place = path.relative_to(repository.folder)
        parser = configparser.RawConfigParser(strict=False, inline_comment_prefixes=(" ;", "\t;"))
        try:
            parser.read_string(repository.text(path))
        except configparser.Error:
            repository.problems.append(f"{place}: this file of supervisord cannot be read")
            continue
        for section in parser.sections():
            if section.startswith(("program:", "fcgi-program:")) and parser[section].get("command"):
                yield from _program(start, dict(parser[section], section=section), str(place), repository)


def _program(start: Start, said: dict[str, str], place: str, repository: Repository) -> Iterator[Start]:
    command = said["command"].replace("\n", " ").replace("%%", "%")
    command = re.sub(r"%\(ENV_(\w+)\)[sd]", r"${\1}", command)
    pairs = re.findall(r"""(\w+)\s*=\s*("[^"]*"|'[^']*'|[^,]*)""", said.get("environment", ""))
    given = {name: value.strip("\"' ").replace("%%", "%") for name, value in pairs}
    folder = repository.folder_of(said["directory"], start.image) if said.get("directory") else start.folder
    own = {name: value for name, value in given.items() if not NOT_OF_THE_SERVICE.match(name)}
    line = _line_of(repository.text(place), said["command"].splitlines()[0])
    begun = replace(start, words=["sh", "-c", command], folder=folder, place=f"{place}:{line}",
                    environment={**start.environment, **given}, given={**start.given, **own})  # fmt: skip
    processes = int(count) if (count := said.get("numprocs", "1")).isdecimal() else 1
    for each in follow(begun, repository, 1):
        if each.server and processes > 1 and said["section"].startswith("fcgi-"):  # they share a socket, as workers do
            yield replace(each, words=[*each.words, "--workers", str(processes)])
        elif each.server:
            yield replace(each, replicas=processes if processes > 1 else each.replicas)


def _line_of(text: str, part: str) -> int:
    """Return the line of a text that has a part."""
    return next((number for number, line in enumerate(text.splitlines(), start=1) if part in line), 1)
