"""What Compose makes of somebody's files."""

import json
import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_UNSET = re.compile(r'The \\?"(\w+)\\?" variable is not set')


def config(files: Sequence[Path], *options: str) -> tuple[dict[str, Any], list[str]]:
    """Return what Compose makes of files, and the variables that are not set. Raise ValueError if it cannot.

    No variable of this machine counts, only those of the file .env.
    """
    named = [word for file in files for word in ("--file", str(file))]
    command = ["docker", "compose", *named, "--profile", "*", "config", "--format", "json", *options]
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "DOCKER_CONFIG") if name in os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=kept, timeout=30)
    except FileNotFoundError:
        raise ValueError("Docker's client is missing on this machine") from None
    except subprocess.TimeoutExpired:
        raise ValueError("it takes more than 30 s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip() and "level=warning" not in line]
        raise ValueError(lines[-1] if lines else f"exit code {done.returncode}")
    return json.loads(done.stdout), [*dict.fromkeys(_UNSET.findall(done.stderr))]
