"""Try the lab on this machine's engine, and add what ran to docs/reference/tried.json.

    PYTHONPATH=. .venv/bin/python -m tools.tried [--wrong "what was wrong and is mended"] [--measured OPTIONS] [STEP …]

The steps set the engine up, measure heavy-mix and a small service, export and verify a run, run the tests that need
containers, and count what is left. If only some are named, the row keeps the results of the others. ``DOCKER_HOST``
chooses the engine (tools/newer-engine.sh starts a newer one; tools/newer-machine.sh runs this on a newer machine).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from stampede.docker.commands import output
from stampede.docker.facts import TRIED, EngineFacts, ask_engine, combinations
from stampede.docker.processor import cpuinfo, model_name
from stampede.paths import ROOT

_SERVICE = {
    "app.py": "import time\nfrom flask import Flask\n\napp = Flask(__name__)\n\n\n@app.route('/')\ndef home():\n"
    "    time.sleep(0.02)\n    return 'home'\n\n\n@app.route('/report')\ndef report():\n    time.sleep(1)\n"
    "    return 'report'\n",
    "requirements.txt": "flask==3.1.3\ngunicorn==27.0.1\n",
    "Procfile": "web: gunicorn -w 2 --threads 2 app:app\n",
}


def main() -> int:
    """Run the steps, write the row, and return 0 if an engine answers."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--wrong", default="")
    parser.add_argument("--measured", default="", help="options of stampede run, with which heavy-mix is measured")
    parser.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    given = parser.parse_args()
    if unknown := set(given.steps) - STEPS.keys():
        parser.error(f"no steps: {', '.join(sorted(unknown))}; there are {', '.join(STEPS)}")
    facts = ask_engine()
    if facts is None:
        print("No container engine answers.", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="stampede-tried-", dir=Path.home()) as place:
        for step in given.steps or STEPS:
            result = STEPS[step](Path(place), given.measured)
            print(f"{step}: {result}", flush=True)
            _write(facts, {step: result}, given.wrong)
    return 0


def _write(facts: EngineFacts, ran: dict[str, str], wrong: str) -> None:
    """Add to the row of this kind of machine what ran, with its result in words."""
    rows = {each["kind"]: each for each in combinations()}
    before = rows.get(facts.kind, {"ran": {}, "wrong": ""})
    results = before["ran"] | ran
    rows[facts.kind] = {
        "kind": facts.kind,
        "date": datetime.now(UTC).date().isoformat(),
        "engine": f"{facts.name} {facts.version}",
        "system": ", on ".join(filter(None, [facts.system, model_name(cpuinfo())])),
        "ran": {step: results[step] for step in STEPS if step in results},
        "wrong": wrong or before["wrong"],
    }
    TRIED.write_text(json.dumps([*rows.values()], indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _set_up(_: Path, __: str) -> str:
    return _ending(_lab("setup"))


def _heavy_mix(place: Path, measured: str) -> str:
    done = _lab("run", "heavy-mix", "--results", str(place), *measured.split())
    found = _line(done, r"\d+ of \d+ (?:claims )?hold[^.(]*|\d+ of \d+ claims: .*").strip()
    return found + (measured and f" ({measured})")


def _export(place: Path, _: str) -> str:
    return _ending(_lab("export", str(place / "heavy-mix" / "latest"), "--to", str(place / "heavy-mix.tar.gz")))


def _verify(place: Path, _: str) -> str:
    return _ending(_lab("verify", str(place / "heavy-mix" / "latest")))


def _own_service(place: Path, _: str) -> str:
    shop, file = place / "shop", place / "shop.yaml"
    shop.mkdir()
    for name, text in _SERVICE.items():
        (shop / name).write_text(text, encoding="utf-8")
    _lab("init", str(shop), "--to", str(file), "--check")
    tried = _lab("try", str(file), "--duration", "10s", "--trials", "1", "--results", str(place))
    return _line(tried, r"Better than today's.*|No request.*|[\d.]+% [\s\S]{,60}?waited[\s\S]{,90}?free\s+thread")


def _container_tests(_: Path, __: str) -> str:
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/containers"],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return _line(tests, r"\d+ (passed|failed).*")


def _left_behind(_: Path, __: str) -> str:
    left = output(["docker", "ps", "--all", "--quiet", "--filter", "label=stampede.owner"])
    return f"{len(left.split())} containers"


STEPS: dict[str, Callable[[Path, str], str]] = {
    "set-up": _set_up,
    "heavy-mix": _heavy_mix,
    "export": _export,
    "verify": _verify,
    "own-service": _own_service,
    "tests/containers": _container_tests,
    "left-behind": _left_behind,
}
"""What is tried, in this order; each step returns its result in words. To export or verify needs heavy-mix."""


def _lab(*command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "stampede", *command],
        cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def _ending(done: "subprocess.CompletedProcess[str]") -> str:
    return "works" if done.returncode == 0 else f"exit code {done.returncode}: {(done.stderr.splitlines() or [''])[0]}"


def _line(done: "subprocess.CompletedProcess[str]", pattern: str) -> str:
    found = [" ".join(match[0].split()) for match in re.finditer(pattern, done.stdout)]
    return found[-1] if found else _ending(done)


if __name__ == "__main__":
    sys.exit(main())
