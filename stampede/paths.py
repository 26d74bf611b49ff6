"""Where the files stand that the lab starts from: in a clone beside the package, in an installed package inside it."""

from pathlib import Path

_HERE = Path(__file__).resolve().parent
IN_CLONE = not (_HERE / "files").is_dir()
ROOT = _HERE.parent if IN_CLONE else _HERE / "files"
EXPERIMENTS = ROOT / "experiments"
LESSONS = ROOT / "lessons"
CLIENTS = ROOT / "clients"
K6 = ROOT / "k6"
SERVERS = ROOT / "servers"
TOOLS = ROOT / "tools"
RESULTS = Path("results")  # in the current folder; the option --results names another
COMPOSE_FILE = ROOT / "docker-compose.yml"
