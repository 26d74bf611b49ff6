"""A run's folder: where the files of the run are, and how the lab reads and writes records.

``results/<experiment>/<UTC time>/run.json`` and, for each trial, ``<variant>/<load>/<n>/trial.json``.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import ValidationError

from stampede.errors import WrongUse
from stampede.foreign import read_bytes
from stampede.records.mistakes import explain, placed, unread
from stampede.records.model import Model
from stampede.records.run import SCHEMA, Run, TrialRecord
from stampede.records.summary import Summary
from stampede.records.words import OBEYED

R = TypeVar("R", bound=Model)
POINTS = "points*.json.gz"
"""The names of the files with a trial's raw points. Each file has the requests of one generator."""
SERVED = "served-*.csv"
"""The names of the files that say which worker served which request of somebody's own application."""
ALONE = "alone.json"
"""The file of a trial that has the response times of single requests before the load, in ms, by class."""
OBSERVATIONS = ("*.before.txt", "*.after.txt")
"""The names of the files with observations of containers."""
GENERATOR = "k6-processor*.txt"
"""The names of the files that say how long each k6 waited for a processor."""
MOST_BYTES = 64 * 2**20
"""A record, a summary or a manifest may have so many bytes."""


class BadRun(Exception):
    """The folder is not a run, or this version cannot read the run. The message names the file and the reason."""


class NoTemporaryRoom(OSError):
    """The folder TMPDIR has no room for data that does not fit into memory; ``filename`` is the folder's path."""


def trial_folder(run: Path, variant: str, load: str, trial: int) -> Path:
    """Return the folder of a trial's files."""
    return run / variant / load / str(trial)


def trial_folders(run: Path) -> list[Path]:
    """Return the folders of all finished trials, in a stable order."""
    return sorted(path.parent for path in run.glob("*/*/*/trial.json"))


def read_run(run: Path) -> Run:
    """Read run.json. Raise BadRun if run.json is missing or cannot be understood."""
    return _read(run / "run.json", Run)


def read_trial(folder: Path) -> TrialRecord:
    """Read trial.json. Raise BadRun if trial.json is missing or cannot be understood."""
    return _read(folder / "trial.json", TrialRecord)


def write_record(path: Path, record: Model) -> None:
    """Write a record as JSON, whole or not at all."""
    values = {"schema": SCHEMA, **record.model_dump(mode="json")}
    write_whole(path, json.dumps(values, indent=2, ensure_ascii=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to a temporary file and rename it to ``path``, so that readers see the whole file or no file."""
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
    ) as neighbour:
        try:
            neighbour.write(text)
            neighbour.flush()
            os.fchmod(neighbour.fileno(), 0o644)
            Path(neighbour.name).replace(path)
        except BaseException:
            Path(neighbour.name).unlink(missing_ok=True)
            raise


def read_bounded(path: Path) -> bytes:
    """Read a file of a run. Raise BadRun if it has more than MOST_BYTES, and OSError if it is a pipe or a device."""
    try:
        return read_bytes(path, most_bytes=MOST_BYTES)
    except WrongUse as error:
        raise BadRun(error.message.removesuffix(".")) from None


def read_values(path: Path, schema: int | None = None) -> dict[str, Any]:
    """Read the JSON object of a record or a summary. Raise BadRun if it is broken, or not of ``schema``."""
    try:
        text = read_bounded(path).decode()
        values = json.loads(text)
    except FileNotFoundError:
        raise BadRun(f"{path.parent} has no {path.name}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadRun(f"{path} cannot be read: {unread(error)}") from None
    found = values.get("schema") if isinstance(values, dict) else None
    if type(found) is not int or (schema is not None and found != schema):
        raise BadRun(f"{path} has schema {found}; this version reads schema {schema or SCHEMA}")
    if "\\u" in text or OBEYED.search(text):
        values = _shown(values)
    return cast("dict[str, Any]", values)


def _shown(values: Any) -> Any:  # noqa: ANN401  # whatever JSON has
    """Return values of JSON whose texts have U+FFFD in the place of such a character."""
    if isinstance(values, dict):
        return {_shown(key): _shown(value) for key, value in values.items()}
    if isinstance(values, list):
        return [*map(_shown, values)]
    return OBEYED.sub("\ufffd", values) if isinstance(values, str) else values


def validated(path: Path, kind: type[R], values: dict[str, Any]) -> R:
    """Return the model of a file's values. Raise BadRun with the place if this version needs another value there."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        raise BadRun(f"{path}: {placed(*explain(error, kind, values))}") from None


def _read(path: Path, kind: type[R]) -> R:
    values = read_values(path, SCHEMA)
    del values["schema"]
    return validated(path, kind, values)


def read_summary(results: Path) -> Summary:
    """Read summary.json in a run's folder, or a file of results. Raise BadRun if it is missing or broken."""
    return _read(results / "summary.json" if results.is_dir() else results, Summary)
