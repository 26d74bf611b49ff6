"""The images: two base images, pulled or built as stand-ins, and the lab's own, built on them when a file changed."""

import hashlib
import os
import time

from python_on_whales import DockerClient
from python_on_whales.exceptions import DockerException, NoSuchImage

from lab.errors import LabError
from lab.machine.engine import Say, ca_bundle, is_debian_root, last_line, run_command
from lab.paths import COMPOSE_FILE, ROOT, TOOLS

DEBIAN = "debian:trixie-slim"
K6_RELEASE = "1.8.1"
K6 = f"grafana/k6:{K6_RELEASE}"
BASE_IMAGES = (DEBIAN, K6)
PINNED = {line.split("@")[0]: line for line in (TOOLS / "base-images.txt").read_text(encoding="utf-8").split()}
"""What is pulled for each base image: its name with the digest of its contents. `make lock` pins anew."""
STAND_IN = "stampede.stand-in"
INPUTS = "stampede.inputs"


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
        run_command(command, f"The image {image} could not be built.", environment)
        say(f"Built {image} in {time.monotonic() - began:.0f} s.")


def make_base_images_ready(say: Say) -> None:
    """Pull the base images that are missing, or build stand-ins where no registry has them for us."""
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
        if not is_debian_root():
            raise LabError(
                problem,
                hint=f"Where a registry is reached: docker pull {PINNED[image]} && docker tag {PINNED[image]} {image} "
                f"&& docker save {image} --output image.tar\nHere: docker load --input image.tar",
            )
        run_command([str(TOOLS / "build-debian.sh"), image], problem)
        return
    run_command(
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


def origin(image: str) -> str:
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
