"""Run the checks and all parts of the tests, even if one of them fails, and count the tests of all parts together.

Usage: python -m tools.tests [options of pytest]. The exit code is 0 if nothing failed.
"""

import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from stampede.paths import ROOT

CHECKS = (["make", "--no-print-directory", "--keep-going", "-j2", "setup", "check", ".venv/browser"],)
"""The commands before the tests: images are built while packages are installed and types are checked."""
PARTS = (
    ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder", "tests/engine", "tests/whole", "tests/quick"],
    ["tests/containers"],
)
"""What pytest gets: first a part in which one of three processes mostly waits for the engine, then what measures."""
INTERRUPTED = 2


def run_all(checks: Sequence[list[str]], parts: Sequence[list[str]], options: Sequence[str] = ()) -> int:
    """Run commands, then pytest for each part, and print one count. Return the exit code."""
    failed = [" ".join(command) for command in checks if subprocess.run(command, cwd=ROOT, check=False).returncode]
    counts: Counter[str] = Counter()
    seconds = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for number, part in enumerate(parts):
            report = Path(folder, f"{number}.xml")
            command = [sys.executable, "-m", "pytest", f"--junit-xml={report}", *part, *options]
            code = subprocess.run(command, cwd=ROOT, check=False).returncode
            if report.exists():
                suite = ElementTree.parse(report).getroot()[0]  # noqa: S314  # pytest wrote it
                counts.update({name: int(suite.attrib[name]) for name in ("tests", "failures", "errors", "skipped")})
                seconds += float(suite.attrib["time"])
                bad = [case for case in suite if case.find("failure") is not None or case.find("error") is not None]
                failed += [f"{case.attrib['classname']}::{case.attrib['name']}" for case in bad]
            if code and not (report.exists() and bad):
                failed.append(f"pytest {' '.join(part)} ended with {code}")
            if code == INTERRUPTED:
                break
    print("", *(f"FAILED {name}" for name in failed), sep="\n")
    wrong = counts["failures"] + counts["errors"]
    passed = counts["tests"] - wrong - counts["skipped"]
    print(f"{passed} passed, {wrong} failed, {counts['skipped']} skipped in {seconds:.0f} s")
    return int(bool(failed))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)  # pytest hears of Ctrl-C itself, and removes its containers first
    sys.exit(run_all(CHECKS, PARTS, sys.argv[1:]))
