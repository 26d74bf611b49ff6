"""The points that k6 wrote."""

import gzip
import shutil
from pathlib import Path


def compress_points(part: Path) -> None:
    """Compress the points that k6 wrote so that they could be read while the load ran."""
    for points in part.glob("points*.json"):
        compressed = points.with_name(f"{points.name}.gz")
        try:
            with points.open("rb") as source, gzip.open(compressed, "wb", 1) as target:
                shutil.copyfileobj(source, target)
        except OSError:
            compressed.unlink(missing_ok=True)
            raise
        points.unlink()


def points_of(service: str) -> str:
    """Return the name of the points of a load generator, without the suffix of the file, e.g. points-2 for k6-2."""
    return "points" + service.removeprefix("k6") if service.startswith("k6") else f"points-{service}"
