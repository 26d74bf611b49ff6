"""The package gunicorn-idle-thread is what the lab serves with, and says the same as the lab."""

import tomllib

from stampede.paths import ROOT
from stampede.servers.gunicorn import FIRST_WITH
from stampede.servers.program import IDLE_THREAD, IDLE_THREAD_INSTALL

PACKAGE = ROOT / "idle-thread"
LOCKED = sorted(path.stem for path in (ROOT / "servers" / "gunicorn" / "requirements").glob("*.txt"))
RELEASES = [release for release in LOCKED if int(release.split(".")[0]) >= FIRST_WITH[IDLE_THREAD]]
"""The releases of gunicorn that the lab has and that the class needs."""


def test_the_package_is_what_the_lab_says_to_install() -> None:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = IDLE_THREAD.rpartition(".")

    assert f"\nclass {name}(ThreadWorker):" in (PACKAGE / f"{module}.py").read_text(encoding="utf-8")
    assert f"pip install {project['name']}" == IDLE_THREAD_INSTALL
    assert project["dependencies"] == [f"gunicorn>={FIRST_WITH[IDLE_THREAD]}"]
    assert (PACKAGE / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_its_readme_says_what_to_paste_and_names_the_releases_that_are_tested() -> None:
    readme = (PACKAGE / "README.md").read_text(encoding="utf-8")
    *others, newest = RELEASES

    for part in (
        f"\n    {IDLE_THREAD_INSTALL}\n",
        f'worker_class = "{IDLE_THREAD}"',
        f"gunicorn {FIRST_WITH[IDLE_THREAD]} ",
    ):
        assert part in readme
    assert f"With {', '.join(others)} and {newest}," in readme
