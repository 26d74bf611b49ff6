"""stampede diagnose: large logs are read by several processes."""

from pathlib import Path

import numpy as np
import pytest

from stampede.logs import columns
from stampede.logs.diagnose.logs import read_logs
from stampede.logs.formats import KNOWN
from tests.whole.test_diagnose import serve
from tools.production_logs import Writing, write_logs


def test_large_logs_are_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_logs(serve(), tmp_path, Writing())
    whole = read_logs(paths, KNOWN, {})
    monkeypatch.setattr(columns, "FEW_BYTES", 0)
    apart = read_logs(paths, KNOWN, {})

    assert apart.routes.names == whole.routes.names
    for one, other in zip([*whole.balancers, *whole.servers], [*apart.balancers, *apart.servers], strict=True):
        assert np.array_equal(one.took_s, other.took_s)
        assert np.array_equal(one.id, other.id)
