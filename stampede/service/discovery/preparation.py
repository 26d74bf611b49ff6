"""The commands that prepare an application before it is served, such as the migration of its database."""

import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from stampede.service.discovery.repository import Repository, Start, preparing
from stampede.service.discovery.servers import Discovery

_GUESSED = {"manage.py": "python manage.py migrate", "alembic.ini": "alembic upgrade head"}
"""What prepares an empty database, by the file that its tool has in the application's folder."""


def note_preparation(found: Discovery, start: Start | None, repository: Repository) -> None:
    """Note the commands that run before the server, and what prepares a database if none of them does."""
    said: dict[str, str] = {}
    for command, place in start.before if start else ():
        if (text := _in_folder(command, found.folder, start, repository)) is None:
            found.problems.append(
                f"{place}: {command} runs a file that is not in {found.folder.name}; it was not taken"
            )
        else:
            said.setdefault(text, place)
    for name, command in _GUESSED.items():
        is_known = any(re.search(r"\bmigrat|\bupgrade\b|prestart", text) for text in said)
        if (found.folder / name).is_file() and not is_known:
            said[command] = "guessed: a database is empty when a trial begins"
    if not said:
        said = dict([*_in_readme(repository)][:1])
    if said:
        found.note("before", " && ".join(said), ", ".join(dict.fromkeys(said.values())))


def _in_readme(repository: Repository) -> Iterator[tuple[str, str]]:
    """Yield the commands of a README that prepare the application, and where each stands."""
    for path in sorted(repository.folder.glob("README*")):
        for number, line in enumerate(repository.text(path).splitlines(), start=1):
            if (command := preparing(line)) and "`" not in command:
                yield command, f"{path.name}:{number}"


def _in_folder(command: str, folder: Path, start: Start | None, repository: Repository) -> str | None:
    """Return a command with the paths of an image as those from a folder; None: a file of it is outside the folder."""
    words: list[str] = []
    try:
        written = shlex.split(command)
    except ValueError:  # it is a part of a command in quotes
        return None
    for word in written:
        is_path = start and not word.startswith("-") and ("/" in word or word.endswith((".py", ".sh")))
        path = repository.program_path(word, start) if start and is_path else None
        if path and not path.resolve().is_relative_to(folder.resolve()):
            return None
        inside = os.path.relpath(path.resolve(), folder.resolve()) if path else word
        words += (
            ["python", inside] if inside == "manage.py" and not re.match("python", "".join(words[-1:])) else [inside]
        )
    return shlex.join(words)
