"""Find out who imports a module that Python did not find, and where a user says where the module is."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from stampede.errors import WrongUse
from stampede.foreign import read_text

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)")
_FRAME = re.compile(r'^[ \t]*File "(?P<path>[^"<\n][^"\n]*)", line \d+, in .*\n[ \t]*(?P<code>.*)', re.MULTILINE)
_WORKERS = {"ggevent": "gevent", "geventlet": "eventlet", "gtornado": "tornado"}
"""gunicorn's modules of workers that have another name than their class."""
_WRAPPER = "/opt/stampede/stampede_own.py"
"""The lab's program that imports the module of application.callable."""
_PASSED_OVER = {"__pycache__", "docs", "examples", "node_modules", "site-packages", "test", "tests", "venv"}
_MOST_FOLDERS = 5000
_MAKES_APP = re.compile(r"^(application|app|api)\s*(?::[^=\n]*)?=(?!=)", re.MULTILINE)
_USUAL = ("wsgi", "asgi", "app", "main")
_PACKAGES = (
    "Name its package in application.packages, or in application.extras the extra of the project that brings it."
)


def way_to_module(said: str, folder: Path | None = None) -> str:
    """Return how a program gets a module that it did not find; empty if it found all.

    ``said`` is what the program wrote, with its traceback. ``folder`` has the application; None: an image has it.
    """
    if not (found := _MISSING.search(said)):
        return ""
    name = found[1]
    module = name.partition(".")[0]
    frames = [each for each in _FRAME.finditer(said, 0, found.start()) if "/importlib/" not in each["path"]]
    path, code = (frames[-1]["path"], frames[-1]["code"]) if frames else ("", "")
    package = path.partition("/site-packages/")[2]
    if package and re.match(r"(import|from)\s", code):
        return (f"{_importer(package)} needs {module}, which application.requirements does not bring. Add its package "
                f"to your requirements, or only for the lab under application: packages: [{module}], if the package "
                "has the name of the module.")  # fmt: skip
    by_callable = path.endswith(_WRAPPER)
    who = f"application.callable names {name}" if by_callable else f"The application imports {name}"
    places = sorted(_places(folder, module), key=lambda place: (len(place.parts), place)) if folder else []
    if places and places[0].parts:
        place = places[0].as_posix()
        return (f"{who}, which is in {place} of application.folder, but Python looks only in that folder itself. Write "
                f"under application: environment: {{PYTHONPATH: {place}}}. Or, if the service starts in {place}, "
                f"write {place} at the end of application.folder, and callable, requirements and settings as seen "
                "from there.")  # fmt: skip
    if places and "." in name:
        return f"{who}, but {module} in application.folder has no such module. Is the file elsewhere, or generated?"
    if by_callable:
        where = "application.folder" if folder else "the image"
        there = next(iter(_callables(folder)), "") if folder else ""
        way = f"Write a module that is there, such as callable: {there}" if there else "Correct application.callable"
        return f"{who}, which {where} does not have. {way}."
    return f"{who.removesuffix(name)}{module}, which application.requirements does not bring. {_PACKAGES}"


def _importer(path: str) -> str:
    """Return who has a file of site-packages, as the subject of a sentence."""
    parts = path.removesuffix(".py").split("/")
    if parts[:2] == ["gunicorn", "workers"]:
        return f"gunicorn's {_WORKERS.get(parts[-1], parts[-1])} worker"
    return f"The package {parts[0]}"


def _places(folder: Path, module: str) -> Iterator[Path]:
    """Yield the folders that have a module, seen from the application's folder."""
    for place, folders, files in _walk(folder):
        is_package = module in folders and any((folder / place / module).glob("*.py"))
        if f"{module}.py" in files or is_package:
            yield place


def _callables(folder: Path) -> list[str]:
    """Return the applications that modules of a folder make, as ``module:name``, those with usual names first."""
    found = []
    for place, _, files in _walk(folder):
        for file in files:
            if file.endswith(".py") and len(place.parts) <= 1:
                with suppress(WrongUse):
                    if made := _MAKES_APP.search(read_text(folder / place / file)):
                        found.append(f"{'.'.join((*place.parts, file.removesuffix('.py')))}:{made[1]}")

    def order(name: str) -> tuple[int, int, str]:
        module = name.partition(":")[0]
        last = module.rpartition(".")[2]
        return module.count("."), _USUAL.index(last) if last in _USUAL else len(_USUAL), name

    return sorted(found, key=order)


def _walk(folder: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield the folders of an application, seen from its own, with the names of their folders and files."""
    for count, (place, folders, files) in enumerate(os.walk(folder)):
        if count >= _MOST_FOLDERS:
            return
        folders[:] = sorted(name for name in folders if name not in _PASSED_OVER and not name.startswith("."))
        yield Path(place).relative_to(folder), folders, files
