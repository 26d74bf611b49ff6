"""The command line: archives, disks that are full or only readable, and no network."""

import gzip
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from stampede.paths import ROOT
from stampede.pipeline import derive
from tests.archives import unpack
from tests.conftest import Lab
from tests.quick.test_cli import REPLY, as_measured


@pytest.mark.usefixtures("undrawn")
def test_an_archive_has_the_same_bytes_whoever_packs_it(lab: Lab, measured: Path, tmp_path: Path) -> None:
    derive(measured)
    first, second, third = (tmp_path / f"{name}.tar.gz" for name in ("first", "second", "third"))
    assert lab.call("export", str(measured), "--to", str(first)).returncode == 0
    for path in measured.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    assert lab.call("export", str(measured.parent / "latest"), "--to", str(second)).returncode == 0
    copy = unpack(first, tmp_path / "elsewhere")
    assert lab.call("export", str(copy), "--to", str(third)).returncode == 0

    assert first.read_bytes() == second.read_bytes() == third.read_bytes()
    with tarfile.open(first) as packed:
        members = packed.getmembers()
    assert [one.name for one in members] == sorted(one.name for one in members)
    assert {(one.uid, one.gid, one.uname, one.gname, one.mode, one.mtime) for one in members} == {
        (0, 0, "", "", 0o644, 1767323045)  # when the run began
    }
    assert gzip.decompress(first.read_bytes())
    assert first.read_bytes()[4:8] == bytes(4), "no time in the header"


def test_an_archive_is_named_after_the_run_and_overwrites_nothing(
    lab: Lab, measured: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert measured.is_relative_to(lab.results)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    name = "made-up-20260102T030405Z.tar.gz"

    assert lab.call("export").stdout == f"{name}\n"
    packed = Path(name).read_bytes()
    again = lab.call("export")

    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == REPLY.format(
        message=f"{name} exists already.",
        hint="Remove the file, or choose another name: stampede export … --to /path/name.tar.gz",
    )
    assert Path(name).read_bytes() == packed
    assert [path.name for path in Path.cwd().iterdir()] == [name]


COMMANDS = """
import sys
from stampede.cli import main
line, status = sys.argv[1:], 0
while line and not status:
    end = line.index(";") if ";" in line else len(line)
    sys.argv, line = ["stampede", *line[:end]], line[end + 1:]
    try:
        main()
    except SystemExit as ended:
        status = ended.code
sys.exit(status)
"""
"""Runs commands of the lab in one process, up to the first that fails."""


def isolated(script: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a shell script without any network, in mounts of its own; ``stampede`` runs commands, ';' between them."""
    unshare = ["unshare", "--net", "--mount", "sh", "-ec"]
    if not shutil.which("unshare") or subprocess.run([*unshare, "mount -t tmpfs none /mnt"], check=False,
                                                     capture_output=True).returncode:  # fmt: skip
        pytest.skip("needs unshare and root")
    command = f'stampede() {{ "{sys.executable}" -c "$COMMANDS" "$@"; }}\n'
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NO_COLOR": "1", "COMMANDS": COMMANDS}
    return subprocess.run(
        [*unshare, command + script, "sh", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_run_that_may_only_be_read_is_verified_and_exported_without_a_network(
    lab: Lab, measured: Path, tmp_path: Path
) -> None:
    script = """
        mount --bind "$1" "$1"
        mount -o remount,bind,ro "$1"
        ! touch "$1/mine" 2> /dev/null
        stampede verify "$1" ";" export "$1" --to "$2/mine.tar.gz" 2> /dev/null
    """

    done = isolated(script, str(measured), str(tmp_path))

    said = as_measured(measured)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{said}{tmp_path / 'mine.tar.gz'}\n"
    copy = lab.call("verify", str(unpack(tmp_path / "mine.tar.gz", tmp_path / "copy")))
    assert (copy.returncode, copy.stdout) == (0, said)


@pytest.mark.parametrize("command", ["verify", "export"])
def test_a_disk_that_is_too_full_is_named_and_left_as_it_was(measured: Path, tmp_path: Path, command: str) -> None:
    """To derive a run again takes more room than to pack it. A full disk is no difference between runs."""
    script = {
        "verify": 'mount -t tmpfs -o size=32k none "$2"\nTMPDIR="$2" stampede verify "$1" || code=$?',
        "export": 'mount -t tmpfs -o size=16k none "$2"\nstampede export "$1" --to "$2/mine.tar.gz" || code=$?',
    }[command]
    (disk := tmp_path / "disk").mkdir()
    no_room = {
        "verify": REPLY.format(
            message=f"{measured} cannot be verified: No space left on device.",
            hint="The folder must be readable, and TMPDIR needs room for the results.",
        ),
        "export": as_measured(measured) + REPLY.format(
            message=f"{disk / 'mine.tar.gz'} cannot be written: No space left on device.",
            hint="Free some space, or choose another place: stampede export … --to /path/name.tar.gz",
        ),
    }[command]  # fmt: skip

    done = isolated(f'{script}\nls -A "$2"\nexit $code', str(measured), str(disk))

    assert (done.returncode, done.stdout, done.stderr) == (1, "", no_room)
