"""The answer fits on a screen of 24 lines and 80 columns, for every experiment and however a run went."""

import io
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import pytest
from inline_snapshot import snapshot
from rich.console import Console

from stampede.evaluate.metrics import unit
from stampede.evaluate.verdict.validity import judge_run
from stampede.experiment.file import load_experiment, names
from stampede.finished import tables_command
from stampede.records.claims import Quantity
from stampede.records.run import Host, Run
from stampede.records.summary import ClaimRow, Estimate, Summary, TrialValidity, Validity
from stampede.report.answer import answers, cures
from stampede.report.screen import LINES, WIDTH, screen_lines
from stampede.report.screen.words import claim_sentences
from stampede.report.section import Section
from stampede.report.tables import Table
from stampede.report.tables.verdicts import claims_table
from stampede.report.terminal import print_chosen_tables
from stampede.report.wording import trials_phrase
from stampede.reproduce.shown import shown_of
from stampede.run.options import MeasureOptions
from stampede.run.record import record_of

TABLES = "stampede report --tables"
NAMES = names()
OUTCOMES = [
    (5, "reproduced", "valid"), (5, "not reproduced", "suspect"), (5, "undecided", "suspect"),
    (5, "invalid", "invalid"), (1, "undecided", "valid"), (1, "invalid", "suspect"),
]  # fmt: skip
"""The number of trials, the verdict on every claim, and the validity of the trials."""


@cache
def run_of(name: str, trials: int) -> Run:
    """Return the record of a run of an experiment, as if it was measured."""
    experiment = load_experiment(name)
    plan = replace(MeasureOptions(), jobs=1, trials=trials).plan(experiment)
    nowhere = Host(cpu="", cores=2, memory_gib=4, kernel="", engine="", compose="")
    return record_of(name, experiment, plan, full=False, command="", host=nowhere, git=None, images=[])


def quantities_of(run: Run) -> Iterator[Quantity]:
    """Yield every quantity of the claims, for each variant and load, and the usual percentiles beside a percentile."""
    for claim, variant, load in product(run.claims, run.variants, run.loads):
        for quantity in claim.quantities:
            if quantity.load not in (None, load.name):
                continue
            for stat in {quantity.stat, *(("p50", "p90", "p99") if quantity.stat.startswith("p9") else ())}:
                yield quantity.model_copy(update={"variant": variant.name, "load": load.name, "stat": stat})


def summary_of(run: Run, verdict: str, validity: str, seed: int = 1) -> Summary:
    """Return results with a value for everything that is claimed, all claims with the same verdict."""
    drawn = random.Random(seed)
    rows = {
        tuple(quantity.model_dump().values()): Estimate(
            variant=quantity.variant, load=quantity.load or "", request_class=quantity.request_class,
            metric=quantity.metric, stat=quantity.stat, unit=unit(quantity.metric, quantity.stat),
            published=drawn.choice([None, drawn.lognormvariate(3, 3)]), predicted=None,
            measured=drawn.lognormvariate(-4, 1) if unit(quantity.metric, quantity.stat) == "share"
            else drawn.lognormvariate(3, 3),
            low=None, high=None, n=100, trials=run.trials,
        )
        for quantity in quantities_of(run)
    }  # fmt: skip
    reasons = [f"reason {number}: {'the machine was busy ' * number}" for number in range(1, 9)]
    trials = [
        TrialValidity(variant=variant.name, load=load.name, trial=1, verdict=validity, reasons=reasons)
        for variant, load in product(run.variants, run.loads)
    ]
    claims = [
        ClaimRow(
            says=claim.says, stat=claim.value.stat, verdict=verdict, measured=None if verdict == "invalid" else 1234.5,
            low=1000, high=2000, bound=claim.bound, unit="ms", reason="the measurement is invalid", trials_needed=7,
        )
        for claim in run.claims
    ]  # fmt: skip
    return Summary(
        experiment=run.experiment, round_s=60, validity=Validity(verdict=validity, reasons=reasons), trials=trials,
        rows=[*rows.values()], claims=claims,
    )  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_fits_whatever_came_out(name: str) -> None:
    """At most 24 lines of 80 columns, for every verdict, for valid and doubtful runs, for one trial and for five.

    However full the screen is, the answer's own variants have a row, and claims that do not hold are counted.
    The first of them that nothing else tells has a line.
    """
    for trials, verdict, validity in OUTCOMES:
        run = run_of(name, trials)
        summary = summary_of(run, verdict, validity)
        lines = screen_lines(run, summary, "results/an/experiment/report.html", TABLES)

        assert len(lines) <= LINES
        assert max(line.cell_len for line in lines) <= WIDTH
        texts = [line.plain for line in lines]
        assert any("report.html" in text for text in texts)
        asked = {claim.value.variant for claim in run.claims if claim.role == "answer"}
        assert [each for each in sorted(asked) if not any(text.startswith(each[:24]) for text in texts)] == []
        noun, verb = ("claim", "holds") if len(run.claims) == 1 else ("claims", "hold")
        of_none = f"0 of {len(run.claims)} {noun} {verb}; {len(run.claims)} {verdict}"
        if trials > 1 and verdict != "reproduced":
            assert any(text.startswith(of_none) for text in texts)
        told = [*claim_sentences(run, summary, [*answers(run, summary), *cures(run, summary)], WIDTH)]
        assert {line[:60] for line in told[:2]} <= {text[:60] for text in texts}


def screen_of(run: Run, summary: Summary, report: str, tables: str = TABLES) -> str:
    """Return the screen as it is printed."""
    return "\n".join(line.plain for line in screen_lines(run, summary, report, tables))


def simple(verdict: str = "reproduced", trials: int = 5, validity: str = "valid") -> tuple[Run, Summary]:
    """Return a small run of ten-at-once with known numbers."""
    run = run_of("ten-at-once", trials)
    summary = summary_of(run, verdict, validity)
    for place, row in enumerate(summary.rows):
        row.__dict__["measured"], row.__dict__["published"] = 1000.0 + 100 * place, 1070.0
    return run, summary


def test_the_screen_of_a_run_with_five_trials() -> None:
    run, summary = simple()

    assert screen_of(run, summary, "results/x/report.html") == snapshot("""\
ten-at-once: One worker gets ten requests at the same moment, and each takes a
second. Does FastAPI or its server decide whether they are served at the same
time?
Answer: FastAPI with def answers all ten requests in the time of one: 1234 ms.
Answer: Flask on a sync worker serves ten requests one after the other, so the
last takes ten times as long as the first: 1234 times.
Helps: this experiment names no cure.
Valid: all 5 trials, 5 of each variant. In brackets: 95 % intervals.

                              burst        burst
                           response     response burst total,        burst
variant                time min, ms time max, ms           ms publ.  total, ms
uvicorn-fastapi-sync           1600         1500         1000  1070  ━━━━━━━━
uvicorn-fastapi-async          1800         1700         1100  1070  ━━━━━━━━━
gunicorn-fastapi-sync          2000         1900         1200  1070  ━━━━━━━━━
gunicorn-fastapi-async         2200         2100         1300  1070  ━━━━━━━━━━
gunicorn-flask-sync            2400         2300         1400  1070  ━━━━━━━━━━━
5 of 5 claims hold.
Report: results/x/report.html · all tables: stampede report --tables
Next: on a quiet machine: stampede run ten-at-once\
""")


def test_the_screen_of_a_single_trial_in_doubt() -> None:
    run, summary = simple("undecided", 1, "suspect")

    assert screen_of(run, summary, "results/x/report.html") == snapshot("""\
ten-at-once: One worker gets ten requests at the same moment, and each takes a
second. Does FastAPI or its server decide whether they are served at the same
time?
Answer, in a single trial: FastAPI with def answers all ten requests in the time
of one: 1234 ms, the only trial is suspect.
Answer, in a single trial: Flask on a sync worker serves ten requests one after
the other, so the last takes ten times as long as the first: 1234 times, the
only trial is suspect.
Helps: this experiment names no cure.
Suspect: 5 of 5 trials; reason 1: the machine was busy  (+ 7 reasons).

                              burst        burst
                           response     response burst total,        burst
variant                time min, ms time max, ms           ms publ.  total, ms
uvicorn-fastapi-sync           1600         1500         1000  1070  ━━━━━━━━
uvicorn-fastapi-async          1800         1700         1100  1070  ━━━━━━━━━
gunicorn-fastapi-sync          2000         1900         1200  1070  ━━━━━━━━━
gunicorn-fastapi-async         2200         2100         1300  1070  ━━━━━━━━━━
gunicorn-flask-sync            2400         2300         1400  1070  ━━━━━━━━━━━
One trial decides no claim; 3 of 5 hold so far (to decide: --trials 7, 7 min).
Report: results/x/report.html · all tables: stampede report --tables
Next: on a quiet machine: stampede run ten-at-once\
""")


@pytest.mark.parametrize("length", [30, 64, 80])
def test_the_figures_of_the_answer_stand_on_the_screen_however_long_the_name_of_a_class_is(length: int) -> None:
    named = run_of("heavy-mix", 5).model_dump_json().replace('"light"', f'"{"c" * length}"')
    run = Run.model_validate_json(named)
    summary = summary_of(run, "reproduced", "valid")
    [answer] = [claim.value for claim in run.claims if claim.role == "answer"]
    row = summary.row(answer.variant, run.loads[0].name, answer.request_class, answer.metric, answer.stat)
    assert row is not None
    row.__dict__["measured"] = 98765.0

    lines = screen_lines(run, summary, "report.html", TABLES)

    assert max(line.cell_len for line in lines) <= WIDTH
    assert any(line.plain.startswith(answer.variant) and "98765" in line.plain for line in lines)
    assert any(line.plain.count("c" * 8) for line in lines), "the heads name the class"


def bars(*measured: float) -> tuple[list[int], bool]:
    """Return how long the bars of these times are, and whether the screen says that they are logarithmic."""
    run, summary = simple()
    of_total = [row for row in summary.rows if row.stat == "total"]
    for row, value in zip(of_total, measured, strict=True):
        row.__dict__["measured"] = value
    text = screen_of(run, summary, "report.html")
    table = text.partition("uvicorn-fastapi-sync  ")[2].splitlines()[: len(measured)]
    return [line.count("━") for line in table], "bars: logarithmic" in text


def test_bars_of_times_that_are_far_apart_are_logarithmic_and_the_line_below_says_so() -> None:
    """Otherwise 2, 11 and 43 ms would look alike beside 1622 ms; a value above 0 always has a bar."""
    lengths, is_log = bars(2.0, 11.1, 43.2, 1622, 1622)
    assert is_log
    assert 0 < lengths[0] < lengths[1] < lengths[2] < lengths[3] == lengths[4]

    assert bars(500, 1000, 500, 1000, 1000) == ([6, 11, 6, 11, 11], False)
    assert bars(0, 1, 1000, 1000, 1000) == ([0, 1, 11, 11, 11], False)


def test_columns_give_way_to_the_bar_and_published_figures_stand_only_beside_variants_that_have_some() -> None:
    run = run_of("gil-sharing", 5)
    summary = summary_of(run, "reproduced", "valid")
    for row in summary.rows:
        row.__dict__["published"] = 4321.0 if row.variant == run.variants[-1].name else None

    text = screen_of(run, summary, "report.html")

    assert "━" in text
    assert "more variants" in text
    assert ("publ." in text) == ("4321" in text) == any(line.startswith(run.variants[-1].name) for line in text)


def printed(table: Table) -> list[str]:
    """Return the lines of a table on a terminal of 60 columns."""
    run, summary = simple()
    console = Console(file=io.StringIO(), width=60, record=True)
    print_chosen_tables(console, run, summary, [table.title], Section("", [], "", [table], []))
    return console.export_text().splitlines()


def test_columns_that_do_not_fit_into_the_terminal_follow_in_tables_with_the_same_names() -> None:
    """Cells wrap between words only: a number that is cut would be another number."""
    head = ("variant", "", *(f"p{n}" for n in range(50, 60)))
    cells = [f"{n}12345\n{n}1111 to {n}9999" for n in range(50, 60)]
    name = "a-variant-with-a-name-of-42-letters-or-more"

    lines = printed(Table("Times of all", head, [(name, "measured", *cells)], words=2, note="ms"))

    text = "\n".join(lines)
    assert max(map(len, lines)) <= 60
    assert {*" ".join(cells).split()} <= {*text.split()}
    assert text.count("Times of all") == text.count(f"\n{name[:24]}  measured ") > 1
    assert text.count("\nms") == 1


def test_the_command_for_the_tables_is_whole_and_names_every_run_but_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, summary = simple()
    folder = f"/{'far/' * 20}away"
    text = screen_of(run, summary, f"{folder}/report.html", f"stampede report {folder} --tables")
    assert f"\nAll tables: stampede report {folder} --tables\n" in text

    monkeypatch.setattr("stampede.finished.RESULTS", tmp_path / "results")
    monkeypatch.chdir(tmp_path)
    runs = [tmp_path / "results" / name / time for name, time in (("a", "20260101"), ("b", "20260102"))]
    for folder_of_run in runs:
        folder_of_run.mkdir(parents=True)
        (folder_of_run.parent / "latest").symlink_to(folder_of_run.name)
    assert [tables_command(each) for each in (*runs, tmp_path / "elsewhere")] == [
        "stampede report results/a/latest --tables", "stampede report --tables", "stampede report elsewhere --tables"
    ]  # fmt: skip


def test_what_an_app_says_takes_the_place_of_claims() -> None:
    """The findings on a user's service stand where the claims of an experiment stand."""
    run, summary = simple()
    run = run.model_copy(update={"claims": []})
    summary = summary.model_copy(update={"claims": []})
    section = Section("Diagnosis", ["Requests wait for a worker.", "One more thread would help."], "", [], [])

    lines = [line.plain for line in screen_lines(run, summary, "report.html", TABLES, section)]

    assert "- Requests wait for a worker." in lines
    assert not any("claim" in line for line in lines)


def test_a_claim_that_does_not_hold_has_a_line_with_its_value_and_bound_or_with_the_reason() -> None:
    run, summary = simple()
    row = summary.claims[1].model_copy(update={"verdict": "not reproduced"})
    unmeasured = {"measured": None, "verdict": "undecided", "reason": "too few requests"}
    last = summary.claims[-1].model_copy(update=unmeasured)
    claims = [summary.claims[0], row, *summary.claims[2:-1], last]

    text = screen_of(run, summary.model_copy(update={"claims": claims}), "report.html")

    assert f"{len(claims) - 2} of {len(claims)} claims hold; 1 not reproduced; 1 undecided." in text
    assert f"Not so: {row.says[:30]}" in text
    assert "1234 ms, claimed at most 1250" in text
    assert ": too few requests." in text


def in_doubt(*told: tuple[str, str]) -> tuple[Run, Summary]:
    """Return a run in which each trial has a verdict and a reason, and whose claims rest on the suspect trials."""
    run, summary = simple()
    trials = [
        TrialValidity(
            variant="one", load="mix", trial=number, verdict=verdict, reasons=[reason],
            notes=[reason] if verdict == "valid" else [],
        )
        for number, (verdict, reason) in enumerate(told, start=1)
    ]  # fmt: skip
    validity = judge_run(run.model_copy(update={"outcome": "completed"}), trials, ["no p99: it needs 100 requests"])
    doubts = [reason for verdict, reason in told if verdict == "suspect"]
    claims = [
        row.model_copy(update={"suspect": True, "reason": None, "doubt": doubts[place % len(doubts)]})
        for place, row in enumerate(summary.claims)
    ]
    return run, summary.model_copy(update={"trials": trials, "validity": validity, "claims": claims})


@pytest.mark.parametrize(
    ("verdicts", "told"),
    [
        (["valid"] * 3, "all 3 trials are valid"),
        (["valid"], "the only trial is valid"),
        (["suspect"] * 2, "all 2 trials are suspect and counted all the same"),
        (["suspect", "invalid", "valid", "suspect"],
         "of 4 trials, 1 is invalid and left out, 2 are suspect and counted all the same"),
    ],
)  # fmt: skip
def test_how_many_trials_are_in_doubt_and_what_follows(verdicts: list[str], told: str) -> None:
    _, summary = simple()
    trials = [summary.trials[0].model_copy(update={"verdict": verdict}) for verdict in verdicts]

    assert trials_phrase(summary.model_copy(update={"trials": trials})) == told


def test_what_was_found_in_a_trial_is_no_reason_to_doubt_it() -> None:
    _, summary = in_doubt(("suspect", "the machine was 51% busy"), ("valid", "2 of 9 requests failed (status 502)"))

    validity = summary.validity
    assert validity.doubts == ["one (trial 1): suspect: the machine was 51% busy", "no p99: it needs 100 requests"]
    assert validity.of_run == validity.doubts[1:]
    assert validity.notes == ["one (trial 2): 2 of 9 requests failed (status 502)"]


def test_a_doubt_that_claims_share_stands_once_below_their_table() -> None:
    """A doubt of a single claim stands beside the claim. That all trials are suspect is the report's first sentence."""
    run, summary = in_doubt(
        *[("suspect", "the machine was busy")] * len(simple()[0].claims[1:]), ("suspect", "k6 waited")
    )

    [load] = run.loads
    alone = [claim.model_copy(update={"relative_to": None, "value": claim.value.model_copy(update={"variant": "one"})})
             for claim in run.claims]  # fmt: skip
    trials = [trial.model_copy(update={"load": load.name}) for trial in summary.trials]

    table = claims_table(run.model_copy(update={"claims": alone}), summary.model_copy(update={"trials": trials}))

    assert {says.partition(" — ")[2] for _, says, *_ in table.rows} == {"", "k6 waited"}
    assert table.note == (
        "suspect: trials are in doubt, for example because the machine was busy; "
        "reproduced: the whole interval satisfies the bound"
    )


def test_a_page_tells_doubts_that_differ_only_in_numbers_as_one() -> None:
    """What was found is in the tables, so the page does not list it."""
    run, summary = in_doubt(
        ("suspect", "k6 waited 0.2 s"), ("suspect", "the machine was 51% busy"), ("suspect", "the machine was 9% busy"),
        ("valid", "2 of 9 requests failed"),
    )  # fmt: skip

    about = shown_of(run, summary).about

    assert about[about.index("Of 4") :] == snapshot("""\
Of 4 trials, 3 are suspect and counted all the same:

- in 2 trials, such as one (trial 2): the machine was 51% busy
- one (trial 1): k6 waited 0.2 s
- no p99: it needs 100 requests\
""")
