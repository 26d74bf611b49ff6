"""Bring the images of a run to every machine, and make sure that all machines have the same images."""

import subprocess
import time
from collections.abc import Iterable, Sequence

from stampede.docker.client import Machine
from stampede.docker.commands import Say
from stampede.docker.containers import ContainerInfo, digest
from stampede.errors import LabError
from stampede.interruption import program

_CONTENT = "{{json .RootFS.Layers}} {{json .Config.Env}} {{json .Config.Entrypoint}} {{json .Config.Cmd}} " \
    "{{json .Config.User}} {{.Architecture}}"  # fmt: skip


def content_of(image: str, machine: Machine) -> str:
    """Return a digest of an image's layers and settings; empty if the machine lacks the image.

    The id of an image depends on how an engine stores images. The digest does not.
    """
    told = machine.told("image", "inspect", "--format", _CONTENT, image)
    return digest(told.encode()) if told else ""


def image_difference(containers: Iterable[ContainerInfo]) -> str | None:
    """Return which service has different images on which machines; None if there is no such service.

    All load generators are one service. Only if ids differ are the images compared by their contents.
    """
    having: dict[str, dict[str, Machine]] = {}
    for container in containers:
        service = "k6" if container.service.startswith("k6") else container.service
        having.setdefault(service, {}).setdefault(container.image, container.machine)
    for service, machines in having.items():
        if len(machines) == 1:
            continue
        contents = {content_of(identity, machine): machine.name for identity, machine in machines.items()}
        if len(contents) > 1:
            return f"{service} has another image on {' than on '.join(contents.values())}"
    return None


def bring_images(images: Sequence[str], machines: Sequence[Machine], say: Say) -> None:
    """Copy images from the first machine to the machines that lack them or have others. Raise LabError if that fails.

    The engines of the machines pack and unpack the images; the lab passes them on.
    """
    home, *others = machines
    wanted = {image: content_of(image, home) for image in images}
    for machine in others:
        lacking = [image for image in images if content_of(image, machine) != wanted[image]]
        if not lacking:
            continue
        began = time.monotonic()
        say(f"Copying {', '.join(lacking)} from {home.name} to {machine.name} …")
        _copy(lacking, home, machine)
        if other := [image for image in lacking if content_of(image, machine) != wanted[image]]:
            raise LabError(
                f"{machine.name} has another image {other[0]} than {home.name} after the image was copied.",
                hint="Machines of one run need the same kind of processor: stampede machines",
            )
        say(f"Copied in {time.monotonic() - began:.0f} s.")


def _copy(images: Sequence[str], home: Machine, machine: Machine) -> None:
    with program([*home.docker, "image", "save", *images], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as packing:
        loading = subprocess.run(
            [*machine.docker, "image", "load", "--quiet"], stdin=packing.stdout, capture_output=True, check=False
        )
        assert packing.stdout
        assert packing.stderr
        packing.stdout.close()  # an engine that packs must not wait for ever for an engine that has failed
        said = packing.stderr.read()
    if loading.returncode or packing.returncode:
        lines = (loading.stderr if loading.returncode else said).decode(errors="replace").strip().splitlines()
        raise LabError(f"Images could not be copied from {home.name} to {machine.name}: {(lines or ['no reason'])[-1]}",
                       hint="stampede machines")  # fmt: skip
