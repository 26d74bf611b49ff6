"""IdleThreadWorker under the releases of gunicorn between the oldest and the newest."""

import pytest

from tests.boxes import BoxOf
from tests.engine import test_idle_thread


@pytest.mark.parametrize("release", ["25.3.0", "26.2.0"])
def test_what_clients_of_the_idle_thread_worker_see(box_of: BoxOf, release: str) -> None:
    test_idle_thread.test_what_clients_of_the_idle_thread_worker_see(box_of, release)
