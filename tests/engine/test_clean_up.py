"""stampede.run.run's clean-up on a disk that is full."""

from pathlib import Path

import pytest

from tests.conftest import Lab
from tests.quick.test_clean_up import OTHER_PLACE, killed
from tests.spoilt import fill, needs_root, small_disk


@needs_root
@pytest.mark.usefixtures("nothing_left")
def test_no_room_to_close_a_record_is_a_message(lab: Lab, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 1) as disk:
        lab.results = disk / "results"
        run = killed(lab.results)
        fill(disk / "filler")
        full = lab.run("down")
        (disk / "filler").unlink()
        again = lab.run("down")

    assert (full.returncode, full.stderr) == (
        1, f"error: There is no room left for results in {disk}/results.\n\nhint: {OTHER_PLACE}\n",
    )  # fmt: skip
    assert (again.returncode, again.stderr) == (0, f"Closed the record of a killed run: {run}.\n")
