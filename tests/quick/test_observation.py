"""evaluate.read.observation: what containers and the load generator said of themselves is read exactly or refused."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stampede.evaluate.read.observation import (
    Reading,
    UnreadableObservation,
    parse,
    read_containers,
    read_generators,
    stalls_within,
)
from tests.synthetic import observation


def test_every_count_is_read() -> None:
    seen = parse(observation(
        "box", {7: 12, 8: 30}, sockets={7: [100], 8: [100, 101]}, overflows=3, throttled_s=1.5, out_of_memory=2,
        balanced=9, counts={8: {"accepted": 4}}, processor_s=2.5, memory_mib=36,
    ))  # fmt: skip

    assert seen.counts == {7: {"served": 12}, 8: {"served": 30, "accepted": 4}}
    assert (seen.host, seen.workers) == ("box", {7, 8})
    assert seen.holds == {7: {100}, 8: {100, 101}}
    assert (seen.listen_overflows, seen.throttled_s, seen.out_of_memory, seen.balanced) == (3, 1.5, 2, 9)
    assert (seen.processor_s, seen.memory_mib, seen.stalls) == (2.5, 36, ())


def test_a_worker_that_is_dead_is_remembered_and_does_not_live() -> None:
    seen = parse(observation(served={7: 12, 8: 30}, sockets={8: [100]}))

    assert seen.counts == {7: {"served": 12}, 8: {"served": 30}}
    assert seen.workers == {8}


def test_a_socket_that_was_closed_before_it_was_named_is_not_held() -> None:
    """Find prints the folder of such a socket, and no name."""
    text = observation("box", {7: 12}, sockets={7: [100]})
    heading = "==> sockets of processes <==\n"
    assert heading in text

    seen = parse(text.replace(heading, f"{heading}/proc/7/fd \n/proc/8/fd \n"))

    assert seen.holds == {7: {100}, 8: set()}


@pytest.mark.parametrize("left", ["usage_usec 1500000\n", None])
def test_what_the_kernel_does_not_report_is_unknown_and_not_zero(left: str | None) -> None:
    """A control group of version 2 without a CPU controller has usage_usec alone, and the root group has no file."""
    text = observation(processor_s=1.5).replace("usage_usec 1500000\nthrottled_usec 0\n", left or "")
    if left is None:
        text = text.replace("/sys/fs/cgroup/cpu.stat", "elsewhere")
    text = text.replace("oom_kill 0\n", "")

    seen = parse(text)

    assert (seen.throttled_s, seen.out_of_memory) == (None, None)
    assert seen.processor_s == (None if left is None else 1.5)


def test_the_older_kind_of_control_groups_is_read_too() -> None:
    text = observation().replace("/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat")
    text = text.replace("throttled_usec 0", "nr_throttled 4\nthrottled_time 2500000000")
    text = text.replace("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")
    text = text.replace("/sys/fs/cgroup/memory.stat", "/sys/fs/cgroup/memory/memory.stat").replace("anon ", "rss ")
    text += "==> /sys/fs/cgroup/cpuacct/cpuacct.usage <==\n1500000000\n"

    seen = parse(text)

    assert (seen.throttled_s, seen.out_of_memory, seen.processor_s, seen.memory_mib) == (2.5, 0, 1.5, 30)


def test_a_database_tells_who_wrote_its_rows_and_how_many_connections_it_had() -> None:
    """An empty line is a row that names no visit."""
    counts = {"connections_max": 151, "connections_refused": 4}

    seen = parse(observation(rows=["17", "", "18", ""], database=counts))

    assert (seen.rows, seen.database) == (("17", "", "18", ""), counts)
    assert parse(observation(rows=[])).rows == ()
    assert (parse(observation()).rows, parse(observation()).database) == (None, {})


def test_stalls_are_read_and_only_those_within_the_load_are_taken(tmp_path: Path) -> None:
    """The first begins before the load does, the last ends after it."""
    (tmp_path / "api-1.after.txt").write_text(observation("api", stalls=[(9, 11), (30.000001, 35), (12, 20), (39, 41)]))
    (tmp_path / "api-2.after.txt").write_text(observation("api", stalls=[]))

    containers = read_containers(tmp_path)

    assert [one.after.stalls for one in containers if one.after] == [
        ((9, 11), (30.000001, 35), (12, 20), (39, 41)), (),
    ]  # fmt: skip
    assert stalls_within(containers, 10, 40) == ((12, 20), (30.000001, 35))


@pytest.mark.parametrize(
    ("section", "line", "message"),
    [
        ("stalls", "12", "not enough values to unpack"),
        ("stalls", "12 13 14", "too many values to unpack"),
        ("stalls", "a b", "could not convert string to float: 'a'"),
        *(("stalls", bad, f"a stall has no sound beginning and end: {bad}") for bad in ("13 12", "nan nan", "12 inf")),
        ("database", "connections_max", "dictionary update sequence"),
        ("database", "connections_max many", "invalid literal for int"),
    ],
)
def test_a_line_that_makes_no_sense_is_refused(section: str, line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(f"{observation()}==> {section} <==\n{line}\n")


def test_a_container_that_was_gone_afterwards_has_no_second_observation(tmp_path: Path) -> None:
    (tmp_path / "server-1.before.txt").write_text(observation())

    [container] = read_containers(tmp_path)

    assert (container.name, container.before is None, container.after is None) == ("server-1", False, True)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("server-1.after.txt", observation()[:60],
         "is not an observation: 'listening sockets: port in hexadecimal, inode'"),
        ("k6-processor.txt", "a b\n", "cannot be read: could not convert string to float: 'a'"),
    ],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_named(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(UnreadableObservation) as caught:
        (read_generators if "k6" in name else read_containers)(tmp_path)

    assert str(caught.value) == f"{tmp_path}/{name} {why}"


def test_the_readings_of_each_generator_are_seconds(tmp_path: Path) -> None:
    (tmp_path / "k6-processor.txt").write_text("1700000000 500000000\n1700000001 600000000\n")
    (tmp_path / "k6-processor-2.txt").write_text("1700000002 700000000\n")

    assert set(read_generators(tmp_path)) == {
        (Reading(at=1_700_000_000, waited_s=0.5), Reading(at=1_700_000_001, waited_s=0.6)),
        (Reading(at=1_700_000_002, waited_s=0.7),),
    }


def test_a_generator_that_ended_at_once_left_no_reading(tmp_path: Path) -> None:
    assert read_generators(tmp_path) == ()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cut=st.tuples(st.integers(0, 400), st.integers(0, 400)), put=st.text(max_size=20), processor=st.text(max_size=30)
)
def test_no_text_makes_the_reader_fail_otherwise(
    tmp_path: Path, cut: tuple[int, int], put: str, processor: str
) -> None:
    whole = observation(served={7: 1}, balanced=3)
    (tmp_path / "server-1.before.txt").write_text(whole[: cut[0]] + put + whole[cut[1] :], encoding="utf-8")
    (tmp_path / "k6-processor.txt").write_text(processor, encoding="utf-8")

    with contextlib.suppress(UnreadableObservation):
        read_containers(tmp_path)
    with contextlib.suppress(UnreadableObservation):
        read_generators(tmp_path)
