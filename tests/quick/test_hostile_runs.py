"""Runs of strangers: what a terminal would obey, records without an end, and files that are none."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from stampede.errors import WrongUse
from stampede.evaluate.read.rows import UnreadablePoints, write_requests
from stampede.experiment.yaml_file import YamlFile
from stampede.pipeline import derive
from stampede.records import folder as records
from stampede.records.checksums import seal
from stampede.records.folder import read_run
from stampede.records.run import Host, Image
from stampede.teach.classroom import submissions
from tests.conftest import Lab
from tests.quick.test_hostile_logs import OBEYED
from tests.quick.test_manifest import CLAIM, FEW
from tests.synthetic import make_run, make_trial, older_run

pytestmark = pytest.mark.usefixtures("without_pictures")
EVIL = "\x1b[2J\x9b1m\u202e[/red][bold]:heart:"


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory, without_pictures: None) -> Path:  # noqa: ARG001
    """A run whose texts have controls, markup and the name of an emoji."""
    host = Host(cpu=EVIL, cores=2, memory_gib=4, kernel=EVIL, engine=EVIL, compose=EVIL)
    run = make_run(
        tmp_path_factory.mktemp("run") / "made-up" / "20260102T030405Z", {"one[red]": FEW, "two[": FEW},
        title=EVIL, question=EVIL, because=EVIL, command=EVIL, outcome="interrupted", reason=EVIL, host=host,
        images=[Image(name=EVIL, id="sha256:0123456789abcdef")], claims=[CLAIM],
    )  # fmt: skip
    seal(run)
    derive(run)
    return run


@pytest.mark.parametrize("options", [[], ["--tables"], ["--markdown"], ["--json"], ["--table", "x"]])
def test_no_text_of_a_strangers_run_is_obeyed_by_the_terminal(lab: Lab, stranger: Path, options: list[str]) -> None:
    """Controls are shown, and markup stays as it is."""
    said = lab.call("report", str(stranger), *options)
    assert not OBEYED.search(said.stdout + said.stderr)
    assert "Traceback" not in said.stderr
    if options != ["--table", "x"]:
        assert "one[red]" in said.stdout


def test_a_record_has_no_character_that_no_picture_can_have(stranger: Path) -> None:
    """The program that draws charts would abort the process."""
    assert read_run(stranger).title == EVIL.replace("\x1b", "\ufffd").replace("\x9b", "\ufffd").replace(
        "\u202e", "\ufffd"
    )


def test_a_class_of_a_strangers_points_has_no_such_name(tmp_path: Path) -> None:
    """Its trial is invalid, and the reason names the file."""
    trial = make_trial(tmp_path, "one", 1, [replace(request, request_class=EVIL) for request in FEW])
    with pytest.raises(UnreadablePoints, match=r"points\.json\.gz cannot be read: .* has a control character"):
        write_requests(trial, "one", "mix", 1)


@pytest.mark.parametrize("command", ["report", "verify", "class", "compare", "export"])
def test_a_record_that_is_too_large_is_named_with_the_limit(
    lab: Lab, stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Before it is in memory."""
    run = shutil.copytree(stranger, tmp_path / "made-up" / "20260102T030405Z")
    with (run / "run.json").open("r+b") as record:
        record.truncate((1 << 20) + 1)
    seal(run)
    monkeypatch.setattr(records, "MOST_BYTES", 1 << 20)
    said = lab.call(command, str(run), *([str(stranger)] if command == "compare" else []))
    assert said.returncode != 0
    assert "run.json has more than 1 MiB" in said.stderr.replace("\n", " ")


def test_an_archive_with_a_record_that_is_too_large_is_named_with_the_limit(
    lab: Lab, stranger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the record is written."""
    run = shutil.copytree(stranger, tmp_path / "made-up" / "20260102T030405Z")
    with (run / "run.json").open("r+b") as record:
        record.truncate((1 << 20) + 1)
    packed = Path(shutil.make_archive(str(tmp_path / "handed-in"), "gztar", run.parent))
    monkeypatch.setattr(submissions, "FILE_BYTES", 1 << 20)
    said = lab.call("class", str(packed))
    assert said.returncode != 0
    assert "handed-in.tar.gz has 20260102T030405Z/run.json of 1 MiB; at most 1 MiB are read" in said.stderr


@pytest.mark.parametrize("name", ["run.json", "manifest.sha256"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_a_pipe_or_a_device_is_no_record(
    lab: Lab, stranger: Path, tmp_path: Path, *, name: str, kind: str
) -> None:  # fmt: skip
    """A pipe without a writer would keep everybody waiting."""
    run = shutil.copytree(stranger, tmp_path / "made-up" / "20260102T030405Z")
    (run / name).unlink()
    if kind == "pipe":
        os.mkfifo(run / name)
    else:
        (run / name).symlink_to("/dev/zero")
    said = lab.call("class", str(run))
    assert said.returncode != 0
    assert f"{name} cannot be read: It is a pipe or a device" in said.stderr.replace("\n", " ")


@pytest.mark.parametrize("command", ["report", "verify", "export"])
def test_a_run_of_an_older_schema_is_refused_by_name(lab: Lab, command: str) -> None:
    old = older_run(lab.results)

    done = lab.call(command, str(old))

    problem = f"{old}/run.json has schema 0; this version reads schema 2"
    if command == "verify":
        problem = f"{old} has no manifest.sha256"
    assert done.returncode == 2
    assert done.stderr == f"error: {problem}.\n\nhint: stampede {command} results/<experiment>/<time>, or …/latest\n"


def test_a_pipe_is_no_description_of_a_service(lab: Lab, tmp_path: Path) -> None:
    """Nor is a device, or a file of more than a MiB."""
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "large.yaml").write_text("#" * (1 << 20) + "\n")
    said = lab.call("try", str(tmp_path / "pipe.yaml"))
    assert said.returncode != 0
    assert "pipe.yaml cannot be read: It is a pipe or a device" in said.stderr.replace("\n", " ")
    with pytest.raises(WrongUse, match=r"/dev/zero cannot be read"):
        YamlFile(Path("/dev/zero"))
    with pytest.raises(WrongUse, match=r"large\.yaml has more than 1 MiB"):
        YamlFile(tmp_path / "large.yaml")
