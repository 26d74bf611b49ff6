"""The paths of folders and files in a checkout."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = ROOT / "experiments"
LESSONS = ROOT / "lessons"
CLIENTS = ROOT / "clients"
K6 = ROOT / "k6"
SERVERS = ROOT / "servers"
TOOLS = ROOT / "tools"
RESULTS = ROOT / "results"
COMPOSE_FILE = ROOT / "docker-compose.yml"
