"""clients: two that misbehave as k6 cannot, and rows that stampede.evaluate.read.rows makes of their points."""

import time
from pathlib import Path

import pytest

from tests.whole.test_clients import CLIENTS, finish, rows, scripted, start


@pytest.mark.parametrize("client", CLIENTS)
def test_a_server_that_never_answers_cannot_hold_a_client_for_more_than_a_minute(client: str, tmp_path: Path) -> None:
    with scripted(answer=None) as server:
        began = time.monotonic()
        code, said = finish(start(client, tmp_path, server.address))
        took_s = time.monotonic() - began

    assert (code, said) == (0, "requests had no answer 55 s after the load and were cut off\n")
    assert {row["error"] for row in rows(tmp_path)} == {"no answer before the end of the run"}
    assert took_s < 61, "the longest that a client may take: DURATION, START_AFTER and a minute"
