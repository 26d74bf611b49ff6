"""tools.tests: what make test runs, and how it counts."""

import re
from pathlib import Path

import pytest

from tools.tests import run_all


@pytest.fixture(autouse=True)
def without_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start each pytest in a third of the time."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_a_part_that_fails_hides_no_other_and_one_count_of_all_comes_last(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_a.py").write_text("def test_good(): pass\n\n\ndef test_bad(): assert False\n")
    (tmp_path / "test_b.py").write_text("import pytest\n\n\ndef test_fine(): pass\n\n\ndef test_not(): pytest.skip()\n")
    parts = [[str(tmp_path / name)] for name in ("test_a.py", "test_b.py")]

    code = run_all([["false"], ["true"]], parts)

    *_, check, test, last = capfd.readouterr().out.splitlines()
    assert code == 1
    assert (check, test) == ("FAILED false", "FAILED test_a::test_bad")
    assert re.fullmatch(r"2 passed, 1 failed, 1 skipped in \d+ s", last)
    assert run_all([["true"]], parts[1:]) == 0


def test_a_part_whose_tests_are_not_counted_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "test_a.py").write_text("import os\n\n\ndef test_gone(): os._exit(7)\n")
    (tmp_path / "test_b.py").write_text("def test_fine(): pass\n")

    code = run_all([], [[str(tmp_path / "test_a.py")], [str(tmp_path / "test_b.py")]])

    *_, part, last = capfd.readouterr().out.splitlines()
    assert (code, part) == (1, f"FAILED pytest {tmp_path / 'test_a.py'} ended with 7")
    assert last.startswith("1 passed, 0 failed, 0 skipped in ")
