"""stampede class: one page from everybody's exports: a dot for each laptop, who differs, and nothing personal."""

import gzip
import io
import json
import re
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from playwright.sync_api import Page

from stampede.export import pack
from stampede.paths import ROOT
from stampede.records.checksums import seal
from stampede.records.claims import Claim, Quantity
from stampede.records.folder import read_run, read_summary
from stampede.records.summary import Summary
from stampede.teach.classroom import submissions
from stampede.teach.classroom.drawing import assign_lanes
from stampede.teach.classroom.page import properties
from stampede.teach.classroom.predictions import collect_predictions
from stampede.teach.classroom.strips import Dot, Laptop, Strip
from stampede.teach.classroom.submissions import BadArchive, SubmittedRun
from stampede.teach.classroom.submissions import unpack as unpack_archive
from stampede.teach.lesson.notes import Bar
from stampede.verification import compute_summary
from tests.browsing import SCHEMES, opened, tab, violations
from tests.conftest import Lab
from tests.synthetic import Request, make_run
from tests.wrong import listed
from tools.classes import PEOPLE, make_class, with_results
from tools.real_runs import unpack

__all__ = ["tab"]

QUESTION = "the last of ten requests is answered after"
TOP = "keep-alive-20261122T144029Z"
"""The folder in the archives."""


def lesson(yours: float, says: str = QUESTION) -> bytes:
    """Return what the lab's lesson records, with a sentence that a student wrote."""
    bar = {"says": says, "unit": "ms", "yours": yours, "theory": 1000.0, "measured": 1100.0, "low": None, "high": None}
    step = {"prediction": {"values": [yours], "at": ""}, "result": {"run": "", "at": "", "bars": [bar], "claims": []},
            "explanation": "dolores thinks that the threads wait"}  # fmt: skip
    return json.dumps({"schema": 1, "steps": {"ten-at-once": step, "later": {"result": None}}}).encode()


def two_cores_fail(place: int, record: dict[str, Any], summary: dict[str, Any]) -> None:
    """Let a claim fail on the laptops with two cores, and on one with another kernel and another gunicorn."""
    if place < 4 or place == 7:
        claim = summary["claims"][0]
        claim |= {"verdict": "not reproduced", "measured": 3.0 + place / 10, "low": 2.0, "high": 5.0}
    if place == 7:
        record["host"]["kernel"] = "Linux 5.15.0-91-dolores"
        for image in record["images"]:
            if "python/gunicorn" in image["packages"]:
                image["programs"]["gunicorn"] = "26.2.0"


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that the laptops of the classes have measured."""
    return with_results(tmp_path_factory.mktemp("measured"))


@pytest.fixture(scope="module")
def twelve(measured: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Twelve archives; a claim fails on the laptops with two cores, and on one with another kernel and gunicorn."""
    return make_class(tmp_path_factory.mktemp("class"), measured, change=two_cores_fail)


@pytest.fixture
def some(twelve: list[Path], tmp_path: Path) -> list[Path]:
    """Return copies of three of the archives, which a test may spoil."""
    return [Path(shutil.copy(one, tmp_path)) for one in twelve[:3]]


def shown(lab: Lab, *arguments: str | Path) -> tuple[int, str, str]:
    """Make the page; return the exit code, what was said, and the page (empty: there is none)."""
    done = lab.call("class", *map(str, arguments))
    page = lab.results / "class.html"
    assert done.stdout == (f"{page}\n" if page.exists() else "")
    return done.returncode, done.stderr, page.read_text(encoding="utf-8") if page.exists() else ""


def text_of(html: str) -> str:
    """Return what a page says, without its markup."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def rows_of(page: str, heading: str) -> list[str]:
    """Return the rows of the table below a heading as text."""
    table = page[page.index(heading) :].partition("</table>")[0]
    return [text_of(f"<{row}").strip() for row in table.split("<tr")[2:]]


@pytest.fixture(scope="module")
def of_twelve(twelve: list[Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, str, Path]:
    """The page of the twelve archives: the exit code, what was said, the page, and its file."""
    lab = Lab(ROOT, tmp_path_factory.mktemp("page"))
    return *shown(lab, *twelve), lab.results / "class.html"


def test_the_page_says_who_differs(of_twelve: tuple[int, str, str, Path]) -> None:
    code, said, page, _ = of_twelve

    assert code == 0
    assert re.fullmatch(
        r"keep-alive: 12 laptops; 6 of 7 claims have the same verdict on all\. 5 differ from the others: "
        r"laptop-1, laptop-2, laptop-3, laptop-4, laptop-([5-9]|1[0-2])\.\n", said
    )  # fmt: skip
    differ, rows = rows_of(page, "Who differs: keep-alive"), rows_of(page, "The laptops")
    assert ["not reproduced (most: undecided)" in row for row in differ] == [True] * 5
    assert len(rows) == 12
    [other] = [row for row in rows if "Linux 5.15.0" in row and "26.2.0" in row]
    assert re.findall(r"laptop-\d+", other)[:1] == re.findall(r"laptop-\d+", differ[4])[:1]
    assert len(re.findall(r'<a href="#laptop-\d+"', page)) == 2 * 7 * 12 + 5, "each dot, its number, and who differs"


def test_a_claim_has_what_the_article_published_what_theory_predicts_and_how_many_verdicts_are_in_doubt(
    lab: Lab, tmp_path: Path
) -> None:
    """A claim with another bound is another claim."""

    def doubted(place: int, record: dict[str, Any], summary: dict[str, Any]) -> None:
        if place == 1:
            record["claims"][-1] |= {"at_least": 0.123, "at_most": None}
        for claim in summary["claims"]:
            claim["suspect"] = place == 0
        for row in summary["rows"]:
            row["published"] = 7.0

    archives = make_class(tmp_path / "class", with_results(tmp_path, "worker-types"), size=2, change=doubted)
    _, _, page = shown(lab, *archives)

    assert re.search(r"Median of 2: [\d.]+; theory: [\d.]+; published: 1\.0\. \d undecided", text_of(page)), "7 / 7"
    assert "1 of 2 verdicts rest on suspect trials." in text_of(page)
    assert text_of(page).count("Median of 1: ") == 1


@pytest.mark.usefixtures("without_pictures")
def test_nothing_on_the_page_is_personal(lab: Lab, measured: Path, tmp_path: Path) -> None:
    """Words of a laptop are not shown: names, paths, kernels, variants, claims, sentences, own experiments."""

    def personal(place: int, record: dict[str, Any], summary: dict[str, Any]) -> None:
        if place == 3:
            record["host"]["kernel"] += "-dolores"
            record["reason"] = "no room in /home/dolores"
            record["title"] = record["question"] = "Dolores asks"
            record["images"].append({"name": "dolores/shop:1", "id": "1", "programs": {"dolores": "1"}})
            for one in (record, summary):
                one["claims"][0] |= {"says": "dolores says so"}
            record["claims"][0]["value"]["variant"] = "dolores"
            summary["validity"]["reasons"].append("dolores was busy")

    archives = make_class(tmp_path / "class of dolores", measured, size=5, change=personal)
    with tarfile.open(tmp_path / "with-lesson.tar", "w") as packed:
        content = lesson(300, "dolores asks")
        entry = tarfile.TarInfo("lesson/lesson.json")
        entry.size = len(content)
        packed.addfile(entry, io.BytesIO(content))
        with tarfile.open(archives[4]) as archive:
            for member in archive:
                packed.addfile(member, archive.extractfile(member))
    own = make_run(tmp_path / "results" / "one", {"one": [Request()] * 5}, experiment="shop-of-dolores")
    seal(own)

    code, said, page = shown(lab, *archives[:4], tmp_path / "with-lesson.tar", own)

    assert code == 1
    assert said.splitlines()[0] == (
        f"{own}: shop-of-dolores is not an experiment of this lab, so it is not on the page."
    )
    assert [name for name in (*PEOPLE, str(tmp_path), "home") if re.search(rf"\b{name}", page, re.IGNORECASE)] == []
    assert "5 laptops" in page


def test_the_numbers_of_laptops_depend_on_no_name(
    lab: Lab, twelve: list[Path], of_twelve: tuple[int, str, str, Path], tmp_path: Path
) -> None:
    renamed = [shutil.copy(one, tmp_path / f"{place}.tgz") for place, one in enumerate(reversed(twelve))]

    assert shown(lab, *renamed)[2] == of_twelve[2]


def rewritten(archive: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change the content of one file in an archive, whatever the archive's folder is called."""
    with tarfile.open(archive) as packed:
        members = [(member, file.read()) for member in packed if (file := packed.extractfile(member))]
    with tarfile.open(archive, "w:gz") as packed:
        for member, content in members:
            changed = change(content) if member.name.endswith(f"/{name}") else content
            member.size = len(changed)
            packed.addfile(member, io.BytesIO(changed))


def nobody_measures(content: bytes) -> bytes:
    """Let a run ask for a metric that there is not."""
    record = json.loads(content)
    record["claims"][0]["value"]["metric"] = "queue_time"
    return json.dumps(record).encode()


SPOILT: dict[str, tuple[str, Callable[[bytes], bytes], str]] = {
    "changed points": (
        "both/quick/1/points.json.gz", lambda old: old + gzip.compress(b"\n"),
        "the run of keep-alive was changed since it was measured: both/quick/1/points.json.gz: changed, its hash "
        "differs from manifest.sha256.",
    ),
    "another schema": (
        "run.json", lambda old: old.replace(b'"schema": 2', b'"schema": 0'),
        f"{TOP}/run.json has schema 0; this version reads schema 2.",
    ),
    "a cut manifest": (
        "manifest.sha256", lambda old: old[:-3], f"{TOP}/manifest.sha256:N: cut short, the line does not end.",
    ),
    "results of another run": (
        "summary.json", lambda old: json.dumps(json.loads(old) | {"claims": []}).encode(),
        "the results of keep-alive belong to another run.",
    ),
}  # fmt: skip
"""Files of a run, how they are spoilt, and what is then said."""


@pytest.mark.parametrize(("name", "change", "says"), SPOILT.values(), ids=SPOILT)
def test_a_run_that_is_spoilt_is_named_and_not_shown(
    lab: Lab, some: list[Path], name: str, change: Callable[[bytes], bytes], says: str
) -> None:
    rewritten(some[0], name, change)

    code, said, page = shown(lab, some[0])

    first, *rest = said.splitlines()
    assert (code, page) == (1, "")
    assert re.sub(r":\d+:", ":N:", first) == f"{some[0]}: {says}"
    assert rest == ["error: No run can be shown.", "",
                    "hint: stampede export results/<experiment>/latest writes an archive."]  # fmt: skip


def test_a_run_that_asks_for_what_nobody_measures_is_named(lab: Lab, tmp_path: Path) -> None:
    folder = unpack("keep-alive", tmp_path)
    (folder / "run.json").write_bytes(nobody_measures((folder / "run.json").read_bytes()))
    seal(folder)

    code, said, page = shown(lab, folder)

    assert (code, page) == (1, "")
    assert "queue_time, which this version does not measure" in said


def test_what_cannot_be_used_is_named_and_the_others_are_shown(
    lab: Lab, measured: Path, some: list[Path], tmp_path: Path
) -> None:
    """After a lesson, the latest run is one of an exercise, and stampede export packs the latest run."""

    def of_an_exercise(_place: int, record: dict[str, Any], _summary: dict[str, Any]) -> None:
        record["experiment"] = "lesson-cures-exercise"

    good, cut, same = some
    cut.write_bytes(cut.read_bytes()[:5000])
    shutil.copy(good, same)
    (tmp_path / "notes.tar.gz").write_text("no archive")
    for number in (2, 3):
        (tmp_path / f"{number} bytes").write_bytes(b"\x1f\x8b\x08"[:number])
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    shutil.copy(good, tmp_path / "full")
    [exercise] = make_class(tmp_path / "exercises", measured, size=1, change=of_an_exercise)

    more = (tmp_path / name for name in ("notes.tar.gz", "2 bytes", "3 bytes", "gone", "empty", "full"))
    code, said, page = shown(lab, good, cut, same, *more, exercise)

    assert code == 1
    assert said.replace(f"{tmp_path}/", "").splitlines() == [
        f"{cut.name} is damaged, or not an archive of stampede export.",
        f"{same.name}: this run of keep-alive is also in {good.name}, and counts once.",
        "notes.tar.gz is damaged, or not an archive of stampede export.",
        "2 bytes is damaged, or not an archive of stampede export.",
        "3 bytes is damaged, or not an archive of stampede export.",
        "gone cannot be read: No such file or directory.",
        "empty has no run.",
        "full has no run; name its archives: full/*.tar.gz.",
        f"exercises/{exercise.name} has only runs of exercises; to hand in the lesson: stampede export results/lesson.",
        "keep-alive: 1 laptop; 7 of 7 claims have the same verdict on all. No laptop differs from the others.",
    ]
    assert "9 runs or files could not be used, and are not on this page." in page


def test_an_archive_that_was_packed_again_by_hand_can_be_read(lab: Lab, some: list[Path], tmp_path: Path) -> None:
    """``tar czf run.tar.gz ./run`` begins every name with ``./``. What the tests change is what is read back."""
    shutil.unpack_archive(some[0], tmp_path / "unpacked", filter="data")
    assert read_run(tmp_path / "unpacked" / TOP).host.cores == 2
    with tarfile.open(again := tmp_path / "again.tar.gz", "w:gz") as packed:
        packed.add(tmp_path / "unpacked" / TOP, f"./{TOP}")

    code, said, _ = shown(lab, again)

    assert (code, said.splitlines()[0].partition(";")[0]) == (0, "keep-alive: 1 laptop")


def test_a_record_that_cannot_be_read_is_named_without_a_path_of_the_lab(
    lab: Lab, some: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(some[0], "summary.json", lambda _: b"{}")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(submissions, "compute_summary", full)
    _, full_disk, _ = shown(lab, some[0])

    def broken(target: Path) -> Summary:
        record = next(target.glob("*/*/1/trial.json"))
        record.unlink()
        record.write_text("{}")
        return compute_summary(target)

    monkeypatch.setattr(submissions, "compute_summary", broken)
    _, bad_record, _ = shown(lab, some[0])

    assert full_disk.splitlines()[0] == f"{some[0]}: the results cannot be computed again: No space left on device."
    assert bad_record.startswith(f"{some[0]}: {TOP}/")
    assert bad_record.splitlines()[0].endswith("/trial.json has schema None; this version reads schema 2.")
    assert "stampede-derived-" not in bad_record


@pytest.mark.parametrize(
    ("name", "kind"),
    [("../../etc/passwd", tarfile.REGTYPE), ("/etc/passwd", tarfile.REGTYPE), ("run/link", tarfile.SYMTYPE),
     ("run/device", tarfile.CHRTYPE)], ids=["outside", "absolute", "link", "device"],
)  # fmt: skip
def test_an_archive_with_entries_that_no_export_has_is_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    with tarfile.open(tmp_path / "evil.tar", "w") as packed:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = kind, "/etc/passwd"
        packed.addfile(entry)

    with pytest.raises(BadArchive, match=rf"has an entry that no export has: {re.escape(repr(name))}\.?$"):
        unpack_archive(tmp_path / "evil.tar", tmp_path)


def test_an_archive_that_is_too_large_is_refused(
    some: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stampede.teach.classroom.submissions.MOST_BYTES", 0)

    with pytest.raises(BadArchive, match="has more than 0 GiB of files"):
        unpack_archive(some[0], tmp_path)


def test_results_of_another_version_are_computed_again(lab: Lab, tmp_path: Path) -> None:
    """The stored run has no hash of the code that computed its results."""
    folder = unpack("django-fastcgi", tmp_path)
    before = sorted(one.name for one in folder.iterdir())
    pack([folder], tmp_path / "one.tar.gz")

    for handed in (tmp_path / "one.tar.gz", folder):
        code, _, page = shown(lab, handed)
        assert code == 0
        assert "django-fastcgi: " in page
    assert sorted(one.name for one in folder.iterdir()) == before


def test_predictions_stand_beside_results(lab: Lab, measured: Path, tmp_path: Path) -> None:
    """Each laptop's lesson.json lies beside its runs. The sentences that students wrote are not read."""

    def of_a_step(_place: int, record: dict[str, Any], _summary: dict[str, Any]) -> None:
        record["experiment"] = "lesson-ten-at-once"

    guesses = (20000, 900, 300)
    for archive, guess in zip(make_class(tmp_path, measured, size=3, change=of_a_step), guesses, strict=True):
        folder = tmp_path / str(guess)
        (folder / "lesson").mkdir(parents=True)
        shutil.unpack_archive(archive, folder, filter="data")
        (folder / "lesson" / "lesson.json").write_bytes(lesson(guess))

    _, _, page = shown(lab, *(tmp_path / str(guess) for guess in guesses))

    chapter = text_of(page[page.index('<h2 id="lesson-ten-at-once">') :])
    assert (
        f"The class predicted: {QUESTION} … Predicted: 300, 900, 20000 ms; theory: 1000 ms; measured: 1100 ms "
        "(1100 to 1100). 1 of 3 predictions were within a factor of two."
    ) in chapter
    assert "dolores" not in page


def test_predictions_that_cannot_be_understood_are_named(lab: Lab, tmp_path: Path) -> None:
    said = []
    for content in (b"", b"\xff", b'{"steps": [1]}', lesson(float("nan")), lesson(-1), lesson(10**400)):
        (tmp_path / "lesson.json").write_bytes(content)
        said.append(shown(lab, tmp_path)[1].partition("\n")[0].replace(str(tmp_path), "…"))

    assert listed(said) == snapshot("""\
…: the predictions of lesson.json are left out: not valid JSON: EOF while parsing a value at line 1 column 0.
…: the predictions of lesson.json are left out: not valid JSON: expected value at line 1 column 1.
…: the predictions of lesson.json are left out: steps: [1] must be a mapping, e.g. steps: {…: …}.
…: the predictions of lesson.json are left out: steps.ten-at-once.result.bars.0.yours: nan must be a number
    from 0 to 1e+12, e.g. yours: 0.
…: the predictions of lesson.json are left out: steps.ten-at-once.result.bars.0.yours: -1 must be a number
    from 0 to 1e+12, e.g. yours: 0.
…: the predictions of lesson.json are left out: steps.ten-at-once.result.bars.0.yours:
    100000000000000000...0000000000000000000 must be a number from 0 to 1e+12, e.g. yours: 0.
""")


def test_a_question_that_only_one_laptop_has_is_not_shown() -> None:
    one, other, zero = (
        ("step", Bar(says=says, unit="ms", yours=yours, theory=None, measured=3 * yours, low=None, high=None))
        for says, yours in (("asked of all", 1), ("asked of one", 1), ("nothing", 0))
    )

    found = collect_predictions([Laptop(1, {}, [one, other, other, zero]), Laptop(2, {}, [one, zero])])

    assert [(each.says, each.near) for each in found] == [("asked of all", 0), ("nothing", 2)]


@pytest.fixture
def page(tab: Page, of_twelve: tuple[int, str, str, Path]) -> Iterator[Page]:
    """Open the page of the class, and fail if it complains or asks the network for anything."""
    with opened(tab, of_twelve[3].as_uri()) as heard:
        yield tab
    assert heard == ([of_twelve[3].as_uri()], [], [])


def test_a_dot_is_a_link_to_its_laptop(page: Page) -> None:
    page.locator("figure a[href='#laptop-12']").first.click(force=True)

    assert page.url.endswith("#laptop-12")
    assert page.locator("tr:target").inner_text().startswith("laptop-12")


@pytest.mark.parametrize("scheme", SCHEMES)
def test_everybody_can_use_the_page(page: Page, scheme: Any) -> None:
    assert violations(page, scheme) == []


@pytest.mark.parametrize(
    ("values", "unit", "far"),
    [
        ([100, 101, 102, 103, 1000], "ms", {5}),
        ([100, 101, 102, 103], "ms", set()),  # too few
        ([1, 1, 1, 1, 15], "ms", set()),  # within 20 ms
        ([100, 100, 100, 100, 124], "ms", set()),  # within a factor of 1.25
        ([0, 0, 0, 0, 0.5], "share", {5}),
        ([0, 0.50, 0.501, 0.502, 0.503, 0.503, 0.53], "share", {1}),  # the last is within a factor of 1.25
        ([-0.5, 0.5, 0.5, 0.5, 0.5], "index", {1}),
        ([100, 200, 400, 800, 1600], "ms", set()),  # they all differ
    ],
)
def test_a_value_is_far_from_the_others_if_they_agree(values: list[float], unit: str, far: set[int]) -> None:
    metric, stat = {"ms": ("overhead", "p50"), "share": ("failures", "share"),
                    "index": ("requests_by_worker", "jain_index")}[unit]  # fmt: skip
    claim = Claim(says="", value=Quantity(variant="one", metric=metric, stat=stat), at_most=1)

    strip = Strip(claim, [Dot(laptop, value, "undecided", 2) for laptop, value in enumerate(values, start=1)])

    assert (strip.unit, strip.far) == (unit, far)


def test_of_as_many_verdicts_the_better_is_the_verdict_of_most() -> None:
    claim = Claim(says="", value=Quantity(variant="one", metric="overhead", stat="p50"), at_most=1)

    assert Strip(claim, [Dot(1, None, "not reproduced", 2), Dot(2, None, "reproduced", 2)]).most == "reproduced"


@pytest.mark.parametrize(
    ("told", "kept"),
    [("Linux 6.18.44-fc-v669", "Linux 6.18.44"),
     ("Linux 5.15.153.1-microsoft-standard-WSL2", "Linux 5.15.153.1 (WSL2)"),
     ("Linux 6.10.14-linuxkit", "Linux 6.10.14 (Docker Desktop)"), ("dolores", "unknown")],
)  # fmt: skip
def test_a_kernel_has_only_its_version(measured: Path, told: str, kept: str) -> None:
    run = read_run(measured)
    run = run.model_copy(update={"host": run.host.model_copy(update={"kernel": told})})

    assert properties(SubmittedRun(run, read_summary(measured), "0" * 64))["kernel"] == kept


def test_dots_at_one_place_are_stacked() -> None:
    assert assign_lanes([100, 100, 100, 300]) == [0, 1, -1, 0]
