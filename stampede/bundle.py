"""Pack the lab, its Python packages and its images into one file, for a room without a network.

The file has everything from the lab to the first verdict, but no container engine: tools/install-bundle.sh installs it.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from packaging.markers import Marker

from stampede.docker.commands import Say, output, run_command
from stampede.docker.doctor import make_ready
from stampede.docker.engine import ca_bundle
from stampede.docker.images import BASE_IMAGES, BESIDE_SERVERS, LabImage, build_images, images_of
from stampede.errors import LabError, WrongUse
from stampede.experiment.file import load_experiment, read_experiment
from stampede.experiment.model import Experiment
from stampede.export import whole_archive
from stampede.interruption import program
from stampede.paths import LESSONS, ROOT, TOOLS
from stampede.plan import lay_out
from stampede.records.checksums import sha256
from stampede.run.machine_lock import machine_lock

DEFAULT = ("ten-at-once", "heavy-mix")
"""The experiments of a bundle if none is named; the shortest first."""
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""For which releases of Python a bundle for Linux has packages: those of Debian 12 and 13, Ubuntu 24.04 and 26.04."""
MOST_BYTES = 1_500_000_000
ABOUT = ROOT / ".venv" / "bundle"
"""What an installed bundle is for. A lab that did not come as a bundle has no such file."""
_WHEELS_OF = {"x86_64": "x86_64", "aarch64": "aarch64", "arm64": "aarch64"}


def bundled() -> list[str]:
    """Return the experiments of the bundle from which this lab was installed; none if it did not come as a bundle."""
    if not ABOUT.exists():
        return []
    about = dict(line.split("=", 1) for line in ABOUT.read_text(encoding="utf-8").splitlines())
    return about["experiments"].split()


def make_bundle(experiments: Sequence[str], pythons: str, to: Path | None, say: Say) -> Path:
    """Check what was asked for, write the bundle, and return its path."""
    names = [name for words in experiments for name in words.replace(",", " ").split()] or list(DEFAULT)
    usual = (*PYTHONS, this_python()) if platform.system() == "Linux" else (this_python(),)
    releases = [release.strip() for release in pythons.split(",")] if pythons else [*dict.fromkeys(usual)]
    if wrong := [release for release in releases if not re.fullmatch(r"3\.\d+", release)]:
        raise WrongUse(f"{wrong[0]!r} is not a release of Python.", hint="--pythons 3.11,3.13")
    images_for(names)  # report an unknown experiment before anything else
    target = target_of(to)
    with machine_lock(say, "stampede bundle"):  # packing would disturb a run
        size = write_bundle(names, releases, target, say)
    if size > MOST_BYTES:
        say(f"The bundle has {size / 1e9:.1f} GB, more than {MOST_BYTES / 1e9:.1f} GB. Name fewer experiments.")
    else:
        say(f"The bundle has {size / 1e6:.0f} MB.")
    return target


def target_of(to: Path | None) -> Path:
    """Return the path of the bundle. Raise WrongUse if it is taken, or if the checkout has uncommitted changes."""
    commit = output(["git", "-C", str(ROOT), "rev-parse", "--short=8", "HEAD"])
    if not commit:
        raise WrongUse("A bundle has the committed files of the lab, and this lab is no git checkout.",
                       hint="git clone the lab, and make the bundle there.")  # fmt: skip
    target = to or Path(f"stampede-{commit}-{platform.system().lower()}-{platform.machine()}.tar")
    if os.path.lexists(target):
        raise WrongUse(f"{target} exists already.", hint="Remove the file, or choose another name: --to /path/name.tar")
    if not target.parent.is_dir():
        raise WrongUse(f"There is no folder {target.parent}.", hint="Make it, or choose another: --to /path/name.tar")
    if changed := output(["git", "-C", str(ROOT), "status", "--porcelain"]):
        names = ", ".join(line.split(maxsplit=1)[-1] for line in changed.splitlines()[:3])
        raise WrongUse(f"A bundle has the committed files of the lab, and some have changed: {names}.",
                       hint="git stash --include-untracked, or commit the changes.")  # fmt: skip
    return target


def images_for(names: Sequence[str]) -> list[LabImage]:
    """Return the lab's own images that experiments and the lesson need, and the client. Raise WrongUse if unknown."""
    experiments: list[Experiment] = [load_experiment(name) for name in names]
    experiments += [read_experiment(path) for path in sorted((LESSONS / "experiments").glob("*.yaml"))]
    images = {image.name: image for experiment in experiments for image in images_of(lay_out(experiment))}
    client = BESIDE_SERVERS["client"]
    return list((images | {client.name: client}).values())


def write_bundle(names: Sequence[str], pythons: Sequence[str], target: Path, say: Say) -> int:
    """Write a bundle, completely or not at all, and return its size in bytes.

    ``pythons`` are the releases of Python (3.13) whose packages it has. Make the machine and the images ready first, so
    that nothing has to be built from the bundle.
    """
    images = images_for(names)
    make_ready(say, images)
    build_images(images, say)
    with (
        whole_archive(target, "--to /path/name.tar") as part,
        tempfile.TemporaryDirectory(dir=target.parent.absolute(), prefix=f".{target.name}.") as temporary,
    ):
        folder = Path(temporary) / "stampede-bundle"
        folder.mkdir()
        shutil.copy(TOOLS / "install-bundle.sh", folder / "install.sh")
        _write_about(folder / "about", names, pythons)
        _pack_lab(folder / "lab.tar.gz", say)
        for python in pythons:
            say(f"Downloading the packages for Python {python} …")
            _download(python, folder / "wheels", say)
        began = time.monotonic()
        say(f"Packing {len(images) + len(BASE_IMAGES)} images …")
        _pack_images([*BASE_IMAGES, *(image.name for image in images)], folder / "images.tar.xz")
        say(f"Packed the images in {time.monotonic() - began:.0f} s.")
        _write_hashes(folder)
        with tarfile.open(fileobj=part, mode="w") as bundle:
            bundle.add(folder, folder.name, filter=_nobodys)
    return target.stat().st_size


def _write_about(path: Path, names: Sequence[str], pythons: Sequence[str]) -> None:
    lines = {
        "machine": f"{platform.system()} {platform.machine()}",
        "pythons": " ".join(pythons),
        "experiments": " ".join(names),
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8")


def _pack_lab(path: Path, say: Say) -> None:
    """Pack the committed files with the last commit, so that a run from a bundle names its commit and its changes."""
    with tempfile.TemporaryDirectory(prefix="stampede-bundle-") as temporary:
        clone = Path(temporary) / "lab"
        problem = "The lab's files could not be copied."
        copying = ["git", "clone", "--quiet", "--depth", "1", "--no-tags", ROOT.as_uri(), str(clone)]
        run_command(copying, "copying the lab's files", problem, say)
        run_command(["git", "-C", str(clone), "remote", "remove", "origin"], "copying the lab's files", problem, say)
        shutil.rmtree(clone / ".git" / "logs", ignore_errors=True)  # they name the user and this folder
        shutil.rmtree(clone / ".git" / "hooks", ignore_errors=True)
        with tarfile.open(path, "w:gz") as packed:
            packed.add(clone, ".", filter=_nobodys)


def _nobodys(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return an entry of an archive without its owner on this machine."""
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def _download(python: str, folder: Path, say: Say) -> None:
    """Download the lab's packages for a release of Python, each with a hash of requirements/core.txt."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as locked:
        locked.write(requirements_for(python, (ROOT / "requirements" / "core.txt").read_text(encoding="utf-8")))
        locked.flush()
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
                   "--require-hashes", "--no-deps", "--only-binary", ":all:", "--requirement", locked.name,
                   "--dest", str(folder)]  # fmt: skip
        if python != this_python():
            machine = _WHEELS_OF.get(platform.machine(), platform.machine())
            command += ["--python-version", python, "--implementation", "cp"]
            command += [word for glibc in _GLIBCS for word in ("--platform", f"manylinux{glibc}_{machine}")]
        certificates = {"PIP_CERT": found} if (found := ca_bundle()) != os.devnull else {}
        environment = certificates | os.environ
        problem = f"The packages for Python {python} could not be downloaded."
        run_command(command, f"downloading the packages for Python {python}", problem, say, environment)


_GLIBCS = ("_2_28", "_2_27", "_2_17", "2014", "2010", "_2_12")
"""The versions of glibc for which wheels for another Python are built. No system with Python 3.11 has an older one."""


def requirements_for(python: str, locked: str) -> str:
    """Return the locked requirements that a release of Python needs. pip would ask the running Python instead."""
    kept = []
    for block in re.split(r"^(?=[A-Za-z0-9])", locked, flags=re.MULTILINE):
        first, newline, rest = block.partition("\n")
        name, _, marker = first.removesuffix("\\").partition(" ; ")
        if not marker:
            kept.append(block)
        elif Marker(marker).evaluate({"python_version": python, "python_full_version": f"{python}.0"}):
            kept.append(f"{name} \\{newline}{rest}")
    return "".join(kept)


def this_python() -> str:
    """Return the release of Python that runs the lab, e.g. 3.13."""
    return "{}.{}".format(*sys.version_info[:2])


def _pack_images(images: Sequence[str], path: Path) -> None:
    """Save images and compress them, with the program xz, which uses all cores, or with Python's own xz."""
    packer = ["xz", "--threads=0", "-6", "--stdout"] if shutil.which("xz") else [sys.executable, "-c", _XZ]
    with (
        path.open("wb") as file,
        program(["docker", "save", *images], stdout=subprocess.PIPE) as saving,
        program(packer, stdin=saving.stdout, stdout=file) as packing,
    ):
        assert saving.stdout
        saving.stdout.close()  # so that an engine that saves does not wait for ever for a packer that has failed
    if saving.returncode or packing.returncode:
        raise LabError("The images could not be packed.", hint="stampede doctor")


_XZ = "import lzma, shutil, sys; shutil.copyfileobj(sys.stdin.buffer, lzma.open(sys.stdout.buffer, 'wb'), 2**20)"


def _write_hashes(folder: Path) -> None:
    files = sorted(found for found in folder.rglob("*") if found.is_file())
    lines = [f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in files]
    (folder / "sha256sums").write_text("".join(lines), encoding="utf-8")
