"""Real runs in tests/runs, cut down to a few of their variants and loads.

Of their points are left those that the lab's own scripts write, the others stay unread; the manifest was sealed again.
Each has the summary.json that follows from it, without predictions. After a change of results that was decided,
PYTHONPATH=. .venv/bin/python -m tools.real_runs writes these summaries again.
"""

import io
import tarfile
import tempfile
from pathlib import Path

from stampede.paths import ROOT
from stampede.pipeline import derive_summary

PACKED = ROOT / "tests" / "runs"
NAMES = sorted(path.name.removesuffix(".tar.xz") for path in PACKED.glob("*.tar.xz"))


def unpack(name: str, folder: Path) -> Path:
    """Unpack the run of an experiment below a folder and return the run's folder."""
    with tarfile.open(PACKED / f"{name}.tar.xz") as packed:
        if hasattr(tarfile, "data_filter"):  # the first releases of Python 3.11 have no filters
            packed.extraction_filter = tarfile.data_filter
        packed.extractall(folder)  # noqa: S202  # the project made these archives
    [run] = (folder / name).iterdir()
    return run


def renew(name: str) -> None:
    """Put the summary that follows from a run today into its archive."""
    path = PACKED / f"{name}.tar.xz"
    with tempfile.TemporaryDirectory() as folder:
        run = unpack(name, Path(folder))
        derive_summary(run)
        summary = (run / "summary.json").read_bytes()
    with tarfile.open(path) as packed:
        members = [(member, packed.extractfile(member)) for member in packed.getmembers()]
        files = [(member, file and file.read()) for member, file in members]
    with tarfile.open(path, "w:xz", preset=9) as packed:
        for member, content in files:
            kept = summary if member.name == f"{name}/{run.name}/summary.json" else content
            member.size = len(kept or b"")
            packed.addfile(member, io.BytesIO(kept or b""))


if __name__ == "__main__":
    for each in NAMES:
        renew(each)
