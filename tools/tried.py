"""Try the lab on this machine's engine, and add what ran to docs/reference/tried.json.

    PYTHONPATH=. .venv/bin/python -m tools.tried [--wrong "what was wrong and is mended"]

It sets the engine up, measures heavy-mix and a small service, exports and verifies a run, runs the tests that need
containers, and counts what is left. ``DOCKER_HOST`` chooses the engine (tools/newer-engine.sh starts a newer one).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from lab.engine.facts import TRIED, ask_engine, combinations
from lab.paths import ROOT

_SERVICE = {
    "app.py": "import time\nfrom flask import Flask\n\napp = Flask(__name__)\n\n\n@app.route('/')\ndef home():\n"
    "    time.sleep(0.02)\n    return 'home'\n\n\n@app.route('/report')\ndef report():\n    time.sleep(1)\n"
    "    return 'report'\n",
    "requirements.txt": "flask==3.1.3\ngunicorn==27.0.1\n",
    "Procfile": "web: gunicorn -w 2 --threads 2 app:app\n",
}


def main() -> int:
    """Run everything, write the row, and return 0 if an engine answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wrong", default="")
    wrong = parser.parse_args().wrong
    facts = ask_engine()
    if facts is None:
        print("No container engine answers.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="stampede-tried-", dir=Path.home()) as place:
        ran = {}
        for what, result in _steps(Path(place)):
            print(f"{what}: {result}", flush=True)
            ran[what] = result
    row = {
        "kind": facts.kind,
        "date": datetime.now(UTC).date().isoformat(),
        "engine": f"{facts.name} {facts.version}",
        "system": facts.system,
        "ran": ran,
        "wrong": wrong,
    }
    others = [each for each in combinations() if each["kind"] != facts.kind]
    TRIED.write_text(json.dumps([*others, row], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


def _steps(place: Path) -> Iterator[tuple[str, str]]:
    """Yield what ran, and its result in words."""
    results = ("--results", str(place / "results"))
    yield "set-up", _ending(_lab("setup"))
    said = _lab("run", "heavy-mix", *results)
    yield "heavy-mix", _line(said, r"\d+ of \d+ claims hold|\d+ of \d+ claims: .*")
    latest = place / "results" / "heavy-mix" / "latest"
    yield "export", _ending(_lab("export", str(latest), "--to", str(place / "heavy-mix.tar.gz")))
    yield "verify", _ending(_lab("verify", str(latest)))
    shop = place / "shop"
    shop.mkdir()
    for name, text in _SERVICE.items():
        (shop / name).write_text(text, encoding="utf-8")
    file = place / "shop.yaml"
    _lab("init", str(shop), "--to", str(file))
    tried = _lab("try", str(file), "--duration", "10s", "--trials", "1", *results)
    yield "own service", _line(tried, r"[\d.]+%.*waited|Better than today's.*|No request.*")
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/containers"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    yield "tests/containers", _line(tests, r"\d+ (passed|failed).*")
    left = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", "label=stampede.owner"],
        capture_output=True,
        text=True,
        check=True,
    )
    yield "left behind", f"{len(left.stdout.split())} containers"


def _lab(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "lab", *command],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def _ending(done: "subprocess.CompletedProcess[str]") -> str:
    return "works" if done.returncode == 0 else f"exit code {done.returncode}: {(done.stderr.splitlines() or [''])[0]}"


def _line(done: "subprocess.CompletedProcess[str]", pattern: str) -> str:
    found = [match[0] for match in re.finditer(pattern, done.stdout)]
    return found[-1] if found else _ending(done)


if __name__ == "__main__":
    sys.exit(main())
