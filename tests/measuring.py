"""Short runs of experiments on real containers, and their results."""

import json
from pathlib import Path
from typing import Any

import duckdb
import yaml

from stampede.records.folder import trial_folder
from tests.conftest import PATIENCE_S, Lab, lab_objects


class Result:
    """The results of a short run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
        self.report = (folder / "report.html").read_text()

    def each(
        self, metric: str, stat: str, request_class: str | None = None, load: str | None = None
    ) -> dict[str, float]:
        """Return a measured value of each variant, under ``load``, which may be left out if there is only one load."""
        return {
            row["variant"]: row["measured"]
            for row in self.summary["rows"]
            if (row["metric"], row["stat"], row["request_class"], row["load"])
            == (metric, stat, request_class, load or row["load"])
            and row["measured"] is not None
        }

    def measured(self, variant: str, metric: str, stat: str, request_class: str | None = None) -> float:
        """Return a measured value of one variant."""
        return self.each(metric, stat, request_class)[variant]

    def requests(self, variant: str, load: str, query: str) -> list[tuple[object, ...]]:
        """Run a query on the requests of a variant."""
        folder = trial_folder(self.folder, variant, load, 1)
        return rows_of(duckdb.read_parquet(f"{folder}/requests.parquet"), query)


def rows_of(relation: duckdb.DuckDBPyRelation, query: str) -> list[tuple[object, ...]]:
    """Run a query that refers to a relation by the name ``requests``."""
    found = relation.query("requests", query)
    assert found is not None
    return found.fetchall()


def measure(lab: Lab, name: str, variants: str, duration: str, *further: str) -> Result:
    """Measure some variants of an experiment. Fail if a trial is invalid, or if a container is left behind."""
    done = lab.run_for(2 * PATIENCE_S, "run", name, "--variants", variants, "--duration", duration, *further)
    assert done.returncode == 0, done.stdout + done.stderr
    assert lab_objects() == []
    assert max(len(line) for line in done.stdout.splitlines() if str(lab.results) not in line) <= 80  # but for paths
    result = Result((lab.results / name / "latest").resolve())
    assert {trial["verdict"] for trial in result.summary["trials"]} <= {"valid", "suspect"}
    return result


def add_experiment(lab: Lab, name: str, load: dict[str, Any], variants: dict[str, Any], **further: object) -> None:
    """Write an experiment without claims into a copy of the lab."""
    experiment = {"title": "A title", "question": "Does it serve?", "load": load, "variants": variants, **further}
    (lab.root / "experiments" / f"{name}.yaml").write_text(yaml.safe_dump(experiment))


def only_load(lab: Lab, name: str, load: str) -> Lab:
    """Keep only one load of an experiment in a copy of the lab, with the claims and published rows of this load."""
    path = lab.root / "experiments" / f"{name}.yaml"
    document = yaml.safe_load(path.read_text())
    document["loads"] = {load: document["loads"][load]}
    document["published"] = [one for one in document.get("published", []) if one["load"] == load]
    of_load = [{one[part]["load"] for part in ("value", "relative_to") if part in one} for one in document["claims"]]
    document["claims"] = [one for one, loads in zip(document["claims"], of_load, strict=True) if loads == {load}]
    path.write_text(yaml.safe_dump(document))
    return lab
