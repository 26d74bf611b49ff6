"""servers.unreleased: a build that is not released is measured beside a release, and a run says which it was."""

import hashlib
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot

from stampede.docker.images import images_of
from stampede.experiment.file import load_experiment, read_experiment
from stampede.paths import EXPERIMENTS, ROOT
from stampede.plan import lay_out
from stampede.servers import KINDS
from stampede.servers.base import Variant
from stampede.servers.unreleased import Unreleased
from tests.wrong import refusal

PATCH = "servers/gunicorn/idle-thread.patch"


def served(release: object, server: str = "gunicorn-sync", **settings: Any) -> Variant:
    return KINDS[server].model_validate({"server": server, "workers": 2, "release": release, **settings})


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "gunicorn-28.0.dev0-py3-none-any.whl"
    path.write_bytes(b"a wheel")
    return path


def test_a_wheel_has_an_image_of_its_own_on_a_release_and_the_record_has_its_hash(wheel: Path) -> None:
    sha256 = hashlib.sha256(b"a wheel").hexdigest()

    build = served({"wheel": str(wheel), "of": "26.2.0"})

    assert build.factors()["LAB_RELEASE"] == "26.2.0"
    assert build.factors()["LAB_UNRELEASED"] == f"-gunicorn-{sha256[:12]}"
    recorded = build.record("mine")
    assert recorded.settings["release"] == {
        "wheel": str(wheel), "patch": None, "sha256": sha256, "of": "26.2.0", "like": None
    }  # fmt: skip
    assert recorded.settings_in_words["release"] == f"wheel {wheel}, sha256 {sha256}, of 26.2.0"
    assert "LAB_UNRELEASED" not in served("26.2.0").factors()


def test_a_build_of_an_asgi_server_names_the_server(tmp_path: Path) -> None:
    wheel = tmp_path / "granian-3.0-cp313-cp313-linux_x86_64.whl"
    wheel.write_bytes(b"")

    factors = served({"wheel": str(wheel)}, "granian", app="fastapi-async").factors()

    assert factors["LAB_UNRELEASED"] == f"-granian-{hashlib.sha256(b'').hexdigest()[:12]}"


def test_theory_knows_of_a_build_only_the_class_that_it_should_queue_like(wheel: Path) -> None:
    of_class = "gunicorn_idle_thread.IdleThreadWorker"
    gthread: dict[str, Any] = {"server": "gunicorn-gthread", "threads": 2}

    unknown = served({"wheel": str(wheel)}, **gthread).record("one").queueing
    like = served({"wheel": str(wheel), "like": of_class}, **gthread).record("one").queueing

    assert unknown
    assert unknown.missing == "what a build does that is not released"
    assert like == served("27.0.1", **gthread, worker_class=of_class).record("one").queueing
    assert like != served("27.0.1", **gthread).record("one").queueing
    with pytest.raises(ValueError, match=r"release.like: theory knows no classes of gunicorn-sync; leave like out"):
        served({"wheel": str(wheel), "like": "gthread"})


@pytest.mark.parametrize(
    ("release", "message"),
    [
        ("{}", snapshot(".release: give either wheel or patch")),
        ("{wheel: a, patch: b}", snapshot(".release: give either wheel or patch")),
        (
            "{wheel: dist/gunicorn-28.whl}",
            snapshot(
                ".release: wheel: dist/gunicorn-28.whl does not exist; build it with: pip wheel --no-deps "
                "--wheel-dir dist FOLDER"
            ),
        ),
        (
            f"{{patch: {PATCH}, sha256: '0'}}",
            snapshot(
                ".release: sha256: servers/gunicorn/idle-thread.patch has "
                "310a9228e8382454eea58c829fed06521e6fa014ca27f3da42cf0df5099c6f82; correct sha256, or leave it out to "
                "measure any build"
            ),
        ),
        (
            "{patch: LICENSE}",
            snapshot(": release.patch: LICENSE: it changes no file of gunicorn/, as git diff names them"),
        ),
        ("{wheel: docker-compose.yml}", snapshot(": release.wheel: docker-compose.yml is no wheel of gunicorn")),
        (
            f"{{patch: {PATCH}, of: '26.9'}}",
            snapshot(": gunicorn 26.9 has no lock file; there are 26.2.0, 23.0.0, 24.1.1, 25.3.0, 27.0.1"),
        ),
    ],
)
def test_a_build_that_cannot_be_measured_is_refused_with_the_way_out(
    tmp_path: Path, release: str, message: str
) -> None:
    text = (EXPERIMENTS / "branch.yaml").read_text().replace("release: 27.0.1", f"release: {release}", 1)

    said = refusal(read_experiment, tmp_path / "mine.yaml", text)

    assert said.removeprefix("mine.yaml:17: variants.released") == message


def test_of_a_patch_of_a_repository_only_the_modules_are_installed(tmp_path: Path) -> None:
    parts = [f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-1\n+2" for name in
             ("tests/test_one.py", "gunicorn/one.py", "docs/gunicorn/one.md")]  # fmt: skip
    patch = tmp_path / "mine.patch"
    patch.write_bytes(b"From: somebod\xff\n" + "\n".join(parts).encode().replace(b"-1\n+2", b"-1\n+\xe9"))
    build = Unreleased(patch=str(patch))

    build.lay_out("gunicorn", tmp_path)

    assert (tmp_path / "build" / "of.patch").read_bytes() == parts[1].encode().replace(b"+2", b"+\xe9") + b"\n"
    assert build.problem("uvicorn") == f"patch: {patch}: it changes no file of uvicorn/, as git diff names them"


def test_the_experiment_s_build_is_installed_over_the_release_that_is_measured_beside_it() -> None:
    plan = lay_out(load_experiment("branch"))

    built = {image.name: image for image in images_of(plan) if image.service == "gunicorn"}

    [build] = [image for image in built.values() if image.unreleased]
    sha256 = hashlib.sha256((ROOT / PATCH).read_bytes()).hexdigest()
    assert build.name == f"stampede/gunicorn:27.0.1-gunicorn-{sha256[:12]}"
    assert build.released.name in built
