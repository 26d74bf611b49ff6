"""Messages name commands in the language that was typed."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from stampede.paths import ROOT
from stampede.typed import MAKES, VALUES, option, typed


@pytest.mark.parametrize(
    ("said", "plain", "make"),
    [
        (lambda: typed("run", "heavy-mix", "--trials", 5), "stampede run heavy-mix --trials 5",
         "make experiment NAME=heavy-mix TRIALS=5"),
        (lambda: typed("report", Path("my runs"), "--tables"), "stampede report 'my runs' --tables",
         "make report RUN='my runs' TABLES=1"),
        (lambda: typed("lesson", 3), "stampede lesson 3", "make lesson STEP=3"),
        (lambda: typed("diagnose", "nginx.log"), "stampede diagnose nginx.log", "stampede diagnose nginx.log"),
        (lambda: option("trials", 5), "--trials 5", "TRIALS=5"),
        (lambda: option("solution"), "--solution", "SOLUTION=1"),
        (lambda: option("budget", "5m"), "--budget 5m", "--budget 5m"),
    ],
)  # fmt: skip
def test_a_command_is_a_target_for_who_typed_make(
    monkeypatch: pytest.MonkeyPatch, said: Callable[[], str], plain: str, make: str
) -> None:
    monkeypatch.delenv(MAKES, raising=False)
    assert said() == plain

    monkeypatch.setenv(MAKES, "make")
    assert said() == make


def test_the_makefile_says_that_make_was_typed() -> None:
    told = subprocess.run(["make", "-n", "down"], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    assert f"{MAKES}=make .venv/bin/stampede down" in told


def test_each_option_of_a_target_is_a_variable_of_the_makefile() -> None:
    """What ``option`` writes for make, make understands."""
    makefile = (ROOT / "Makefile").read_text()
    for name in VALUES:
        assert f"{name.upper()},{name})" in makefile or f'--{name} "$${name.upper()}"' in makefile, name
