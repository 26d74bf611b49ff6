"""What the tests of the engine share."""

import subprocess
import sys

import pytest

from lab.paths import ROOT


@pytest.fixture(scope="session")
def own_images() -> None:
    """Build the lab's own images once, because no test of this folder builds a broken image."""
    subprocess.run([sys.executable, "-m", "lab", "setup"], cwd=ROOT, check=True, capture_output=True)
