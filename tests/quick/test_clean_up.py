"""run.run's clean-up: whatever a killed run left is closed once, kept, and never stands in the way of the next."""

import errno
import shutil
import tempfile
from pathlib import Path
from typing import Any, NoReturn

import pytest

from stampede.docker import leftovers
from stampede.docker.client import HERE
from stampede.errors import LabError
from stampede.pipeline import derive
from stampede.records.folder import NoTemporaryRoom, read_run
from stampede.run import results as results_folder
from stampede.verification import verify_run
from tests.synthetic import Request, make_run

pytestmark = pytest.mark.usefixtures("without_pictures")
OTHER_PLACE = "Free some space, or choose another place: --results /path"


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for results, on a machine where nothing is results_folder."""
    monkeypatch.setattr(leftovers, "remove_leftovers", lambda _: [])
    return tmp_path / "results"


def killed(results: Path, **changed: Any) -> Path:
    record = {"outcome": "running", "ended": None} | changed
    run = make_run(results / "made-up" / "20260102T030405Z", {"one": [Request()]}, **record)
    part = run / "one" / "mix" / ".2.part"
    part.mkdir()
    shutil.copy(run / "one" / "mix" / "1" / "points.json.gz", part)
    return run


def clean_up(results: Path) -> list[str]:
    said: list[str] = []
    results_folder.clean_up(results, said.append, (HERE,))
    return said


def trials(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "one" / "mix").iterdir())


def test_a_killed_run_is_closed_once(results: Path) -> None:
    run = killed(results)
    (run / ".run.json.abc").write_text("half")
    (run / "one" / "mix" / "1" / ".requests.parquet.part").write_text("half")

    assert clean_up(results) == [f"Closed the record of a killed run: {run}."]

    assert (read_run(run).outcome, read_run(run).reason) == ("failed", "the lab was killed")
    assert trials(run) == ["1", "killed-2"]
    assert list(run.rglob(".*")) == []
    assert verify_run(run).differences == []
    assert clean_up(results) == []


def test_a_killed_run_that_was_reported_is_still_closed_and_keeps_what_somebody_put_into_it(results: Path) -> None:
    """A report is derived from what is there of any run, and must not pass for its end."""
    run = killed(results)
    derive(run)
    (run / ".ipynb_checkpoints").mkdir()
    (run / ".note").write_text("mine")

    assert clean_up(results) == [f"Closed the record of a killed run: {run}."]

    assert read_run(run).outcome == "failed"
    assert trials(run) == ["1", "killed-2"]
    assert (run / ".ipynb_checkpoints").is_dir()
    assert (run / ".note").read_text() == "mine"


def test_a_run_that_was_killed_before_its_report_gets_one_and_keeps_its_end(results: Path) -> None:
    run = make_run(results / "made-up" / "20260102T030405Z", {"one": [Request()]})
    derive(run)
    (run / "report.html").unlink()
    before = (run / "run.json").read_bytes()

    clean_up(results)

    assert (run / "report.html").exists()
    assert (run / "run.json").read_bytes() == before


def test_a_trial_that_lacked_only_its_name_is_kept_whole(results: Path) -> None:
    run = make_run(results / "made-up" / "20260102T030405Z", {"one": [Request()]}, outcome="running", ended=None)
    (run / "one" / "mix" / "1").rename(run / "one" / "mix" / ".1.part")

    clean_up(results)

    assert trials(run) == ["1"]
    assert verify_run(run).differences == []


@pytest.mark.parametrize("of", ["another user", "a record that is not text"])
def test_what_cannot_be_closed_stands_in_nobodys_way(results: Path, monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    def forbidden(*_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, "Permission denied", str(run))

    run = killed(results)
    if of == "another user":
        monkeypatch.setattr(results_folder, "write_record", forbidden)
    else:
        (run / "run.json").write_bytes(b"\xff\xfe")

    assert clean_up(results) == []
    assert of == "another user" or trials(run) == [".2.part", "1"]


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOENT, errno.ESTALE, errno.EROFS])
def test_a_place_for_results_that_is_gone_or_forbidden_is_a_message(tmp_path: Path, number: int) -> None:
    with pytest.raises(LabError) as caught, results_folder.writing(tmp_path):
        raise OSError(number, "Something is wrong", str(tmp_path / "made-up" / "run.json"))

    assert caught.value.message == f"Results cannot be written to {tmp_path}: Something is wrong."
    assert caught.value.hint == OTHER_PLACE


def test_a_link_that_leads_nowhere_in_the_place_of_a_folder_is_a_message(tmp_path: Path) -> None:
    (tmp_path / "made-up").symlink_to(tmp_path / "gone" / "made-up")

    with pytest.raises(LabError, match="File exists"), results_folder.writing(tmp_path):
        results_folder.new_folder(tmp_path / "made-up")


def test_an_error_elsewhere_is_not_blamed_on_results(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), results_folder.writing(tmp_path):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", "docker")


def test_no_room_in_tmpdir_is_said_and_not_blamed_on_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no folder at all can be written, as on a single full disk."""
    run = make_run(tmp_path / "run", {"one": [Request()]})
    with pytest.raises(LabError) as caught, results_folder.writing(tmp_path):
        raise NoTemporaryRoom(errno.ENOSPC, "No space left on device", "/some/where")
    assert caught.value.message == "There is no room left in /some/where."
    assert caught.value.hint == "Free some space, or choose another TMPDIR; then compute the results: stampede report"

    def nowhere() -> NoReturn:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", nowhere)
    with pytest.raises(NoTemporaryRoom) as nothing:
        derive(run)
    assert nothing.value.filename == "TMPDIR"
