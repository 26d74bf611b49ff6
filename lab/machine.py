"""What the lab needs of a machine: a container engine with Compose v2, two base images, and its own images.

Each step looks first, is silent when there is nothing to do, and says what it does when there is. Nothing of the
user's is changed without being root on Debian or Ubuntu, where the engine comes from the distribution.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from python_on_whales import DockerClient
from python_on_whales.exceptions import DockerException, NoSuchImage

from lab.errors import LabError
from lab.limits import Room
from lab.paths import COMPOSE_FILE, ROOT, TOOLS

DEBIAN = "debian:trixie-slim"
K6_RELEASE = "1.8.1"
K6 = f"grafana/k6:{K6_RELEASE}"
BASE_IMAGES = (DEBIAN, K6)
PINNED = {line.split("@")[0]: line for line in (TOOLS / "base-images.txt").read_text(encoding="utf-8").split()}
"""What is pulled for each base image: its name with the digest of its contents. `make lock` pins anew."""
STAND_IN = "stampede.stand-in"
INPUTS = "stampede.inputs"

ENGINE_LOG = Path("/var/log/stampede-dockerd.log")
ENGINE_START_S = 60

_CA_BUNDLES = (
    os.environ.get("SSL_CERT_FILE", ""),
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
)

_INSTALL_BY_HAND = """\
Debian or Ubuntu, as root:  tools/install-engine.sh
Fedora:                     sudo dnf install moby-engine docker-compose docker-buildx
macOS or Windows (WSL2):    install Docker Desktop, or: brew install colima docker docker-compose docker-buildx
Then run the same command again."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Finding:
    """One thing the lab needs: whether it is there, which one, and what to do when it is not."""

    what: str
    there: bool
    detail: str
    remedy: str = ""


def ready(say: Say) -> None:
    """Make the engine and the base images ready. Raise LabError with the commands to run where that is not allowed."""
    _make_engine_ready(say)
    _check_that_memory_is_limited()
    _make_base_images_ready(say)


def build_images(services: dict[str, dict[str, str]], say: Say) -> None:
    """Build the lab's images that are missing or older than their files.

    ``services`` maps an image's name to the factors (LAB_…) with which Compose builds it, ``service`` among them.
    """
    inputs = _inputs_digest()
    for image, factors in services.items():
        if label(image, INPUTS) == inputs:
            continue
        say(f"Building {image} …")
        began = time.monotonic()
        environment = os.environ | factors | {"LAB_INPUTS": inputs, "LAB_CA_BUNDLE": ca_bundle()}
        command = ["docker", "compose", "--file", str(COMPOSE_FILE), "--profile", "*", "build", factors["service"]]
        _run(command, f"The image {image} could not be built.", environment)
        say(f"Built {image} in {time.monotonic() - began:.0f} s.")


def findings() -> list[Finding]:
    """Look at everything the lab needs, without changing anything."""
    client = DockerClient()
    found = [
        Finding("Python >= 3.11", sys.version_info >= (3, 11), platform.python_version()),
        Finding("docker", shutil.which("docker") is not None, shutil.which("docker") or "not installed",
                _INSTALL_BY_HAND),
    ]  # fmt: skip
    if not found[-1].there:
        return found
    engine = engine_version()
    found.append(Finding("container engine", bool(engine), engine or "does not answer", _how_to_start()))
    compose = plugin_version("compose")
    found.append(Finding("Compose v2", _is_v2(compose), compose or "not installed", _INSTALL_BY_HAND))
    found.append(Finding("buildx", bool(buildx := plugin_version("buildx")), buildx or "not installed",
                         _INSTALL_BY_HAND))  # fmt: skip
    if engine:
        for name in BASE_IMAGES:
            there = client.image.exists(name)
            found.append(Finding(name, there, _origin(name) if there else "not there yet", "make setup"))
    free = shutil.disk_usage(ROOT).free / 2**30
    found.append(Finding("disk space >= 2 GiB", free >= 2, f"{free:.0f} GiB free", "Free some space."))
    return found


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


def _make_engine_ready(say: Say) -> None:
    client = bool(shutil.which("docker")) and _is_v2(plugin_version("compose")) and bool(plugin_version("buildx"))
    if client and engine_version():
        return
    if not client or (_is_debian_root() and not _dockerd() and not _engine_is_elsewhere()):
        _install_engine(say)
    if not engine_version():
        _start_engine(say)


def _check_that_memory_is_limited() -> None:
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
    if not _is_debian_root():
        raise LabError("This machine has no container engine with Compose v2 and buildx.", hint=_INSTALL_BY_HAND)
    question = "Install Docker's engine, Compose and buildx from the distribution? [Y/n] "
    if sys.stdin.isatty() and input(question).strip().lower() not in ("", "y", "yes"):
        raise LabError("No container engine was installed.", hint=_INSTALL_BY_HAND)
    say("Installing Docker's engine, Compose and buildx from the distribution …")
    began = time.monotonic()
    _run([str(TOOLS / "install-engine.sh")], "The container engine could not be installed.")
    say(f"Installed the container engine in {time.monotonic() - began:.0f} s.")


def _start_engine(say: Say) -> None:
    program = _dockerd()
    if os.geteuid() != 0 or not program or _engine_is_elsewhere():
        raise LabError("The container engine does not answer.", hint=_how_to_start())
    say("Starting the container engine …")
    if Path("/run/systemd/system").is_dir():
        _run(["systemctl", "start", "docker"], "The container engine could not be started.")
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
                hint="\n".join([*last, _how_to_start()]),
            )
        time.sleep(0.1)


def _make_base_images_ready(say: Say) -> None:
    client = DockerClient()
    for image in BASE_IMAGES:
        if client.image.exists(image):
            continue
        say(f"Pulling {image} …")
        began = time.monotonic()
        try:
            client.image.pull(PINNED[image], quiet=True)
            client.image.tag(PINNED[image], image)  # the name that FROM and Compose know, as a stand-in has it
        except DockerException as error:
            say(f"No registry has it for us ({last_line(error)}); building a stand-in from package registries …")
            _build_stand_in(image)
        say(f"{image} is there after {time.monotonic() - began:.0f} s.")


def _build_stand_in(image: str) -> None:
    problem = f"The image {image} can neither be pulled nor built here."
    if image == DEBIAN:
        if not _is_debian_root():
            raise LabError(
                problem,
                hint=f"Where a registry is reached: docker pull {PINNED[image]} && docker tag {PINNED[image]} {image} "
                f"&& docker save {image} --output image.tar\nHere: docker load --input image.tar",
            )
        _run([str(TOOLS / "build-debian.sh"), image], problem)
        return
    _run(
        ["docker", "buildx", "build", "--load", "--tag", image, "--build-arg", f"K6_RELEASE={K6_RELEASE}",
         "--secret", f"id=ca_bundle,src={ca_bundle()}", "--file", str(TOOLS / "k6.Dockerfile"), str(TOOLS)],
        problem,
    )  # fmt: skip


def _inputs_digest() -> str:
    """Digest everything an image of ours is made of: the files, and the base image they are put on."""
    digest = hashlib.sha256(DockerClient().image.inspect(DEBIAN).id.encode())
    for folder in ("servers", "nginx", "haproxy", "mariadb"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _origin(image: str) -> str:
    """Return where a base image came from, in words."""
    if stand_in := label(image, STAND_IN):
        return f"stand-in from the {stand_in}"
    pinned = PINNED[image].split("@")[1]
    return "pulled as pinned" if any(one.endswith(f"@{pinned}") for one in digests(image)) else "not the pinned one"


def digests(image: str) -> list[str]:
    """Return the digests under which a registry gave us an image; none of a stand-in."""
    return [] if label(image, STAND_IN) else DockerClient().image.inspect(image).repo_digests or []


def label(image: str, name: str) -> str:
    """Return a label of an image; empty when either is missing."""
    try:
        return (DockerClient().image.inspect(image).config.labels or {}).get(name, "")
    except NoSuchImage:
        return ""


def plugin_version(plugin: str) -> str:
    """Return the version of one of docker's plug-ins; empty when it is missing."""
    return output(["docker", plugin, "version"] + (["--short"] if plugin == "compose" else []))


def _is_v2(compose: str) -> bool:
    return compose.lstrip("v").split(".")[0].isdecimal() and int(compose.lstrip("v").split(".")[0]) >= 2


def _is_debian_root() -> bool:
    return os.geteuid() == 0 and Path("/etc/debian_version").exists()


def _how_to_start() -> str:
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


def _run(command: list[str], problem: str, environment: dict[str, str] | None = None) -> None:
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
