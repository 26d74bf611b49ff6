"""tools.tried and tools/newer-machine.sh: what a row of docs/reference/tried.json says, and how the machine is used.

A stand-in answers for the lab, because a measurement takes minutes.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from inline_snapshot import snapshot

from stampede.docker import facts
from stampede.docker.facts import EngineFacts
from stampede.paths import TOOLS
from tools import tried

ENGINE = EngineFacts(
    name="Docker", version="26.1.5", machine="machine", system="Debian 13", architecture="x86_64", cores=2,
    memory_mib=5931, cgroups="2", rootless=False, containerd=False, unenforced=(),
)  # fmt: skip


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table with rows of two kinds of machines, the first of which is the machine of these tests."""
    rows = [
        {"kind": kind, "date": "2026-01-01", "engine": "", "system": "", "ran": {"by hand": "works", "verify": "works"},
         "wrong": "a limit"} for kind in (ENGINE.kind, "another")
    ]  # fmt: skip
    (tmp_path / "tried.json").write_text(json.dumps(rows))
    monkeypatch.setattr(facts, "TRIED", tmp_path / "tried.json")
    monkeypatch.setattr(tried, "TRIED", tmp_path / "tried.json")
    monkeypatch.setattr(tried, "ask_engine", lambda: ENGINE)
    return tmp_path / "tried.json"


def test_a_row_says_what_was_measured_and_keeps_the_results_of_other_steps(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, ...]] = []

    def lab(*command: str) -> "subprocess.CompletedProcess[str]":
        ran.append(command)
        return subprocess.CompletedProcess(command, 0, "1 of 2 claims hold so far.\n", "")

    monkeypatch.setattr(tried, "_lab", lab)
    monkeypatch.setattr(sys, "argv", ["tried", "--measured", "--variants a,b --trials 1", "heavy-mix"])

    assert tried.main() == 0

    [command] = ran
    assert command[:2] == ("run", "heavy-mix")
    assert command[-4:] == ("--variants", "a,b", "--trials", "1")
    [row, other] = json.loads(table.read_text())
    assert row["ran"] == snapshot(
        {"verify": "works", "heavy-mix": "1 of 2 claims hold so far (--variants a,b --trials 1)"}
    )
    assert row["wrong"] == "a limit"
    assert other["date"] == "2026-01-01"


@pytest.mark.parametrize("said", ["", "start"])
def test_the_tool_that_runs_a_machine_says_its_verbs(said: str) -> None:
    done = subprocess.run([TOOLS / "newer-machine.sh", *said.split()], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr == snapshot("""\
tools/newer-machine.sh up                        make it if needed, start it, and give it the lab's images
tools/newer-machine.sh try [OPTION…] [STEP…]     run tools.tried there, and bring its row of tried.json back
tools/newer-machine.sh run COMMAND               run a command of the shell there, as the user lab
tools/newer-machine.sh down                      end it, and remove everything but its console.log
""")
