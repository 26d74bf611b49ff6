"""Parts of the lab, the machine and the lab itself fail in the middle: docs/explain/reliability.md in tests.

In every case: no wrong number, what was measured is kept, nothing is left running, and the next run works.
"""

import json

import pytest

from tests.conftest import Lab
from tests.soak.test_faults import OTHER_PLACE, runs
from tests.spoilt import write_experiment


@pytest.mark.usefixtures("nothing_left")
def test_a_trial_whose_record_finds_no_room_keeps_its_raw_points(fast_lab: Lab) -> None:
    write_experiment(fast_lab)
    saving = 'write_record(self.part / "trial.json", record.model_copy(update={"reason": told}))'
    full = 'raise OSError(28, "No space left on device")'
    fast_lab.edit("stampede/run/trial/trial.py", saving, full)

    done = fast_lab.run("run", "spoilt", "--duration", "2s")

    assert done.returncode == 1
    assert done.stderr.splitlines()[-4:] == [
        f"What was measured is in {runs(fast_lab)[0]}.",
        f"error: There is no room left for results in {fast_lab.results}.",
        "",
        OTHER_PLACE,
    ]
    assert (runs(fast_lab)[0] / "spoilt" / "users" / "unsaved-1" / "points.json.gz").exists()
    summary = json.loads((runs(fast_lab)[0] / "summary.json").read_text())
    assert [row for row in summary["rows"] if row["measured"] is not None] == []
    assert [trial["verdict"] for trial in summary["trials"]] == ["invalid"]
