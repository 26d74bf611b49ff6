"""Classes of laptops, made from real runs: the records are changed, the numbers of some laptops are, too."""

import gzip
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stampede.export import pack
from stampede.pipeline import derive_summary
from stampede.predict.prediction import predictions_of
from stampede.records.checksums import MANIFEST, seal
from tools.real_runs import unpack

PEOPLE = ("ana", "boris", "chloe", "dolores", "emil", "fatima", "goran", "hana", "igor", "jana", "karl", "lucia")
Change = Callable[[int, dict[str, Any], dict[str, Any]], None]
"""Changes the run.json and the summary.json of the laptop with this place in the class."""


def with_results(folder: Path, experiment: str = "keep-alive") -> Path:
    """Unpack a real run below a folder, compute its results, and return a folder with what the lab exports of it."""
    measured = unpack(experiment, folder)
    derive_summary(measured, predictions_of(measured))
    pack([measured], archive := folder / "exported.tar.gz")
    shutil.unpack_archive(archive, folder / "exported" / experiment, filter="data")
    [exported] = (folder / "exported" / experiment).iterdir()
    return exported


def make_class(folder: Path, measured: Path, size: int = 12, change: Change | None = None) -> list[Path]:
    """Write the archives of a class whose laptops measured a run, each with the name of somebody; return their paths.

    The first four laptops have two cores and the others eight. Values differ by a few per cent.
    """
    folder.mkdir(parents=True, exist_ok=True)
    experiment, archives = measured.parent.name, []
    for place, person in enumerate(PEOPLE[:size]):
        run = hand_in(measured, folder / "runs" / person / experiment / measured.name, place, change)
        archives.append(folder / f"{person}s-{experiment}.tar.gz")
        pack([run], archives[-1])
    shutil.rmtree(folder / "runs")
    return archives


def hand_in(measured: Path, run: Path, place: int, change: Change | None = None) -> Path:
    """Copy a run as if another laptop had measured it, and return the new run's folder."""
    shutil.copytree(measured, run)
    record, summary = (json.loads((run / name).read_text(encoding="utf-8")) for name in ("run.json", "summary.json"))
    chance = random.Random(place)
    record["host"] |= {"cores": 2 if place < 4 else 8, "cpu": "AMD EPYC" if place % 2 else "Apple M2"}
    record["began"] = f"2026-11-22T14:{place:02}:00.000Z"
    for row in [*summary["claims"], *(figure for one in summary["published"] for figure in one["figures"])]:
        if row["measured"]:
            row["measured"] *= chance.uniform(0.97, 1.03)
    if change:
        change(place, record, summary)
    (run / "run.json").write_text(json.dumps(record), encoding="utf-8")
    (run / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    for points in run.glob("*/*/*/points.json.gz"):
        points.write_bytes(
            points.read_bytes() + gzip.compress(b"\n" * place, mtime=0)
        )  # each laptop has its own points
    (run / MANIFEST).unlink()
    seal(run)
    return run
