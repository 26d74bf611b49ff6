"""stampede bundle and its install.sh: one file from which a room without a network gets to its first verdict."""

import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from stampede import bundle
from stampede.docker import doctor
from stampede.docker import images as of_lab
from stampede.errors import WrongUse
from stampede.paths import ROOT, TOOLS
from stampede.run import machine_lock
from tests.conftest import PATIENCE_S, Lab
from tests.wrong import problem_of

HERE = f"{platform.system()} {platform.machine()}"
VENV = """\
#!/bin/sh
echo "$PIP_NO_INDEX $PIP_FIND_LINKS $1" >> "$(dirname "$0")/../calls"
mkdir -p "$(dirname "$0")/../.venv/bin"
printf '#!/bin/sh\\necho "stampede $*: all is well"\\n' > "$(dirname "$0")/../.venv/bin/stampede"
chmod +x "$(dirname "$0")/../.venv/bin/stampede"
"""
"""Stands for tools/venv.sh, which the lab's own tests run."""


def put(folder: Path, name: str, script: str) -> None:
    """Write a program."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{script}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """An unpacked bundle whose lab and images are tiny."""
    folder = tmp_path / "stampede-bundle"
    (folder / "wheels").mkdir(parents=True)
    shutil.copy(TOOLS / "install-bundle.sh", folder / "install.sh")
    bundle._write_about(folder / "about", ["ten-at-once", "heavy-mix"], [bundle.this_python()])
    with tarfile.open(folder / "lab.tar.gz", "w:gz") as packed:
        entry = tarfile.TarInfo("tools/venv.sh")
        entry.size, entry.mode = len(VENV), 0o755
        packed.addfile(entry, io.BytesIO(VENV.encode()))
    packed_images = subprocess.run(
        [sys.executable, "-c", bundle._XZ], input=b"images", stdout=subprocess.PIPE, check=True
    )
    (folder / "images.tar.xz").write_bytes(packed_images.stdout)
    (folder / "wheels" / "one.whl").write_text("a wheel")
    bundle._write_hashes(folder)
    return folder


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An engine that only writes down what it is given to load."""
    put(tmp_path / "bin", "docker", f'[ "$1" = version ] || cat > {tmp_path}/loaded')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    return tmp_path / "bin" / "docker"


def install(unpacked: Path, **environment: str) -> tuple[int, str, str]:
    """Run install.sh, and return its exit code and what it printed."""
    command, told = [unpacked / "install.sh", unpacked.parent / "lab"], os.environ | {"PYTHON": sys.executable}
    done = subprocess.run(command, env=told | environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.usefixtures("docker")
def test_a_bundle_is_checked_unpacked_and_installed(unpacked: Path) -> None:
    """Packages come from the bundle alone, images from the bundle, and stampede setup knows what the bundle is for."""
    target = unpacked.parent / "lab"

    assert install(unpacked) == (
        0,
        "stampede doctor: all is well\n",
        "Checking the files of the bundle …\n"
        f"Unpacking the lab into {target} …\n"
        "Loading the images …\n\n"
        f"The lab is in {target}. The unpacked bundle is no longer needed.\n"
        f"To take the lesson: cd {target} && make lesson\n"
        f"To measure ten-at-once or heavy-mix: cd {target} && make experiment NAME=ten-at-once\n",
    )
    assert (target / "calls").read_text() == f"1 {unpacked}/wheels core\n1 {unpacked}/wheels compiled\n"
    assert (unpacked.parent / "loaded").read_text() == "images"
    assert (target / ".venv" / "bundle").read_text() == (unpacked / "about").read_text()


def spoil_about(old: str, new: str) -> Callable[[Path], None]:
    """Return a function that changes for what the bundle was made."""

    def change(unpacked: Path) -> None:
        about = (unpacked / "about").read_text()
        assert old in about
        (unpacked / "about").write_text(about.replace(old, new))
        (unpacked / "sha256sums").unlink()
        bundle._write_hashes(unpacked)

    return change


@pytest.mark.usefixtures("docker")
@pytest.mark.parametrize(
    ("spoil", "message", "hint"),
    [
        (lambda bundle: (bundle / "wheels" / "one.whl").write_text("another"),
         "The bundle is damaged, or was changed.", "Copy the file again."),
        (spoil_about(HERE, "Plan9 vax"), f"This bundle is for Plan9 vax; this machine is {HERE}.",
         "Make a bundle on a machine like this: stampede bundle"),
        (spoil_about(f"pythons={bundle.this_python()}", "pythons=3.99"),
         f"This bundle is for Python 3.99; {sys.executable} is {bundle.this_python()}.",
         f"PYTHON=/path/to/python ./install.sh, or a bundle made with --pythons {bundle.this_python()}"),
        (lambda bundle: put(bundle.parent / "bin", "docker", "exit 1"), "No container engine answers.",
         "The bundle has no engine: install Docker's engine with Compose and buildx, start it, and run ./install.sh "
         "again."),
        (lambda bundle: (bundle.parent / "lab").mkdir(), "{target} exists already.", "./install.sh /another/folder"),
    ],
    ids=["damaged", "machine", "python", "engine", "target"],
)  # fmt: skip
def test_what_a_machine_lacks_is_said_before_anything_is_unpacked(
    unpacked: Path, spoil: Callable[[Path], object], message: str, hint: str
) -> None:
    spoil(unpacked)

    code, out, said = install(unpacked)

    target = unpacked.parent / "lab"
    assert (code, out) == (1, "")
    assert said.endswith(f"error: {message.format(target=target)}\n\nhint: {hint}\n")
    assert not (target / "Makefile").exists()


def test_a_machine_without_make_is_told_so(unpacked: Path, docker: Path) -> None:
    for program in ("sed", "uname", "sha256sum", "dirname", "sh"):
        (docker.parent / program).symlink_to(str(shutil.which(program)))

    code, _, said = install(unpacked, PATH=str(docker.parent))

    assert code == 1
    hint = "The bundle has no make: install it from the distribution."
    assert said.endswith(f"error: make is not installed.\n\nhint: {hint}\n")


@pytest.mark.parametrize(
    ("arguments", "message", "hint"),
    [
        (["nothing"], "There is no experiment 'nothing'.", None),
        (["ten-at-once", "--pythons", "2.7"], "'2.7' is not a release of Python.", "--pythons 3.11,3.13"),
    ],
)
def test_wrong_use_is_named_before_anything_is_packed(
    lab: Lab, arguments: list[str], message: str, hint: str | None
) -> None:
    done = lab.call("bundle", *arguments)

    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}\n")
    assert hint is None or done.stderr.endswith(f"hint: {hint}\n")


@pytest.mark.parametrize(
    ("commit", "status", "to", "message", "hint"),
    [
        ("", "", None, "A bundle has the committed files of the lab, and this lab is no git checkout.",
         "git clone the lab, and make the bundle there."),
        ("0123abcd", " M stampede/run/run.py\n?? x", None,
         "A bundle has the committed files of the lab, and some have changed: stampede/run/run.py, x.",
         "git stash --include-untracked, or commit the changes."),
        ("0123abcd", "", Path("/gone/lab.tar"), "There is no folder /gone.",
         "Make it, or choose another: --to /path/name.tar"),
        ("0123abcd", "", Path("/"), "/ exists already.",
         "Remove the file, or choose another name: --to /path/name.tar"),
    ],
)  # fmt: skip
def test_only_committed_files_are_packed_and_nothing_is_overwritten(
    monkeypatch: pytest.MonkeyPatch, commit: str, status: str, to: Path | None, message: str, hint: str
) -> None:
    monkeypatch.setattr(bundle, "output", lambda command: commit if "rev-parse" in command else status)

    with pytest.raises(WrongUse) as caught:
        bundle.target_of(to)

    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_a_bundle_is_named_after_its_commit_and_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "output", lambda command: "0123abcd" if "rev-parse" in command else "")

    assert bundle.target_of(None) == Path(f"stampede-0123abcd-{platform.system().lower()}-{platform.machine()}.tar")


def test_a_bundle_has_the_images_of_its_experiments_and_the_client() -> None:
    names = [image.name for image in bundle.images_for(["ten-at-once"])]

    assert "stampede/client:trixie" in names
    assert "stampede/mariadb:trixie" not in names
    assert any(name.startswith("stampede/gunicorn:") for name in names)


LOCKED = """\
# made by a program
always==1.0 \\
    --hash=sha256:1
old==1.0 ; python_full_version < '3.12' \\
    --hash=sha256:2
    # via always
new==2.0 ; python_full_version >= '3.12' \\
    --hash=sha256:3
windows==1.0 ; sys_platform == 'win32' \\
    --hash=sha256:4
"""


@pytest.mark.parametrize(("python", "there", "missing"), [("3.11", "old", "new"), ("3.13", "new", "old")])
def test_another_python_gets_the_packages_that_it_needs(python: str, there: str, missing: str) -> None:
    """Markers are read for that Python, and not for the Python that makes the bundle."""
    text = bundle.requirements_for(python, LOCKED)

    assert [line for line in text.splitlines() if "==" in line] == [
        "always==1.0 \\", f"{there}=={'1.0' if there == 'old' else '2.0'} \\",
    ]  # fmt: skip
    assert missing not in text
    assert text.count("--hash") == 2


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Let packing cost nothing: no image is built, no package is downloaded, and the engine saves a word."""
    for name in ("make_ready", "build_images"):
        monkeypatch.setattr(bundle, name, lambda *_: None)
    monkeypatch.setattr(bundle, "_download", lambda _python, folder, _say: put(folder, "one.whl", ""))
    put(tmp_path / "bin", "docker", "echo images of $*")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    return tmp_path / "bundle.tar"


def test_a_bundle_has_the_committed_lab_and_names_nobody(packed: Path, tmp_path: Path) -> None:
    said: list[str] = []
    size = bundle.write_bundle(["ten-at-once"], ["3.11", "3.13"], packed, said.append)

    assert size == packed.stat().st_size
    assert said[:3] == ["Downloading the packages for Python 3.11 …", "Downloading the packages for Python 3.13 …",
                        f"Packing {2 + len(bundle.images_for(['ten-at-once']))} images …"]  # fmt: skip
    assert re.fullmatch(r"Packed the images in \d+ s\.", said[3])
    with tarfile.open(packed) as outer:
        assert {(one.uid, one.gid, one.uname, one.gname) for one in outer} == {(0, 0, "", "")}
        outer.extractall(tmp_path / "out", filter="data")
    folder = tmp_path / "out" / "stampede-bundle"
    assert sorted(one.name for one in folder.iterdir()) == [
        "about", "images.tar.xz", "install.sh", "lab.tar.gz", "sha256sums", "wheels",
    ]  # fmt: skip
    assert os.access(folder / "install.sh", os.X_OK)
    subprocess.run(["sha256sum", "--check", "--quiet", "sha256sums"], cwd=folder, check=True)
    with tarfile.open(folder / "lab.tar.gz") as inner:
        assert {(one.uid, one.uname) for one in inner} == {(0, "")}
        inner.extractall(tmp_path / "lab", filter="data")

    def git(folder: Path, command: str) -> str:
        run = ["git", "-C", str(folder), *command.split()]
        return subprocess.run(run, capture_output=True, text=True, check=True).stdout

    commands = ("rev-parse HEAD", "remote", "status --porcelain")
    assert [git(tmp_path / "lab", one) for one in commands] == [git(ROOT, "rev-parse HEAD"), "", ""]
    told = b"".join(one.read_bytes() for one in (tmp_path / "lab" / ".git").rglob("*") if one.is_file())
    assert str(ROOT).encode() not in told
    assert [*tmp_path.glob(".*")] == []


def test_a_bundle_may_be_made_in_the_folder_in_which_one_is(packed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pip runs in the folder of the lab, so it needs to know the whole path of the packages."""
    folders: list[Path] = []
    monkeypatch.setattr(bundle, "_pack_lab", lambda target, _say: target.write_text("the lab"))
    monkeypatch.setattr(bundle, "_download", lambda _python, folder, _say: folders.append(folder))
    monkeypatch.chdir(packed.parent)

    bundle.write_bundle(["ten-at-once"], ["3.11"], Path(packed.name), lambda _: None)

    assert packed.exists()
    assert [folder.is_absolute() for folder in folders] == [True]


def test_an_engine_that_cannot_save_leaves_no_bundle(
    packed: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bundle, "_pack_lab", lambda target, _say: target.write_text("the lab"))
    put(tmp_path / "bin", "docker", "exit 1")

    problem = problem_of(bundle.write_bundle, ["ten-at-once"], ["3.11"], packed, lambda _: None)

    assert problem == "The images could not be packed.\nstampede doctor"
    assert not packed.exists()
    assert [*tmp_path.glob(".*")] == []


@pytest.mark.parametrize(
    ("size", "said"),
    [(2_000_000, "The bundle has 2 MB."),
     (1_600_000_000, "The bundle has 1.6 GB, more than 1.5 GB. Name fewer experiments.")],
)  # fmt: skip
def test_the_size_is_told(monkeypatch: pytest.MonkeyPatch, packed: Path, size: int, said: str) -> None:
    heard: list[str] = []
    monkeypatch.setattr(bundle, "write_bundle", lambda *_: size)
    monkeypatch.setattr(bundle, "target_of", lambda _: packed)
    monkeypatch.setattr(bundle, "machine_lock", lambda *_: open(os.devnull))  # noqa: PTH123, SIM115  # any context

    assert bundle.make_bundle(["ten-at-once heavy-mix"], "", None, heard.append) == packed
    assert heard == [said]


def test_a_full_disk_is_told(monkeypatch: pytest.MonkeyPatch, packed: Path) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundle, "_pack_lab", full)

    assert problem_of(bundle.write_bundle, ["ten-at-once"], ["3.11"], packed, lambda _: None) == (
        f"{packed} cannot be written: No space left on device.\n"
        "Free some space, or choose another place: --to /path/name.tar"
    )


def test_a_lab_from_a_bundle_knows_what_it_can_measure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(bundle, "ABOUT", tmp_path / "about")
    assert bundle.bundled() == []

    bundle._write_about(tmp_path / "about", ["ten-at-once", "heavy-mix"], ["3.11"])

    assert bundle.bundled() == ["ten-at-once", "heavy-mix"]


def test_setup_of_an_installed_bundle_makes_only_its_images_ready(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bundle._write_about(tmp_path / "about", ["ten-at-once"], ["3.11"])
    monkeypatch.setattr(bundle, "ABOUT", tmp_path / "about")
    built: list[str] = []
    monkeypatch.setattr(machine_lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(doctor, "make_ready", lambda *_: None)
    monkeypatch.setattr(of_lab, "build_images", lambda images, _say: built.extend(one.name for one in images))

    done = lab.call("setup")

    assert (done.returncode, done.stderr) == (0, "This lab came as a bundle, with the images for ten-at-once.\n")
    assert sorted(built) == sorted(image.name for image in bundle.images_for(["ten-at-once"]))


@pytest.mark.parametrize(
    ("program", "call", "message"),
    [
        ("pip", lambda folder: bundle._download("3.11", folder, print),
         "The packages for Python 3.11 could not be downloaded."),
        ("git", lambda folder: bundle._pack_lab(folder / "lab.tar.gz", print), "The lab's files could not be copied."),
    ],
)  # fmt: skip
def test_a_program_that_fails_is_named_with_its_last_words(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, call: Callable[[Path], None], message: str
) -> None:
    put(tmp_path / "bin", "python", f"echo no {program} today; exit 3")
    put(tmp_path / "bin", "git", f"echo no {program} today; exit 3")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)

    problem = problem_of(call, tmp_path)

    assert problem.startswith(f"{message}\n")
    assert problem.endswith(f"ended with 3:\nno {program} today")


PACKING = """
import os, signal, subprocess, threading
from pathlib import Path
from stampede.bundle import _pack_images
from stampede.interruption import heed_signals

started = []

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

class Popen(subprocess.Popen):
    def __init__(self, *command, **how):
        super().__init__(*command, **how)
        print(self.pid, flush=True)
        started.append(self)
        if len(started) == AT:
            interrupt()
        elif len(started) == 2:
            threading.Timer(0.5, interrupt).start()

subprocess.Popen = Popen
heed_signals()
_pack_images(["one"], Path("TO"))
"""
"""Packs, and interrupts itself when the program with the number AT has just started, or else while both run."""


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_interrupt_leaves_no_program_that_packs(tmp_path: Path, at: int) -> None:
    """The interrupt reaches the lab alone, as when a program that started the lab ends it."""
    put(tmp_path / "bin", "docker", "exec sleep 60")
    pack = PACKING.replace("AT", str(at)).replace("TO", str(tmp_path / "to"))
    path = f"{tmp_path / 'bin'}:{os.environ['PATH']}"

    done = subprocess.run(
        [sys.executable, "-c", pack], env=os.environ | {"PATH": path}, cwd=ROOT, timeout=PATIENCE_S,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False,
    )  # fmt: skip

    started = [int(pid) for pid in done.stdout.split()]
    assert len(started) == min(at, 2)
    assert [pid for pid in started if psutil.pid_exists(pid)] == []
