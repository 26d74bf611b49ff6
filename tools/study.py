"""Studies how often an experiment's default run decides its claims, and how often it decides falsely.

    python -m tools.study keep RUN docs/experiments/heavy-mix-study.json.gz 20 60
    python -m tools.study table docs/experiments/heavy-mix-study.json.gz
    python -m tools.study default RUN [RUN …]
    python -m tools.study pooled docs/experiments/heavy-mix-study.json.gz 20
    python -m tools.study pooled RUN 20

``keep`` computes from a run of many trials what the first seconds of each trial's load say, and writes it to a small
file. ``table`` draws trials from such a file, with replacement, as if each draw were a run, and prints for each claim
of the experiment how many runs decide it, and how many contradict the median over all trials of the study. ``default``
draws from the few trials of ordinary runs as many as the experiment's default has, and prints a line for each run.
``pooled`` prints what pooled percentiles would decide, and how often falsely. A study's file does not keep requests, so
theory simulates the trials of its run; the requests of a run of many trials are used as they were measured.
"""

import gzip
import json
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import duckdb
import numpy as np

from stampede.evaluate.metrics.likely import Times
from stampede.evaluate.metrics.metric import rows_needed
from stampede.evaluate.read.requests import simulated_requests
from stampede.evaluate.read.rows import opened
from stampede.evaluate.read.trial_data import RawTrial, derive_raw_trial, read_trial_data
from stampede.evaluate.statistics.estimates import Cells, Measured, Results, TrialValues, estimate, measure_cells
from stampede.evaluate.statistics.intervals import Draw
from stampede.evaluate.statistics.pooling import pooled_percentile
from stampede.evaluate.statistics.stopping import Interval
from stampede.evaluate.verdict.claims import claim_row
from stampede.experiment.file import load_experiment
from stampede.predict.system import system_of
from stampede.records.checksums import sealed
from stampede.records.claims import Claim
from stampede.records.folder import read_run, trial_folders
from stampede.records.run import Run
from stampede.records.summary import ClaimRow
from stampede.theory.simulate import simulate_trials

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
SIMULATED = 1000
"""How many trials theory simulates of each variant."""
POOLED_TRIALS = (3, 5, 8)
CLAIMED_MS, WITHIN = 1000.0, 0.25
"""What pooled values are asked: whether they are at least so much, and how near a published figure they are."""


def first_seconds(run: Run, evidence: dict[Path, RawTrial], seconds: int) -> Cells:
    """Return the statistics of each trial as if its load had ended after so many seconds."""
    with tempfile.TemporaryDirectory() as temporary:
        short = [_shortened(folder, Path(temporary) / str(place), seconds) for place, folder in enumerate(evidence)]
        with opened(short) as rows:
            return measure_cells(
                rows, [read_trial_data(rows, run, folder, found) for folder, found in evidence.items()]
            ).cells


def _shortened(trial_folder: Path, target: Path, seconds: int) -> Path:
    target.mkdir()
    duckdb.execute(
        f"""COPY (SELECT * FROM '{trial_folder}/requests.parquet' AS rows
            WHERE sent < (SELECT min(sent) FROM '{trial_folder}/requests.parquet') + to_seconds({seconds}))
            TO '{target}/requests.parquet'"""  # noqa: S608  # paths of this machine
    )
    return target


def keep(run_folder: Path, target: Path, windows: list[int]) -> None:
    """Write what the first seconds of each trial say to a file; ``windows`` are in seconds."""
    run = read_run(run_folder)
    hashes = sealed(run_folder)
    evidence = {folder: derive_raw_trial(run_folder, folder, hashes) for folder in trial_folders(run_folder)}
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
            row = row_of(claim, run, cells)
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
    values, *others = [
        estimate(of, Measured(cells=cells)).values for of in claim.with_load(run.loads[0].name).quantities
    ]
    divisors = others[0] if others else dict.fromkeys(values, 1.0)
    return [claim.holds(values[trial] / divisors[trial]) for trial in values.keys() & divisors.keys()]


def row_of(claim: Claim, run: Run, cells: Cells) -> ClaimRow:
    """Return the verdict on a claim from the statistics of trials, all of which are trusted."""
    claim = claim.with_load(run.loads[0].name)
    measured = Measured(cells=cells)
    return claim_row(claim, Results(run, measured, {of: estimate(of, measured) for of in claim.quantities}))


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
            verdicts[places] = row_of(claim, run, drawn).verdict
        decided += verdicts[places] in ("reproduced", "not reproduced")
        false += verdicts[places] == ("not reproduced" if holds else "reproduced")
    return decided, false


def default(run_folder: Path) -> str:
    """Return a line of a table: what runs of the default number of trials decide, if trials are like those of a run."""
    run = read_run(run_folder)
    hashes = sealed(run_folder)
    evidence = {folder: derive_raw_trial(run_folder, folder, hashes) for folder in trial_folders(run_folder)}
    with opened(list(evidence)) as rows:
        trials = [read_trial_data(rows, run, folder, found) for folder, found in evidence.items()]
        cells = measure_cells(rows, trials).cells
    experiment = load_experiment(run.experiment)
    decided, false, headline = 0, 0, None
    for claim in experiment.claims:
        row = row_of(claim, run, cells)
        if row.measured is None:
            continue
        mine, wrong = chances(claim, run, cells, experiment.trials, holds=claim.holds(row.measured), runs=ROUGHLY)
        decided, false = decided + mine, max(false, wrong)
        if headline is None and (claim.role == "answer" or not any(one.role for one in experiment.claims)):
            headline = mine
    told = "–" if headline is None else f"{headline / ROUGHLY:.0%}"
    claims = f"{decided / ROUGHLY:.1f} of {len(experiment.claims)}"
    return f"| {run.experiment} | {run.trials} | {experiment.trials} | {claims} | {told} | {false / ROUGHLY:.1%} |"


Waits = dict[str, list[Times]]
"""What light requests lose in each trial of each variant, in ms."""


def simulated_waits(run: Run, seconds: int) -> Waits:
    """Return the waits of many trials of so many seconds, as theory simulates them."""
    load = run.loads[0].model_copy(update={"duration": f"{seconds}s"})
    found: Waits = {}
    for variant in run.variants:
        system = system_of(variant, load, run.jobs, run.cores)
        place, seed = [each.name for each in system.classes].index("light"), crc32(variant.name.encode())
        for rows in simulate_trials(system, seconds, range(seed, seed + SIMULATED)):
            trial = simulated_requests(load, [], rows)
            light = trial.answered & (trial.of_class == place)
            found.setdefault(variant.name, []).append(trial.overhead_ms[light])
    return found


def measured_waits(run_folder: Path, seconds: int) -> Waits:
    """Return the waits in the first seconds of each trial of a run."""
    found: Waits = {}
    for trial in trial_folders(run_folder):
        rows = f"FROM '{trial}/requests.parquet'"
        first = f"SELECT min(sent) + to_seconds({seconds}) {rows}"
        query = f"SELECT overhead_ms {rows} WHERE request_class = 'light' AND error IS NULL AND sent < ({first})"
        found.setdefault(trial.parents[1].name, []).append(duckdb.execute(query).fetchnumpy()["overhead_ms"])
    return found


def drawn_pools(waits: Sequence[Times], trials: int, runs: int = RUNS) -> Iterator[Interval]:
    """Yield the interval of the p99 of each drawn run whose single trials are too small for it.

    Trials are drawn with replacement.
    """
    chance = random.Random(1)  # a simulation, not a secret
    for _ in range(runs):
        drawn = chance.choices(waits, k=trials)
        if min(map(len, drawn)) < rows_needed("p99") <= sum(map(len, drawn)):
            yield pooled_percentile(drawn, 0.99)[1]


class _Bound(NamedTuple):
    """What a value is asked: whether it lies between ``least`` and ``most``."""

    least: float
    most: float = float("inf")

    def decided(self, interval: Interval) -> bool | None:
        """Return whether the whole interval keeps the bound, or breaks it on one side; None: it does neither."""
        low, high = interval
        if self.least <= low and high <= self.most:
            return True
        return False if high < self.least or low > self.most else None


def pooled_table(
    experiment: str, waits: Waits, numbers: Sequence[int] = POOLED_TRIALS, runs: int = RUNS
) -> Iterator[str]:
    """Yield the lines of a table in Markdown: what pooled values decide, and how often they decide falsely.

    ``numbers`` are how many trials the drawn runs have.
    """
    asked = f"at least {CLAIMED_MS:g} ms: decided / falsely | within {WITHIN:.0%} of the article: decided / falsely"
    yield f"| variant | p99 of all trials, ms | trials | runs whose p99 is pooled | {asked} |"
    yield "| --- " * 6 + "|"
    published = {each.variant: each.stats["p99"] for each in load_experiment(experiment).published
                 if each.request_class == "light" and "p99" in each.stats}  # fmt: skip
    for variant, of_trials in waits.items():
        truth = float(np.quantile(np.concatenate(of_trials), 0.99))
        for trials in numbers:
            pools = [*drawn_pools(of_trials, trials, runs)]
            if not pools or variant not in published:
                continue
            bounds = _Bound(CLAIMED_MS), _Bound(published[variant] / (1 + WITHIN), published[variant] * (1 + WITHIN))
            shown = [_share_decided(pools, bound, holds=bound.least <= truth <= bound.most) for bound in bounds]
            yield f"| {variant} | {truth:.0f} | {trials} | {len(pools) / runs:.0%} | {' | '.join(shown)} |"


def _share_decided(pools: Sequence[Interval], bound: _Bound, *, holds: bool) -> str:
    verdicts = [bound.decided(pooled) for pooled in pools]
    decided, false = sum(each is not None for each in verdicts), verdicts.count(not holds)
    return f"{decided / len(pools):.1%} / {false / len(pools):.1%}"


def main() -> None:
    """Run the command that the command line names."""
    match sys.argv[1:]:
        case ["keep", run, target, *windows] if windows:
            keep(Path(run), Path(target), [*map(int, windows)])
        case ["table", path]:
            for line in table(Path(path)):
                print(line, flush=True)
        case ["pooled", source, seconds] if Path(source).is_dir():
            waits = measured_waits(Path(source), int(seconds))
            print("\n".join(pooled_table(read_run(Path(source)).experiment, waits)))
        case ["pooled", source, seconds]:
            simulated, _ = read(Path(source))
            print("\n".join(pooled_table(simulated.experiment, simulated_waits(simulated, int(seconds)))))
        case ["default", *runs] if runs:
            print("| experiment | trials | by default | claims decided | the answer | false, the worst claim |")
            print("| --- " * 6 + "|")
            for run in runs:
                print(default(Path(run)), flush=True)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
