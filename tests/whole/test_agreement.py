"""All outputs of one run agree: the answer, the tables, summary.json, the page, compare and predict."""

import json
import re
from collections import Counter
from html import unescape
from io import StringIO
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
from rich.console import Console

from stampede.docker.engine import default_jobs, engine_cores
from stampede.evaluate.statistics.compare import Side, changes, suspect_sides, what_differs
from stampede.experiment.file import load_experiment
from stampede.pipeline import derive
from stampede.predict.prediction import predict_summary
from stampede.records.claims import Claim, Quantity
from stampede.records.folder import read_run, trial_folder
from stampede.records.run import Run
from stampede.records.summary import Summary
from stampede.report.screen import screen_lines
from stampede.report.tables.comparison import comparison_tables
from stampede.report.tables.verdicts import claims_table
from stampede.report.terminal import print_predicted, print_tables
from stampede.report.wording import number
from stampede.run.options import MeasureOptions
from stampede.run.record import record_of
from tests.conftest import Lab
from tests.synthetic import NOWHERE
from tests.whole.test_article import make_two_variants

SUSPECT = 3
"""So many of the five trials of the variant ``slow`` are suspect."""


class Outputs(NamedTuple):
    """What one run says in each output; texts have single spaces."""

    run: Run
    summary: Summary
    values: dict[str, Any]
    screen: str
    tables: str
    page: str


def spaced(text: str) -> str:
    """Return a text in a single line, as if nothing had been wrapped."""
    return " ".join(text.split())


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Outputs:
    """A run of five trials with claims that are decided, one at its bound, and figures with each verdict."""
    folder = tmp_path_factory.mktemp("outputs")
    claims = [
        Claim(says="Slow is slow", value=_quantity("slow", "p90"), at_least=100, role="answer"),
        Claim(says="Quick is quick", value=_quantity("quick", "p90"), at_most=100, role="cure"),
        Claim(says="No request fails", value=_quantity("slow", "share", "failures"), at_most=0),
        Claim(says="Slow is quick", value=_quantity("slow", "p90"), at_most=1),
    ]
    make_two_variants(folder, claims=claims)
    for trial in range(1, SUSPECT + 1):
        record = trial_folder(folder, "slow", "mix", trial) / "trial.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"busy_before": 0.6}))
    with patch("stampede.report.figures.svg", lambda _: "<svg></svg>"):
        summary = derive(folder)
    run = read_run(folder)
    printed = StringIO()
    print_tables(Console(file=printed, width=400), run, summary)
    page = re.sub(r"<[^>]*>", " ", (folder / "report.html").read_text(encoding="utf-8"))
    screen = "\n".join(line.plain for line in screen_lines(run, summary, "report.html", "stampede report --tables"))
    values = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return Outputs(run, summary, values, spaced(screen), spaced(printed.getvalue()), spaced(unescape(page)))


def _quantity(variant: str, stat: str, metric: str = "overhead") -> Quantity:
    return Quantity(variant=variant, request_class="light", metric=metric, stat=stat)


def test_figures_are_counted_once(outputs: Outputs) -> None:
    """The answer, the tables and the page have the same categories, which add up to all published figures."""
    verdicts = Counter(figure["verdict"] for row in outputs.values["published"] for figure in row["figures"])
    assert verdicts == {
        "reproduced": 1, "differs by the floor": 3, "contradicted": 2, "not measured in a short run": 1,
    }  # fmt: skip
    counted = "1 of 7 figures within 25 %, 3 but for the floor of 6.0 ms, 2 contradicted, 1 not measured"
    for text in (outputs.screen, outputs.tables, outputs.page):
        assert counted in text
        assert [found for found in re.findall(r"\d+ of \d+ (?:measured )?figures", text) if found != counted[:14]] == []


def test_suspect_trials_are_counted_once(outputs: Outputs) -> None:
    trials = [trial for trial in outputs.values["trials"] if trial["variant"] == "slow"]
    assert sum(trial["verdict"] == "suspect" for trial in trials) == SUSPECT
    sides = Side("slow", outputs.run, outputs.summary, "slow"), Side("quick", outputs.run, outputs.summary, "quick")
    [warned] = suspect_sides(*sides)

    assert warned.startswith(f"{SUSPECT} of 5 trials of slow are suspect: ")
    for text in (outputs.screen, outputs.tables, outputs.page):
        assert f"{SUSPECT} of 5 trials are suspect" in text.replace("Trials", "trials")
        assert "a suspect trial" not in text


def test_each_claim_has_one_verdict_and_what_is_decided_is_said_to_be_decided(outputs: Outputs) -> None:
    """A share of 0 lies at the bound of at most 0, and is decided all the same."""
    verdicts = [claim["verdict"] for claim in outputs.values["claims"]]
    assert verdicts == ["reproduced", "reproduced", "reproduced", "not reproduced"]
    told = claims_table(outputs.run, outputs.summary).rows
    assert [row[0].partition(", ")[0] for row in told] == verdicts
    assert "would decide" not in "".join(row[1] for row in told)
    assert f"{verdicts.count('reproduced')} of {len(verdicts)} claims hold; 1 not reproduced" in outputs.screen


def test_a_figure_is_the_same_in_every_output(outputs: Outputs) -> None:
    """The p90 of the slow variant, in summary.json, in the answer, the tables, the page and the comparison."""
    [row] = [
        row for row in outputs.values["rows"]
        if (row["variant"], row["request_class"], row["metric"], row["stat"]) == ("slow", "light", "overhead", "p90")
    ]  # fmt: skip
    shown = number(row["measured"])
    sides = Side("quick", outputs.run, outputs.summary, "quick"), Side("slow", outputs.run, outputs.summary, "slow")
    *_, compared = comparison_tables(changes(*sides), [*what_differs(*sides)])

    assert f"Slow is slow: p90 {shown} ms" in outputs.screen
    assert re.search(rf"Slow is slow .{{0,80}}p90 {shown} ms", outputs.tables)
    assert f"{shown} ms The p90 of the overhead of light requests" in outputs.page
    assert any(shown in cell for line in compared.rows if "p90" in " ".join(line) for cell in line)


def test_predict_says_what_a_run_here_has_as_predicted(lab: Lab) -> None:
    """The run measures several variants side by side on this machine's cores, and both say so."""
    asked = MeasureOptions(variants="one-process,shared-socket", duration="2s", trials=1)
    experiment = asked.experiment("heavy-mix")
    assert load_experiment("heavy-mix").variants.keys() >= {"one-process", "shared-socket"}
    here = NOWHERE.model_copy(update={"cores": engine_cores()})
    run = record_of(
        "heavy-mix", experiment, asked.plan(experiment), full=False, command="", host=here, git=None, images=[]
    )
    assert run.jobs == default_jobs()
    expected = StringIO()
    print_predicted(Console(file=expected, width=80), run, predict_summary(run))

    said = lab.call("predict", "heavy-mix", "--variants", asked.variants, "--duration", "2s", "--trials", "1").stdout

    assert spaced(said) == spaced(expected.getvalue())
    assert re.search(r"predicted: what theory says of 2 variants side by side on \d+ cores?", spaced(said))
