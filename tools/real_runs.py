"""Real runs in tests/runs, cut down to a few of their variants and loads.

Of their points are left those that the lab's own scripts write, the others stay unread; the manifest was sealed again.
Each has the summary.json that follows from it, without predictions. After a change of results that was decided,
PYTHONPATH=. .venv/bin/python -m tools.real_runs writes these summaries again and prints
what changed.
"""

import io
import sys
import tarfile
import tempfile
from pathlib import Path

from stampede.paths import ROOT
from stampede.pipeline import derive_summary
from tools.same_results import compare_results

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


def renew(name: str) -> list[str]:
    """Put the summary that follows from a run today into its archive, and return what it says otherwise."""
    path, beside = PACKED / f"{name}.tar.xz", PACKED / f"{name}.tar.xz.new"
    with tempfile.TemporaryDirectory() as folder:
        run, known = unpack(name, Path(folder)), Path(folder) / "known.json"
        if not (run / "summary.json").exists():
            sys.exit(f"{path} has no summary.json")
        (run / "summary.json").rename(known)
        derive_summary(run)
        summary, differences = (run / "summary.json").read_bytes(), compare_results(run, known)
    with tarfile.open(path) as packed, tarfile.open(beside, "w:xz", preset=9) as renewed:
        for member in packed:
            file = packed.extractfile(member)
            content = file.read() if file else b""
            if member.name == f"{name}/{run.name}/summary.json":
                content = summary
            member.size = len(content)
            renewed.addfile(member, io.BytesIO(content))
    beside.replace(path)
    return differences


if __name__ == "__main__":
    for each in NAMES:
        print(each, *renew(each), sep="\n  ")
