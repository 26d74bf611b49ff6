"""theory against another simulator, where this takes long."""

import pytest

from tests.quick import test_theory


@pytest.mark.parametrize("shared", [True])
def test_simpy_agrees(shared: bool) -> None:
    test_theory.test_simpy_agrees(shared)
