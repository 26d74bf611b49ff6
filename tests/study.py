"""Studies how often an experiment's default run decides its claims, and how often it decides falsely.

    python -m tests.study keep RUN docs/heavy-mix-study.json.gz 20 60
    python -m tests.study table docs/heavy-mix-study.json.gz
    python -m tests.study default RUN [RUN …]

``keep`` computes from a run of many trials what the first seconds of each trial's load say, and writes it to a small
file. ``table`` draws trials from such a file, with replacement, as if each draw were a run, and prints for each claim
of the experiment how many runs decide it, and how many contradict the median over all trials of the study. ``default``
draws from the few trials of ordinary runs as many as the experiment's default has, and prints a line for each run.
"""

import gzip
import json
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

from analysis.read.rows import opened
from analysis.read.trial_data import RawTrial, read_raw_trial, read_trial_data
from analysis.records.checksums import sealed
from analysis.records.claims import Claim
from analysis.records.folder import read_run, trial_folders
from analysis.records.run import Run
from analysis.statistics.intervals import Draw
from analysis.statistics.results import Cells, Results, TrialValues, measure_cells, with_loads
from analysis.verdict.claims import claim_row
from lab.experiment.file import load_experiment

KEPT = (
    ("overhead", "p50"), ("overhead", "p90"), ("overhead", "p99"), ("avoidable_wait", "share"),
    ("requests_by_worker", "largest_share"), ("throughput", "per_second"),
)  # fmt: skip
"""The statistics that are kept of each variant and class of request, besides those of the claims."""
RUNS = 2000
"""How many runs are drawn for each number of trials of a study."""
ROUGHLY = 400
"""How many runs are drawn from the few trials of an ordinary run."""
TRIALS = (1, 2, 3, 5, 8)


def first_seconds(run: Run, evidence: dict[Path, RawTrial], seconds: int) -> Cells:
    """Return the statistics of each trial as if its load had ended after so many seconds."""
    with tempfile.TemporaryDirectory() as temporary:
        short = [_shortened(folder, Path(temporary) / str(place), seconds) for place, folder in enumerate(evidence)]
        with opened(short) as rows:
            return measure_cells(
                rows, [read_trial_data(rows, run, folder, found) for folder, found in evidence.items()]
            )


def _shortened(trial_folder: Path, target: Path, seconds: int) -> Path:
    target.mkdir()
    duckdb.execute(
        f"""COPY (SELECT * FROM '{trial_folder}/requests.parquet' AS rows
            WHERE sent < (SELECT min(sent) FROM '{trial_folder}/requests.parquet') + to_seconds({seconds}))
            TO '{target}/requests.parquet'"""  # paths of this machine
    )
    return target


def keep(run_folder: Path, target: Path, windows: list[int]) -> None:
    """Write what the first seconds of each trial say to a file; ``windows`` are in seconds."""
    run = read_run(run_folder)
    hashes = sealed(run_folder)
    evidence = {folder: read_raw_trial(run_folder, folder, hashes) for folder in trial_folders(run_folder)}
    wanted = {*KEPT} | {(one.metric, one.stat) for claim in run.claims for one in claim.quantities}
    kept = {
        "run": run.model_copy(update={"order": [], "published": []}).model_dump(mode="json", by_alias=True),
        "windows": {
            window: [
                [*cell, one.trial, one.answered, [
                    [*key, _short(draw.value), [_short(likely) for likely in draw.likely]]
                    for key, draw in one.draws.items() if key in wanted
                ]]
                for cell, trials in first_seconds(run, evidence, window).items() if cell[2]
                for one in trials
            ]
            for window in windows
        },
    }  # fmt: skip
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def read(path: Path) -> tuple[Run, dict[int, Cells]]:
    """Return the run of a study, and its statistics for each number of seconds."""
    kept = json.loads(gzip.decompress(path.read_bytes()))
    windows: dict[int, Cells] = {}
    for window, rows in kept["windows"].items():
        cells: dict[tuple[str, str, str | None], list[TrialValues]] = {}
        windows[int(window)] = cells
        for variant, load, request_class, trial, answered, stats in rows:
            draws = {(metric, stat): Draw(value, tuple(likely)) for metric, stat, value, likely in stats}
            cells.setdefault((variant, load, request_class), []).append(TrialValues(trial, answered, draws))
    return Run.model_validate(kept["run"]), windows


def table(path: Path) -> Iterator[str]:
    """Yield the lines of tables in Markdown: for each claim, how many runs decide it, and how many decide falsely."""
    run, windows = read(path)
    claims = load_experiment(run.experiment).claims
    for seconds, cells in windows.items():
        yield f"{run.experiment}, {seconds} s of load: runs that decide / that contradict the study, of {RUNS}\n"
        yield f"| claim | bound | median | trials that hold | {' | '.join(map(str, TRIALS))} trials |"
        yield "| --- " * (4 + len(TRIALS)) + "|"
        in_all = dict.fromkeys(TRIALS, 0)
        for claim in claims:
            row = claim_row(claim, Results(run, cells), [])
            if row.measured is None:
                yield f"| {claim.says} | {claim.bound} | – | – | {' | '.join('–' for _ in TRIALS)} |"
                continue
            holding = _each(claim, run, cells)
            shown = []
            for trials in TRIALS:
                decided, false = chances(claim, run, cells, trials, holds=claim.holds(row.measured))
                in_all[trials] += decided
                shown.append(f"{decided / RUNS:.1%} / {false / RUNS:.2%}")
            share = sum(holding) / len(holding)
            yield f"| {claim.says} | {claim.bound} | {row.measured:.3g} | {share:.0%} | {' | '.join(shown)} |"
        means = [f"{in_all[trials] / RUNS:.1f} of {len(claims)}" for trials in TRIALS]
        yield f"| claims decided by a run, mean | | | | {' | '.join(means)} |\n"


def _each(claim: Claim, run: Run, cells: Cells) -> list[bool]:
    """Return whether the claim holds in each trial of the study."""
    results = Results(run, cells)
    claim = with_loads(run, claim)
    values = results.values(claim.value)
    others = results.values(claim.relative_to) if claim.relative_to else dict.fromkeys(values, 1.0)
    return [claim.holds(values[trial] / others[trial]) for trial in values.keys() & others.keys()]


def chances(claim: Claim, run: Run, cells: Cells, trials: int, *, holds: bool, runs: int = RUNS) -> tuple[int, int]:
    """Return how many of so many runs decide a claim, and how many decide otherwise than ``holds``."""
    chance = random.Random(1)  # a simulation, not a secret
    rests_on = {(one.variant, one.load or run.loads[0].name, one.request_class) for one in claim.quantities}
    needed = {cell: ones for cell, ones in cells.items() if cell in rests_on}
    verdicts: dict[tuple[tuple[int, ...], ...], str] = {}
    decided = false = 0
    for _ in range(runs):
        places = tuple(tuple(sorted(chance.choices(range(len(ones)), k=trials))) for ones in needed.values())
        if places not in verdicts:
            drawn = {
                cell: [ones[place]._replace(trial=number) for number, place in enumerate(chosen, start=1)]
                for (cell, ones), chosen in zip(needed.items(), places, strict=True)
            }
            verdicts[places] = claim_row(claim, Results(run, drawn), []).verdict
        decided += verdicts[places] in ("reproduced", "not reproduced")
        false += verdicts[places] == ("not reproduced" if holds else "reproduced")
    return decided, false


def default(run_folder: Path) -> str:
    """Return a line of a table: what runs of the default number of trials decide, if trials are like those of a run."""
    run = read_run(run_folder)
    hashes = sealed(run_folder)
    evidence = {folder: read_raw_trial(run_folder, folder, hashes) for folder in trial_folders(run_folder)}
    with opened(list(evidence)) as rows:
        cells = measure_cells(rows, [read_trial_data(rows, run, folder, found) for folder, found in evidence.items()])
    experiment = load_experiment(run.experiment)
    decided, false, headline = 0, 0, None
    for claim in experiment.claims:
        row = claim_row(claim, Results(run, cells), [])
        if row.measured is None:
            continue
        mine, wrong = chances(claim, run, cells, experiment.trials, holds=claim.holds(row.measured), runs=ROUGHLY)
        decided, false = decided + mine, max(false, wrong)
        if headline is None and (claim.role == "answer" or not any(one.role for one in experiment.claims)):
            headline = mine
    told = "–" if headline is None else f"{headline / ROUGHLY:.0%}"
    claims = f"{decided / ROUGHLY:.1f} of {len(experiment.claims)}"
    return f"| {run.experiment} | {run.trials} | {experiment.trials} | {claims} | {told} | {false / ROUGHLY:.1%} |"


def main() -> None:
    """Run the command that the command line names."""
    match sys.argv[1:]:
        case ["keep", run, target, *windows] if windows:
            keep(Path(run), Path(target), [*map(int, windows)])
        case ["table", path]:
            for line in table(Path(path)):
                print(line, flush=True)
        case ["default", *runs] if runs:
            print("| experiment | trials | by default | claims decided | the answer | false, the worst claim |")
            print("| --- " * 6 + "|")
            for run in runs:
                print(default(Path(run)), flush=True)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
