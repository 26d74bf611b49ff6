"""Run a command before the application is served, such as a migration, in its folder and with its variables.

A database may need some seconds before it takes connections, so a command that is refused one is run again.
"""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

READY_WITHIN_S, AGAIN_AFTER_S = 60, 1
REFUSED = re.compile(rb"connection refused|can't connect to|could not connect|is starting up", re.IGNORECASE)


def run(command: str) -> int:
    """Run a command until it is not refused a connection, print what it said at last, and return its exit code."""
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, check=False)
        if done.returncode == 0 or not REFUSED.search(done.stderr) or time.monotonic() > deadline:
            sys.stderr.buffer.write(done.stderr)
            return done.returncode if done.returncode >= 0 else 128 - done.returncode
        time.sleep(AGAIN_AFTER_S)


if __name__ == "__main__":
    start = json.loads((Path(__file__).parent / "start.json").read_text(encoding="utf-8"))
    folder = Path(os.environ.get("LAB_FOLDER", "/opt/application"), start["folder"])
    os.chdir(folder)
    os.environ.update(start["environment"])
    others = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *others])
    sys.exit(run(sys.argv[1]))
