"""IdleThreadWorker accepts only while a thread is idle, keeps connections alive, and does not wait for silent ones."""

import json
from pathlib import Path

import pytest

from tests import idle_thread_site
from tests.boxes import BoxOf


@pytest.mark.parametrize("release", ["24.1.1", "27.0.1"])  # tests/soak has the others
def test_what_clients_of_the_idle_thread_worker_see(box_of: BoxOf, release: str) -> None:
    site = Path(idle_thread_site.__file__).read_text(encoding="utf-8")
    run = 'mkdir /tmp/site; cd /tmp/site; printf "%s" "$SITE" > served.py; PYTHONPATH=/srv:. exec python served.py'

    done = box_of(f"stampede/gunicorn:{release}").run(run, {"SITE": site})

    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["shared"] == [2, 2], "as many slow requests as threads: none waits, so each worker serves two"
    assert seen["kept"] == [1, True, True], "an idle connection is closed when the last thread gets work"
    assert seen["beside_closed"] == [True, True], "clients that only connect and go take no thread"
    assert seen["beside_silent"] == [8, 6, "HTTP/1.1 200 OK"]
    assert seen["ended"] == [True, 0]
