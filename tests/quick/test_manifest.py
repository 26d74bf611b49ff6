"""stampede.records.checksums and stampede.verification: no change to a run goes unseen, and none is blessed."""

import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stampede.pipeline import derive, derive_summary
from stampede.records.checksums import MANIFEST, changed_files, raw_files_problem, read_manifest, seal, sealed, sha256
from stampede.records.claims import Claim, Quantity
from stampede.records.folder import BadRun
from stampede.verification import verify_run
from tests.synthetic import Request, make_run, make_trial, write_points

FEW = [Request(overhead_ms=float(n), sent_s=n / 10) for n in range(3)]
CLAIM = Claim(
    says="they are quick", at_most=1e9,
    value=Quantity(variant="one", request_class="light", metric="overhead", stat="p50"),
)  # fmt: skip
CHANGED = "changed, its hash differs from manifest.sha256"
MISSING = "missing, although manifest.sha256 lists it"
UNLISTED = "not in manifest.sha256"
NOT_DERIVED = "does not follow from the raw points"
UNTRUE = f"one/mix/1/points.json.gz: {CHANGED}"
NOTHING = "0" * 64


pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, without_pictures: None) -> Path:  # noqa: ARG001
    """A run of two variants, measured, sealed and derived as the lab does it."""
    folder = make_run(tmp_path_factory.mktemp("once") / "run", {"one": FEW, "two": FEW}, claims=[CLAIM])
    for name in ("compose.yml", "factors.env", "load.env", "k6-1.log"):
        (folder / "one" / "mix" / "1" / name).write_text(f"what {name} says\n")
    seal(folder)
    derive(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path, original: Path) -> Path:
    """A copy of the run, to be changed."""
    return shutil.copytree(original, tmp_path / "made-up" / "20260102T030405Z")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def differences(run: Path) -> list[str]:
    return [str(one) for one in verify_run(run).differences]


def problem(run: Path, variant: str = "one") -> str | None:
    return raw_files_problem(run, run / variant / "mix" / "1", sealed(run))


def content(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"",
        )
        for path in [folder, *folder.rglob("*")]
    }  # fmt: skip


def test_a_run_is_what_was_measured_and_its_results_follow(run: Path) -> None:
    before = content(run)

    found = verify_run(run)

    assert found.differences == []
    assert found.recorded == 17
    assert found.manifest == sha256(run / MANIFEST)
    assert found.derived == [
        "one/mix/1/requests.parquet", "predicted.json", "report.html", "summary.json", "two/mix/1/requests.parquet",
    ]  # fmt: skip
    assert content(run) == before, "nothing is written into the run's folder"


def test_the_manifest_lists_what_was_recorded_and_nothing_that_is_derived(run: Path) -> None:
    measured = ["nginx-1.after.txt", "nginx-1.before.txt", "points.json.gz", "server-1.after.txt",
                "server-1.before.txt", "trial.json"]  # fmt: skip
    settings = ["compose.yml", "factors.env", "k6-1.log", "load.env"]

    assert list(read_manifest(run)) == [
        *(f"one/mix/1/{name}" for name in sorted(measured + settings)),
        "run.json",
        *(f"two/mix/1/{name}" for name in measured),
    ]


@pytest.mark.skipif(not shutil.which("sha256sum"), reason="there is no sha256sum")
def test_sha256sum_reads_the_manifest(run: Path) -> None:
    check = ["sha256sum", "--check", "--strict", "--quiet", MANIFEST]

    assert subprocess.run(check, cwd=run, capture_output=True, check=False).returncode == 0
    flip(run / "run.json")
    assert subprocess.run(check, cwd=run, capture_output=True, check=False).stdout == b"run.json: FAILED\n"


RECORDS = ("run.json", "one/mix/1/trial.json")
"""Nothing is derived from records that were changed."""


def test_every_changed_byte_is_found_and_named(run: Path) -> None:
    for name in RECORDS:
        flip(run / name)
        assert differences(run) == [f"{name}: {CHANGED}"]
        flip(run / name)
    recorded = [f"one/mix/1/{name}" for name in ("compose.yml", "k6-1.log", "load.env", "points.json.gz")]
    derived = ["one/mix/1/requests.parquet", "predicted.json", "report.html", "summary.json"]
    for name in recorded + derived[1:]:
        flip(run / name)

    assert differences(run) == [
        *(f"{name}: {CHANGED}" for name in recorded),
        *(f"{name}: {NOT_DERIVED}" for name in derived),
    ]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A sealed folder of two files."""
    for name in ("run.json", "one/mix/1/points.json.gz"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("what was measured")
    seal(tmp_path)
    return tmp_path


def test_no_changed_byte_of_the_manifest_goes_unseen(tiny: Path) -> None:
    """It names the manifest each time: as what cannot be understood, or beside the file that does not fit it."""
    good = (tiny / MANIFEST).read_bytes()
    for position in range(len(good)):
        for bit in (1, 32):
            changed = bytearray(good)
            changed[position] ^= bit
            (tiny / MANIFEST).write_bytes(changed)
            try:
                found = changed_files(tiny)
            except BadRun as error:
                assert str(error).startswith(f"{tiny / MANIFEST}:")  # noqa: PT017  # one of two outcomes
            else:
                assert found
                assert all(MANIFEST in one.what for one in found)


def test_a_missing_file_is_found_and_named(run: Path) -> None:
    for name in RECORDS:
        content = (run / name).read_text()
        (run / name).unlink()
        assert differences(run) == [f"{name}: {MISSING}"]
        (run / name).write_text(content)
    derived = ["summary.json", "two/mix/1/requests.parquet"]
    for name in ("one/mix/1/k6-1.log", *derived):
        (run / name).unlink()
    seal(run)  # which keeps the hash of what is gone

    assert differences(run) == [
        f"one/mix/1/k6-1.log: {MISSING}",
        *(f"{name}: missing, although it follows from the raw points" for name in derived),
    ]


def test_an_added_file_is_found_and_named(run: Path) -> None:
    """A name that is not text is no reason to stop."""
    added = ["back\\slash", "caf\udce9", "notes.txt", "one/mix/1/points-2.json.gz", "two\nlines"]
    for name in (*added, "one/mix/2/requests.parquet"):
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_text("made up")

    assert differences(run) == [
        f"back\\slash: {UNLISTED}", f"'caf\\udce9': {UNLISTED}", f"notes.txt: {UNLISTED}",
        f"one/mix/1/points-2.json.gz: {UNLISTED}", f"'two\\nlines': {UNLISTED}",
        *(f"{name}: {NOT_DERIVED}" for name in ("one/mix/1/requests.parquet", "one/mix/2/requests.parquet",
                                               "report.html", "summary.json")),
    ]  # fmt: skip
    (run / "one" / "mix" / "2" / "trial.json").write_text("made up")
    assert f"one/mix/2/trial.json: {UNLISTED}" in differences(run)
    seal(run)
    assert [str(one) for one in changed_files(run)] == [
        f"back\\slash: {UNLISTED}", f"'caf\\udce9': {UNLISTED}", f"'two\\nlines': {UNLISTED}",
    ]  # fmt: skip


def test_a_link_to_a_folder_is_never_followed_nor_written_through(run: Path, tmp_path: Path) -> None:
    (run / "two").rename(tmp_path / "elsewhere")
    (run / "two").symlink_to(tmp_path / "elsewhere")
    before = content(tmp_path / "elsewhere")

    assert differences(run) == [
        "two: not in manifest.sha256",
        *(f"{name}: missing, although manifest.sha256 lists it" for name in read_manifest(run) if name[:3] == "two"),
    ]
    assert content(tmp_path / "elsewhere") == before


def test_points_on_another_disk_and_temporary_files_are_no_difference(run: Path, tmp_path: Path) -> None:
    points = run / "one" / "mix" / "1" / "points.json.gz"
    points.rename(tmp_path / "points")
    points.symlink_to(tmp_path / "points")
    (run / "one" / "mix" / ".2.part").mkdir()
    (run / "one" / "mix" / ".2.part" / "load.env").write_text("half")
    (run / ".summary.json.abc").write_text("half")

    seal(run)

    assert differences(run) == []


def test_sealing_again_never_blesses_a_change(run: Path) -> None:
    log, old = run / "one" / "mix" / "1" / "k6-1.log", read_manifest(run)
    flip(log)
    make_trial(run, "two", 2, FEW)
    (run / "run.json").write_text((run / "run.json").read_text() + "\n")

    seal(run)

    new = read_manifest(run)
    assert set(new) - set(old) == {name.replace("/1/", "/2/") for name in old if name.startswith("two/")}
    assert {name for name in old if new[name] != old[name]} == {"run.json"}
    assert new["run.json"] == sha256(run / "run.json")
    assert [str(one) for one in changed_files(run)] == [f"one/mix/1/k6-1.log: {CHANGED}"]


def replaced(points: Path) -> None:
    """Put other valid points where those were that were measured: DuckDB reads them without complaint."""
    write_points(points, [replace(one, overhead_ms=1000) for one in FEW])


def header_changed(points: Path) -> None:
    """Change the time in the header of the gzip file, which changes nothing that is in it."""
    content = bytearray(points.read_bytes())
    content[4] ^= 1
    points.write_bytes(content)


def test_points_that_were_changed_give_an_invalid_trial_and_no_number(run: Path) -> None:
    points = run / "one" / "mix" / "1" / "points.json.gz"
    replaced(points)

    summary = derive_summary(run)

    assert {one.variant for one in summary.rows} == {"two"}
    assert {one.variant for one in summary.workers} == {"two"}
    assert (summary.validity.verdict, summary.validity.reasons[0]) == ("invalid", f"one: invalid: {UNTRUE}")
    assert [(one.verdict, one.measured, one.reason) for one in summary.claims] == [("invalid", None, f"one: {UNTRUE}")]
    assert not points.with_name("requests.parquet").exists()


@pytest.mark.parametrize(
    ("name", "spoil", "why"),
    [
        ("nginx-1.after.txt", flip, CHANGED),
        ("points.json.gz", flip, CHANGED),
        ("points.json.gz", header_changed, CHANGED),
        ("server-1.before.txt", flip, CHANGED),
        ("points-2.json.gz", Path.touch, UNLISTED),
        ("k6-processor-2.txt", Path.touch, UNLISTED),
    ],
)
def test_evidence_that_nobody_measured_spoils_its_trial(
    run: Path, name: str, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(run / "one" / "mix" / "1" / name)

    assert problem(run) == f"one/mix/1/{name}: {why}"
    assert problem(run, "two") is None


def test_points_that_are_gone_give_an_invalid_trial_also_beside_others(run: Path) -> None:
    """What is left of two load generators' points would be half of the requests, and look like all."""
    points = run / "one" / "mix" / "1" / "points.json.gz"
    points.with_name("points-2.json.gz").write_text("points of another generator")
    (run / MANIFEST).unlink()
    seal(run)
    assert problem(run) is None

    points.with_name("points-2.json.gz").unlink()
    assert problem(run) == f"one/mix/1/points-2.json.gz: {MISSING}"
    points.unlink()
    assert problem(run) == f"one/mix/1/points-2.json.gz: {MISSING}"


def test_a_trial_that_was_not_sealed_is_read(run: Path) -> None:
    """It was not sealed yet, or there is no manifest."""
    make_trial(run, "one", 2, FEW)
    assert raw_files_problem(run, run / "one" / "mix" / "2", sealed(run)) is None

    (run / MANIFEST).unlink()
    replaced(run / "one" / "mix" / "1" / "points.json.gz")

    assert problem(run) is None
    with pytest.raises(BadRun) as caught:
        verify_run(run)
    assert str(caught.value) == f"{run} has no manifest.sha256"


def test_a_run_that_is_invalid_is_still_what_was_measured(run: Path) -> None:
    broken = make_trial(run, "one", 2, FEW)
    (broken / "points.json.gz").write_bytes((broken / "points.json.gz").read_bytes()[:300])
    seal(run)
    reasons = derive(run).trials[1].reasons

    assert reasons[0].startswith("one/mix/2/points.json.gz cannot be read: IO Error: Unexpected end of GZIP stream")
    assert differences(run) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"hello\n", "{path}:1: not a hash, two spaces and a path: 'hello'"),
        (b"%(hash)s  run.json\n\n", "{path}:2: not a hash, two spaces and a path: ''"),
        (b"%(hash)s *run.json\n", "{path}:1: not a hash, two spaces and a path: '{hash} *run.json'"),
        (b"%(hash)s  run.json\r\n", r"{path}:1: not the path of a file that a run records: 'run.json\r'"),
        (b"%(hash)s  ../run.json\n", "{path}:1: not the path of a file that a run records: '../run.json'"),
        (b"%(hash)s  /dev/zero\n", "{path}:1: not the path of a file that a run records: '/dev/zero'"),
        (b"%(hash)s  summary.json\n", "{path}:1: not the path of a file that a run records: 'summary.json'"),
        (b"%(hash)s  run.json\n%(hash)s  run.json\n", "{path}:2: listed twice: run.json"),
        (b"%(hash)s  run.json\n%(hash)s  one", "{path}:2: cut short, the line does not end"),
        (b"%(hash)s  caf\xe9\n", "{path}:1: not UTF-8"),
        (b"F" * 64 + b"  run.json\n", "{path}:1: not a hash, two spaces and a path: '" + "F" * 64 + "  run.json'"),
        (None, "{path} cannot be read: Is a directory"),
    ],
)  # fmt: skip
def test_a_manifest_that_cannot_be_understood_is_an_error_with_its_line(
    run: Path, text: bytes | None, message: str
) -> None:
    if text is None:
        (run / MANIFEST).unlink()
        (run / MANIFEST).mkdir()
    else:
        (run / MANIFEST).write_bytes(text.replace(b"%(hash)s", NOTHING.encode()))

    for reads in (read_manifest, seal, derive, changed_files, verify_run):
        with pytest.raises(BadRun) as caught:
            reads(run)
        assert str(caught.value) == message.replace("{path}", str(run / MANIFEST)).replace("{hash}", NOTHING)


PIECES = st.sampled_from([b"0" * 64, b"F" * 64, b"  ", b" ", b"run.json", b"one/mix/1/points.json.gz", b"/", b"..",
                          b"\\", b"\n", b"\r", b"\0", b"\xff", b"\xe2\x80\xa8", b"a" * 5000])  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=30).map(b"".join)))
def test_no_manifest_makes_the_reader_fail_otherwise(tiny: Path, text: bytes) -> None:
    (tiny / MANIFEST).write_bytes(text)

    with suppress(BadRun):
        assert changed_files(tiny), "every file was in the manifest with the right hash"
