"""The commands of docs/how-to/by-hand.md, as somebody types them."""

import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stampede.paths import ROOT
from tests.conftest import PATIENCE_S, wait_until

BY_HAND = (ROOT / "docs" / "how-to" / "by-hand.md").read_text(encoding="utf-8")


@pytest.fixture
def by_hand(tmp_path: Path) -> Iterator[tuple[dict[str, str], list[str]]]:
    """The environment and the first commands of docs/how-to/by-hand.md, and the way back."""
    section = BY_HAND[: BY_HAND.index("## Django")]
    commands = [line.strip() for line in section.splitlines() if line.startswith("    ")]
    assert len(commands) == 5
    environment = os.environ | {
        "LAB_PORT": "18080", "COMPOSE_PROJECT_NAME": "stampede-readme", "LAB_RESULTS": str(tmp_path),
    }  # fmt: skip
    yield environment, commands
    subprocess.run(["sh", "-c", commands[-1]], cwd=ROOT, env=environment, check=True, capture_output=True)


@pytest.mark.usefixtures("own_images")
def test_the_commands_by_hand_work(by_hand: tuple[dict[str, str], list[str]], tmp_path: Path) -> None:
    environment, commands = by_hand
    _, up, curl, load, _ = commands

    subprocess.run(["sh", "-c", up], cwd=ROOT, env=environment, check=True, capture_output=True)
    url = curl.split("'")[1].replace(":8080", ":18080")

    def answer() -> bytes:
        with suppress(OSError), urllib.request.urlopen(url, timeout=PATIENCE_S) as found:  # loopback
            assert found.status == 200
            return bytes(found.read())
        return b""

    assert b'"worker"' in wait_until(answer, every_s=0.2)
    short = load.replace(" k6", " -T -e DURATION=2s -e HEAVY_DELAY_S=0.1 k6")
    subprocess.run(["sh", "-c", short], cwd=ROOT, env=environment, check=True, capture_output=True)
    assert (tmp_path / "points.json.gz").stat().st_size > 0


@pytest.mark.usefixtures("own_images")
def test_the_commands_by_hand_start_django_with_its_database(
    by_hand: tuple[dict[str, str], list[str]], tmp_path: Path
) -> None:
    """One shell runs them all, as somebody's would."""
    environment, _ = by_hand
    section = BY_HAND[BY_HAND.index("## Django") :]
    export, up, curl, load = (line.strip() for line in section.splitlines() if line.startswith("    "))
    short = load.replace(" k6", " -T -e DURATION=2s -e RATES_PER_S=5 -e STEP_LASTS_S=2 k6")
    patient = curl.replace("curl", "curl --silent --fail --retry 120 --retry-all-errors --retry-delay 1")
    script = f"set -e; {export}; {up}; {patient.replace(':8080', ':18080')}; {short}"

    done = subprocess.run(["sh", "-c", script], cwd=ROOT, env=environment, check=True, capture_output=True, text=True)

    assert '<form method="post">' in done.stdout
    assert (tmp_path / "points.json.gz").stat().st_size > 0
