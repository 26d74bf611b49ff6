"""Build the image of somebody's application and the images beside it, load the application once, and ask it."""

import json
import os
import re
import shlex
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from stampede.causes import NO_ADDRESS, cause, way_to_compile, ways_out
from stampede.docker.client import HERE
from stampede.docker.commands import LAST_LINES, Say, run_command
from stampede.docker.containers import label_options
from stampede.docker.engine import ca_bundle
from stampede.docker.images import BESIDE_SERVERS, INPUTS, LAB_USER, LabImage, build_images, inspected, label
from stampede.errors import LabError, WrongUse
from stampede.interruption import uninterrupted
from stampede.paths import SERVERS
from stampede.servers.base import BESIDE
from stampede.service.answers import Answers, Followed
from stampede.service.layer import BESIDE_PROJECT, FOLDER, OWN, Layer

LOADED_WITHIN_S = 120
"""How long an application may take to be loaded. Twenty seconds are normal for a large one."""
CHECK_PROJECT = "stampede-check"
"""The project in the label of containers that check an image, so that the clean-up after a killed lab finds them."""
MOST_LINES = 200
"""How many of the last lines of a build may say why it failed: pip repeats itself at length."""
_NO_PACKAGE = re.compile(r"E: (?:Unable to locate package (\S+)|Package '(\S+)' has no installation candidate)")
_NAMES_OF_PACKAGES = (
    "The lab's images are Debian trixie; packages.debian.org lists its packages, which may have other names than those "
    "of older releases. If the application does not need the package, leave it out."
)


def build_layer(layer: Layer, service: str, factors: Mapping[str, str], say: Say) -> None:
    """Build the image of an application, and those beside it, if they are missing.

    Then load the application once, unless it needs others. Raise LabError with its last words if it cannot be loaded.
    """
    name, say = build_own_image(layer, service, factors, say), _saying_masked(say, layer)
    if layer.loaded and not layer.needs_others:
        load_once(name, layer, layer.loaded, say)
    for other, described in layer.beside.services.items():
        beside, image = other.removeprefix(BESIDE), str(described["image"])
        if beside in layer.beside.builds:
            say(f"Building {beside} …")
            command = ["docker", "compose", "--file", str(layer.beside.file), "--project-name", BESIDE_PROJECT,
                       "build", beside]  # fmt: skip
            run_command(command, f"building {beside}", f"The image of {beside} could not be built.", say)
        else:
            _pull(image, say, f" of {beside}")


def follow_start(layer: Layer, say: Say, fallbacks: Mapping[str, Any]) -> Followed:
    """Build the image of an application, and follow the start command that its layer has.

    ``fallbacks`` are what start.py may try if the command reaches no server.
    """
    name = build_own_image(layer, OWN, {"LAB_USER_SERVICE": layer.tag}, say)
    words = ["/opt/stampede/start.py", "follow", "/opt/stampede/start.json", json.dumps(fallbacks)]
    problem = "The start command cannot be followed."
    told = _run_once(_tmpfs(layer), name, words, "following the start command", problem, say, tells=True)
    return masked_start(Followed.model_validate_json(told), layer)


def masked_start(followed: Followed, layer: Layer) -> Followed:
    """Return what a start command has told with ``${NAME}`` in the place of the values of ``env_file``."""

    def masked(text: str) -> str:
        said = layer.masked_text(text)
        return said if said == text else re.sub(rf"\$({'|'.join(layer.secrets)})\b", r"${\1}", said)

    records = [
        each.model_copy(update={
            "words": [*map(masked, each.words)], "given": {name: masked(value) for name, value in each.given.items()},
            "env": {name: masked(value) for name, value in each.env.items()},
        }) for each in followed.records
    ]  # fmt: skip
    said = {"said": masked(followed.said), "without_entrypoint": masked(followed.without_entrypoint)}
    return followed.model_copy(update={"records": records, **said})


def ask_application(layer: Layer, say: Say) -> Answers:
    """Build the image of an application, load the application, and ask it for its routes.

    Raise LabError if the application cannot be loaded.
    """
    name = build_own_image(layer, OWN, {"LAB_USER_SERVICE": layer.tag}, say)
    try:
        told = load_once(name, layer, layer.loaded, _saying_masked(say, layer), [program_text("ask.py")])
    except LabError as error:
        if layer.needs_others:
            return Answers(problem=f"it cannot be loaded alone: {error.message}")
        raise
    answers = Answers.model_validate_json(told)
    return answers.model_copy(update={"problem": layer.masked_text(answers.problem)})


def load_once(name: str, layer: Layer, loaded: Mapping[str, Any], say: Say, asks: Sequence[str] = ()) -> bytes:
    """Load the application in its image, and return what it tells. Raise LabError with its last words if this fails.

    ``loaded`` names it: ``callable``, ``folder`` and ``imports`` (see servers/user-service/load.py). ``asks`` are
    further words for load.py, which ask the application.
    """
    words = ["-c", program_text("load.py"), str(LOADED_WITHIN_S), NO_ADDRESS, json.dumps(loaded), *asks]
    try:
        return _run_once(_tmpfs(layer), name, words, "loading your application", "", say, tells=bool(asks))
    except LabError as error:
        said = layer.masked_text(error.hint)
        hint = "\n".join([*ways_out(said, layer.application), said])
        raise LabError(f"Your application cannot be loaded: {cause(said)}", hint) from None


def program_text(name: str) -> str:
    """Return the text of a program that runs once in a container."""
    return (SERVERS / "user-service" / name).read_text(encoding="utf-8")


def _tmpfs(layer: Layer) -> list[str]:
    """Return the options of a container in which the application can write where it can in a trial."""
    return ["--tmpfs", "/tmp", *([] if layer.image else ["--volume", FOLDER])]  # noqa: S108  # in the container


def _saying_masked(say: Say, layer: Layer) -> Say:
    """Return the same function for texts that may quote what an application or a build printed."""
    return lambda text: say(layer.masked_text(text))


def _run_once(
    options: list[str], image: str, words: list[str], what: str, problem: str, say: Say, *, tells: bool = False
) -> bytes:
    """Run Python in a container without a network, and remove the container. Raise LabError if it fails.

    Return its standard output, if it ``tells`` something; else that is part of its last words. The container has a
    name, because ending Docker's client does not end a container.
    """
    name = f"{CHECK_PROJECT}-{os.getpid()}-{time.monotonic_ns()}"
    command = [
        "docker", "run", "--rm", "--init", "--name", name, *label_options(CHECK_PROJECT), "--network", "none",
        "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", *options,
        "--entrypoint", "python3", image, *words,
    ]  # fmt: skip
    with tempfile.TemporaryFile() as told:
        try:
            run_command(command, what, problem, say, within_s=LOADED_WITHIN_S + 60, told=told if tells else None)
        except BaseException:
            with uninterrupted():
                HERE.told("rm", "--force", name)
            raise
        told.seek(0)
        return told.read()


def build_own_image(layer: Layer, service: str, factors: Mapping[str, str], say: Say) -> str:
    """Build the image of an application, if it is missing, on an image that exists or has Python. Return its name.

    ``LAB_FURTHER`` of the factors is a server that the layer lacks, as pip names it. Raise LabError if an image that
    exists lacks what the lab needs.
    """
    name, say = LabImage(service, (), factors).name, _saying_masked(say, layer)
    further = factors.get("LAB_FURTHER", "")
    options: list[str] = []
    if layer.image:
        _pull(layer.image, say)
        under = inspected(layer.image)
        config, what = under["Config"], f"a layer on {layer.image}"
        runs_as = (config.get("User") or "").partition(":")[0]
        if runs_as in ("", "0", "root"):
            runs_as = LAB_USER
            say(f"{layer.image} runs as root; the lab runs it as the user {LAB_USER}, who has no rights.")
        arguments = {"IMAGE": layer.image, "FOLDER": config.get("WorkingDir") or "/", "RUNS_AS": runs_as}
    else:
        compiled = layer.server[0] == "uwsgi" or "-uwsgi-" in factors["LAB_USER_SERVICE"]
        server = LabImage("uwsgi", ("python/uwsgi",)) if compiled else BESIDE_SERVERS["client"]
        build_images([server], say)
        under, arguments = inspected(server.name), {"SERVER": server.name, "FURTHER": further}
        what = f"the image of your application with {further.replace('==', ' ') or ' '.join(layer.server)}"
        options = ["--secret", f"id=ca_bundle,src={ca_bundle()}"]
    if label(name, INPUTS) == under["Id"]:
        return name
    if layer.image:
        words = ["-c", program_text("image/check.py"), *layer.server]
        problem = f"The image {layer.image} cannot be measured."
        _run_once([], layer.image, words, f"checking {layer.image}", problem, say)
    say(f"Building {what} …")
    began = time.monotonic()
    stated = [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    command = ["docker", "buildx", "build", "--load", "--tag", name, *stated, "--label", f"{INPUTS}={under['Id']}",
               *options, str(layer.folder)]  # fmt: skip
    problem = f"{what[0].upper()}{what[1:]} could not be built."
    try:
        run_command(command, f"building {what}", problem, say, lines=MOST_LINES)
    except LabError as error:
        raise not_built(problem, error.hint) from None
    say(f"Built it in {time.monotonic() - began:.0f} s.")
    return name


def command_of_image(image: str, say: Say) -> str:
    """Return the command that an image starts by itself. Raise WrongUse if it starts none."""
    _pull(image, say)
    config = inspected(image)["Config"]
    words = [*(config.get("Entrypoint") or ()), *(config.get("Cmd") or ())]
    if not words:
        raise WrongUse(f"The image {image} has no command of its own.", hint="Write application.command.")
    return shlex.join(words)


def _pull(image: str, say: Say, of: str = "") -> None:
    """Pull an image that the lab does not build, if it is missing. Raise LabError if this fails."""
    if not inspected(image):
        say(f"Pulling {image} …")
        problem = f"The image {image}{of} could not be pulled."
        run_command(["docker", "pull", "--quiet", image], f"pulling {image}", problem, say)


def not_built(problem: str, said: str) -> LabError:
    """Return why the image of an application could not be built, from what the build printed at its end."""
    if unknown := [*dict.fromkeys(filter(None, chain(*_NO_PACKAGE.findall(said))))]:
        missing = f"application.system_packages: Debian has no package {' and no package '.join(unknown)}."
        return WrongUse(missing, _NAMES_OF_PACKAGES)
    ended, *lines = said.splitlines()
    before, failed, _ = said.partition("subprocess-exited-with-error")
    packages = re.findall(r"(?:Collecting|Building wheel for) ([^\s(]+)", before) if failed else []
    stopped = [f"pip could not prepare {packages[-1]}."] if packages else []
    return LabError(problem, "\n".join(filter(None, [*stopped, way_to_compile(said), ended, *lines[-LAST_LINES:]])))
