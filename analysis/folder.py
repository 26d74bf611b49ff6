"""A run's folder: where its files lie, and how records are read from it and written to it.

``results/<experiment>/<UTC time>/run.json`` and, for each trial, ``<variant>/<load>/<n>/trial.json``.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from analysis.record import SCHEMA, Record, Run, TrialRecord

R = TypeVar("R", bound=Record)


class BadRun(Exception):
    """A folder that is not a run, or a run that this version cannot read. The message names the file and the reason."""


class NoTemporaryRoom(OSError):
    """TMPDIR, which ``filename`` names, has no room for data that does not fit into memory."""


def trial_folder(run: Path, variant: str, load: str, trial: int) -> Path:
    """Return where a trial's files lie."""
    return run / variant / load / str(trial)


def trial_folders(run: Path) -> list[Path]:
    """Return the folders of all finished trials, in a stable order."""
    return sorted(path.parent for path in run.glob("*/*/*/trial.json"))


def read_run(run: Path) -> Run:
    """Read run.json. Raise BadRun when there is none or it cannot be understood."""
    return _read(run / "run.json", Run)


def read_trial(folder: Path) -> TrialRecord:
    """Read trial.json. Raise BadRun when there is none or it cannot be understood."""
    return _read(folder / "trial.json", TrialRecord)


def write_record(path: Path, record: Record) -> None:
    """Write a record as JSON, whole or not at all."""
    values = record.model_dump(mode="json", exclude_unset=False)
    write_whole(path, json.dumps({"schema": values.pop("schema_"), **values}, indent=2, ensure_ascii=False) + "\n")


def write_whole(path: Path, text: str) -> None:
    """Write ``text`` to ``path`` through a neighbour that is renamed, so that no reader sees half a file."""
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


def _read(path: Path, kind: type[R]) -> R:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadRun(f"{path.parent} has no {path.name}") from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadRun(f"{path} cannot be read: {error}") from None
    schema = values.pop("schema", None) if isinstance(values, dict) else None
    if schema != SCHEMA:
        raise BadRun(f"{path} has schema {schema}; this version reads schema {SCHEMA}")
    try:
        return kind.model_validate({"schema_": schema, **values})
    except ValidationError as error:
        first = error.errors()[0]
        raise BadRun(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
