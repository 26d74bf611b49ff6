"""Whether a run says what older results said: each value that is missing or different, with its path.

PYTHONPATH=. .venv/bin/python -m tools.same_results results/heavy-mix/latest older/summary.json
"""

import sys
from collections.abc import Iterator
from math import isclose
from pathlib import Path
from typing import Any

from stampede.records.folder import read_summary


def compare_results(results: Path, older: Path) -> list[str]:
    """Return each value of older results that is missing or different in ``results``, with its path.

    Each is a run's folder or a file summary.json. Keys may be added, and numbers may differ in the
    twelfth digit. Raise BadRun if one of them cannot be read.
    """
    old, new = (read_summary(path).model_dump(mode="json", exclude_unset=True) for path in (older, results))
    return [*different_values(old, new)]


def different_values(old: Any, new: Any, place: str = "") -> Iterator[str]:  # noqa: ANN401  # any JSON value
    """Yield each value of JSON that is missing or different in ``new``, with its path, as ``compare_results`` does.

    Entries of lists that have a variant are those of the same variant, load, class and so on, also in another place.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            inside = f"{place}.{key}" if place else key
            yield from different_values(value, new[key], inside) if key in new else (f"{inside} is gone",)
    elif isinstance(old, list) and isinstance(new, list):
        before, after = _by_name(old), _by_name(new)
        if before is not None and after is not None:
            yield from different_values(before, after, place)
            yield from (f"{place}.{name} is new" for name in after if name not in before)
            return
        if len(old) != len(new):
            yield f"{place}: {len(old)} entries became {len(new)}"
        for number, pair in enumerate(zip(old, new, strict=False)):
            yield from different_values(*pair, f"{place}[{number}]")
    elif isinstance(old, float) and isinstance(new, float):
        if not isclose(old, new, rel_tol=1e-12, abs_tol=1e-12):
            yield f"{place}: {old} became {new}"
    elif type(old) is not type(new) or old != new:
        yield f"{place}: {old!r} became {new!r}"


def _by_name(entries: list[Any]) -> dict[str, Any] | None:
    """Return entries by what they are of; None: some have no variant, or the same names as another."""
    names = ("variant", "load", "trial", "request_class", "metric", "stat", "worker", "error")
    if not all(isinstance(entry, dict) and "variant" in entry for entry in entries):
        return None
    found = {" ".join(str(entry[name]) for name in names if entry.get(name) is not None): entry for entry in entries}
    return found if len(found) == len(entries) else None


if __name__ == "__main__":
    found = compare_results(*map(Path, sys.argv[1:3]))
    print(*found, f"{len(found)} differences", sep="\n")
    sys.exit(bool(found))
