"""An application that knows nothing of the lab, in real containers: who served each request, and what is said of it."""

from pathlib import Path

import duckdb
import pytest

from analysis.folder import trial_folder
from tests.conftest import Lab
from tests.measuring import rows_of
from tests.test_own import FILE, SHOP

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("own_images", "nothing_left")]


def written(tmp_path: Path, further: str = "") -> Path:
    """Write a small shop and the file that describes it, and return the file."""
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "app.py").write_text(SHOP + further)
    (tmp_path / "shop" / "requirements.txt").write_text("flask==3.1.3\n")
    (tmp_path / "names.env").write_text("GREETING=bonjour\n")
    file = FILE.replace("  environment: {GREETING: hello}", "  env_file: names.env")
    (tmp_path / "my-service.yaml").write_text(file + "  broken: {path: /items/1, per_second: 2}\n")
    return tmp_path / "my-service.yaml"


def test_an_application_is_tried_as_it_is(lab: Lab, tmp_path: Path) -> None:
    """A class whose requests all fail makes a trial invalid, and the requests of other classes are still told."""
    done = lab.run("try", str(written(tmp_path)), "--trials", "1", "--duration", "3s", "--ways", "today")

    assert done.returncode == 1, done.stdout + done.stderr
    assert "requests failed (status 500)" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    run = (lab.results / "my-service-tried" / "latest").resolve()
    requests = duckdb.read_parquet(f"{trial_folder(run, 'today', 'own', 1)}/requests.parquet")
    of_class = "SELECT request, count(*) = count(ended), count(error) > 0 FROM requests GROUP BY 1"
    by_class = {name: found for name, *found in rows_of(requests, of_class)}
    assert by_class == {name: [True, name == "broken"] for name in ("home", "report", "stream", "broken")}
    [(least, most)] = rows_of(requests, "SELECT min(asked_ms), max(asked_ms) FROM requests WHERE request = 'report'")
    assert 500 <= least < most < 900  # type: ignore[operator]
    assert rows_of(requests, "SELECT min(asked_ms) >= 60 FROM requests WHERE request = 'stream'") == [(True,)]
    recorded = b"".join(path.read_bytes() for path in run.rglob("*") if path.is_file())
    assert str(tmp_path).encode() not in recorded
    assert b"they greet with $GREETING" in recorded
    assert b"bonjour" not in recorded
    assert lab.run("verify", str(run)).returncode == 0


def test_an_application_that_cannot_be_loaded_says_why(lab: Lab, tmp_path: Path) -> None:
    done = lab.run("try", str(written(tmp_path, "\nimport humanize\n")))

    assert done.returncode == 1
    assert "error: Your application cannot be loaded.\n" in done.stderr
    assert done.stderr.endswith("ModuleNotFoundError: No module named 'humanize'\n")
    assert not (lab.results / "my-service-tried").exists()
