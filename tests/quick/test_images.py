"""docker: an image is built again when what it is made of has changed, and only then; its programs are kept."""

import os
import re
from pathlib import Path

import pytest

from stampede.docker import doctor, provenance
from stampede.docker import images as of_lab
from stampede.docker.images import BESIDE_SERVERS, files_of, images_of, inputs_digest, stages_of
from stampede.experiment.file import load_experiment, names
from stampede.paths import ROOT
from stampede.plan import lay_out
from stampede.run import machine_lock
from stampede.servers import SERVERS
from stampede.servers.services import filled, services
from tests.conftest import Lab, copy_lab

BUILT = {name: service["build"] for name, service in services().items() if "build" in service}
OF_SERVERS = {server.service for server in SERVERS}


def digests() -> dict[str, str]:
    return {service: inputs_digest(service, {}, "sha256:base") for service in BUILT}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the lab."""
    return copy_lab(tmp_path_factory.mktemp("lab")).root


@pytest.fixture
def copy(tree: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The copy, from which images are built."""
    monkeypatch.setattr(of_lab, "ROOT", tree)
    return tree


def changed_by(file: Path, old: str, new: str) -> set[str]:
    before, text = digests(), file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    after = digests()
    file.write_text(text)
    return {service for service in BUILT if before[service] != after[service]}


@pytest.mark.parametrize(
    ("path", "images"),
    [
        ("servers/app/wsgi.py", OF_SERVERS),
        ("servers/gunicorn/acceptors.py", {"gunicorn"}),
        ("servers/gunicorn/requirements/27.0.1.txt", {"gunicorn"}),
        ("servers/gunicorn/requirements/23.0.0.txt", set()),  # of another image of the same service
        ("servers/uwsgi/requirements/2.0.31.txt", {"uwsgi"}),  # its stage is another one
        ("idle-thread/gunicorn_idle_thread.py", {"gunicorn"}),
        ("probe/stampede_probe/watch.py", {"gunicorn", "asgi"}),
        ("servers/asgi/start", {"asgi"}),
        ("servers/api/api.py", {"api"}),
        ("servers/observe", BUILT.keys()),
        ("servers/with-database", {*OF_SERVERS, "api", "client", "envoy"}),
        ("nginx/templates/http.conf", {"nginx"}),
        ("mariadb/init.sql", {"mariadb"}),
    ],
)
def test_a_changed_file_makes_new_images_of_what_copies_it_alone(copy: Path, path: str, images: set[str]) -> None:
    assert changed_by(copy / path, "", "# changed\n") == images


def test_a_changed_stage_makes_a_new_image_of_what_is_built_on_it_alone(copy: Path) -> None:
    stages = copy / "servers" / "Dockerfile"
    assert changed_by(stages, "FROM counted AS flup\n", "FROM counted AS flup\nENV X=1\n") == {"flup"}
    changed = changed_by(stages, "FROM base AS counted\n", "FROM base AS counted\nENV X=1\n")
    assert changed >= {"gunicorn", "asgi", "flup"}
    assert changed.isdisjoint({"uwsgi", "api", "client", "nginx", "haproxy", "mariadb"})


def test_another_base_or_release_makes_a_new_image() -> None:
    assert inputs_digest("gunicorn", {}, "sha256:1") != inputs_digest("gunicorn", {}, "sha256:2")
    assert inputs_digest("gunicorn", {"LAB_RELEASE": "23.0.0"}, "") != inputs_digest("gunicorn", {}, "")
    assert inputs_digest("nginx", {"LAB_RELEASE": "23.0.0"}, "") == inputs_digest("nginx", {}, "")


def test_every_file_that_a_dockerfile_copies_is_part_of_a_digest() -> None:
    """Counted without the code under test: every word of every COPY but its options and its target."""
    copied: set[Path] = set()
    for dockerfile in {build["dockerfile"] for build in BUILT.values()}:
        for line in (ROOT / dockerfile).read_text().replace("\\\n", " ").splitlines():
            if line.startswith(("COPY", "ADD")):
                words = [word for word in line.split()[1:-1] if not word.startswith("--")]
                copied |= {path for word in words for path in ROOT.glob(re.sub(r"\$\{\w+\}", "*", word).rstrip("/"))}
    files = {one for path in copied for one in ([path] if path.is_file() else path.rglob("*")) if one.is_file()}
    files = {path for path in files if "__pycache__" not in path.parts}
    releases = [path.stem for path in ROOT.glob("servers/*/requirements/*.txt")]
    covered = {
        path
        for build in BUILT.values()
        for release in releases
        if not build.get("args") or (ROOT / f"servers/{build['target']}/requirements/{release}.txt").exists()
        for path in files_of(stages_of(build["dockerfile"], build.get("target")), {"RELEASE": release})
    }

    assert len(files) > 40
    assert covered == files


def test_a_file_that_is_copied_and_does_not_exist_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match=r"servers/nowhere\.py is copied into an image, but does not exist"):
        files_of(["FROM base AS one\nCOPY servers/nowhere.py ./\n"], {})


SLOW = {"stampede/python314:gil", "stampede/python314:free"}


def test_images_that_take_minutes_are_built_only_for_the_experiment_that_needs_them(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    built: list[str] = []
    monkeypatch.setattr(machine_lock, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(doctor, "make_ready", lambda *_: None)
    monkeypatch.setattr(of_lab, "build_images", lambda images, _say: built.extend(one.name for one in images))

    assert lab.call("setup").returncode == 0

    planned = {name: images_of(lay_out(load_experiment(name))) for name in names()}
    assert all(image.packages for images in planned.values() for image in images), "each names what it is for"
    assert OF_SERVERS | BESIDE_SERVERS.keys() == BUILT.keys()
    needed = {name: {image.name for image in images} for name, images in planned.items()}
    assert {name for name, images in needed.items() if images & SLOW} == {"free-threading"}
    assert set(built) == {image for images in needed.values() for image in images} - SLOW


def test_an_image_that_takes_minutes_says_so_before_it_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(of_lab, "contents", lambda _: "layers")
    monkeypatch.setattr(of_lab, "label", lambda *_: "")
    monkeypatch.setattr(of_lab, "run_command", lambda *_: said.append("built"))

    of_lab.build_images(images_of(lay_out(load_experiment("free-threading"), variants=["granian-free"])), said.append)

    of_python = next(place for place, one in enumerate(said) if "python314" in one)
    assert said[of_python : of_python + 2] == [
        "Building stampede/python314:free … This takes about 4 minutes on two cores, once: it compiles Python.",
        "built",
    ]


def test_a_record_says_the_versions_of_what_an_image_is_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program docker is replaced: what it says of an image is as long as a real one's."""
    described = '[{"Id": "sha256:1", "Config": {"Labels": {}}, "RepoDigests": []}]'
    (tmp_path / "docker").write_text(
        f"#!/bin/sh\ncase $1 in run) printf 'python3 3.13.5\\npython/uvicorn 0.54.0\\npython/flask 3.1\\n' ;; *) "
        f"echo '{described}' ;; esac\n"
    )
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    [image] = provenance.image_records({"stampede/asgi:trixie": ("python3", "python/uvicorn", "python/granian")})

    assert image.programs == {"python3": "3.13.5", "uvicorn": "0.54.0"}
    assert "python/flask" in image.packages


def test_an_empty_factor_has_the_default_only_if_the_variable_says_so() -> None:
    text = "${A:-a} ${B-b} ${C:-c} ${D-d} ${E}"

    assert filled(text, {"A": "", "B": "", "E": "e"}) == "a  c d e"
