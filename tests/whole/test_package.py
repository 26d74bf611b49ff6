"""The distribution stampede-lab: what a wheel without the clone can do, with the core's packages alone and with all."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from stampede import __version__
from stampede.cli.help import GROUPS
from stampede.paths import ROOT
from tests.conftest import PATIENCE_S

RUNS = ROOT / "tests" / "runs"
HEAD = '10.0.0.{} - - [03/Nov/2026:09:00:{:02} +0000] "GET /{} HTTP/1.1" 200 5 "-" "-" {}'
COMMANDS = {
    "run": ["heavy-mix"], "watch": ["heavy-mix"], "list": [], "plan": ["heavy-mix"], "reproduce": ["--show"],
    "report": ["{run}"], "compare": ["{run}:gthread", "{run}:sync", "--force"], "verify": ["{run}"],
    "predict": ["ten-at-once"], "export": ["{run}", "--to", "mine.tar.gz"],
    "init": ["."], "try": ["my-service.yaml"],
    "diagnose": ["--balancer", "nginx.log", "--server", "gunicorn.log", "--json"],
    "requests": ["gunicorn.log"], "advise": ["mine.yaml"],
    "lesson": ["7"], "class": ["{run}"], "setup": ["--help"], "doctor": [], "down": [],
    "bundle": ["--help"], "machines": [],
}  # fmt: skip
"""Arguments for each command; ``setup`` and ``bundle`` would build images."""
CORE = ("list", "plan", "report", "compare", "verify", "predict", "diagnose", "requests", "advise")
"""The commands that need no extra."""
NO_ENGINE = "tcp://127.0.0.1:9"
CLASSES = "cores: 1\nmemory_mib: 256\nclasses:\n  all: {per_second: 5, takes_s: [0.1, 0.2, 0.3]}\n"


def needed(names: list[str], found: dict[str, Distribution]) -> dict[str, Distribution]:
    for name in names:
        if name not in found:
            found[name] = distribution(name)
            further = [Requirement(line) for line in found[name].requires or []]
            needed([each.name for each in further if not each.marker or each.marker.evaluate({"extra": ""})], found)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder], cwd=ROOT, check=True,
        capture_output=True, timeout=PATIENCE_S,
    )  # fmt: skip
    [built] = folder.glob("stampede_lab-*.whl")
    return built


def required(wheel: Path, extra: str) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        text = archive.read(name).decode()
    lines = [line.partition(": ")[2] for line in text.splitlines() if line.startswith("Requires-Dist: ")]
    return [each.name for each in map(Requirement, lines) if not each.marker or each.marker.evaluate({"extra": extra})]


def installed(folder: Path, wheel: Path, distributions: dict[str, Distribution]) -> Path:
    """Make an environment with the wheel and links to the distributions' files, and return its Python.

    Its commands have a lock of their own, because other tests measure for minutes meanwhile.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=PATIENCE_S)
    [packages] = folder.glob("lib/python3*/site-packages")
    for each in distributions.values():
        for top in {path.parts[0] for path in each.files or [] if path.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(str(each.locate_file(top)))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    lock = packages / "stampede" / "run" / "machine_lock.py"
    lock.write_text(lock.read_text().replace("/tmp/stampede.lock", f"{folder}/lock"))
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def core(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the core."""
    return installed(tmp_path_factory.mktemp("core"), wheel, needed(required(wheel, extra=""), {}))


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the extra ``lab``."""
    return installed(tmp_path_factory.mktemp("lab"), wheel, needed(required(wheel, extra="lab"), {}))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, two logs of the same requests, and a description of a load."""
    folder = tmp_path_factory.mktemp("here")
    with tarfile.open(RUNS / "worker-types.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    for name, took_s in (("nginx", 0.3), ("gunicorn", 0.1)):
        lines = [
            HEAD.format(n % 7, n // 10, n % 3, f"rt={took_s + 0.01 * (n % 5):.3f} id={n:032x}") for n in range(500)
        ]
        (folder / f"{name}.log").write_text("\n".join(lines) + "\n")
    (folder / "mine.yaml").write_text(CLASSES)
    return folder


def called(python: Path, here: Path, *arguments: str, engine: str = "") -> "subprocess.CompletedProcess[str]":
    [run] = here.glob("worker-types/2*")
    words = [word.replace("{run}", str(run)) for word in arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"COLUMNS": "80", "PATH": "/usr/bin:/bin", "DOCKER_HOST": engine, "PYTHONDONTWRITEBYTECODE": ""}
    environment |= {"PYTHONPATH": str(ROOT)} if str(python) == sys.executable else {}
    return subprocess.run(
        [python, "-m", "stampede", *words], check=False, cwd=here, env=environment, capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=PATIENCE_S,
    )  # fmt: skip


def test_the_wheel_has_what_the_lab_starts_from(core: Path, here: Path) -> None:
    done = called(core, here, "--version")

    assert done.stdout == f"stampede {__version__}\n"
    [files] = core.parent.parent.glob("lib/python3*/site-packages/stampede/files")
    for name in (
        "docker-compose.yml",
        "servers/Dockerfile",
        "k6/lib/request.js",
        "nginx/Dockerfile",
        "tools/venv.sh",
        "idle-thread/gunicorn_idle_thread.py",
        "probe/stampede_probe/shared.py",
    ):
        assert (files / name).read_bytes() == (ROOT / name).read_bytes()
    assert os.access(files / "tools" / "install-engine.sh", os.R_OK)


@pytest.mark.parametrize("command", sorted(names for lines in GROUPS.values() for names in lines))
def test_every_command_of_the_core_answers_or_names_its_extra(core: Path, here: Path, command: str) -> None:
    for name in command.split(", "):
        done = called(core, here, name, *COMMANDS[name], engine=NO_ENGINE)

        assert "Traceback" not in done.stderr, done.stderr
        names_extra = "hint: pip install 'stampede-lab[lab]'" in done.stderr
        if name in CORE:
            assert done.stdout, done.stderr
            assert not names_extra
        else:
            assert names_extra or done.stdout or done.stderr.startswith(("error: ", "No container engine answers")), (
                done.stderr
            )


@pytest.mark.parametrize("command", sorted(names for lines in GROUPS.values() for names in lines))
def test_with_the_extra_every_command_answers_or_says_what_the_machine_lacks(
    whole: Path, here: Path, command: str
) -> None:
    """No container engine answers."""
    for name in command.split(", "):
        if name not in CORE:
            done = called(whole, here, name, *COMMANDS[name], engine=NO_ENGINE)

            assert "Traceback" not in done.stderr, done.stderr
            assert "stampede-lab[lab]" not in done.stderr
            assert done.stdout or done.stderr, done.returncode
            assert done.returncode == 0 or done.stderr.rpartition("error: ")[2].count("\n") < 8, done.stderr


def test_the_core_reads_the_same_from_logs_as_the_whole_lab(core: Path, here: Path) -> None:
    """Only the replays differ: an interpreted simulator does fewer of them."""
    of_core, of_all = (
        json.loads(called(python, here, "diagnose", *COMMANDS["diagnose"]).stdout)
        for python in (core, Path(sys.executable))
    )

    assert bool(of_core.pop("replay")) == bool(of_all.pop("replay"))
    assert of_core == of_all
    assert of_all["in_both"] == 1
