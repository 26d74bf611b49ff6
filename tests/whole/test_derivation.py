"""stampede.pipeline: the same raw points give the same bytes every time, also where requests or connections tie.

What may differ from one derivation to the next: how Python orders a set of words, how many threads DuckDB has, and
in which order these hand over the rows.
"""

import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import pytest

from stampede.evaluate.read import trial_data
from stampede.evaluate.read.trial_data import RawTrial
from stampede.paths import ROOT
from stampede.pipeline import derive_summary
from stampede.records.checksums import files, is_derived, seal
from stampede.records.claims import Claim, Published, Quantity
from stampede.records.run import ClientRecord, LoadRecord, VariantRecord
from tests.synthetic import BEGAN, Request, make_run, make_trial, observation, write_observations, write_points
from tools.real_runs import NAMES, unpack
from tools.same_results import compare_results

Circumstance = tuple[int, int]
"""A seed of hashes and a number of threads."""

TWO: list[Circumstance] = [(0, 1), (3, 8)]

TIES = "keep-alive"
"""The real run in which many connections tie."""
Derived = dict[str, bytes]
"""What follows from the raw points of a run, by path."""


def mix(seed: int, *classes: str) -> list[Request]:
    """Return requests of some classes, of which many tie in time, in size, in worker and in connection."""
    chance = random.Random(seed)
    return [
        Request(
            overhead_ms=chance.choice([0.1, 0.7, 30]),
            request_class=chance.choice(classes),
            worker=f"box:{chance.choice([7, 8, 10, 11])}",
            sent_s=chance.randrange(100) / 10,
            error=chance.choice([None] * 9 + ["status 502", "EOF"]),
            user=chance.randrange(4),
            connection=str(chance.randrange(60)),
        )
        for _ in range(150)
    ]


def closed_loop_against_itself(run: Path) -> None:
    """Write two trials of a variant and of its copy; two percentiles need one request more than a rare class has."""
    same = [VariantRecord(name=name, workers=4, settings={"threads": 2}) for name in ("a", "b")]
    rare = [Request(request_class="rare", sent_s=n) for n in range(3)]
    published = [
        Published(variant="a", request_class="rare", metric="overhead", stats=dict.fromkeys(["p25", "p75"], 1))
    ]
    claims = [Claim(says="It waits", value=Quantity(variant="a", metric="overhead", stat="p50"), at_least=1)]
    requests = {"a": mix(0, "light") + rare, "b": mix(1, "light") + rare}
    make_run(run, requests, variants=same, trials=2, published=published, claims=claims)
    make_trial(run, "a", 2, mix(2, "light") + rare, workers=4)
    make_trial(run, "b", 2, mix(3, "light") + rare, workers=4)


def bursts_from_two_generators(size: int) -> Callable[[Path], None]:
    """Return what writes two bursts of which each generator sends half, at the same moment and under the same names."""
    requests = [
        Request(1000 * (n // 6), 1000, worker=f"box:{7 + (n + generator) % 3}", sent_s=at_s, generator=generator)
        for at_s in (0, 30)
        for n in range(size // 2)
        for generator in (1, 2)
    ]
    burst = LoadRecord(
        name="mix", script="burst.js", kind="burst", duration="60s", settings={"BURST": f"{size}"}, generators=2
    )
    variants = [VariantRecord(name=name, workers=3, settings={"name": name}) for name in ("one", "two")]

    def make(run: Path) -> None:
        make_run(run, {"one": requests, "two": requests[:size]}, variants=variants, loads=[burst])

    return make


def open_loop_with_an_api_and_a_client(run: Path) -> None:
    """Write a load whose called service stalls twice, beside which a client asks at the same moments."""
    client = ClientRecord(script="silent.py", settings={})
    load = LoadRecord(
        name="mix", script="calls.js", duration="60s", settings={}, loop="open", api={"stall_s": 2}, client=client
    )
    variants = [VariantRecord(name=name, workers=4, settings={"threads": 2, "name": name}) for name in ("one", "two")]
    requests = {"one": mix(0, "light", "heavy"), "two": mix(1, "light", "heavy")}
    make_run(run, requests, variants=variants, loads=[load])
    for name, ones in requests.items():
        folder = run / name / "mix" / "1"
        silent = [Request(request_class="silent", sent_s=one.sent_s, user=one.user) for one in ones[:20]]
        write_points(folder / "points-client.json.gz", silent)
        write_observations(folder, [*ones, *silent], workers=4)
        (folder / "nginx-1.after.txt").write_text(observation("proxy", balanced=2 + len(ones)))
        for number in (1, 2):
            stall = (BEGAN.timestamp() + 2, BEGAN.timestamp() + 3 + number)
            (folder / f"api-{number}.before.txt").write_text(observation("api", stalls=[]))
            (folder / f"api-{number}.after.txt").write_text(observation("api", stalls=[stall]))


MADE_UP: dict[str, Callable[[Path], None]] = {
    "closed-loop-against-itself": closed_loop_against_itself,
    "small-bursts": bursts_from_two_generators(20),
    "large-bursts": bursts_from_two_generators(60),
    "open-loop-with-an-api-and-a-client": open_loop_with_an_api_and_a_client,
}


def derive_under(
    circumstances: list[Circumstance], folder: Path, names: Sequence[str] = NAMES
) -> dict[str, list[Derived]]:
    """Derive real and made-up runs under some circumstances, each of which has copies of the runs and a process."""
    runs = {name: unpack(name, folder) for name in names}
    for kind, make in MADE_UP.items():
        runs[kind] = folder / kind
        make(runs[kind])
        seal(runs[kind])
    copies = {
        kind: [shutil.copytree(run, folder / f"{seed}" / kind) for seed, _ in circumstances]
        for kind, run in runs.items()
    }
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.derive_again", str(threads),
             *(str(ones[place]) for ones in copies.values())],
            cwd=ROOT, env=os.environ | {"PYTHONHASHSEED": str(seed)},
        )
        for place, (seed, threads) in enumerate(circumstances)
    ]  # fmt: skip
    assert [process.wait() for process in processes] == [0] * len(processes)
    return {kind: [_derived(copy) for copy in ones] for kind, ones in copies.items()}


def _derived(run: Path) -> Derived:
    return {name: (run / name).read_bytes() for name in files(run) if is_derived(name)}


@pytest.fixture(scope="module")
def derivations(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Derived]]:
    """All kinds of run, derived under two circumstances that have nothing in common."""
    return derive_under(TWO, tmp_path_factory.mktemp("runs"), [TIES])


@pytest.mark.parametrize("kind", [TIES, *MADE_UP])
def test_a_run_is_derived_to_the_same_bytes_every_time(derivations: dict[str, list[Derived]], kind: str) -> None:
    assert_same(derivations[kind])


def assert_same(derived: list[Derived]) -> None:
    """Check that all derivations of a run have the same files with the same bytes."""
    first, *others = derived

    assert others
    assert {"summary.json", "report.html"} < first.keys()
    assert any(name.endswith("requests.parquet") for name in first)
    assert [one.keys() for one in others] == [first.keys()] * len(others)
    assert [name for name in first if {one[name] for one in others} != {first[name]}] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_real_run_says_what_it_said_before(name: str, tmp_path: Path) -> None:
    """Its summary came with it, without predictions; a change of the lab that changes a number or a word shows here."""
    run = unpack(name, tmp_path)
    known = (run / "summary.json").rename(tmp_path / "known.json")
    derive_summary(run)

    assert compare_results(run, known) == []


def test_a_large_run_is_summarised_in_the_same_way_every_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads would add up the rows in another order each time, and the last digits of an average differ."""
    run = make_run(tmp_path, {"one": [Request(n, sent_s=n / 10) for n in range(100)]})
    derive_summary(run)
    folder = run / "one" / "mix" / "1"
    table, larger = folder / "requests.parquet", folder / "larger.parquet"
    duckdb.sql(f"""
        COPY (SELECT * REPLACE ((hash(i) % 1000003) / 7.0 AS overhead_ms, (hash(i) % 1000003) / 3.0 AS duration_ms)
              FROM '{table}', range(3000) AS numbers(i)) TO '{larger}' (FORMAT parquet)
    """)
    larger.rename(table)

    # else it would write the table again
    monkeypatch.setattr(trial_data, "derive_raw_trial", lambda *_, **__: RawTrial())

    summaries = [derive_summary(run).model_dump_json() for _ in range(3)]

    assert summaries[0].count('"n":300000') > 10
    assert len(set(summaries)) == 1
