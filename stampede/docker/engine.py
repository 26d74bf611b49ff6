"""Find the container engine with Compose v2 and buildx, install or start the engine if allowed, and call it.

The lab installs the engine only as root on Debian or Ubuntu, from the distribution's packages.
"""

import os
import platform
import pwd
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stampede.docker.client import HERE, DockerError, Machine
from stampede.docker.commands import ANSWERS_WITHIN_S, Say, run_command
from stampede.docker.facts import PLATFORM, ask_engine
from stampede.docker.machine_usage import local_state
from stampede.errors import LabError
from stampede.paths import TOOLS
from stampede.plan import MemoryBudget, MemoryBudgets

ENGINE_LOG = Path("/var/log/stampede-dockerd.log")
SYSTEMD = Path("/run/systemd/system")  # there if systemd starts the services of this machine
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


def default_jobs(cores: int | None = None) -> int:
    """Return how many variants whose requests sleep may run side by side: four for each core of the engine."""
    return 4 * (cores or engine_cores())


def engine_cores() -> int:
    """Return how many cores containers may use: those of the engine, which may be a virtual machine with few cores.

    If no engine answers, return the cores of this machine.
    """
    engine = ask_engine()
    return (engine and engine.cores) or os.cpu_count() or 1


def memory_budgets(machines: Sequence[Machine] = ()) -> MemoryBudgets | None:
    """Return the memory of the machines that containers run on; without machines: that of the engine, if it is known.

    The free memory of a machine elsewhere is unknown, so all of its memory counts as available.
    """
    if machines:
        totals = [machine.info()["MemTotal"] // 2**20 for machine in machines]
        return MemoryBudgets(machines, [MemoryBudget(total, total) for total in totals])
    engine, total_mib, available_mib = ask_engine(), 0, 0
    with suppress(OSError):  # this machine does not run Linux
        here = local_state()
        total_mib, available_mib = here.memory // 2**20, here.available // 2**20
    if engine and engine.memory_mib and abs(engine.memory_mib - total_mib) > 0.01 * total_mib:
        total_mib = available_mib = engine.memory_mib
    return MemoryBudgets([HERE], [MemoryBudget(total_mib, available_mib)]) if total_mib else None


def ca_bundle() -> str:
    """Return the path of the host's CA bundle, which builds of images need on networks that re-sign TLS.

    If the host has none, return ``os.devnull``, because Compose needs a file.
    """
    return next((path for path in _CA_BUNDLES if path and Path(path).is_file()), os.devnull)


def engine_version() -> str:
    """Return the engine's name and version; empty when no engine answers."""
    version = HERE.told("version", "--format", "{{.Server.Version}}")
    return f"Docker {version}" if version else ""


def make_engine_ready(say: Say) -> None:
    """Install or start the engine if needed. If the lab may not, raise LabError with the commands for the user."""
    client = bool(shutil.which("docker")) and is_v2(plugin_version("compose")) and bool(plugin_version("buildx"))
    if client and engine_version():
        return
    check_that_it_may_be_used()
    path = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"  # only root's PATH contains Debian's folder of the engine
    program = shutil.which("dockerd", path=path)
    elsewhere = _is_elsewhere()
    if not client or (is_debian_root() and not program and not elsewhere):
        if not is_debian_root():
            raise LabError("This machine has no container engine with Compose v2 and buildx.", hint=INSTALL_BY_HAND)
        question = "Install Docker's engine, Compose and buildx from the distribution? [Y/n] "
        if sys.stdin.isatty() and input(question).strip().lower() not in ("", "y", "yes"):
            raise LabError("No container engine was installed.", hint=INSTALL_BY_HAND)
        say("Installing Docker's engine, Compose and buildx from the distribution …")
        began = time.monotonic()
        run_command([str(TOOLS / "install-engine.sh")], "installing the container engine",
                    "The container engine could not be installed.", say)  # fmt: skip
        say(f"Installed the container engine in {time.monotonic() - began:.0f} s.")
        program = shutil.which("dockerd", path=path)
    if engine_version():
        return
    if os.geteuid() != 0 or not program or elsewhere:
        raise LabError("The container engine does not answer.", hint=how_to_start())
    say("Starting the container engine …")
    engine, logged_before = None, 0
    if SYSTEMD.is_dir():
        run_command(["systemctl", "start", "docker"], "starting the container engine",
                    "The container engine could not be started.", say, within_s=4 * ENGINE_START_S)  # fmt: skip
    else:
        with ENGINE_LOG.open("ab") as log:
            logged_before = log.tell()
            engine = subprocess.Popen(
                [program], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )  # the engine goes on after the lab has ended, like an engine that the system starts
    deadline = time.monotonic() + ENGINE_START_S
    while not engine_version():
        if engine and engine.poll() is not None:
            lines = ENGINE_LOG.read_bytes()[logged_before:].decode(errors="replace").strip().splitlines()
            lines = lines or [f"exit code {engine.returncode}"]
            why = next((line for line in lines if line.startswith(("panic:", "failed to start daemon"))), lines[-1])
            raise LabError("The container engine ended instead of starting.", hint=f"{why}\nLog: {ENGINE_LOG}")
        if time.monotonic() > deadline:
            raise LabError(f"The container engine did not answer within {ENGINE_START_S} s.", hint=how_to_start())
        time.sleep(0.1)


def check_that_it_may_be_used() -> None:
    """Raise LabError if an engine keeps its client waiting or refuses this user: a second engine would not help."""
    try:
        HERE.run("version", within_s=ANSWERS_WITHIN_S)
    except DockerError as error:
        if error.exit_code is None:
            raise LabError(
                "The container engine is there and does not answer.",
                hint="Is it paused or frozen, or is its machine asleep? docker version must answer. Restart the "
                "engine: sudo systemctl restart docker, or Docker Desktop.",
            ) from None
        if "permission denied" in error.said.lower():
            name = pwd.getpwuid(os.getuid()).pw_name
            raise LabError(
                "The container engine runs, and this user may not use it.",
                hint=f"sudo usermod --append --groups docker {name}, then log in again (or: newgrp docker). Or ask the "
                "administrator.",
            ) from None


def check_limits(say: Say) -> None:
    """Say which limits of containers the engine does not enforce, and whether it emulates another processor.

    Raise LabError if it cannot limit their memory, because a load could then harm the machine, or if it is Podman.
    """
    facts = ask_engine()
    if facts is None:
        return
    if facts.name == "Podman":
        raise LabError(
            f"The engine is Podman {facts.version}, which the lab does not support.",
            hint="Through its Docker socket, Podman 4.3 started none of the lab's containers, because they have no "
            "capabilities. Use Docker's engine: unset DOCKER_HOST, or choose another with docker context use.",
        )
    if facts.emulates:
        say(f"{PLATFORM} is {os.environ[PLATFORM]}, so the engine emulates a processor, and containers compute several "
            "times more slowly.")  # fmt: skip
    if not facts.unenforced:
        return
    if "memory" in facts.unenforced:
        raise LabError(
            "The container engine cannot limit the memory of containers, so a load could use up all memory.",
            hint=_WITHOUT_DELEGATION if facts.rootless else
            "If the kernel's command line lacks cgroup_enable=memory, add it, and restart the machine.",
        )  # fmt: skip
    say(f"The container engine does not enforce limits of {', '.join(facts.unenforced)}: containers may disturb each "
        "other, and the machine.")  # fmt: skip


_WITHOUT_DELEGATION = """\
A rootless engine limits only what systemd delegates to the user. As root:
mkdir -p /etc/systemd/system/user@.service.d
printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' > /etc/systemd/system/user@.service.d/delegate.conf
systemctl daemon-reload
Then log in again. The engine needs cgroup v2 for this."""


def _is_elsewhere() -> bool:
    return bool(os.environ.get("DOCKER_HOST")) or HERE.told("context", "show") not in ("", "default")


def plugin_version(plugin: str) -> str:
    """Return the version of a plug-in of docker; empty if the plug-in is missing."""
    return HERE.told(plugin, "version", *(["--short"] if plugin == "compose" else []))


def is_v2(compose: str) -> bool:
    """Whether this version of Compose is 2 or later."""
    return compose.lstrip("v").split(".")[0].isdecimal() and int(compose.lstrip("v").split(".")[0]) >= 2


def is_debian_root() -> bool:
    """Whether the lab may install packages: it runs as root on Debian or Ubuntu."""
    return os.geteuid() == 0 and Path("/etc/debian_version").exists()


def how_to_start() -> str:
    """Return a hint that says how the user starts the engine."""
    if _is_elsewhere():
        return "DOCKER_HOST or docker context names an engine elsewhere: start that engine, or choose another engine."
    if platform.system() == "Darwin":
        return "Start Docker Desktop (or: colima start), then run the same command again."
    return "sudo systemctl start docker, then run the same command again."
