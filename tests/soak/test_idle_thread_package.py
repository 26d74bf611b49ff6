"""The package gunicorn-idle-thread, as it is built, and under gunicorn's own tests of gthread. All of it needs PyPI."""

import os
import subprocess
import sys
import tarfile
from email import message_from_bytes
from pathlib import Path
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest

from tests.quick.test_idle_thread_package import PACKAGE, RELEASES

IN_ITS_PLACE = """
from gunicorn.workers import gthread
from gunicorn_idle_thread import IdleThreadWorker

gthread.ThreadWorker = IdleThreadWorker
"""
"""Each Python that starts runs this: the tests of gunicorn, and each gunicorn that a test starts."""
WITHOUT_SOCKET = {
    "TestAccept::test_accept_success",
    "TestGracefulShutdown::test_connection_tracking",
    "TestSlowClientResilience::test_on_pending_socket_readable_sets_data_ready",
}
"""gunicorn's tests that hand a FakeSocket to the worker; 24.1.1 has the first two. They fail.

IdleThreadWorker looks for the first byte in the socket's own queue, also below TLS, and so only in a real socket.
"""


def pip(python: Path, *words: str | Path) -> None:
    """Run pip in an environment. Skip the test if PyPI is not reached; any other failure fails it."""
    done = subprocess.run([python, "-m", "pip", *words, "--quiet"], capture_output=True, text=True, check=False)
    if "(from versions: none)" in done.stderr:
        pytest.skip(f"PyPI is not reached: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


def environment(folder: Path) -> Path:
    """Make a virtual environment, and return its Python."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package, and return the folder of its wheel and its sdist."""
    folder = tmp_path_factory.mktemp("package")
    python = environment(folder / "venv")
    pip(python, "install", "hatchling")
    subprocess.run([python, "-m", "hatchling", "build", "--directory", folder / "dist"], cwd=PACKAGE, check=True)
    return folder / "dist"


def test_the_wheel_and_the_sdist_have_the_module_and_its_licence_and_nothing_else(built: Path) -> None:
    name = "gunicorn_idle_thread-0.1.0"
    with ZipFile(built / f"{name}-py3-none-any.whl") as wheel:
        in_wheel = wheel.namelist()
        about = message_from_bytes(wheel.read(f"{name}.dist-info/METADATA"))
    with tarfile.open(built / f"{name}.tar.gz") as sdist:
        in_sdist = sdist.getnames()

    of_dist = [f"{name}.dist-info/{file}" for file in ("METADATA", "RECORD", "WHEEL", "licenses/LICENSE")]
    assert sorted(in_wheel) == [*of_dist, "gunicorn_idle_thread.py"]
    files = ("LICENSE", "PKG-INFO", "README.md", "gunicorn_idle_thread.py", "pyproject.toml")
    assert sorted({*in_sdist} - {f"{name}/.gitignore"}) == [f"{name}/{file}" for file in files]  # hatchling adds it
    assert about.get_all("Requires-Dist") == ["gunicorn>=24"]
    assert (about["Requires-Python"], about["License-Expression"]) == (">=3.10", "MIT")
    assert about.get_payload() == (PACKAGE / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("release", RELEASES)
def test_gunicorn_s_own_tests_of_gthread_pass(built: Path, tmp_path: Path, release: str) -> None:
    """They are in the sdist of each release."""
    python = environment(tmp_path / "venv")
    pip(python, "download", "--no-deps", "--no-binary", "gunicorn", "--dest", tmp_path, f"gunicorn=={release}")
    [sdist] = tmp_path.glob("*.tar.gz")
    subprocess.run(["tar", "-xzf", sdist, "-C", tmp_path], check=True)
    pip(python, "install", sdist, *built.glob("*.whl"), "h2", "pytest", "pytest-asyncio")
    (tmp_path / "sitecustomize.py").write_text(IN_ITS_PLACE, encoding="ascii")
    instead = os.environ | {"PYTHONPATH": str(tmp_path)}
    said = [str(python), "-c", "from gunicorn.workers import gthread; print(gthread.ThreadWorker.__module__)"]
    told = subprocess.run(said, env=instead, capture_output=True, text=True, check=True)
    assert told.stdout == "gunicorn_idle_thread\n"

    done = subprocess.run(
        [python, "-m", "pytest", "-o", "addopts=", "--junitxml", tmp_path / "ran.xml", "tests", "-k", "gthread"],
        cwd=tmp_path / f"gunicorn-{release}", env=instead, capture_output=True, text=True, check=False,
    )  # fmt: skip

    cases = {
        f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}": {one.tag: one for one in case}
        for case in ElementTree.parse(tmp_path / "ran.xml").iter("testcase")
    }
    bad = {"failure", "error"}
    failed = {
        name: "".join(text for tag in bad & found.keys() for text in found[tag].itertext())
        for name, found in cases.items()
        if bad & found.keys()
    }
    passed = [name for name, found in cases.items() if not {*bad, "skipped"} & found.keys()]
    print(f"gunicorn {release}: {len(passed)} passed, {len(failed)} failed")
    assert failed.keys() == WITHOUT_SOCKET & cases.keys(), done.stdout
    assert all("doesn't apply to a 'FakeSocket' object" in text for text in failed.values())
    assert len(passed) > 60
