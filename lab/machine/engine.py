"""The container engine with Compose v2 and buildx: found, installed and started where that is allowed, and asked.

The lab changes a user's machine only as root on Debian or Ubuntu, where the engine comes from the distribution.
"""

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
from python_on_whales.exceptions import DockerException

from lab.errors import LabError
from lab.limits import Room
from lab.paths import ROOT, TOOLS

ENGINE_LOG = Path("/var/log/stampede-dockerd.log")
ENGINE_START_S = 60

_CA_BUNDLES = (
    os.environ.get("SSL_CERT_FILE", ""),
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)

INSTALL_BY_HAND = """\
Debian or Ubuntu, as root:  tools/install-engine.sh
Fedora:                     sudo dnf install moby-engine docker-compose docker-buildx
macOS or Windows (WSL2):    install Docker Desktop, or: brew install colima docker docker-compose docker-buildx
Then run the same command again."""

Say = Callable[[str], None]


def default_jobs() -> int:
    """How many sleeping variants the cores of this machine carry side by side: four each."""
    return 4 * (os.cpu_count() or 1)


def room() -> Room:
    """Return the memory of the machine that containers run on.

    Of an engine that has a machine of its own nobody knows how much is in use; all of it is taken for available.
    """
    memory = psutil.virtual_memory()
    engine = output(["docker", "info", "--format", "{{.MemTotal}}"])
    total = int(engine) if engine.isdecimal() and int(engine) else memory.total
    elsewhere = abs(total - memory.total) > 0.01 * memory.total
    return Room(total // 2**20, (total if elsewhere else memory.available) // 2**20)


def ca_bundle() -> str:
    """Return the host's CA bundle, with which images are built on networks that re-sign TLS."""
    return next((path for path in _CA_BUNDLES if path and Path(path).is_file()), "/dev/null")


def engine_version() -> str:
    """Return the engine's name and version; empty when no engine answers."""
    version = output(["docker", "version", "--format", "{{.Server.Version}}"])
    return f"Docker {version}" if version else ""


def make_engine_ready(say: Say) -> None:
    """Install or start the engine if needed. Raise LabError with the commands to run where that is not allowed."""
    client = bool(shutil.which("docker")) and is_v2(plugin_version("compose")) and bool(plugin_version("buildx"))
    if client and engine_version():
        return
    if not client or (is_debian_root() and not _dockerd() and not _engine_is_elsewhere()):
        _install_engine(say)
    if not engine_version():
        _start_engine(say)


def check_that_memory_is_limited() -> None:
    """Raise LabError where the engine leaves out limits of memory, without which a load can harm the machine."""
    if output(["docker", "info", "--format", "{{.MemoryLimit}}"]) == "false":
        raise LabError(
            "The container engine cannot limit the memory of containers, so that a load could take all of it.",
            hint="If the kernel was started without it: add cgroup_enable=memory to its command line, and restart.",
        )


def _dockerd() -> str | None:
    """Return where the engine's program is; Debian keeps it where only root's PATH leads."""
    return shutil.which("dockerd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def _engine_is_elsewhere() -> bool:
    return bool(os.environ.get("DOCKER_HOST")) or output(["docker", "context", "show"]) not in ("", "default")


def _install_engine(say: Say) -> None:
    if not is_debian_root():
        raise LabError("This machine has no container engine with Compose v2 and buildx.", hint=INSTALL_BY_HAND)
    question = "Install Docker's engine, Compose and buildx from the distribution? [Y/n] "
    if sys.stdin.isatty() and input(question).strip().lower() not in ("", "y", "yes"):
        raise LabError("No container engine was installed.", hint=INSTALL_BY_HAND)
    say("Installing Docker's engine, Compose and buildx from the distribution …")
    began = time.monotonic()
    run_command([str(TOOLS / "install-engine.sh")], "The container engine could not be installed.")
    say(f"Installed the container engine in {time.monotonic() - began:.0f} s.")


def _start_engine(say: Say) -> None:
    program = _dockerd()
    if os.geteuid() != 0 or not program or _engine_is_elsewhere():
        raise LabError("The container engine does not answer.", hint=how_to_start())
    say("Starting the container engine …")
    if Path("/run/systemd/system").is_dir():
        run_command(["systemctl", "start", "docker"], "The container engine could not be started.")
    else:
        with ENGINE_LOG.open("ab") as log:
            subprocess.Popen(
                [program], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )  # it outlives the lab, as an engine that the system starts would
    deadline = time.monotonic() + ENGINE_START_S
    while not engine_version():
        if time.monotonic() > deadline:
            last = ENGINE_LOG.read_text(errors="replace").splitlines()[-3:] if ENGINE_LOG.exists() else []
            raise LabError(
                f"The container engine did not answer within {ENGINE_START_S} s.",
                hint="\n".join([*last, how_to_start()]),
            )
        time.sleep(0.1)


def plugin_version(plugin: str) -> str:
    """Return the version of one of docker's plug-ins; empty when it is missing."""
    return output(["docker", plugin, "version"] + (["--short"] if plugin == "compose" else []))


def is_v2(compose: str) -> bool:
    """Whether this version of Compose is the one that the lab needs, or a later one."""
    return compose.lstrip("v").split(".")[0].isdecimal() and int(compose.lstrip("v").split(".")[0]) >= 2


def is_debian_root() -> bool:
    """Whether the lab may install packages here."""
    return os.geteuid() == 0 and Path("/etc/debian_version").exists()


def how_to_start() -> str:
    """Return how this user starts the engine."""
    if _engine_is_elsewhere():
        return "DOCKER_HOST or docker context names an engine elsewhere: start that one, or choose another."
    if platform.system() == "Darwin":
        return "Start Docker Desktop (or: colima start), then run the same command again."
    return "sudo systemctl start docker, then run the same command again. Are you in the group docker?"


def output(command: list[str]) -> str:
    """Return what a command prints; empty when it fails, hangs or is missing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def run_command(command: list[str], problem: str, environment: dict[str, str] | None = None) -> None:
    """Run a command in the checkout. Raise LabError with its last lines when it fails; ``problem`` says what failed."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, cwd=ROOT)
    if done.returncode != 0:
        last = "\n".join((done.stderr + done.stdout).strip().splitlines()[-12:])
        raise LabError(problem, hint=f"{' '.join(command[:4])} … ended with {done.returncode}:\n{last}")


def last_line(error: DockerException) -> str:
    """Return the last line that Docker said, which is where it names the problem.

    Of a long line at most 300 characters are kept, and no part of a word: half of a path would not be known as one.
    """
    line = ((error.stderr or str(error)).strip().splitlines() or ["it said nothing"])[-1]
    return line if len(line) <= 300 else f"{line[:299].rpartition(' ')[0]} …"
