"""What comes from elsewhere is checked against what is written down here, or against a signature."""

import re
from pathlib import Path

import pytest

from stampede.paths import ROOT
from stampede.servers import SERVERS
from stampede.servers.base import Variant

LOCKS = [*(ROOT / "requirements").glob("*.txt"), *(ROOT / "servers").rglob("requirements/*.txt")]
FOLDERS = ("servers", "nginx", "haproxy", "mariadb", "tools")
INSTALLERS = [ROOT / "Makefile", *(one for name in FOLDERS for one in (ROOT / name).rglob("*") if one.is_file())]
WAIVERS = (
    "trusted=yes", "allow-unauthenticated", "allow-insecure", "--insecure", "trusted-host", "GOSUMDB=off", "GONOSUM",
    "GOPRIVATE", "GOINSECURE", "check-valid-until=no",
)  # fmt: skip


def name(path: Path) -> str:
    """Return a file's place in the checkout."""
    return str(path.relative_to(ROOT))


def read(path: Path) -> str:
    """Return a file's text with broken lines joined."""
    return path.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")


@pytest.mark.parametrize("lock", LOCKS, ids=name)
def test_every_requirement_is_one_release_with_its_hashes(lock: Path) -> None:
    wanted = [line for line in read(lock).splitlines() if line.strip() and not line.strip().startswith("#")]

    assert wanted
    for line in wanted:
        assert re.match(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[^ ;]+ ", line), line
        assert re.search(r" --hash=sha256:[0-9a-f]{64}( |$)", line), line


def test_every_in_file_has_its_lock_and_every_lock_its_in_file() -> None:
    folders = [ROOT / "requirements", *(ROOT / "servers").glob("*/requirements")]

    of_project = {ROOT / "requirements": {"core", "notebook", "reader"}}  # tools/lock.sh makes them from pyproject.toml
    assert len(folders) >= 4
    for folder in folders:
        named = {path.stem for path in folder.glob("*.in")} | of_project.get(folder, set())
        assert named == {path.stem for path in folder.glob("*.txt")}, folder


RELEASES = [path for path in LOCKS if re.fullmatch(r"[0-9.]+", path.stem)]


@pytest.mark.parametrize("lock", RELEASES, ids=name)
def test_the_lock_of_a_release_holds_that_release_of_the_server(lock: Path) -> None:
    """A variant names a release, and the image that has its name is made from this file."""
    server = lock.parent.parent.name

    [package] = {one.packages[0].removeprefix("python/") for one in SERVERS if one.service == server}
    for text in (read(lock), read(lock.with_suffix(".in"))):
        assert re.findall(rf"^{package}(?:\[[a-z,]+\])?==([^ \n]+)", text, re.MULTILINE) == [lock.stem]
    assert {path.parent.parent.name for path in RELEASES} <= {one.service for one in SERVERS}


@pytest.mark.parametrize("server", SERVERS)
def test_what_a_server_needs_is_locked_for_its_image(server: type[Variant]) -> None:
    locks = [read(lock) for lock in LOCKS if lock.parent.parent.name == server.service]

    for package in server.packages:
        named = package.removeprefix("python/")
        assert any(re.search(rf"^{named}(?:\[[a-z,]+\])?==", lock, re.MULTILINE) for lock in locks), named


def test_every_command_that_installs_python_packages_requires_hashes() -> None:
    commands = [
        (name(path), command.strip())
        for path in INSTALLERS
        for line in read(path).splitlines()
        for command in line.split("&&")
        if re.search(r"\bpip3? (install|wheel)\b", command) and not line.lstrip().startswith("#")
    ]

    assert {where for where, _ in commands} >= {"servers/Dockerfile", "tools/venv.sh"}
    built_here = [one for one in commands if "--no-index /wheels/*.whl" in one[1]]  # of what was checked a stage before
    assert len(built_here) == 2
    # what somebody else's application needs, and a build that is not released
    others = ("servers/user-service/Dockerfile", "servers/unreleased/Dockerfile")
    of_others = [one for one in commands if one[0] in others]
    assert len(of_others) == 2
    assert [one for one in commands if "--require-hashes" not in one[1] and one not in built_here + of_others] == []


def test_no_command_waives_a_signature() -> None:
    assert [(name(path), waiver) for path in INSTALLERS for waiver in WAIVERS if waiver in read(path)] == []
