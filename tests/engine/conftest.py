"""What the tests of the engine share."""

import subprocess
import sys

import pytest

from stampede.paths import ROOT


def build_own_images() -> None:
    """Build the images from the lab's own files."""
    subprocess.run([sys.executable, "-m", "stampede", "setup"], cwd=ROOT, check=True, capture_output=True)


@pytest.fixture(scope="session")
def own_images() -> None:
    """Build the images once: a module of this folder that builds broken images builds them again afterwards."""
    build_own_images()
