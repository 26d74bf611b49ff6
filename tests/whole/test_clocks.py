"""evaluate.read.lab_time: the clocks of several machines follow from what they tell, and what is uncertain is told."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stampede.diagnosis.held import read_stalls
from stampede.evaluate.read.lab_time import Clock, Clocks, clock_of
from stampede.evaluate.read.rows import opened
from stampede.evaluate.read.trial_data import derive_raw_trial
from stampede.pipeline import derive, derive_summary
from stampede.records.checksums import files, is_derived
from stampede.records.folder import read_trial, trial_folders, write_record
from stampede.records.run import Exchange, MachineRecord
from tests.apart import Machine, set_apart
from tests.synthetic import BEGAN, Request, make_run, observation
from tests.whole.test_derivation import open_loop_with_an_api_and_a_client
from tools.real_runs import unpack

START, LASTS_S = 1.7e9, 60.0
K6, WEB = Machine(generators=["points"], ahead_s=-2.5, drift=2e-5), Machine(hosts=["box"], ahead_s=1234.5, drift=-8e-5)
APART: dict[str, Machine] = {"k6-1": K6, "web-1": WEB}
FINE = [Request(sent_s=n / 10, waits_ms=0.5, lag_ms=0.2) for n in range(100)]


def shown(clock: Clock, at: Any) -> Any:
    """Return what a clock shows at times of the lab's clock; ``since`` is a time of the lab's clock here."""
    return at + clock.ahead_s + clock.drift * (at - clock.since)


def told_by(clock: Clock, seed: int) -> MachineRecord:
    """Return what a machine with such a clock told before and after a load, in questions of some milliseconds."""
    chance = np.random.default_rng(seed)
    exchanges = []
    for asked in (*(START - 1 + np.arange(20) / 100), *(START + LASTS_S + np.arange(20) / 100)):
        there, back = chance.exponential(0.002, 2)
        told, answered = shown(clock, asked + there), asked + there + back
        exchanges.append(Exchange(asked=float(asked), told=float(told), answered=float(answered)))
    return MachineRecord(name="a", exchanges=exchanges)


@given(
    clock=st.builds(Clock, st.floats(-5000, 5000), st.floats(-450e-6, 450e-6), st.just(START)),
    seed=st.integers(0, 2**32 - 1),
)
@settings(deadline=None, max_examples=30)
def test_the_true_clock_is_always_within_the_uncertainty(clock: Clock, seed: int) -> None:
    """At the beginning, in the middle and at the end of the load."""
    found = clock_of(told_by(clock, seed))

    for at in (START, START + LASTS_S / 2, START + LASTS_S):
        assert abs(found.corrected(shown(clock, at)) - at) <= found.uncertain_s + 1e-6
    assert found.uncertain_s < 0.02


def test_equal_delays_give_the_clock_exactly() -> None:
    """By hand: each message takes 1 ms, so the middle is the truth, and the clock may be 1 ms ahead or behind."""
    asked = [START, START + LASTS_S]
    told = [Exchange(asked=at, told=at + 0.001 + 7, answered=at + 0.002) for at in asked]

    found = clock_of(MachineRecord(name="a", exchanges=told))

    assert found.ahead_s == pytest.approx(7, abs=1e-6)
    assert found.drift == pytest.approx(0, abs=1e-7)
    assert found.uncertain_s == pytest.approx(0.001, abs=1e-6)


def a_run(folder: Path, machines: Mapping[str, Machine] = APART, requests: list[Request] = FINE, **how: Any) -> Path:
    """Write a run of one trial whose containers ran on several machines, and return the run's folder."""
    takes_s = how.pop("takes_s", 0.001)
    run = make_run(folder, {"one": requests}, **how)
    set_apart(run / "one" / "mix" / "1", machines, takes_s)
    return run


def evidence_of(run: Path) -> tuple[str | None, Clocks | None]:
    """Return why the first trial of a run could not be read, and the clocks that were found."""
    [folder, *_] = trial_folders(run)
    found = derive_raw_trial(run, folder, {})
    return found.problem, found.clocks


def times_of(run: Path) -> list[tuple[float, ...]]:
    """Return sent, answered, began and ended of all requests, in epoch seconds."""
    files = f"{run}/*/*/*/requests.parquet"
    query = f"SELECT epoch(sent), epoch(answered), began, ended FROM '{files}' ORDER BY variant, generator, id"
    return duckdb.execute(query).fetchall()


def test_all_times_of_a_trial_are_by_the_labs_clock(tmp_path: Path) -> None:
    here, apart = make_run(tmp_path / "here", {"one": FINE}), a_run(tmp_path / "apart")
    derive_summary(here)
    summary = derive_summary(apart)

    _, clocks = evidence_of(apart)
    assert clocks
    assert clocks.worst
    *names, apart_s = clocks.worst
    assert names == ["k6-1", "web-1"]
    assert 0.0024 < apart_s < 0.004  # a millisecond for the messages of each machine, and 100 ppm of 14 s
    assert {name: round(one.ahead_s, 2) for name, one in clocks.found.items()} == {"k6-1": -2.5, "web-1": 1234.5}
    assert clocks.found["web-1"].drift == pytest.approx(-8e-5, abs=2e-5)
    assert np.array(times_of(apart)) == pytest.approx(np.array(times_of(here)), abs=0.0015)
    assert summary.validity.verdict == "valid"
    assert summary.validity.reasons[-1] == (
        f"times of several machines were compared: the clocks of k6-1 and web-1 are known to within "
        f"{1000 * apart_s:.2f} ms of each other"
    )
    assert {host: round(told[0], 2) for host, told in summary.clocks[0].hosts.items()} == {"box": 1234.5}


SET = "was set during the load, or gained or lost more than 500 ppm"
CONTRADICT = (
    "the clocks of k6-1 and web-1 contradict each other: one of them was set during the load, or gained or lost more "
    "than 500 ppm"
)


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"web-1": WEB._replace(step_s=30.0, stepped_at=BEGAN.timestamp() + 5)}, f"the clock of web-1 {SET}"),
        ({"k6-1": K6._replace(drift=-0.01)}, f"the clock of k6-1 {SET}"),
        ({"web-1": WEB._replace(step_s=0.007, stepped_at=BEGAN.timestamp() + 1)}, CONTRADICT),
        ({"k6-1": K6._replace(step_s=0.007, stepped_at=BEGAN.timestamp() + 1)}, CONTRADICT),
        ({"web-1": WEB._replace(hosts=["another"])},
         "the clock of box is unknown: trial.json does not say on which machine it ran"),
    ],
    ids=["set by much", "too fast", "set by little", "set on the side of k6", "nobody knows where"],
)  # fmt: skip
def test_a_clock_that_cannot_be_known_makes_a_trial_invalid(
    tmp_path: Path, changed: dict[str, Machine], problem: str
) -> None:
    summary = derive_summary(a_run(tmp_path, APART | changed))

    [trial] = summary.trials
    assert (trial.verdict, trial.reasons) == ("invalid", [problem])
    assert summary.clocks == []


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize(("answers", "when"), [(0, ""), (1, " after the load"), (5, " after the load")])
def test_a_machine_that_the_lab_did_not_ask_makes_a_trial_invalid(
    tmp_path: Path, name: str, answers: int, when: str
) -> None:
    """The machine is lost before its first answer, or after its first or fifth answer, all before the load."""
    run = a_run(tmp_path)
    [folder] = trial_folders(run)
    record = read_trial(folder)
    for place, machine in enumerate(record.machines):
        if machine.name == name:
            record.machines[place] = machine.model_copy(update={"exchanges": machine.exchanges[:answers]})
    write_record(folder / "trial.json", record)

    [trial] = derive_summary(run).trials

    assert trial.verdict == "invalid"
    assert trial.reasons == [f"the clock of {name} is unknown: the lab did not ask {name} for its time{when}"]


def test_a_clock_set_where_no_request_tells_is_as_uncertain_as_the_step(tmp_path: Path) -> None:
    """By hand: 7 ms after the last request, less the drift, and a millisecond for each machine's messages."""
    waiting = [Request(sent_s=n / 10, overhead_ms=150, waits_ms=120) for n in range(100)]
    web = WEB._replace(step_s=0.007, stepped_at=BEGAN.timestamp() + 10.5)
    run = a_run(tmp_path, {"k6-1": K6, "web-1": web}, waiting)

    [trial] = derive_summary(run).trials
    _, clocks = evidence_of(run)

    assert trial.verdict == "suspect"
    assert clocks
    assert clocks.worst
    assert clocks.worst[2] == pytest.approx(0.008, abs=0.002)
    assert clocks.found["web-1"].gained_s > 0.005


@pytest.mark.parametrize(("begins_s", "contradicts"), [(0.05, False), (-0.05, True), (0.15, True)])
def test_an_own_application_may_work_on_after_its_answer_but_not_begin_then(
    tmp_path: Path, begins_s: float, contradicts: bool
) -> None:
    """Each request has its answer after 101 ms, and its worker ends after 200 ms."""
    run = a_run(tmp_path)
    [folder], first = trial_folders(run), BEGAN.timestamp()
    with (folder / "served-gunicorn-1.csv").open("w") as file:
        for number, one in enumerate(FINE, start=1):
            began, ended = (WEB.shows(first + one.sent_s + after_s, first) for after_s in (begins_s, 0.2))
            file.write(f"began,1-{number},box:7,1,,{began:.6f}\nended,1-{number},/,0,0,{ended:.6f}\n")

    problem, _ = evidence_of(run)

    assert ("contradict each other" in (problem or "")) is contradicts


@pytest.mark.parametrize(
    "machines",
    [
        [MachineRecord(name="only", hosts=["box"], generators=["points"])],
        [
            MachineRecord(name="only", hosts=["box", "proxy"], generators=["points"]),
            MachineRecord(name="idle", hosts=["elsewhere"], generators=["points-2"]),
        ],
    ],
)
def test_a_trial_on_one_machine_gives_the_same_bytes_as_without_machines(
    tmp_path: Path, machines: list[MachineRecord], without_pictures: None
) -> None:
    del without_pictures
    plain, named = make_run(tmp_path / "plain", {"one": FINE}), tmp_path / "named"
    shutil.copytree(plain, named)
    [folder] = trial_folders(named)
    write_record(folder / "trial.json", read_trial(folder).model_copy(update={"machines": machines}))
    derive(plain)
    derive(named)

    derived = [name for name in files(plain) if is_derived(name)]
    assert len(derived) == 4
    assert [name for name in derived if (plain / name).read_bytes() != (named / name).read_bytes()] == []
    assert "clocks" not in json.loads((plain / "summary.json").read_text())


def test_a_trial_whose_clocks_do_not_tell_who_waited_is_suspect(tmp_path: Path) -> None:
    """Every request waits 120 ms, and every question for the time takes 200 ms. A stall asks for better clocks."""
    waiting = [Request(sent_s=n / 10, overhead_ms=150, waits_ms=120) for n in range(100)]
    apart, stalled = a_run(tmp_path / "apart", requests=waiting, takes_s=0.2), make_run(tmp_path, {"one": waiting})
    folder, stall = stalled / "one" / "mix" / "1", (BEGAN.timestamp() + 2, BEGAN.timestamp() + 3)
    (folder / "api-1.before.txt").write_text(observation("api", stalls=[]))
    (folder / "api-1.after.txt").write_text(observation("api", stalls=[stall]))
    set_apart(folder, APART | {"web-1": WEB._replace(hosts=["box", "api"])}, 0.2)
    clocks = "the clocks of k6-1 and web-1 are known to within 401.8 ms of each other"
    reasons = [f"{clocks}, but a wait counts from 50 ms on", f"{clocks}, but a wait after a stall counts from 10 ms on"]

    for run, told in ((apart, reasons[:1]), (stalled, reasons)):
        [trial] = derive_summary(run).trials
        assert (trial.verdict, trial.reasons) == ("suspect", told)


def test_stalls_and_several_roles_of_a_machine_are_corrected_too(tmp_path: Path) -> None:
    """The client asks from the machine of the servers, and the service that stalls has a machine of its own."""
    here, apart = tmp_path / "here", tmp_path / "apart"
    for run in (here, apart):
        open_loop_with_an_api_and_a_client(run)
    for folder in trial_folders(apart):
        (folder / "k6-processor.txt").write_text(f"{BEGAN.timestamp() - 1.5} 1\n")
        web = WEB._replace(hosts=["box"], generators=["points-client"])
        set_apart(folder, {"k6-1": K6, "web-1": web, "api-1": Machine(hosts=["api"], ahead_s=-77)})
    on_one, on_three = derive_summary(here), derive_summary(apart)

    [clocks, *_] = on_three.clocks
    assert [*clocks.hosts] == ["box", "api"]
    old, new = (next(row for row in one.rows if row.metric == "recovery") for one in (on_one, on_three))
    assert new.measured == pytest.approx(old.measured, abs=2)
    [folder, *_] = trial_folders(apart)
    found = derive_raw_trial(apart, folder, {})
    [stall] = [one for container in found.containers if container.after for one in container.after.stalls][:1]
    assert stall == pytest.approx((BEGAN.timestamp() + 2, BEGAN.timestamp() + 4), abs=0.002)
    assert found.generators[0][0].at == pytest.approx(BEGAN.timestamp() - 1.5 + 2.5, abs=0.001)


def test_event_loops_on_another_machine_were_held_up_when_requests_waited_for_them(tmp_path: Path) -> None:
    """The second request waits for 50 ms, the last 40 ms of them for the loop."""
    late = Request(sent_s=2, overhead_ms=50, waits_ms=50)
    run = a_run(tmp_path, requests=[Request(sent_s=1), late])
    summary = derive_summary(run)
    [folder] = trial_folders(run)
    first = BEGAN.timestamp()
    at = WEB.shows(first + 2.05, first + 1)
    (folder / "served-gunicorn-1.csv").write_text(f"held,,box:7,7,0.04,{at:.6f}\n")

    with opened([folder]) as rows:
        [stall] = read_stalls(rows, run, summary, "one", {}).stalls

    assert stall.what == "held"
    assert stall.total_s == pytest.approx(0.04)
    assert stall.lost_s == pytest.approx(0.04, abs=0.002)


def test_a_real_run_on_two_machines_says_what_it_said_on_one(tmp_path: Path) -> None:
    """Its points are those of a run on one machine, as two machines with other clocks would have written them."""
    here = unpack("keep-alive", tmp_path)
    on_one, apart = derive_summary(here), shutil.copytree(here, tmp_path / "apart")
    hosts = sorted({row.worker.rpartition(":")[0] for row in on_one.workers})
    for folder in trial_folders(apart):  # 80 ppm of a minute are 5 ms
        set_apart(folder, {"k6-1": K6, "web-1": WEB._replace(hosts=hosts, drift=-2e-5)}, 0.0002)
    (apart / "manifest.sha256").unlink()

    on_two = derive_summary(apart)

    assert on_two.trials == on_one.trials
    assert len(on_two.clocks) == len(on_two.trials)
    old, new = ({(row.quantity, trial): value for row in one.rows for trial, value in row.values.items()}
                for one in (on_one, on_two))  # fmt: skip
    assert new == pytest.approx(old, rel=1e-3, abs=1)
