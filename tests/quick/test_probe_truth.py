"""How the probe's counts are compared with what the lab knows."""

import json
from pathlib import Path

from stampede.pipeline import derive_summary
from stampede.records.folder import trial_folder
from tests.synthetic import Request, make_run
from tools.probe_truth import compare, counts


def routes(known: int, avoidable: int) -> str:
    """Return what servers/observe prints of a probe that counted two routes alike."""
    route = {"known": known, "avoidable": avoidable, "requests": known}
    return f"==> limits <==\nx\n==> probe <==\n{json.dumps({'routes': {'/a': route, '/b': route}})}\n==> settings <==\n"


def test_only_requests_under_the_load_count(tmp_path: Path) -> None:
    """Two containers; the requests before the load are subtracted."""
    for container in ("gunicorn-1", "gunicorn-2"):
        (tmp_path / f"{container}.before.txt").write_text(routes(10, 5))
        (tmp_path / f"{container}.after.txt").write_text(routes(30, 10))
    (tmp_path / "nginx-1.after.txt").write_text("==> limits <==\n")

    assert counts(tmp_path, "after") - counts(tmp_path, "before") == (80, 20, 80)


def test_the_shares_of_the_lab_and_of_the_probe_stand_side_by_side(tmp_path: Path) -> None:
    """The lab has a share of each class."""
    run = make_run(tmp_path / "made-up" / "one", {"one": [Request()] * 3})
    summary = derive_summary(run)
    lab = {"metric": "avoidable_wait", "stat": "share"}
    rows = [summary.rows[0].model_copy(update=lab | {"n": n, "measured": share}) for n, share in ((90, 0.0), (10, 0.5))]
    part = trial_folder(run, "one", "mix", 1)
    (part / "gunicorn-1.before.txt").write_text(routes(0, 0))
    (part / "gunicorn-1.after.txt").write_text(routes(50, 10))

    [told] = compare(run, summary.model_copy(update={"rows": rows}))

    assert (told.variant, told.requests, told.lab, told.probe, told.counted) == ("one", 100, 0.05, 0.2, 1)
    assert round(told.points, 6) == 15
