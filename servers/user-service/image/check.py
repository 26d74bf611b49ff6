"""Say why an image that exists cannot be measured, or print nothing. Usage: python check.py SERVER RELEASE."""

import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Optional

OLDEST = (3, 9)


def problem(server: str, release: str) -> Optional[str]:  # noqa: UP045  # runs on Python 3.9
    """Return what the image lacks."""
    if sys.version_info < OLDEST:
        return f"It has Python {sys.version.split()[0]}; the lab needs 3.9 or later."
    try:
        found = version(server)
    except PackageNotFoundError:
        return f"Its Python has no {server}."
    if found != release:
        return f"It has {server} {found}, but the file says {release}. Write served.{server}: {found}"
    lacks = [one for one in ("sh", "awk", "cat", "grep") if not shutil.which(one)]
    looks = ["find", "/proc/self", "-maxdepth", "0", "-printf", ""]
    if not shutil.which("find") or subprocess.run(looks, capture_output=True, check=False).returncode:
        lacks.append("GNU find")
    return f"It lacks {', '.join(lacks)}, which the lab's observations need." if lacks else None


if __name__ == "__main__":
    sys.exit(problem(*sys.argv[1:]))
