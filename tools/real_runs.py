"""Real runs in tests/runs, cut down to a few of their variants and loads.

Of their points are left those that the lab's own scripts write, the others stay unread; the manifest was sealed again.
Each has the summary.json that followed from it when it was added.
"""

import tarfile
from pathlib import Path

from stampede.paths import ROOT

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
