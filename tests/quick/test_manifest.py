"""analysis.records.checksums and analysis.verification: no change to a run goes unseen, and none is blessed."""

import contextlib
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.pipeline import derive
from analysis.records.checksums import MANIFEST, changed_files, read_manifest, seal, sha256
from analysis.records.claims import Claim, Quantity
from analysis.records.folder import BadRun
from analysis.verification import verify_run
from tests.synthetic import Request, make_run, make_trial, write_points

HUNDRED = [Request(overhead_ms=float(n), sent_s=n / 10) for n in range(1, 101)]
SLOWER = [Request(overhead_ms=float(n) + 1000, sent_s=n / 10) for n in range(1, 101)]
TAIL = Quantity(variant="one", request_class="light", metric="overhead", stat="p99")
CLAIM = Claim(says="the tail is short", value=TAIL, at_most=1e9)
CHANGED = "changed, its hash differs from manifest.sha256"
NOT_DERIVED = "does not follow from the raw points"
UNTRUE = "one/mix/1/points.json.gz is not what was measured: its hash differs from manifest.sha256"
NOTHING = "0" * 64


pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory, without_pictures: None) -> Path:  # noqa: ARG001
    """A run of two variants, measured, sealed and derived as the lab does it."""
    folder = make_run(tmp_path_factory.mktemp("once") / "run", {"one": HUNDRED, "two": HUNDRED}, claims=[CLAIM])
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
    """Change one byte in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def differences(run: Path) -> list[str]:
    """Return what verification finds, as it is printed."""
    return [str(one) for one in verify_run(run).differences]


def content(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return all of a folder: which files are where, what is in them and when it was written."""
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


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("run.json", [f"run.json: {CHANGED}"]),
        ("one/mix/1/trial.json", [f"one/mix/1/trial.json: {CHANGED}"]),
        ("one/mix/1/k6-1.log", [f"one/mix/1/k6-1.log: {CHANGED}"]),
        ("one/mix/1/compose.yml", [f"one/mix/1/compose.yml: {CHANGED}"]),
        ("one/mix/1/load.env", [f"one/mix/1/load.env: {CHANGED}"]),
        ("predicted.json", [f"predicted.json: {NOT_DERIVED}"]),
        ("summary.json", [f"summary.json: {NOT_DERIVED}"]),
        ("report.html", [f"report.html: {NOT_DERIVED}"]),
        ("one/mix/1/requests.parquet", [f"one/mix/1/requests.parquet: {NOT_DERIVED}"]),
        *(
            (
                f"one/mix/1/{name}",
                [
                    f"one/mix/1/{name}: {CHANGED}",
                    f"one/mix/1/requests.parquet: {NOT_DERIVED}",
                    f"report.html: {NOT_DERIVED}",
                    f"summary.json: {NOT_DERIVED}",
                ],
            )
            for name in ("nginx-1.after.txt", "points.json.gz", "server-1.before.txt")
        ),
    ],
)
def test_one_changed_byte_is_found_and_named(run: Path, name: str, found: list[str]) -> None:
    flip(run / name)

    assert differences(run) == found


def test_no_changed_byte_of_the_manifest_goes_unseen(tmp_path: Path) -> None:
    """It names the manifest each time: as what cannot be understood, or beside the file that does not fit it."""
    run = make_run(tmp_path, {"one": [Request()]})
    seal(run)
    good = (run / MANIFEST).read_bytes()
    for position in range(len(good)):
        for bit in (1, 32):
            changed = bytearray(good)
            changed[position] ^= bit
            (run / MANIFEST).write_bytes(changed)
            try:
                found = changed_files(run)
            except BadRun as error:
                assert str(error).startswith(f"{run / MANIFEST}:")  # noqa: PT017  # one of two outcomes
            else:
                assert found
                assert all(MANIFEST in one.what for one in found)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("run.json", ["run.json: missing, although manifest.sha256 lists it"]),
        ("one/mix/1/trial.json", ["one/mix/1/trial.json: missing, although manifest.sha256 lists it"]),
        ("one/mix/1/k6-1.log", ["one/mix/1/k6-1.log: missing, although manifest.sha256 lists it"]),
        ("summary.json", ["summary.json: missing, although it follows from the raw points"]),
        (
            "two/mix/1/requests.parquet",
            ["two/mix/1/requests.parquet: missing, although it follows from the raw points"],
        ),
    ],
)
def test_a_missing_file_is_found_and_named(run: Path, name: str, found: list[str]) -> None:
    (run / name).unlink()

    assert differences(run) == found


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("notes.txt", "notes.txt: not in manifest.sha256"),
        ("one/mix/1/points-2.json.gz", "one/mix/1/points-2.json.gz: not in manifest.sha256"),
        ("one/mix/2/trial.json", "one/mix/2/trial.json: not in manifest.sha256"),
        ("one/mix/2/requests.parquet", "one/mix/2/requests.parquet: does not follow from the raw points"),
        ("two\nlines", r"'two\nlines': not in manifest.sha256"),
        ("back\\slash", "back\\slash: not in manifest.sha256"),
    ],
)
def test_an_added_file_is_found_and_named(run: Path, name: str, found: str) -> None:
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text("made up")

    assert differences(run)[0] == found


def test_a_name_that_is_not_text_is_no_reason_to_stop(run: Path) -> None:
    (run / "caf\udce9").write_text("a name of another time")

    seal(run)

    assert differences(run) == [r"'caf\udce9': not in manifest.sha256"]


def test_a_link_to_a_folder_is_never_followed_nor_written_through(run: Path, tmp_path: Path) -> None:
    (run / "two").rename(tmp_path / "elsewhere")
    (run / "two").symlink_to(tmp_path / "elsewhere")
    before = content(tmp_path / "elsewhere")

    assert differences(run) == [
        "two: not in manifest.sha256",
        *(f"{name}: missing, although manifest.sha256 lists it" for name in read_manifest(run) if name[:3] == "two"),
    ]
    assert content(tmp_path / "elsewhere") == before


def test_points_on_another_disk_are_still_those_that_were_measured(run: Path, tmp_path: Path) -> None:
    points = run / "one" / "mix" / "1" / "points.json.gz"
    points.rename(tmp_path / "points")
    points.symlink_to(tmp_path / "points")

    assert differences(run) == []


def test_temporary_files_are_no_difference(run: Path) -> None:
    (run / "one" / "mix" / ".2.part").mkdir()
    (run / "one" / "mix" / ".2.part" / "load.env").write_text("half")
    (run / ".summary.json.abc").write_text("half")

    seal(run)

    assert differences(run) == []


def test_sealing_again_never_blesses_a_change(run: Path) -> None:
    log, old = run / "one" / "mix" / "1" / "k6-1.log", read_manifest(run)
    flip(log)
    make_trial(run, "two", 2, HUNDRED)
    (run / "run.json").write_text((run / "run.json").read_text() + "\n")

    seal(run)

    new = read_manifest(run)
    assert set(new) - set(old) == {name.replace("/1/", "/2/") for name in old if name.startswith("two/")}
    assert {name for name in old if new[name] != old[name]} == {"run.json"}
    assert new["run.json"] == sha256(run / "run.json")
    assert [str(one) for one in changed_files(run)] == [f"one/mix/1/k6-1.log: {CHANGED}"]


def test_sealing_again_keeps_the_hash_of_what_is_gone(run: Path) -> None:
    (run / "one" / "mix" / "1" / "k6-1.log").unlink()

    seal(run)

    assert differences(run) == ["one/mix/1/k6-1.log: missing, although manifest.sha256 lists it"]


def replaced(points: Path) -> None:
    """Put other valid points where those were that were measured: DuckDB reads them without complaint."""
    write_points(points, SLOWER)


def header_changed(points: Path) -> None:
    """Change the time in the header of the gzip file, which changes nothing that is in it."""
    content = bytearray(points.read_bytes())
    content[4] ^= 1
    points.write_bytes(content)


@pytest.mark.parametrize("change", [replaced, header_changed, flip])
def test_points_that_were_changed_give_an_invalid_trial_and_no_number(
    run: Path, change: Callable[[Path], None]
) -> None:
    change(run / "one" / "mix" / "1" / "points.json.gz")

    summary = derive(run)

    assert {one.variant for one in summary.rows} == {"two"}
    assert {one.variant for one in summary.workers} == {"two"}
    assert (summary.validity.verdict, summary.validity.reasons[0]) == ("invalid", f"one: invalid: {UNTRUE}")
    assert [(one.verdict, one.measured, one.reason) for one in summary.claims] == [("invalid", None, f"one: {UNTRUE}")]
    assert not (run / "one" / "mix" / "1" / "requests.parquet").exists()


def test_points_that_nobody_measured_give_an_invalid_trial(run: Path) -> None:
    write_points(run / "one" / "mix" / "1" / "points-2.json.gz", SLOWER)

    assert derive(run).trials[0].reasons == [
        "one/mix/1/points-2.json.gz is not what was measured: it is not in manifest.sha256"
    ]


def test_readings_of_a_load_generator_that_nobody_took_give_an_invalid_trial(run: Path) -> None:
    (run / "one" / "mix" / "1" / "k6-processor-2.txt").write_text("1700000000 0\n")

    assert derive(run).trials[0].reasons == [
        "one/mix/1/k6-processor-2.txt is not what was measured: it is not in manifest.sha256"
    ]


def test_points_that_are_gone_give_an_invalid_trial_also_beside_others(tmp_path: Path) -> None:
    """What is left of two load generators' points would be half of the requests, and look like all."""
    run = make_run(tmp_path, {"one": HUNDRED})
    points = run / "one" / "mix" / "1" / "points.json.gz"
    shutil.copy(points, points.with_name("points-2.json.gz"))
    seal(run)
    points.with_name("points-2.json.gz").unlink()
    assert derive(run).trials[0].reasons == ["one/mix/1 has no points-2.json.gz"]

    points.unlink()

    assert derive(run).trials[0].reasons == ["one/mix/1 has no points-2.json.gz"]


def test_points_that_are_all_gone_are_reported_as_ever(run: Path) -> None:
    (run / "one" / "mix" / "1" / "points.json.gz").unlink()

    assert derive(run).trials[0].reasons == ["one/mix/1 has no points.json.gz"]


def test_a_trial_that_was_not_sealed_yet_is_read(run: Path) -> None:
    make_trial(run, "one", 2, HUNDRED)

    assert [one.verdict for one in derive(run).trials] == ["valid", "valid", "valid"]


def test_without_a_manifest_nothing_is_compared(run: Path) -> None:
    (run / MANIFEST).unlink()
    replaced(run / "one" / "mix" / "1" / "points.json.gz")

    assert derive(run).validity.verdict == "valid"
    with pytest.raises(BadRun) as caught:
        verify_run(run)
    assert str(caught.value) == f"{run} has no manifest.sha256"


def test_a_run_that_is_invalid_is_still_what_was_measured(run: Path) -> None:
    broken = make_trial(run, "one", 2, HUNDRED)
    (broken / "points.json.gz").write_bytes((broken / "points.json.gz").read_bytes()[:300])
    seal(run)
    reasons = derive(run).trials[1].reasons

    assert reasons[0].startswith("one/mix/2/points.json.gz cannot be read: IO Error: Unexpected end of GZIP stream")
    assert differences(run) == []


def test_a_run_of_another_version_is_refused_with_its_own_path(run: Path) -> None:
    (run / "run.json").write_text('{"schema": 0}')
    seal(run)

    with pytest.raises(BadRun) as caught:
        verify_run(run)

    assert str(caught.value) == f"{run}/run.json has schema 0; this version reads the schemas 1 to 2"


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
    ],
)  # fmt: skip
def test_a_manifest_that_cannot_be_understood_is_an_error_with_its_line(run: Path, text: bytes, message: str) -> None:
    (run / MANIFEST).write_bytes(text.replace(b"%(hash)s", NOTHING.encode()))

    for reads in (read_manifest, seal, derive, changed_files, verify_run):
        with pytest.raises(BadRun) as caught:
            reads(run)
        assert str(caught.value) == message.replace("{path}", str(run / MANIFEST)).replace("{hash}", NOTHING)


def test_a_manifest_that_is_a_folder_is_an_error(run: Path) -> None:
    (run / MANIFEST).unlink()
    (run / MANIFEST).mkdir()

    with pytest.raises(BadRun) as caught:
        changed_files(run)

    assert str(caught.value) == f"{run / MANIFEST} cannot be read: Is a directory"


PIECES = st.sampled_from([b"0" * 64, b"F" * 64, b"  ", b" ", b"run.json", b"one/mix/1/points.json.gz", b"/", b"..",
                          b"\\", b"\n", b"\r", b"\0", b"\xff", b"\xe2\x80\xa8", b"a" * 5000])  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(st.binary(max_size=300), st.lists(PIECES, max_size=30).map(b"".join)))
def test_no_manifest_makes_the_reader_fail_otherwise(run: Path, text: bytes) -> None:
    (run / MANIFEST).write_bytes(text)

    with contextlib.suppress(BadRun):
        assert changed_files(run), "every file was in the manifest with the right hash"


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.text(max_size=30))
def test_no_path_makes_the_reader_fail_otherwise(run: Path, name: str) -> None:
    (run / MANIFEST).write_bytes(f"{NOTHING}  {name}\n".encode())

    with contextlib.suppress(BadRun):
        assert changed_files(run)
