"""Check what the lab needs of a machine without changing anything, or make the machine ready.

Each step checks first. If there is something to do, the step says so; otherwise it is silent.
"""

import platform
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stampede.docker import processor
from stampede.docker.commands import Say
from stampede.docker.engine import (
    INSTALL_BY_HAND,
    check_limits,
    check_that_it_may_be_used,
    how_to_start,
    is_v2,
    make_engine_ready,
    plugin_version,
)
from stampede.docker.facts import ask_engine, tried
from stampede.docker.images import BASE_IMAGES, LabImage, inspected, make_base_images_ready, origin
from stampede.errors import LabError
from stampede.paths import ROOT
from stampede.typed import typed


@dataclass(frozen=True)
class Check:
    """One thing that the lab needs: whether the machine has it, its version, and how to get it if it is missing."""

    what: str
    there: bool
    detail: str
    remedy: str = ""


def make_ready(say: Say, images: Iterable[LabImage] = ()) -> None:
    """Make the engine and the base images ready. If the lab may not, raise LabError with the commands for the user.

    ``images`` are the images that are needed next. If making a base image takes minutes, they are built meanwhile.
    """
    make_engine_ready(say)
    check_limits(say)
    make_base_images_ready(say, images)


def checks() -> list[Check]:
    """Check everything that the lab needs, without changing anything."""
    found = [
        Check("Python >= 3.11", sys.version_info >= (3, 11), platform.python_version()),
        Check("processor", not (lack := processor.problem()), lack or "has what the packages need",
                processor.WAY_OUT),
        Check("docker", shutil.which("docker") is not None, shutil.which("docker") or "not installed",
                INSTALL_BY_HAND),
    ]  # fmt: skip
    if not found[-1].there:
        return found
    engine, what = ask_engine(), "container engine"
    if engine:
        machine = f"{engine.cores} cores, {engine.memory_mib / 1024:.1f} GiB"
        told = f"{engine.name} {engine.version} on {engine.system}, {machine}, cgroups {engine.cgroups}"
        found.append(Check(what, True, told))
    else:
        found.append(Check(what, False, "does not answer", _refusal(check_that_it_may_be_used) or how_to_start()))
    compose, buildx = plugin_version("compose"), plugin_version("buildx")
    found.append(Check("Compose v2", is_v2(compose), compose or "not installed", INSTALL_BY_HAND))
    found.append(Check("buildx", bool(buildx), buildx or "not installed", INSTALL_BY_HAND))
    if engine:
        refused = _refusal(lambda: check_limits(lambda _: None))
        lacking = f"not enforced: {', '.join(engine.unenforced)}" if engine.unenforced else "all are enforced"
        found.append(Check("limits", not refused, lacking, refused))
        found.append(Check("this combination", True, tried(engine.kind)))
        for name in BASE_IMAGES:
            there = bool(inspected(name))
            found.append(Check(name, there, origin(name) if there else "not there yet", typed("setup")))
    free = shutil.disk_usage(ROOT).free / 2**30
    found.append(Check("disk space >= 2 GiB", free >= 2, f"{free:.0f} GiB free", "Free some space."))
    return found


def _refusal(check: Callable[[], None]) -> str:
    """Return what a check of the engine refuses, and the way out; empty if it refuses nothing."""
    try:
        check()
    except LabError as error:
        return f"{error.message} {error.hint}"
    return ""
