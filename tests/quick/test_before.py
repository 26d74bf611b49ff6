"""``application.before``: a command is run again if it is refused a connection, because a database starts slowly."""

import subprocess
import sys
from pathlib import Path

import pytest

from stampede.paths import SERVERS

REFUSED = "psycopg.OperationalError: connection failed: connection to server at 10.0.0.3 failed: Connection refused"


@pytest.mark.parametrize(
    ("command", "runs", "code"),
    [
        ("grep -q xxx ran", 3, 0),
        ("false", 61, 1),
        ("echo no such table >&2 && exit 3", 1, 3),
        ("kill -9 $$", 1, 137),
        ('test "$AS $PYTHONPATH" = "given $PWD:more"', 1, 0),
    ],
)
def test_a_command_that_is_refused_a_connection_is_run_again_and_no_other(
    tmp_path: Path, command: str, runs: int, code: int
) -> None:
    """Time passes at once. A command that is refused for a minute fails as it does."""
    refused = f"|| {{ echo '{REFUSED}' >&2; exit 1; }}" if runs > 1 else ""
    program = (
        "import itertools, start, sys, time\n"
        "time.monotonic, time.sleep = itertools.count().__next__, lambda _: None\n"
        "words = {'folder': '.', 'environment': {'AS': 'given', 'PYTHONPATH': 'more'}}\n"
        f"sys.exit(start.run_before(words, {f'printf x >> ran; {command} {refused}'!r}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env={
            "PYTHONPATH": str(SERVERS / "user-service"), "PATH": "/usr/bin:/bin", "LAB_FOLDER": str(tmp_path),
        }, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (len((tmp_path / "ran").read_text()), done.returncode) == (runs, code), done.stderr
    assert done.stderr.count(REFUSED) == (command == "false")
