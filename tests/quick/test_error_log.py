"""gunicorn's error log beside access logs."""

import json
from pathlib import Path

import pytest

from stampede.errors import WrongUse
from stampede.logs.diagnose.diagnosis import Asked, diagnose_logs
from stampede.logs.diagnose.screen import findings_in_words
from stampede.logs.error_log import events_in, in_order, is_error_log
from tests.conftest import Lab
from tests.whole.test_diagnose import serve
from tests.whole.test_pairs_of_logs import SERVERS, write
from tools.production_logs import Writing, write_logs

ERRORS = """\
[2026-11-18 11:06:50 +0000] [1] [INFO] Starting gunicorn 27.0.1
[2026-11-18 11:07:00 +0000] [1] [CRITICAL] WORKER TIMEOUT (pid:51)
[2026-11-18 11:07:01 +0000] [1] [ERROR] Worker (pid:51) was sent SIGKILL! Perhaps out of memory?
[2026-11-18 11:07:01 +0000] [60] [INFO] Booting worker with pid: 60
[2026-11-18 11:07:09 +0000] [1] [CRITICAL] WORKER TIMEOUT (pid:52)
[2026-11-18 11:07:10 +0000] [1] [ERROR] Worker (pid:52) was sent SIGKILL! Perhaps out of memory?
[2026-11-18 11:07:10 +0000] [1] [ERROR] Worker (pid:52) exited with code 1.
[2026-11-18 11:07:20 +0000] [1] [ERROR] Worker (pid:53) was sent SIGKILL! Perhaps out of memory?
[2026-11-18 11:07:30 +0000] [60] [INFO] Autorestarting worker after current request.
"""


def test_an_error_log_says_which_workers_ended_and_why() -> None:
    """SIGKILL after a WORKER TIMEOUT is no sign of memory, whatever gunicorn suggests."""
    assert [(event.pid, event.kind) for event in in_order(events_in(ERRORS.splitlines()))] == [
        (51, "timeout"), (52, "timeout"), (53, "killed"), (60, "replaced"),
    ]  # fmt: skip
    later = ERRORS.splitlines()[2].replace(" 11:", " 15:")  # another worker with the number of one that was too late
    assert in_order(events_in([*ERRORS.splitlines(), later]))[-1][1:] == (51, "killed")


LINES = {
    "Nov 18 11:07:00 web-1 gunicorn[1]: [2026-11-18 11:07:00 +0000] [1] [CRITICAL] WORKER TIMEOUT (pid:51)": "timeout",
    '{"log":"[2026-11-18 11:07:00 +0000] [1] [ERROR] Worker (pid:51) was sent SIGSEGV!\\n"}': "crashed",
    "2026-11-18T11:07:00.123456789Z INFO:     Child process [51] died": "died",
    "Wed Nov 18 11:07:00 2026 - *** HARAKIRI ON WORKER 1 (pid: 51, try: 1) ***": "timeout",
    "2026-11-18T11:07:00Z DAMN ! worker 1 (pid: 51) died, killed by signal 9 :( trying respawn ...": "killed",
    "2026-11-18T11:07:00+00:00 web-1 kernel: Out of memory: Killed process 51 (gunicorn) total-vm:9kB": "memory",
    "2026/11/18 11:07:00 [error] 9#51: *7 connect() to unix:/run/a.sock failed (11: Resource temporarily unavailable) "
    "while connecting to upstream, client: 192.0.2.1": "queue_full",
    "2026/11/18 11:07:00 [error] 9#51: *7 connect() to unix:/run/a.sock failed (2: No such file or directory) while "
    "connecting to upstream, client: 192.0.2.1": "refused",
    "2026/11/18 11:07:00 [error] 9#51: *7 upstream prematurely closed connection while reading": "closed",
    "2026/11/18 11:07:00 [error] 9#51: *7 upstream timed out (110: Connection timed out) while reading response header "
    "from upstream": "late",
}


@pytest.mark.parametrize(("line", "kind"), LINES.items())
def test_error_logs_of_several_programs_are_read(line: str, kind: str) -> None:
    """As the programs write them, or as journald, docker and a cluster write them down."""
    [event] = events_in([line])

    assert (event.kind, event.at) == (kind, 1_795_000_020 + (0.123456 if ".123" in line else 0))
    assert event.pid == (51 if "nginx" not in line and "#" not in line else 0)


@pytest.mark.parametrize("mixed", [False, True])
def test_the_answer_names_the_ends_of_workers(lab: Lab, tmp_path: Path, *, mixed: bool) -> None:
    """In a file of its own, or between the lines of the access log, as a container prints both."""
    nginx, gunicorn = write_logs(serve(), tmp_path, Writing())
    error = gunicorn if mixed else tmp_path / "error.log"
    error.write_text((gunicorn.read_text() if mixed else "") + ERRORS + [*LINES][-1] + "\n")

    found = diagnose_logs(Asked([*{nginx, gunicorn, error}], {nginx: "balancer", gunicorn: "server"}))

    said = " ".join(findings_in_words(found))
    assert "The error log: the server killed 2 workers at its time limit, from 11:07:00 to 11:07:09." in said
    assert "The error log: 1 worker got SIGKILL, perhaps because memory ran out, at 11:07:20." in said
    assert "The error log: 1 worker ended after max_requests or a time to live, at 11:07:30." in said
    assert "The error log: for 1 request, the answer took longer than nginx waits, at 11:07:00." in said
    assert len(found.requests) == len(serve())
    logs = {str(path): None for path in (nginx, gunicorn, error)}
    values = json.loads(lab.call("diagnose", *logs, "--json").stdout)
    assert [event["kind"] for event in values["events"]] == ["timeout", "late", "timeout", "killed", "replaced"]


def test_an_error_log_alone_has_no_requests(tmp_path: Path) -> None:
    log = tmp_path / "error.log"
    log.write_text(ERRORS)

    assert is_error_log(log)
    late = tmp_path / "gunicorn.log"  # its first request comes late, or its logger looks like that of errors
    late.write_text(4 * ERRORS + '192.0.2.1 - - [18/Nov/2026:11:08:00 +0000] "GET / HTTP/1.1" 200 5 "-" "-" 0.004\n')
    assert not is_error_log(late)
    assert not is_error_log(write(tmp_path / "s.log", serve()[:30], SERVERS["hypercorn behind its logger"]))
    with pytest.raises(WrongUse, match=r"error\.log is an error log") as raised:
        diagnose_logs(Asked([log], {}))
    assert f"stampede diagnose nginx.log gunicorn.log {log}" in str(raised.value.hint)
