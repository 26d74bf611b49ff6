"""What workers write to their output: measured, and said of a log that lacks its beginning."""

from pathlib import Path

from stampede.evaluate.metrics.servers import megabytes
from stampede.evaluate.read.observation import SENT, WRITTEN, parse
from stampede.pipeline import derive_summary
from stampede.records.run import ContainerLog
from stampede.run.trial.observing import LogStart, log_record
from tests.synthetic import Request, make_run, make_trial, observation

INTERFACES = """\
Inter-|   Receive                            |  Transmit
 face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs drop fifo colls carrier compressed
    lo: 700 1 0 0 0 0 0 0 900 1 0 0 0 0 0 0
  eth0: 500 7 0 0 0 0 0 0 {sent} 4 0 0 0 0 0 0
"""
TEN = [Request(worker=f"box:{7 + number % 2}", sent_s=number) for number in range(10)]


def writing(written: int, sent: int, served: dict[int, int]) -> str:
    """Return an observation of a server whose two processes wrote so much, and which sent so much."""
    wrote = f"==> {WRITTEN} <==\nwchar: {written - 100}\nwchar: 100\n"
    return f"{wrote}==> {SENT} <==\n{INTERFACES.format(sent=sent)}{observation('box', served)}"


def output_of(tmp_path: Path, log: ContainerLog, *, written: int = 0, sent: int = 0) -> tuple[float | None, list[str]]:
    """Return the output of a request, and the reasons to doubt, of ten requests of a server with such a log."""
    run = make_run(tmp_path, {"one": TEN})
    folder = make_trial(run, "one", 1, TEN, logs={"server-1": log})
    (folder / "server-1.before.txt").write_text(writing(1000, 50, {7: 0, 8: 0}))
    (folder / "server-1.after.txt").write_text(writing(1000 + written, 50 + sent, {7: 5, 8: 5}))
    summary = derive_summary(run)
    found = [row.measured for row in summary.rows if (row.metric, row.stat) == ("output", "per_request")]
    return (found[0] if found else None), summary.validity.reasons


def test_what_processes_wrote_and_what_was_sent_is_read() -> None:
    seen = parse(writing(5000, 321, {7: 1}))

    assert (seen.written, seen.sent) == (5000, 321)
    assert (parse(observation("box")).written, parse(observation("box")).sent) == (None, None)


def test_the_output_of_a_request_is_what_the_log_grew_by(tmp_path: Path) -> None:
    """Files that the application writes do not count."""
    output, reasons = output_of(tmp_path, ContainerLog(kept=2500, before=500), written=1_000_000)

    assert output == 200
    assert "log" not in " ".join(reasons)


def test_the_output_of_a_cut_log_is_what_was_written_and_not_sent(tmp_path: Path) -> None:
    output, reasons = output_of(
        tmp_path, ContainerLog(kept=1_800_000, before=500, cut=True), written=133_000_000, sent=3_000_000
    )

    assert output == 13_000_000
    assert any("the log of server-1 is missing: the last 1.8 MB of about 133 MB are kept" in one for one in reasons)


def test_a_record_without_logs_has_no_output(tmp_path: Path) -> None:
    run = make_run(tmp_path, {"one": TEN})

    assert not [row for row in derive_summary(run).rows if row.metric == "output"]


def test_a_log_is_cut_if_its_first_line_is_another_one() -> None:
    """All lines say the same, but their times differ."""
    before = LogStart(b"2026-01-02T03:04:05.1Z tick\n", 5)

    later = b"2026-01-02T03:04:09.2Z tick\n"

    assert not log_record(b"tick\ntick\n", before.line + later, before).cut
    assert log_record(b"tick\ntick\n", later + later, before) == ContainerLog(kept=10, before=5, cut=True)
    assert not log_record(b"tick\n", b"2026-01-02T03:04:09.2Z tick\n", LogStart(b"", 0)).cut


def test_sizes_are_told_in_the_unit_that_reads_best() -> None:
    assert [megabytes(size) for size in (500, 20_000, 1_800_000, 133_000_000)] == [
        "0.5 kB",
        "20.0 kB",
        "1.8 MB",
        "133 MB",
    ]
