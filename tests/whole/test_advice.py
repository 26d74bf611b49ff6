"""lab.apps.advise: commands about real runs."""

import re
from pathlib import Path

from tests.conftest import Lab
from tests.real_runs import unpack
from tests.synthetic import Request, make_run


def test_commands_about_a_real_run(lab: Lab, tmp_path: Path) -> None:
    """Twenty users of keep-alive, and the bursts of worker-types."""
    kept, burst = unpack("keep-alive", tmp_path), unpack("worker-types", tmp_path)

    advised = lab.call("advise", f"{burst}:gthread", "--load", "computing-2")
    assert (advised.returncode, advised.stderr) == (0, "")
    assert re.search(r"^ +today +[1-9]", advised.stdout, re.MULTILINE)
    replayed = lab.call("what-if", str(kept), "--load", "heavy-mix", "--workers", "2")
    assert (replayed.returncode, replayed.stderr) == (0, f"\nLanes: {lab.results / 'what-if.html'}\n")
    assert re.search(r"^shared socket +2 x ", replayed.stdout, re.MULTILINE)
    validated = lab.call("validate", str(burst))
    assert (validated.returncode, validated.stderr) == (0, "")
    assert re.search(r"^worker-types +[1-9]", validated.stdout, re.MULTILINE)
    for said in (advised, replayed, validated):
        assert max(map(len, said.stdout.splitlines())) <= 80
    unknown = make_run(lab.results / "made-up" / "one", {"one": [Request(overhead_ms=1)]})
    nobody = lab.call("validate", str(unknown))
    assert nobody.returncode == 2
    assert nobody.stderr.startswith("error: No figure of these runs is both measured and predicted.")
    listed = lab.call("validate", "--markdown", str(burst))
    assert (listed.returncode, listed.stderr) == (0, "")
    assert re.search(r"^\| worker-types \| [1-9]", listed.stdout, re.MULTILINE)
