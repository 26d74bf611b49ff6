"""The command line without containers: wrong use is named, costs nothing and exits with 2."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from stampede import cli
from stampede.cli.help import PLACES
from stampede.experiment import file
from stampede.experiment.file import load_experiment
from stampede.paths import EXPERIMENTS
from stampede.pipeline import derive
from stampede.plan import lay_out
from stampede.plan.timing import expected_s
from stampede.records.checksums import MANIFEST, seal, sha256
from stampede.records.claims import Claim, Quantity
from stampede.run.options import MeasureOptions
from stampede.terminal import print_plan, time_in_words
from tests.archives import unpack
from tests.conftest import COMMANDS, PATIENCE_S, Lab
from tests.synthetic import Request, make_run
from tests.wrong import listed

REPLY = """\
error: {message}

hint: {hint}
"""
HUNDRED = [Request(overhead_ms=n) for n in range(1, 101)]
NAMES = sorted(path.stem for path in EXPERIMENTS.glob("*.yaml"))


pytestmark = pytest.mark.usefixtures("without_pictures")


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory, without_pictures: None) -> Path:  # noqa: ARG001
    """A run that was measured, sealed and derived."""
    run = make_run(tmp_path_factory.mktemp("derived") / "run", {"one": [Request()], "two": [Request()]})
    seal(run)
    derive(run)
    return run


WRONG_LINES = (
    "run", "run hevy-mix", "run ../lab", "run heavy-mix --variants one-proces", "plan heavy-mix --variants ,",
    "plan heavy-mix --duration soon", "run heavy-mix --until bored", "run heavy-mix --until decided --trials 3",
    "run heavy-mix --until decided --budget 15", "verify nowhere", "report", "report nowhere",
    "rum", "--fast", "machines check", "run a b c", "run --trails 3", "run --trials",
    "run --full=yes", "run --seed 1.5", "diagnose a --workers 2000", "class", "class a.tar.gz --to .",
    "lesson 7", "lesson --explain x", "lesson 3 --solution", "lesson 3 --set balance=least_conn",
    *(f"lesson 2 --predict {said}" for said in ("100", "100,soon", "100,-1", "nan,1")),
)  # fmt: skip


def test_each_kind_of_mistake_in_a_command_line_has_its_message_and_starts_nothing(lab: Lab) -> None:
    done = [lab.call(*line.split()) for line in WRONG_LINES]

    assert {(one.returncode, one.stdout) for one in done} == {(2, "")}
    assert not lab.results.exists()
    assert listed(" ".join(one.stderr.split()).replace(str(lab.results), "RESULTS") for one in done) == snapshot("""\
error: No experiment was named. hint: stampede run …, one of accept-models, async-accept, background, …
error: There is no experiment 'hevy-mix'. hint: stampede run …, one of heavy-mix, accept-models, async-accept,
    …
error: There is no experiment '../lab'. hint: stampede run …, one of accept-models, async-accept, background,
    …
error: There is no variant 'one-proces'. hint: --variants …, any of one-process, busy-accept,
    connection-limit, least-conn, random-accept, reuse-port, shared-socket, shared-socket-23
error: There is no variant ''. hint: --variants …, any of busy-accept, connection-limit, least-conn,
    one-process, random-accept, reuse-port, shared-socket, shared-socket-23
error: The duration 'soon' must be whole seconds or minutes, such as 90s or 5m. hint: --duration 90s or
    --duration 5m
error: --until bored is unknown. hint: --until decided
error: TRIALS and UNTIL contradict each other: one names the number of rounds, the other finds it. hint:
    --until decided --budget 30m
error: The duration '15' must be whole seconds or minutes, such as 90s or 5m. hint: --budget 90s or --budget
    5m
error: nowhere has no run.json. hint: stampede verify results/<experiment>/<time>, or …/latest
error: There is no run in RESULTS. hint: stampede run heavy-mix
error: nowhere has no run.json. hint: stampede report results/<experiment>/<time>, or …/latest
error: There is no command 'rum'. hint: stampede run
error: stampede has no option --fast; it has --help, --install-completion, --show-completion, … hint: stampede
    --help
error: stampede machines does not take check. hint: stampede machines --help
error: stampede run does not take b c. hint: stampede run --help
error: stampede run has no option --trails; it has --trials, --until, --strict, … hint: stampede run --help
error: --trials needs a value. How often each variant is measured; 0: as the file says. hint: stampede run
    --help
error: --full takes no value. hint: stampede run --help
error: --seed 1.5 must be a whole number. hint: stampede run --help
error: --workers 2000 must be a whole number from 0 to 1,024. hint: stampede diagnose --help
error: Give the archives that the class has handed in. hint: stampede class a.tar.gz b.tar.gz
error: . is a folder, but the page is a file. hint: --to class.html
error: There is no step 7. hint: stampede lesson …, from 1 to 6
error: The explanation comes after the result of ten-at-once, which was not measured yet. hint: stampede
    lesson 1
error: The solution comes after the result of even-shares, which was not measured yet. hint: stampede lesson 3
error: The exercise comes after the result of even-shares, which was not measured yet. hint: stampede lesson 3
error: This step asks for 2 predictions, not 1. hint: Write a number such as 300 or 2.5 (as an option:
    --predict 300,2.5).
error: The prediction 'soon' is no number. hint: Write a number such as 300 or 2.5 (as an option: --predict
    300,2.5).
error: The prediction -1 must be from 0 to 1000: light requests answered per second with one process of eight
    threads … requests/s. hint: Write a number such as 300 or 2.5 (as an option: --predict 300,2.5).
error: The prediction nan must be from 0 to 1000: light requests answered per second with four processes of
    two threads … requests/s. hint: Write a number such as 300 or 2.5 (as an option: --predict 300,2.5).
""")


def wrong_options(option: Any) -> Iterator[tuple[list[str], str]]:
    """Yield what somebody may write of an option, and what the message must say."""
    name, least, most = option.opts[0], option.min, option.max
    if option.is_flag:
        yield [f"{name}=1"], f"{name} takes no value."
    else:
        yield [name], f"{name} needs a value. {option.help}"
    if option.type_descriptor.annotation in (int, float):
        beyond = [bound + by for bound, by in ((least, -1), (most, 1)) if bound is not None]
        bounds = ".* ".join(f"{bound:,g}" for bound in (least, most) if bound is not None)
        for value in ("many", "nan", "", *beyond):
            yield [name, f"{value}"], f"{name} {value} must be a .*number.*{bounds}"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_option_refuses_every_kind_of_wrong_value(lab: Lab, command: str) -> None:
    """The message names the option, the value and what is allowed."""
    options = [option for option in COMMANDS[command].params if option.param_type_name == "option"]

    for given, says in [wrong for option in options for wrong in wrong_options(option)]:
        done = lab.call(command, *given)
        assert (done.returncode, done.stdout) == (2, "")
        assert re.fullmatch(rf"error: {says}\.?\n\nhint: stampede {command} --help\n", done.stderr), done.stderr


def test_a_mistake_in_a_file_is_wrong_use_and_the_list_goes_on(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = {"heavy-mix": ("question: Eight", "qestion: Eight"), "ten-at-once": ("", "")}
    for name, change in changes.items():
        (tmp_path / f"{name}.yaml").write_text((EXPERIMENTS / f"{name}.yaml").read_text().replace(*change))
    monkeypatch.setattr(file, "EXPERIMENTS", tmp_path)

    ran, done, told = lab.call("run", "heavy-mix"), lab.call("list", "--json"), lab.call("list")

    assert (ran.returncode, done.returncode) == (2, 2)
    assert ran.stderr.startswith("error: heavy-mix.yaml:4: qestion: unknown key; there are question, because, burns, ")
    assert done.stderr == (
        f"{ran.stderr}\nhint: Correct each file that is named here; all other experiments are listed.\n"
    )
    assert [json.loads(line)["name"] for line in done.stdout.splitlines()] == ["ten-at-once"]
    assert told.stdout == "ten-at-once\tTen requests at once\n"


def test_the_plan_says_how_long_and_in_which_order(lab: Lab) -> None:
    asked = "plan", "heavy-mix", "--variants", "one-process,reuse-port", "--jobs", "1", "--full"
    once, by_default = lab.call(*asked, "--trials", "1"), lab.call(*asked)

    def takes(trials: int) -> str:
        laid_out = lay_out(
            load_experiment("heavy-mix"), variants=["one-process", "reuse-port"], full=True, trials=trials
        )
        return time_in_words(expected_s(laid_out))

    order = "  1. heavy-mix, 5m: one-process\n  2. heavy-mix, 5m: reuse-port\n"
    assert (once.returncode, once.stderr) == (0, "")
    assert once.stdout == f"heavy-mix: 2 trials in 2 batches, about {takes(1)}.\n{order}"
    assert by_default.stdout == (
        f"heavy-mix: 10 trials in 10 batches, about {takes(5)}.\n{order}"
        "  4 further rounds: the same, each in an order of its own\n"
    )


def test_the_plan_of_rounds_until_all_is_decided_names_its_end() -> None:
    """A round more or less is known only when it was measured."""
    planned = lay_out(load_experiment("heavy-mix"), variants=["one-process"], trials=100)

    print_plan(console := Console(file=io.StringIO(), width=80, record=True), "heavy-mix", planned, 32, 900)

    assert console.export_text() == (
        "heavy-mix: rounds of 1 trial, about 32 s, until every claim is decided or 15 min 00 s are over.\n"
        "  1. heavy-mix, 20s: one-process\n"
        "  Further rounds: the same, each in an order of its own\n"
    )


def test_report_derives_everything_again_and_prints_tables_for_a_page(lab: Lab) -> None:
    claims = [Claim(says="a|b *c*", value=Quantity(variant="one", metric="overhead", stat="p50"), at_most=60)]
    run = make_run(lab.results / "made-up" / "one", {"one": HUNDRED}, claims=claims)

    done = lab.call("report", str(run), "--tables")
    page = lab.call("report", str(run), "--markdown")
    one, none = (lab.call("report", str(run), "--table", word) for word in ("overhead", "nosuch"))

    assert " ".join(one.stdout.split()).startswith(
        "Overhead of requests, ms variant min p50 p90 p99 answered one measured"
    )
    assert (none.returncode, none.stdout) == (2, "")
    assert none.stderr.startswith("error: No table has 'nosuch' in its title.\n\nhint: The tables:\nOverhead of requ")
    assert (done.returncode, done.stderr) == (
        0, f"\nThe requests, for DuckDB and pandas: {run}/*/*/*/requests.parquet\n\nReport: {run / 'report.html'}\n"
    )  # fmt: skip
    assert "The measurement is valid: the only trial is valid." in done.stdout
    assert "one      measured  50.5  90.1  99.0       100" in done.stdout
    assert "left out: min; --table prints a table with all columns" in done.stdout
    assert (run / "summary.json").exists()
    assert page.returncode == 0
    assert "| verdict | claim | measured | bound |\n| --- |" in page.stdout
    assert "| undecided | a\\|b \\*c\\* — one trial decides nothing" in page.stdout
    assert "| p50 50.5 ms | \\<= 60 ms |" in page.stdout
    assert "Overhead of requests, ms:\n\n| variant |  | min | p50 | p90 | p99 | answered |\n" in page.stdout
    assert "| one | measured | 1.0 | 50.5 | 90.1 | 99.0 | 100 |\n" in page.stdout


def as_measured(run: Path) -> str:
    """Return what is said of a run that was not changed."""
    return (
        "13 measured files are unchanged; predicted.json, summary.json, report.html and requests.parquet "
        "follow from these files.\n"
        f"manifest.sha256: {sha256(run / MANIFEST)}\n"
    )


def test_every_difference_of_a_run_is_named_and_the_run_is_not_exported(
    lab: Lab, measured: Path, tmp_path: Path
) -> None:
    (measured / "two" / "mix" / "1" / "points.json.gz").write_bytes(b"")
    (measured / "notes [1].txt").write_text("mine")

    for command in (["verify"], ["export", "--to", str(tmp_path / "mine.tar.gz")]):
        done = lab.call(command[0], str(measured), *command[1:])
        assert done.returncode == 1
        assert (done.stdout if command == ["verify"] else done.stderr).startswith(
            "notes [1].txt: not in manifest.sha256\n"
            "two/mix/1/points.json.gz: changed, its hash differs from manifest.sha256\n"
            "report.html: does not follow from the raw points\n"
            "summary.json: does not follow from the raw points\n"
            "two/mix/1/requests.parquet: does not follow from the raw points\n"
        )
        assert done.stderr.endswith(f"error: {measured} was changed since it was measured.\n")
    assert not list(tmp_path.glob("*tar*"))

    as_json = lab.call("verify", str(measured), "--json")
    found = json.loads(as_json.stdout)
    assert (as_json.returncode, found["is_as_measured"]) == (1, False)
    assert {"path": "notes [1].txt", "what": "not in manifest.sha256"} in found["differences"]


def test_verify_derives_nothing_from_records_that_were_changed(lab: Lab, measured: Path) -> None:
    text = (measured / "run.json").read_text()
    (measured / "run.json").write_text(text.replace('"name": "one"', '"name": "oen"'))

    done = lab.call("verify", str(measured))

    assert (done.returncode, done.stdout) == (1, "run.json: changed, its hash differs from manifest.sha256\n")
    assert done.stderr == (
        f"error: {measured} was changed since it was measured. Its records were changed, so no results were checked.\n"
    )


def test_verify_says_how_to_mend_what_is_only_derived(lab: Lab, measured: Path) -> None:
    text = (measured / "summary.json").read_text()
    (measured / "summary.json").write_text(text.replace('"verdict"', '"verdict "', 1))
    (measured / "report.html").unlink()

    done = lab.call("verify", str(measured))

    assert done.returncode == 1
    assert done.stdout == (
        "report.html: missing, although it follows from the raw points\n"
        "summary.json: does not follow from the raw points\n"
    )
    assert done.stderr == REPLY.format(
        message=f"The measured files in {measured} are unchanged, but its results do not follow from them.",
        hint=f"This also happens after an update of the lab. To compute the results again: stampede report {measured}",
    )
    assert lab.call("report", str(measured)).returncode == 0
    again = lab.call("verify")
    assert (again.returncode, again.stdout, again.stderr) == (0, as_measured(measured), ""), "of the latest run"


def test_what_cannot_be_verified_is_refused(lab: Lab, measured: Path, tmp_path: Path) -> None:
    def refused(message: str) -> None:
        for command in ("verify", "export"):
            done = lab.call(command, str(measured))
            hint = f"stampede {command} results/<experiment>/<time>, or …/latest"
            assert (done.returncode, done.stdout, done.stderr) == (2, "", REPLY.format(message=message, hint=hint))

    (measured / MANIFEST).write_text("hello\n")
    refused(f"{measured / MANIFEST}:1: not a hash, two spaces and a path: 'hello'.")
    for name in (MANIFEST, "run.json"):
        (measured / name).unlink()
        refused(f"{measured} has no {name}.")
    (archive := tmp_path / "run.tar.gz").touch()
    assert f"unpack it with tar xzf {archive}" in lab.call("verify", str(archive)).stderr


def test_an_exported_run_can_be_read_anywhere(lab: Lab, measured: Path, tmp_path: Path) -> None:
    (measured / ".temporary").write_text("half")
    archive = tmp_path / "mine.tar.gz"

    done = lab.call("export", str(measured), "--to", str(archive))

    assert (done.returncode, done.stdout, done.stderr) == (0, f"{archive}\n", as_measured(measured))
    copy = unpack(archive, tmp_path / "some where [else]")
    assert copy.name == "made-up-20260102T030405Z"
    (measured / ".temporary").unlink()
    there, here = ({path.relative_to(run) for run in [one] for path in one.rglob("*")} for one in (copy, measured))
    assert there == here
    shutil.rmtree(lab.results)
    assert lab.call("verify", str(copy)).stdout == as_measured(copy)
    report = lab.call("report", str(copy))
    assert report.returncode == 0
    assert "Valid: all 2 trials." in report.stdout
    ignored = ["git", "check-ignore", f"{copy.name}.tar.gz", f".{copy.name}.tar.gz.abc"]
    left = subprocess.run(ignored, cwd=lab.root, capture_output=True, text=True, check=False)
    assert len(left.stdout.splitlines()) == 2, "an archive that is left in the checkout does not make it dirty"


@pytest.mark.parametrize(
    ("to", "code", "message", "hint"),
    [
        ("{run}", 2, "{to} is a folder, but an archive is a file.", "stampede export … --to /path/name.tar.gz"),
        ("{run}/mine.tar.gz", 2, "{to} would lie in the run's own folder, among the measured files.",
         "Choose another place: stampede export … --to /path/name.tar.gz"),
        ("{run}/run.json", 2, "{to} exists already.",
         "Remove the file, or choose another name: stampede export … --to /path/name.tar.gz"),
        ("{run}-nowhere/mine.tar.gz", 1, "{to} cannot be written: No such file or directory.",
         "Free some space, or choose another place: stampede export … --to /path/name.tar.gz"),
    ],
    ids=["a folder", "in the run", "there already", "nowhere"],
)  # fmt: skip
def test_a_place_for_an_archive_that_will_not_do_is_refused(
    lab: Lab, measured: Path, to: str, code: int, message: str, hint: str
) -> None:
    before = sorted(lab.results.rglob("*"))
    to = to.format(run=measured)

    done = lab.call("export", str(measured), "--to", to)

    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.endswith(REPLY.format(message=message.format(to=to), hint=hint))
    assert sorted(lab.results.rglob("*")) == before


def test_a_recorded_command_can_be_typed_again() -> None:
    assert MeasureOptions(full=True, trials=3).command("stampede run mine") == "stampede run mine --full --trials 3"


def test_results_that_cannot_be_written_stop_a_run_before_it_starts(lab: Lab) -> None:
    lab.results.parent.mkdir(exist_ok=True)
    lab.results.write_text("a file where a folder should be")
    done = lab.call("run", "heavy-mix")
    message = f"Results cannot be written to {lab.results}: File exists."
    hint = "Free some space, or choose another place: --results /path"
    assert done.returncode == 1
    assert done.stderr.endswith(REPLY.format(message=message, hint=hint))

    lab.results = lab.results.parent / "that's mine"
    done = lab.call("run", "heavy-mix")
    assert done.returncode == 2
    assert done.stderr.startswith(f"""error: The path of results "{lab.results}" contains "'", which Compose cannot""")


def test_factors_come_from_the_file_and_never_from_the_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stray LAB_WORKERS in somebody's shell would be in no record; it is dropped before Compose can see it."""
    monkeypatch.setenv("LAB_WORKERS", "64")
    monkeypatch.setattr(cli, "app", lambda **_: os.environ.get("LAB_WORKERS", "nothing"))
    monkeypatch.setattr(cli, "heed_signals", lambda: None)

    with pytest.raises(SystemExit, match="nothing"):
        cli.main()


@pytest.mark.parametrize("command", [place.partition(":")[0] for places in PLACES.values() for place in places])
def test_every_command_explains_itself_with_an_example(lab: Lab, command: str) -> None:
    done = lab.call(command, "--help")

    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: stampede {command}")
    assert f"Example: stampede {command}" in " ".join(done.stdout.split())
    assert all(len(line) <= 80 for line in done.stdout.splitlines())


def test_who_reads_only_the_first_line_gets_no_error(lab: Lab) -> None:
    """``stampede list | head -1`` with pipefail."""
    listed = subprocess.Popen(
        [sys.executable, "-m", "stampede", "list"], cwd=lab.root, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert listed.stdout
    listed.stdout.close()
    said = listed.stderr.read() if listed.stderr else b""

    assert (listed.wait(timeout=PATIENCE_S), said) == (0, b"")


def test_what_people_pipe_is_json(lab: Lab) -> None:
    """list, plan, report, compare, predict and doctor; messages go to standard error."""
    every = {one["name"]: one for line in lab.call("list", "--json").stdout.splitlines() for one in [json.loads(line)]}
    assert [*every] == NAMES
    assert [*every["heavy-mix"]] == ["schema", "name", "title", "question", "topic", "source", "variants", "loads"]
    assert every["heavy-mix"]["variants"]["one-process"]["threads"] == 8
    assert "Other" not in {one["topic"] for one in every.values()}
    run = make_run(lab.results / "made-up" / "one", dict.fromkeys(("one", "two"), HUNDRED[:20]), times=2)

    plan = json.loads(lab.call("plan", "ten-at-once", "--trials", "1", "--json").stdout)
    report = json.loads(lab.call("report", str(run), "--json").stdout)
    compared = json.loads(lab.call("compare", f"{run}:one", f"{run}:two", "--json").stdout)

    predicted = json.loads(lab.call("predict", "heavy-mix", "--trials", "1", "--json").stdout)
    checked = json.loads(lab.call("doctor", "--json").stdout)

    assert {values["schema"] for values in (plan, compared, predicted, checked)} == {1}
    assert any(row["predicted"] for row in predicted["rows"] if row["metric"] == "overhead")
    assert "Python >= 3.11" in {check["what"] for check in checked["checks"]}
    assert plan["experiment"] == "ten-at-once"
    assert {trial["variant"] for batch in plan["batches"] for trial in batch} == set(
        load_experiment("ten-at-once").variants
    )
    assert plan["expected_s"] > 0
    assert report["experiment"] == json.loads((run / "summary.json").read_text())["experiment"]
    assert {change["verdict"] for change in compared["changes"]} == {"~"}
