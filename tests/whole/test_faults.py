"""Parts of the lab, the machine and the lab itself fail in the middle: docs/explain/reliability.md in tests.

In every case: no wrong number, what was measured is kept, nothing is left running, and the next run works.
"""

import shutil
from pathlib import Path

import pytest

from stampede.evaluate.read import rows
from stampede.pipeline import derive, derive_summary
from stampede.records.folder import NoTemporaryRoom
from tests.conftest import Lab
from tests.spoilt import needs_root, small_disk
from tests.synthetic import Request, make_run, write_points


@pytest.fixture(scope="module")
def long_answers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 20 000 requests whose answers take 6000 bytes each."""
    workers = [f"{n}{'x' * 6000}:7" for n in range(20)]
    run = make_run(tmp_path_factory.mktemp("long") / "run", {"one": []})
    points = run / "one" / "mix" / "1" / "points.json.gz"
    write_points(points, [Request(sent_s=n / 1000, worker=workers[n % 20]) for n in range(20_000)])
    return run


@needs_root
def test_points_that_find_no_room_are_not_called_unreadable(
    long_answers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 150 MB there is no room to read, with 400 MB and 140 MB on the disk enough, with less none to sort."""
    run = shutil.copytree(long_answers, tmp_path / "run")
    monkeypatch.setattr(rows, "MEMORY", "150MB")
    monkeypatch.setattr(rows, "_POINTS", [])
    with small_disk(tmp_path / "disk", 1) as disk:
        monkeypatch.setattr("tempfile.tempdir", str(disk))
        with pytest.raises(NoTemporaryRoom, match="failed to offload data block") as caught:
            derive(run)
        assert list(disk.iterdir()) == []

    assert (caught.value.errno, caught.value.filename) == (28, str(disk))
    assert not list(run.rglob("*requests.parquet*"))
    monkeypatch.undo()
    assert derive_summary(run).trials[0].reasons != []
    assert (run / "one" / "mix" / "1" / "requests.parquet").exists()


@needs_root
def test_a_report_that_finds_no_room_in_tmpdir_says_so(copied_lab: Lab, long_answers: Path, tmp_path: Path) -> None:
    run = shutil.copytree(long_answers, tmp_path / "run")
    copied_lab.edit("stampede/evaluate/read/rows.py", 'MEMORY = "768MB"', 'MEMORY = "400MB"')
    with small_disk(tmp_path / "disk", 20) as disk:
        copied_lab.environment["TMPDIR"] = str(disk)
        done = copied_lab.run("report", str(run))

    hint = "Free some space, or choose another TMPDIR; then compute the results: stampede report"
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: There is no room left in {disk}.\n\nhint: {hint}\n"
