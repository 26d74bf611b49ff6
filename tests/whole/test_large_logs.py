"""Large logs are read by several processes."""

import bz2
import io
import os
import signal
from pathlib import Path

import numpy as np
import pytest

from stampede.errors import LabError, WrongUse
from stampede.logs import columns
from stampede.logs.access_log import read_logs
from stampede.logs.diagnose.logs import logs_of
from stampede.logs.formats import KNOWN
from tests.quick.test_access_log import AGAIN, written
from tests.whole.test_diagnose import serve
from tools.production_logs import Writing, write_logs


def test_large_logs_are_read_by_several_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_logs(serve(), tmp_path, Writing())
    whole = logs_of(paths, KNOWN, {})
    monkeypatch.setattr(columns, "FEW_BYTES", 0)
    apart = logs_of(paths, KNOWN, {})

    assert apart.routes.names == whole.routes.names
    for one, other in zip([*whole.balancers, *whole.servers], [*apart.balancers, *apart.servers], strict=True):
        assert np.array_equal(one.took_s, other.took_s)
        assert np.array_equal(one.id, other.id)


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Four small logs that count as large ones."""
    monkeypatch.setattr(columns, "FEW_BYTES", 0)
    paths = [tmp_path / f"{name}.log" for name in "abcd"]
    for path in paths:
        path.write_text("\n".join(written(AGAIN + " {s}")))
    return paths


def test_standard_input_and_pipes_beside_large_logs_are_read(logs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has neither this one's standard input nor the pipes that a shell opened for it."""
    text = logs[0].read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    reads, writes = os.pipe()
    os.write(writes, text)
    os.close(writes)

    found = read_logs([logs[0], Path("-"), Path(f"/dev/fd/{reads}")], ["GET"])

    os.close(reads)
    assert found.requests == 3 * text.count(b"GET")
    assert [*found.sources] == ["a.log", "standard input", str(reads)]


def killed(*_: object) -> None:
    """End the process that reads a log without durations, as a kernel does if memory runs out."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_is_killed_is_told(logs: list[Path]) -> None:
    logs[1].write_text("\n".join(written(AGAIN)))
    with pytest.raises(LabError, match="A process that read logs was killed") as told:
        columns.read_files(logs, KNOWN, "", killed)
    assert told.value.hint == "Name fewer or shorter logs."


def test_a_log_that_cannot_be_opened_is_told_before_any_other_is_read(
    logs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "ProcessPoolExecutor", lambda **_: pytest.fail("a log is read"))
    with pytest.raises(WrongUse, match=r"no\.log cannot be read"):
        columns.read_files([*logs, Path("no.log")], KNOWN, "")
    logs[3].write_bytes(bz2.compress(b"a"))
    with pytest.raises(WrongUse, match=r"d\.log is packed"):
        columns.read_files(logs, KNOWN, "")
