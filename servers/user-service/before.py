"""Run a command before the application is served, such as a migration, in its folder and with its variables."""

import json
import os
import sys
from pathlib import Path

os.environ.update(json.loads((Path(__file__).parent / "environment.json").read_text(encoding="utf-8")))
folder = os.environ.get("LAB_FOLDER", "/opt/application")
others = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one not in ("", "/srv")]
os.environ["PYTHONPATH"] = os.pathsep.join([folder, *others])
os.chdir(folder)
os.execvp("sh", ["sh", "-c", sys.argv[1]])  # noqa: S606  # the command of the application's owner
